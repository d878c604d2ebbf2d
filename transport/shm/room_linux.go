package shm

import (
	"fmt"

	"github.com/gorun-mpi/mpi/internal/meminfo"
)

// The kernel may kill processes to find memory for fallocate. So this package does not request memory that is plainly
// not there.

// checkRoom returns an error if n bytes are more than this process may still have.
func checkRoom(what string, n int) error {
	if free, why := meminfo.Left(); int64(n) > free {
		return noRoom(what, n, fmt.Errorf("only %d bytes are available (%s)", free, why))
	}
	return nil
}
