package gpu

import (
	"slices"
	"sync"
	"syscall"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/memfile"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Memory of the host for copies: mapped apart from the Go heap and pinned, so that devices copy at full speed. Pinning
// takes milliseconds, so what has been pinned is kept, up to a bound. It is not memory of mpi.Alloc, which is on the Go
// heap under RunLocal, and is unmapped by Finalize.

const (
	stageLeast  = 64 << 10
	stageStep   = 2 << 20   // sizes beyond this are multiples of it; others are powers of two
	stagesIdle  = 256 << 20 // bytes that are kept while no call uses them
	pageAtLeast = 4 << 10
)

// stage is pinned memory that one call uses.
type stage struct {
	driver accel.Driver
	mem    []byte
}

// stages are those that no call uses.
var stages struct {
	mu    sync.Mutex
	idle  []stage // the one that was used last at the end
	bytes int64
}

// take returns at least n bytes, whatever is in them. They are the caller's until giveBack.
func take(d accel.Driver, n int64) (stage, *mpi.Error) {
	if s, ok := takeIdle(d, n); ok {
		return s, nil
	}
	size := stageSize(n)
	mem, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return stage{}, mpierr.New("", mpi.ErrNoMemory, "mapping %d bytes of the host to copy through: %w", size, err)
	}
	for i := 0; i < len(mem); i += pageAtLeast {
		mem[i] = 0 // pinning what has been touched takes a tenth of the time
	}
	if err := d.Pin(mem); err != nil {
		syscall.Munmap(mem)
		return stage{}, mpierr.New("", mpi.ErrNoMemory, "pinning %d bytes of the host to copy through: %w", size, err)
	}
	return stage{d, mem}, nil
}

// takeIdle takes the smallest idle stage that is large enough.
func takeIdle(d accel.Driver, n int64) (stage, bool) {
	stages.mu.Lock()
	defer stages.mu.Unlock()
	best := -1
	for i, s := range stages.idle {
		if s.driver == d && int64(len(s.mem)) >= n && (best < 0 || len(s.mem) < len(stages.idle[best].mem)) {
			best = i
		}
	}
	if best < 0 {
		return stage{}, false
	}
	s := stages.idle[best]
	stages.idle = slices.Delete(stages.idle, best, best+1)
	stages.bytes -= int64(len(s.mem))
	return s, true
}

func stageSize(n int64) int64 {
	if n > stageStep {
		return (n + stageStep - 1) / stageStep * stageStep
	}
	size := int64(stageLeast)
	for size < n {
		size *= 2
	}
	return size
}

// nothing is memory without contents for calls that this rank takes part in without its elements: its bytes lie in one
// place again and again, so that it takes no memory as long as a message. All such calls write there at the same time.
// It stays mapped: a call may go on when its context has ended.
var nothing struct {
	mu  sync.Mutex
	mem []byte
}

// takeNothing returns n bytes of nothing.
func takeNothing(n int64) ([]byte, error) {
	nothing.mu.Lock()
	defer nothing.mu.Unlock()
	if int64(len(nothing.mem)) < n {
		size := int64(stagesIdle)
		for size < n {
			size *= 2 // what was mapped before takes addresses, and is not used any more
		}
		mem, err := memfile.Repeat(int(size))
		if err != nil {
			return nil, err
		}
		nothing.mem = mem
	}
	return nothing.mem[:n:n], nil
}

// giveBack ends the caller's use of s: no copy touches it any more.
func (s stage) giveBack() {
	if s.mem == nil {
		return
	}
	stages.mu.Lock()
	defer stages.mu.Unlock()
	stages.idle = append(stages.idle, s)
	stages.bytes += int64(len(s.mem))
	for stages.bytes > stagesIdle {
		dropStage(0)
	}
}

// dropStage unpins the idle stage i. The caller holds the lock.
func dropStage(i int) {
	s := stages.idle[i]
	stages.idle = slices.Delete(stages.idle, i, i+1)
	stages.bytes -= int64(len(s.mem))
	if s.driver.Unpin(s.mem) == nil { // else a device may reach it still: it stays mapped
		syscall.Munmap(s.mem)
	}
}
