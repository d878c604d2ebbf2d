//go:build linux

package shm

import (
	"sync/atomic"
	"unsafe"
)

// inbox is a page that its owner reads and every peer that sends to it writes.
//
// A ring is hot (its owner looks at it in every poll; nothing here is touched)
// or cold (the sender sets its bit after publishing). Ring r has bit r%64 of
// bits[r/64], and that word has bit r/64 of summary.
type inbox struct {
	// state is the word the owner sleeps on; see the st constants. Only the owner makes it non-zero; a sender that wants
	// to wake the owner changes it to stIdle first and is then the one that must do the waking.
	state atomic.Uint32
	_     [60]byte
	_     [64]byte

	summary atomic.Uint64
	_       [56]byte
	_       [64]byte

	bits [64]atomic.Uint64
}

const (
	stIdle   = 0 // no sleeper needs waking: the rank polls, or has nothing under way
	stFutex  = 1 // armed; wake for every packet, by futex: a thread sleeps on this word or is about to
	stThread = 2 // as stFutex, by the second eventfd: the thread sleeps on the descriptors of several devices
	stAny    = 3 // armed; wake for every packet, by the first eventfd: a goroutine sleeps
	stUrgent = 4 // armed; wake for urgent packets only, by the first eventfd
)

const inboxSize = 4096

// maxRings is what the bitmap addresses; ring numbers beyond share bits, which costs a look at each of them.
const maxRings = 64 * 64

func inboxOf(mem []byte) *inbox { return (*inbox)(unsafe.Pointer(&mem[0])) }

// mark notes that ring r has something.
func (b *inbox) mark(r uint32) {
	w := r / 64 % 64
	if bit := uint64(1) << (r % 64); b.bits[w].Load()&bit == 0 {
		b.bits[w].Or(bit)
	}
	// Always stored: the owner clears the summary first and the words after, so a bit that we found set may be
	// the very one it is about to clear, with our packet seen, or one it will find through the summary.
	if bit := uint64(1) << w; b.summary.Load()&bit == 0 {
		b.summary.Or(bit)
	}
}

// addressOf is for the kernel's system calls only.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
