// Testprog is the smallest rank there is: it joins, waits in a barrier and ends, and prints its peak memory. It is no
// test binary, because the size of that would be measured too.
//
//	Owns:     nothing
//	May call: mpi, /proc
//	Never:    import a test kit
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/gorun-mpi/mpi"
)

func main() {
	mpi.Main(func(_ context.Context, world *mpi.Comm) error {
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		fmt.Printf("rank %d of %d: peak %s\n", world.Rank(), world.Size(), peak())
		return nil
	})
}

// peak is VmHWM in kB, or "unknown" where there is no /proc.
func peak() string {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			return strings.TrimSpace(strings.TrimSuffix(v, "kB"))
		}
	}
	return "unknown"
}
