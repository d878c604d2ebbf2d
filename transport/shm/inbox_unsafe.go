//go:build linux

package shm

import (
	"sync/atomic"
	"unsafe"
)

// inbox is a page that its owner reads and every peer that sends to it writes.
//
// A ring is polled (its owner reads it in every poll, and the sender touches
// nothing here) or armed (the sender marks it in the doorbell bitmap after
// publishing). The bitmap has two levels: ring r is bit r%64 of bitmap[r/64],
// and that word is bit r/64 of summary.
type inbox struct {
	// state is the word that the owner sleeps on; see the st constants. Only the owner makes it non-zero. A sender that
	// wants to wake the owner changes it to stIdle; the sender whose change succeeds wakes it.
	state atomic.Uint32
	_     [60]byte
	_     [64]byte

	summary atomic.Uint64
	_       [56]byte
	_       [64]byte

	bitmap [64]atomic.Uint64
}

// The values of state.
const (
	stIdle   = 0 // no sleeper needs waking: the rank polls, or has nothing under way
	stFutex  = 1 // armed; wake for every packet, by futex: a thread sleeps on this word or is about to
	stThread = 2 // as stFutex, by the second doorbell: the thread sleeps on the descriptors of several devices
	stAny    = 3 // armed; wake for every packet, by the first doorbell: a goroutine sleeps
	stUrgent = 4 // armed; wake for urgent packets only, by the first doorbell
)

const inboxSize = 4096

// maxRings is how many rings the bitmap distinguishes. Ring numbers beyond share bits; a poll then reads each of them.
const maxRings = 64 * 64

func inboxOf(mem []byte) *inbox { return (*inbox)(unsafe.Pointer(&mem[0])) }

// mark sets ring r's bit in the doorbell bitmap.
func (b *inbox) mark(r uint32) {
	w := r / 64 % 64
	if bit := uint64(1) << (r % 64); b.bitmap[w].Load()&bit == 0 {
		b.bitmap[w].Or(bit)
	}
	// Also if the bit above was set. The owner clears the summary first and the words after: either it is about to
	// clear that bit, and then reads the ring and sees the packet, or it finds the bit through the summary.
	if bit := uint64(1) << w; b.summary.Load()&bit == 0 {
		b.summary.Or(bit)
	}
}

// addressOf is for the kernel's system calls only.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
