package pml

import (
	"fmt"
	"slices"
)

// worklist is what progress goes on with by itself, because no packet will remind it: streams to send, READs and
// WRITEs to do, links that were full and do not say when they have room, and what this rank has sent to itself.
//
// A stalled link is one that will say when it has room. Nothing is tried on it before that, so its streams are parked:
// they are not pending.
type worklist struct {
	pending int                  // Invariant: what is in blocked and in jobs, and 1 for self
	self    bool                 // there may be packets from this rank to itself
	blocked []*peer              // Invariant: p is in it once ⇔ p.blocked
	jobs    [jobKinds][]*Request // oldest first. Invariant: r is in jobs[k], or parked if k is jobStream, once ⇔ r.jobs has k
	parked  []*Request           // oldest first. Invariant: the streams of stalled links
	stalled int                  // Invariant: peers with p.stalled
	wake    func()               // tells a leader that sleeps that there is something to do
}

// jobKind is a part of a transfer that goes on by itself.
type jobKind uint8

const (
	jobStream jobKind = iota // fragments, while the link has room
	jobRead                  // READ after READ
	jobWrite                 // WRITE after WRITE
	jobKinds
)

// jobSet is a set of kinds.
type jobSet uint8

func (s jobSet) has(k jobKind) bool { return s&(1<<k) != 0 }

// addWork notes one more thing that is pending. A leader that sleeps would not know.
func (w *worklist) addWork() {
	w.pending++
	w.wake()
}

// add puts r in the list of a kind, unless it is there.
func (w *worklist) add(k jobKind, r *Request) {
	if r.jobs.has(k) {
		return
	}
	r.jobs |= 1 << k
	if k == jobStream && r.peer.stalled {
		w.parked = append(w.parked, r)
		return
	}
	w.jobs[k] = append(w.jobs[k], r)
	w.addWork()
}

// remove takes r off the list of a kind, if it is there.
func (w *worklist) remove(k jobKind, r *Request) {
	if !r.jobs.has(k) {
		return
	}
	r.jobs &^= 1 << k
	if k == jobStream && r.peer.stalled {
		w.parked = without(w.parked, r)
		return
	}
	w.jobs[k] = without(w.jobs[k], r)
	w.pending--
}

func without[T comparable](list []T, v T) []T {
	i := slices.Index(list, v)
	return slices.Delete(list, i, i+1)
}

// streaming: some message is being sent in fragments, or would be if its link had room.
func (w *worklist) streaming() bool { return len(w.jobs[jobStream])+len(w.parked) > 0 }

// addSelf: this rank has sent itself something.
func (w *worklist) addSelf() {
	if !w.self {
		w.self = true
		w.addWork()
	}
}

// removeSelf: all of that has been seen.
func (w *worklist) removeSelf() {
	w.self = false
	w.pending--
}

// markBlocked notes that p's link is full and that it will not say when it has room.
func (w *worklist) markBlocked(p *peer) {
	if !p.blocked {
		p.blocked = true
		w.blocked = append(w.blocked, p)
		w.addWork()
	}
}

// unblock: it has room, or will never have any.
func (w *worklist) unblock(p *peer) {
	if p.blocked {
		p.blocked = false
		w.blocked = without(w.blocked, p)
		w.pending--
	}
}

// stall notes that p's link is full and that it will say when it has room.
func (w *worklist) stall(p *peer) {
	if p.stalled {
		return
	}
	p.stalled = true
	w.stalled++
	streams := w.jobs[jobStream]
	w.jobs[jobStream] = slices.DeleteFunc(streams, func(r *Request) bool {
		if r.peer != p {
			return false
		}
		w.parked = append(w.parked, r)
		w.pending--
		return true
	})
}

// resume: it has room, or will never have any.
func (w *worklist) resume(p *peer) {
	if !p.stalled {
		return
	}
	p.stalled = false
	w.stalled--
	w.parked = slices.DeleteFunc(w.parked, func(r *Request) bool {
		if r.peer != p {
			return false
		}
		w.jobs[jobStream] = append(w.jobs[jobStream], r)
		w.addWork()
		return true
	})
}

// check says which invariant does not hold. peers are all that there are.
func (w *worklist) check(peers []*peer) error {
	pending, stalled, blocked := len(w.blocked), 0, 0
	if w.self {
		pending++
	}
	for k, list := range w.jobs {
		pending += len(list)
		for i, r := range list {
			switch {
			case !r.jobs.has(jobKind(k)) || slices.Contains(list[:i], r):
				return fmt.Errorf("place %d of the jobs of kind %d has a request that is there twice or does not know", i, k)
			case jobKind(k) == jobStream && r.peer.stalled:
				return fmt.Errorf("a stream to rank %d is pending, whose link is stalled", r.peer.rank)
			}
		}
	}
	for i, r := range w.parked {
		if !r.jobs.has(jobStream) || !r.peer.stalled || slices.Contains(w.parked[:i], r) {
			return fmt.Errorf("place %d of the parked streams has a request that is there twice, does not know, or could go on", i)
		}
	}
	for _, p := range peers {
		if p == nil {
			continue
		}
		if p.stalled {
			stalled++
		}
		if p.blocked {
			blocked++
		}
		if p.blocked != slices.Contains(w.blocked, p) {
			return fmt.Errorf("rank %d is blocked: %v, and not in the list", p.rank, p.blocked)
		}
	}
	if w.pending != pending || w.stalled != stalled || len(w.blocked) != blocked {
		return fmt.Errorf("%d things are pending, %d stalled, %d blocked; there are %d, %d and %d", w.pending, w.stalled, len(w.blocked), pending, stalled, blocked)
	}
	return nil
}
