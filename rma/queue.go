package rma

import "slices"

// Queue is the lock of one rank of a window, at that rank, where other ranks ask for it by message. It is fair: ranks
// get the lock in the order in which they ask, and a row of shared requests gets it together. A rank may ask again
// before it has what it asked for, since it may have given that up: it then lets go of it when it gets it.
type Queue struct {
	held    map[int32]int // how many times a rank has the lock. Invariant: not empty ⇔ mode is not Unlocked
	mode    Mode
	waiting []Asked // oldest first
}

// Asked is a request for the lock.
type Asked struct {
	Rank, Slot int32 // who asks, and the tag of the answer
	Mode       Mode
	// First: the request, for a shared lock, passes those that are not First. It is of LockAll, whose rank may have
	// other locks: if it waited behind a request for an exclusive lock, that could wait for a rank which waits for this
	// one.
	First bool
}

// asksMost is how many requests of one rank wait at most.
const asksMost = 2 * AsksMost

// Ask is called when a rank asks for the lock. It reports whether the request can be: if not, nothing has
// changed.
func (q *Queue) Ask(a Asked) bool {
	n := 0
	for _, w := range q.waiting {
		if w.Rank == a.Rank {
			n++
		}
	}
	if a.Mode != Shared && (a.Mode != Exclusive || a.First) || n >= asksMost {
		return false
	}
	at := len(q.waiting)
	if a.First {
		for at = 0; at < len(q.waiting) && q.waiting[at].First; at++ {
		}
	}
	q.waiting = slices.Insert(q.waiting, at, a)
	return true
}

// Grant gives the lock to the request that has waited longest, if that can be. The caller tells its rank, and calls
// Grant again.
func (q *Queue) Grant() (a Asked, ok bool) {
	if len(q.waiting) == 0 || q.mode == Exclusive || q.mode == Shared && q.waiting[0].Mode == Exclusive {
		return a, false
	}
	a = q.waiting[0]
	if q.waiting = slices.Delete(q.waiting, 0, 1); q.held == nil {
		q.held = map[int32]int{}
	}
	q.held[a.Rank]++
	q.mode = a.Mode
	return a, true
}

// Refuse returns the requests that wait, and forgets them.
func (q *Queue) Refuse() (waiting []Asked) {
	waiting, q.waiting = q.waiting, nil
	return waiting
}

// Leave is called when a rank lets the lock go, once. It reports whether the rank has had it.
func (q *Queue) Leave(rank int32) bool {
	n := q.held[rank]
	switch {
	case n == 0:
		return false
	case n == 1:
		delete(q.held, rank)
	default:
		q.held[rank]--
	}
	if len(q.held) == 0 {
		q.mode = Unlocked
	}
	return true
}

// Failed is called when a rank has failed. It reports whether the rank had the lock: what it has left behind may be
// half done, and nobody gets the lock any more. Those that wait are returned then, and Ask's next are the caller's to
// refuse.
func (q *Queue) Failed(rank int32) (waiting []Asked, had bool) {
	q.waiting = slices.DeleteFunc(q.waiting, func(a Asked) bool { return a.Rank == rank })
	if q.held[rank] == 0 {
		return nil, false
	}
	return q.Refuse(), true
}
