//go:build linux

package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gorun-mpi/mpi/internal/ring"
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
	_      [256]byte

	owner  owner
	_      [1024 - unsafe.Sizeof(owner{})]byte
	claims [maxClaims]atomic.Uint32
}

// owner is what the owner of an inbox says of itself in New, before any peer can see it. Peers read it once.
type owner struct {
	token  [16]byte // the same as in the owner's address: no other process's memory is taken for this
	rank   uint32
	rings  uint32 // how many there are for peers to claim, behind the inbox
	geo    [3]uint32
	closed atomic.Uint32 // the device is closed: no ring is in use, or will be
	probe  uint64        // an address in the owner, and the value there
	value  [8]byte
	bells  [2]bell // the goroutine's, and the thread's
}

// bell is a descriptor of its owner's, and the inode of the pipe that it is.
type bell struct{ fd, inode uint64 }

// A claim says to whom one of the rings behind an inbox belongs: rank + 1, with a flag, or 0 for no rank. The sender
// changes 0 to making, and that to its bare rank. The owner changes 0 to barred, for a rank that is gone. No claim
// ends.
//
// A rank that claims looks for a bar, or the owner's end, after its claim; the owner looks for a claim after it has
// barred the rank or closed. So one of them sees the other.
const (
	making = 1 << 31 // the ring is not ready yet
	barred = 1 << 30 // that rank may have none

	claimant = barred - 1
)

// maxClaims is how many ranks reach an inbox directly; more of a host go by the socket.
const maxClaims = 512

// claim finds a ring for rank, or the one that an earlier attempt has left in the making.
func (b *inbox) claim(rank, rings int) (k int, ok bool) {
	me := uint32(rank + 1)
	if k = -1; b.refuses(rank, rings) {
		return k, false
	}
	for i := range rings {
		if c := b.claims[i].Load(); c == me|making {
			k = i
		}
	}
	for i := 0; i < rings && k < 0; i++ {
		if at := (rank + i) % rings; b.claims[at].CompareAndSwap(0, me|making) {
			k = at
		}
	}
	return k, k >= 0 && !b.refuses(rank, rings)
}

// refuses reports whether rank may have no ring, or has one.
func (b *inbox) refuses(rank, rings int) bool {
	if b.owner.closed.Load() != 0 {
		return true
	}
	for i := range rings {
		if c := b.claims[i].Load(); c&claimant == uint32(rank+1) && c&making == 0 {
			return true
		}
	}
	return false
}

// claimed returns the ring that rank has claimed, ready or not; -1: none.
func (b *inbox) claimed(rank, rings int) int {
	for i := range rings {
		if c := b.claims[i].Load(); c&claimant == uint32(rank+1) && c&barred == 0 {
			return i
		}
	}
	return -1
}

// bar sees to it that rank claims no ring from now on. It returns the one that rank has claimed before, or -1. Where
// there is no free claim left, rank finds none either.
func (b *inbox) bar(rank, rings int) int {
	bar := uint32(rank+1) | barred
	for i := range rings {
		if b.claims[i].Load() == bar || b.claims[i].CompareAndSwap(0, bar) {
			break
		}
	}
	return b.claimed(rank, rings)
}

// letter is what the sender of a claimed ring says of itself, between the ring's slots and its small area.
type letter struct {
	cut   atomic.Uint32 // the sender has ended the connection
	met   atomic.Uint32 // the receiver's word, the only one here: it has the sender's inbox, and can tell of room
	reach reach         // what follows does not change once the claim is ready
	len   uint32        // of the card
	card  [maxCard]byte
}

// reach is where a process of this host has its inbox.
type reach struct {
	pid, fd uint32
	token   [16]byte
}

// letterOf is nil for a geometry without room, which no device of this package has.
func letterOf(mem []byte, g ring.Geometry) *letter {
	at := g.SmallAt() - int(unsafe.Sizeof(letter{}))&^7 - 8
	if at < ring.ControlSize+g.Slots*ring.SlotSize {
		return nil
	}
	return (*letter)(unsafe.Pointer(&mem[at]))
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
