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
	// load is the engine's. Invariants: pending is what is in blocked, in jobs but for jobInbound, and 1 for self; stalled
	// is how many peers are.
	load    *load
	self    bool    // there may be packets from this rank to itself
	blocked []*peer // Invariant: p is in it once ⇔ p.blocked
	// jobs are oldest first. Invariant: t is in jobs[k], or parked if k is jobStream, once ⇔ t.jobs has k.
	jobs   [jobKinds]fifo[*transfer]
	parked []*transfer // oldest first. Invariant: the streams of stalled links
	wake   func()      // tells a leader that sleeps that there is something to do
}

// jobKind is a part of a transfer that goes on by itself.
type jobKind uint8

const (
	jobStream  jobKind = iota // fragments, while the link has room
	jobRead                   // READ after READ
	jobWrite                  // WRITE after WRITE
	jobInbound                // fragments that the peer sends: nothing to do, but to see that they come
	jobKinds
)

// jobSet is a set of kinds.
type jobSet uint8

func (s jobSet) has(k jobKind) bool { return s&(1<<k) != 0 }

// addWork notes one more thing that is pending. A leader that sleeps would not know.
func (w *worklist) addWork() {
	w.load.pending++
	w.wake()
}

// set adds t or removes it.
func (w *worklist) set(k jobKind, t *transfer, there bool) {
	if there {
		w.add(k, t)
	} else {
		w.remove(k, t)
	}
}

// add puts t in the list of a kind, unless it is there.
func (w *worklist) add(k jobKind, t *transfer) {
	if t.jobs.has(k) {
		return
	}
	t.jobs |= 1 << k
	if k == jobStream && t.peer.stalled {
		w.parked = append(w.parked, t)
		return
	}
	w.jobs[k].push(t)
	if k != jobInbound {
		w.addWork()
	}
}

// remove takes t off the list of a kind, if it is there.
func (w *worklist) remove(k jobKind, t *transfer) {
	if !t.jobs.has(k) {
		return
	}
	t.jobs &^= 1 << k
	if k == jobStream && t.peer.stalled {
		w.parked = without(w.parked, t)
		return
	}
	w.jobs[k].remove(slices.Index(w.jobs[k].all(), t))
	if k != jobInbound {
		w.load.pending--
	}
}

func without[T comparable](list []T, v T) []T {
	i := slices.Index(list, v)
	return slices.Delete(list, i, i+1)
}

// streaming: some message is being sent in fragments, or would be if its link had room; or comes in fragments.
func (w *worklist) streaming() bool {
	return w.jobs[jobStream].len()+len(w.parked)+w.jobs[jobInbound].len() > 0
}

// addSelf: this rank has sent itself something. The call that has done so handles it mostly, and wakes a leader that
// sleeps if not (Engine.arm).
func (w *worklist) addSelf() {
	if !w.self {
		w.self = true
		w.load.pending++
	}
}

// removeSelf: all of that has been seen.
func (w *worklist) removeSelf() {
	w.self = false
	w.load.pending--
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
		w.load.pending--
	}
}

// stall notes that p's link is full and that it will say when it has room.
func (w *worklist) stall(p *peer) {
	if p.stalled {
		return
	}
	p.stalled = true
	w.load.stalled++
	w.jobs[jobStream].deleteFunc(func(t *transfer) bool {
		if t.peer != p {
			return false
		}
		w.parked = append(w.parked, t)
		w.load.pending--
		return true
	})
}

// resume: it has room, or will never have any.
func (w *worklist) resume(p *peer) {
	if !p.stalled {
		return
	}
	p.stalled = false
	w.load.stalled--
	w.parked = slices.DeleteFunc(w.parked, func(t *transfer) bool {
		if t.peer != p {
			return false
		}
		w.jobs[jobStream].push(t)
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
	for k := range w.jobs {
		list := w.jobs[k].all()
		if jobKind(k) != jobInbound {
			pending += len(list)
		}
		for i, t := range list {
			switch {
			case !t.jobs.has(jobKind(k)) || slices.Contains(list[:i], t):
				return fmt.Errorf("place %d of the jobs of kind %d has a transfer that is there twice or does not know", i, k)
			case jobKind(k) == jobStream && t.peer.stalled:
				return fmt.Errorf("a stream to rank %d is pending, whose link is stalled", t.peer.rank)
			}
		}
	}
	for i, t := range w.parked {
		if !t.jobs.has(jobStream) || !t.peer.stalled || slices.Contains(w.parked[:i], t) {
			return fmt.Errorf("place %d of the parked streams has a transfer that is there twice, does not know, or could go on", i)
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
	if w.load.pending != pending || w.load.stalled != stalled || len(w.blocked) != blocked {
		return fmt.Errorf("%d things are pending, %d stalled, %d blocked; there are %d, %d and %d", w.load.pending, w.load.stalled, len(w.blocked), pending, stalled, blocked)
	}
	return nil
}
