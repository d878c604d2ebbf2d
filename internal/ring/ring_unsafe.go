package ring

import (
	"sync/atomic"
	"unsafe"
)

// Slot is one entry. Seq publishes; W is the caller's.
type Slot struct {
	seq atomic.Uint64
	W   [SlotWords - 1]uint64
}

// Bytes is the slot's memory from word i of W on.
func (s *Slot) Bytes(i int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&s.W[i])), SlotSize-8-8*i)
}

// Control is written by the consumer.
type Control struct {
	head atomic.Uint64 // slots released
	cold atomic.Uint32 // 1: the consumer does not look at this ring until it is told that something is in it
	_    [ControlSize - 12]byte
}

// aligned reports whether mem, which is not empty, begins where a slot may.
func aligned(mem []byte) bool { return uintptr(unsafe.Pointer(&mem[0]))%Align == 0 }

// view casts mem, which has been checked to be g.Size() long and aligned.
func view(mem []byte, g Geometry) (*Control, []Slot) {
	return (*Control)(unsafe.Pointer(&mem[0])), unsafe.Slice((*Slot)(unsafe.Pointer(&mem[ControlSize])), g.Slots)
}

// maxOwn bounds what is asked for ahead: more than the processor can have under way only gets in its own way.
const maxOwn = 32

// OwnSlot fetches the second line of the next slot, which the consumer had last. Called after a Publish that used it:
// the next message is likely to be like this one, and its stores then need not wait.
func (p *Producer) OwnSlot() {
	own(unsafe.Pointer(&p.slots[p.next&p.mask].W[SlotWords/2-1]), 1)
}

// Fetch asks for the beginning of what the producer has written, which is about to be read.
func Fetch(mem []byte) {
	if len(mem) > 0 {
		fetch(unsafe.Pointer(&mem[0]), min((len(mem)+Align-1)/Align, maxOwn))
	}
}

// OwnSmall fetches what AllocSmall(n) would return next.
func (p *Producer) OwnSmall(n int) {
	at := p.small.pos % uint64(len(p.small.mem))
	own(unsafe.Pointer(&p.small.mem[at]), min((n+Align-1)/Align, maxOwn, (len(p.small.mem)-int(at))/Align))
}
