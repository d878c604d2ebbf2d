package agree

import (
	"maps"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Each communicator has a number, which is the same at all of its ranks, and no other communicator of one of these
// ranks has it at that time. Its messages have one of the contexts number*contextsEach + ctx….
const (
	CtxMessages   = iota // the callers' messages
	CtxCollective        // the library's, of calls that all ranks make in the same order
	ctxCreate            // what some of the ranks say to make another communicator; the tags are callers'
	CtxFlush             // the last message of a link before numbers are used again

	ContextsEach
)

// SmallNumbers: the contexts of numbers below this one fit into the 16 bits that devices compare which match tags. They
// are used again; those beyond are not. The number itself fits too. It is no communicator's: control is its context, on
// which the library speaks whatever has become of communicators.
const (
	SmallNumbers = 1<<16/ContextsEach - 1
	control      = SmallNumbers * ContextsEach
)

// ContextIDs are the numbers of communicators that this rank uses. 0 is the world's.
//
// A small number is free, in use, or late: its communicator has been freed here, and messages of it may still come. A
// late number becomes free when all ranks that could have sent on it have freed it too and have nothing under way: see
// Exchange.recycle. So a message never meets a communicator that has the number of its own and is another. While there
// are numbers that have never been used none needs to become free.
type ContextIDs struct {
	Mu    sync.Mutex
	Small uint32 // smallNumbers, or less in a test
	// Taken has the small numbers that are not free: in use, or late. Of the others it has those in use.
	Taken map[uint32]Late
	lates uint64     // numbers that have become late, ever
	high  uint32     // the highest number taken that is not small
	last  *ranks.Set // the senders of the last number that has become late: most of them have the same

	// outcomes has whether there is a communicator with a number that this rank has claimed last: see vote.go.
	outcomes map[uint32]outcome
	known    map[uint32]known // communicators, by their numbers: see Describe
}

// known is what a user who asks what a rank does is told of a communicator. It keeps no communicator in memory.
type known struct {
	label *atomic.Pointer[string]
	calls weak.Pointer[atomic.Uint32]
}

// MakeKnown lets Describe say the name of g. calls counts the collective calls on it.
func (g *Group) MakeKnown(calls *atomic.Uint32) {
	x := g.Numbers
	x.Mu.Lock()
	defer x.Mu.Unlock()
	x.known[g.Context/ContextsEach] = known{g.label, weak.Make(calls)}
}

// Describe returns the name of the communicator that has a context, and how many collective calls this rank has made on
// it; "": it has been freed.
func (x *ContextIDs) Describe(context uint32) (name string, calls uint32) {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	k, ok := x.known[context/ContextsEach]
	label := k.label
	if !ok || label.Load() == nil {
		return "", 0
	}
	if n := k.calls.Value(); n != nil {
		calls = n.Load()
	}
	return *label.Load(), calls
}

// Late is a number whose communicator has been freed, if senders is not nil.
type Late struct {
	senders *ranks.Set // that could have sent on it
	since   uint64     // ContextIDs.lates at that time
}

// Is reports whether the number is late; otherwise it is in use.
func (l Late) Is() bool { return l.senders != nil }

// outcomesKept is how many outcomes of numbers that are not small are kept at least, the latest: such a number is never
// used again, and no rank asks for the outcome of one long ago.
const outcomesKept = 1 << 12

// NewContextIDs has the world's number taken.
func NewContextIDs() *ContextIDs {
	return &ContextIDs{Small: SmallNumbers, Taken: map[uint32]Late{0: {}}, outcomes: map[uint32]outcome{},
		known: map[uint32]known{}}
}

// Reserve returns the lowest free number that is not below want, and takes it if it is want.
func (x *ContextIDs) Reserve(want uint32) uint32 {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	id := want
	for id < x.Small {
		if _, taken := x.Taken[id]; !taken {
			if id == want {
				x.Taken[id] = Late{}
				delete(x.outcomes, id)
			}
			return id
		}
		id++
	}
	if id = max(id, x.high+1); id == SmallNumbers {
		id++
	}
	if id == want {
		x.high = id
		x.Taken[id] = Late{}
		x.forget()
	}
	return id
}

// TakeLast takes a number for a communicator that other ranks know nothing of: the last small one if it is free, which
// no rank asks for before it has had all others.
func (x *ContextIDs) TakeLast() uint32 { return x.take(x.Small - 1) }

// take takes the lowest free number that is not below want.
func (x *ContextIDs) take(want uint32) uint32 {
	for {
		id := x.Reserve(want)
		if id == want {
			return id
		}
		want = id
	}
}

// Idle reports whether no communicator of this rank has a number, apart from the world.
func (x *ContextIDs) Idle() bool {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	for id, l := range x.Taken {
		if id != 0 && !l.Is() {
			return false
		}
	}
	return true
}

// claimed reports whether a number is taken, and its communicator has not been freed here.
func (x *ContextIDs) claimed(id uint32) bool {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	l, taken := x.Taken[id]
	return taken && !l.Is()
}

// forget forgets old outcomes of numbers that are not small, if there are too many.
func (x *ContextIDs) forget() {
	if uint64(len(x.outcomes)) < uint64(x.Small)+2*outcomesKept {
		return
	}
	maps.DeleteFunc(x.outcomes, func(id uint32, _ outcome) bool { return id >= x.Small && id+outcomesKept < x.high })
}

// Release gives a number back: no message has been sent with it if senders is nil, else these ranks may have.
func (x *ContextIDs) Release(id uint32, senders *ranks.Set) {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	delete(x.known, id)
	switch {
	case id >= x.Small || senders == nil:
		delete(x.Taken, id)
	default:
		if x.last == nil || !senders.Equal(x.last) {
			x.last = senders
		}
		x.lates++
		x.Taken[id] = Late{x.last, x.lates}
	}
}

// Usable has a bit for each small number that is free, or is late by ranks of members alone. then is when that was so,
// for free.
func (x *ContextIDs) Usable(members *ranks.Set) (bits []byte, then uint64) {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	bits = make([]byte, (x.Small+7)/8)
	for i := range bits {
		bits[i] = 0xff
	}
	for id, l := range x.Taken {
		if id < x.Small && (!l.Is() || !l.senders.Within(members)) {
			bits[id/8] &^= 1 << (id % 8)
		}
	}
	return bits, x.lates
}

// Free makes numbers free that have a bit and were late then; one that has become late since has been another
// communicator's. reuse is called for each before another goroutine can claim it.
func (x *ContextIDs) Free(bits []byte, then uint64, reuse func(id uint32)) {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	for id, l := range x.Taken {
		if l.Is() && id < x.Small && l.since <= then && bits[id/8]>>(id%8)&1 != 0 {
			reuse(id)
			delete(x.Taken, id)
		}
	}
}
