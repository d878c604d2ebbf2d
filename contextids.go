package mpi

import "sync"

// Each communicator has a number, which is the same at all of its ranks, and no other communicator of one of these
// ranks has it at that time. Its messages have one of the contexts number*contextsEach + ctx….
const (
	ctxMessages   = iota // those of callers
	ctxCollective        // the library's, of calls that all ranks make in the same order
	ctxCreate            // what some of the ranks say to make another communicator; the tags are callers'
	ctxFlush             // the last message of a link before numbers are used again

	contextsEach
)

// smallNumbers: the contexts of numbers below this one fit into the 16 bits that devices which match tags compare. They
// are used again; those beyond are not.
const smallNumbers = 1 << 16 / contextsEach

// contextIDs are the numbers of communicators that this rank uses. 0 is the world's.
//
// A small number is free, in use, or late: its communicator has been freed here, and messages of it may still come. A
// late number becomes free when all ranks that could have sent on it have freed it too and have nothing under way: see
// meeting.recycle. So a message never meets a communicator that has the number of its own and is another. While there
// are numbers that have never been used none needs to become free.
type contextIDs struct {
	mu    sync.Mutex
	small uint32 // smallNumbers, or less in a test
	// taken has the small numbers that are not free: in use (nil), or late (the ranks that could have sent).
	taken map[uint32]*ranks
	high  uint32 // the highest number taken that is not small
}

func newContextIDs() *contextIDs {
	return &contextIDs{small: smallNumbers, taken: map[uint32]*ranks{0: nil}}
}

// claim returns the lowest free number that is not below want, and takes it if it is want.
func (x *contextIDs) claim(want uint32) uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := want
	for id < x.small {
		if _, taken := x.taken[id]; !taken {
			if id == want {
				x.taken[id] = nil
			}
			return id
		}
		id++
	}
	id = max(id, x.high+1)
	if id == want {
		x.high = id
	}
	return id
}

// release gives a number back: no message has been sent with it if senders is nil, else these ranks may have.
func (x *contextIDs) release(id uint32, senders *ranks) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case id >= x.small:
	case senders == nil:
		delete(x.taken, id)
	default:
		x.taken[id] = senders
	}
}

// usable has a bit for each small number that is free, or is late by ranks of members alone.
func (x *contextIDs) usable(members *ranks) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	bits := make([]byte, (x.small+7)/8)
	for i := range bits {
		bits[i] = 0xff
	}
	for id, senders := range x.taken {
		if senders == nil || !senders.within(members) {
			bits[id/8] &^= 1 << (id % 8)
		}
	}
	return bits
}

// free makes late numbers free that have a bit.
func (x *contextIDs) free(bits []byte) (freed []uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, senders := range x.taken {
		if senders != nil && bits[id/8]>>(id%8)&1 != 0 {
			delete(x.taken, id)
			freed = append(freed, id)
		}
	}
	return freed
}
