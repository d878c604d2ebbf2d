package board

import (
	"sync/atomic"
	"unsafe"

	"github.com/gorun-mpi/mpi/transport"
)

// head is what a board has once. Members look at sleepers in each Raise, and write it when they sleep. They write
// failed when they look at it: so it is in another line of the cache.
type head struct {
	sleepers atomic.Uint32 // how many awaits are not 0, or about to be so
	_        [60]byte
	failed   atomic.Uint64 // the first member that has failed, plus 1; above 32 bits who says so and why, plus 1, or 0
	_        [56]byte
}

// end is what a board has for each member.
type end struct {
	awaits atomic.Uint32 // the line for which the member sleeps, plus 1; 0: it is awake. It alone writes this
	says   uint32        // how many bytes of why
	writes atomic.Uint32 // the member into whose memory it writes, plus 1; 0: none. It alone writes this
	_      uint32
	card   [CardSize]byte
	why    [transport.WhyMost]byte // what it says of a failure, before that is in head.failed; it alone writes this
}

// CardSize is how much a member can say of itself.
const CardSize = 56

const (
	headSize = int(unsafe.Sizeof(head{}))
	endSize  = int(unsafe.Sizeof(end{}))
	lineSize = int(unsafe.Sizeof(transport.Line{}))
)

func headOf(mem []byte) *head { return (*head)(unsafe.Pointer(&mem[0])) }

func endOf(mem []byte, i int) *end { return (*end)(unsafe.Pointer(&mem[headSize+i*endSize])) }

func lineOf(mem []byte, members, i int) *transport.Line {
	return (*transport.Line)(unsafe.Pointer(&mem[linesAt(members)+i*lineSize]))
}

// Heap is memory of so many bytes for a board of one process.
func Heap(bytes int) []byte {
	words := make([]uint64, (bytes+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), bytes)
}
