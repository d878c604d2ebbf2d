package gpu

import (
	"testing"

	"github.com/gorun-mpi/mpi"
)

// That Put and Get take two kinds of buffers costs no allocation.
func TestBuffersAllocateNothing(t *testing.T) {
	w := &Win[int64]{winState: &winState[int64]{}}
	host, device := make([]int64, 3), Slice[int64]{}
	if n := testing.AllocsPerRun(100, func() {
		must(Put(w, host, mpi.ProcNull, 0))
		must(Get(w, device, mpi.ProcNull, 0))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
