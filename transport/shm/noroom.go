package shm

import (
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// NoRoomError says how much shared memory was needed.
type NoRoomError struct {
	What  string
	Bytes int
	Err   error
}

func (e *NoRoomError) Error() string {
	or := ""
	if e.What == "ring" || e.What == "inbox" { // and not memory whose length the program has chosen
		or = " or set GORUN_SHM_RING lower"
	}
	return fmt.Sprintf("shm: no room for %d bytes of shared memory (%s): %v; raise the memory limit of the job "+
		"(cgroup memory.max, ulimit -f, ulimit -v)%s", e.Bytes, e.What, e.Err, or)
}

func (e *NoRoomError) Unwrap() []error { return []error{transport.ErrNoMemory, e.Err} }
