package ring

import (
	"sync/atomic"
	"unsafe"
)

// Slot holds one packet. seq publishes it; W is the caller's.
type Slot struct {
	seq atomic.Uint64
	W   [SlotWords - 1]uint64
}

// Bytes is the slot's memory from word i of W on.
func (s *Slot) Bytes(i int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&s.W[i])), SlotSize-8-8*i)
}

// Control is written by the consumer, but for its second line.
type Control struct {
	head  atomic.Uint64 // slots released
	armed atomic.Uint32 // 1: the consumer does not poll this ring; the producer signals it when something is in it

	// revoked is 1 when the producer may not touch the memory of the consumer's process any more; access while it does
	// so. The producer sets access and then reads revoked, the consumer sets revoked and then reads access: so either
	// the producer does not begin or the consumer sees it.
	revoked atomic.Uint32
	_       [ControlSize/2 - 16]byte

	// What follows is the producer's, and the consumer reads it when it stores head.
	access atomic.Uint32
	wanted atomic.Uint32 // 1: the producer has found no room; the consumer signals it when head changes
	_      [ControlSize/2 - 8]byte
}

// aligned reports whether mem, which is not empty, begins where a slot may.
func aligned(mem []byte) bool { return uintptr(unsafe.Pointer(&mem[0]))%Align == 0 }

// view casts mem, which has been checked to be g.Size() long and aligned.
func view(mem []byte, g Geometry) (*Control, []Slot) {
	return (*Control)(unsafe.Pointer(&mem[0])), unsafe.Slice((*Slot)(unsafe.Pointer(&mem[ControlSize])), g.Slots)
}

// maxPrefetch bounds the lines that a reader prefetches: it copies them next.
const maxPrefetch = 32

// PrefetchWSlot prefetches the second line of the next slot, which the consumer had last, for writing. The caller does
// so after a Publish that used that line: the next message is likely to be like this one, and its stores then need not
// wait.
func (p *Producer) PrefetchWSlot() {
	prefetchW(unsafe.Pointer(&p.slots[p.next&p.mask].W[SlotWords/2-1]), 1)
}

// In a burst of messages both sides prefetch their slots, so that neither waits for a line that the other one has:
// those of the group after the one that begins. One side alone makes it slower: what it takes too early the other one
// has to get back. docs/decisions/short-messages.md has the figures.
const slotGroup = 4 // as many as prefetchSlots and prefetchSlotsW do

// PrefetchWSlots prefetches slots that the producer will write some messages later, after each group.
func (p *Producer) PrefetchWSlots() {
	if p.next%slotGroup == 0 {
		prefetchSlotsW(unsafe.Pointer(&p.slots[(p.next+slotGroup)&p.mask]))
	}
}

// PrefetchSlots prefetches slots that the consumer will read some messages later, after each group.
func (c *Consumer) PrefetchSlots() {
	if c.pos%slotGroup == 0 {
		prefetchSlots(unsafe.Pointer(&c.slots[(c.pos+slotGroup)&c.mask]))
	}
}

// Prefetch prefetches the beginning of a payload that the consumer is about to read.
func Prefetch(mem []byte) {
	if len(mem) > 0 {
		prefetch(unsafe.Pointer(&mem[0]), min((len(mem)+Align-1)/Align, maxPrefetch))
	}
}

// PrefetchW prefetches the beginning of memory that the caller will write next.
func PrefetchW(mem []byte) {
	if len(mem) > 0 {
		prefetchW(unsafe.Pointer(&mem[0]), min((len(mem)+Align-1)/Align, maxPrefetch))
	}
}

// Stream is copy(dst, src), where dst is what AllocSmall or AllocBulk has returned for len(src) bytes, by stores that
// go past the caches: no line has to come from the consumer's cache first. The consumer has them from memory.
func Stream(dst, src []byte) {
	lines := 0
	if streams && len(src) >= Align {
		lines = min(len(dst), len(src)) / Align
		stream(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), lines)
	}
	copy(dst[lines*Align:], src[lines*Align:])
}

// PrefetchWSmall prefetches what AllocSmall(n) would return next, for writing.
func (p *Producer) PrefetchWSmall(n int) {
	if at := p.small.at; at < uint64(len(p.small.mem)) {
		prefetchW(unsafe.Pointer(&p.small.mem[at]), min((n+Align-1)/Align, (len(p.small.mem)-int(at))/Align))
	}
}
