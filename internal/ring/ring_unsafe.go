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
