package pml

import (
	"fmt"
	"slices"
)

// worklist is what progress goes on with by itself, because no packet will remind it: streams to send, READs and WRITEs
// to do, and what this rank has sent to itself. All of it can be gone on with: after a look that has done nothing there
// is nothing pending.
//
// A stalled link is one that has refused something that is still wanted: Room will say when it has room. Its streams
// are parked until then, and so is a READ or WRITE that it has refused: they are not pending.
type worklist struct {
	// load is the engine's. Invariants: pending is what is in jobs but for jobInbound, and 1 for self; stalled is how
	// many peers are.
	load *load
	self bool // there may be packets from this rank to itself
	// jobs are oldest first. Invariant: t is in jobs[k], or a job of kind k is parked, once ⇔ t.jobs has k.
	jobs   [jobKinds]fifo[*transfer]
	parked []job  // oldest first. Invariant: of stalled links, and all of their streams
	wake   func() // tells a leader that sleeps that there is something to do
}

// job is a part of t.
type job struct {
	kind jobKind
	t    *transfer
}

// jobKind is a part of a transfer that goes on by itself.
type jobKind uint8

const (
	jobStream  jobKind = iota // fragments, while the link has room
	jobRead                   // the next READ
	jobWrite                  // the next WRITE
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
		w.parked = append(w.parked, job{k, t})
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
	if i := slices.Index(w.parked, job{k, t}); i >= 0 {
		w.parked = slices.Delete(w.parked, i, i+1)
		waits := func(j job) bool { return j.t.peer == t.peer }
		if t.peer.unsent() == 0 && !slices.ContainsFunc(w.parked, waits) {
			w.resume(t.peer) // nothing waits for room any more, and a peer that is done may never make any
		}
		return
	}
	w.jobs[k].remove(slices.Index(w.jobs[k].items(), t))
	if k != jobInbound {
		w.load.pending--
	}
}

func without[T comparable](list []T, v T) []T {
	i := slices.Index(list, v)
	return slices.Delete(list, i, i+1)
}

// streaming reports whether some message is being sent in fragments, or would be if its link had room, or comes in
// fragments.
func (w *worklist) streaming() bool {
	return w.jobs[jobStream].len()+w.jobs[jobInbound].len() > 0 ||
		slices.ContainsFunc(w.parked, func(j job) bool { return j.kind == jobStream })
}

// addSelf notes that this rank has sent itself something. The call that has done so handles it mostly, and wakes a
// leader that sleeps if not (Engine.arm).
func (w *worklist) addSelf() {
	if !w.self {
		w.self = true
		w.load.pending++
	}
}

// removeSelf notes that all of that has been seen.
func (w *worklist) removeSelf() {
	w.self = false
	w.load.pending--
}

// stall notes that p's link is full.
func (w *worklist) stall(p *peer) {
	if p.stalled || p.err != nil {
		return
	}
	p.stalled = true
	w.load.stalled++
	w.jobs[jobStream].deleteFunc(func(t *transfer) bool {
		if t.peer != p {
			return false
		}
		w.parked = append(w.parked, job{jobStream, t})
		w.load.pending--
		return true
	})
}

// park is called when the link of t's peer has no room for the READ or WRITE that is next.
func (w *worklist) park(k jobKind, t *transfer) {
	w.stall(t.peer)
	w.jobs[k].remove(slices.Index(w.jobs[k].items(), t))
	w.load.pending--
	w.parked = append(w.parked, job{k, t})
}

// resume is called when the link has room, or will never have any.
func (w *worklist) resume(p *peer) {
	if !p.stalled {
		return
	}
	p.stalled = false
	w.load.stalled--
	w.wake() // it may be what the leader waits for: see Flush
	w.parked = slices.DeleteFunc(w.parked, func(j job) bool {
		if j.t.peer != p {
			return false
		}
		w.jobs[j.kind].push(j.t)
		w.addWork()
		return true
	})
}

// check says which invariant does not hold. peers are all that there are.
func (w *worklist) check(peers []*peer) error {
	pending, stalled := 0, 0
	if w.self {
		pending++
	}
	for k := range w.jobs {
		list := w.jobs[k].items()
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
	for i, j := range w.parked {
		if !j.t.jobs.has(j.kind) || !j.t.peer.stalled || slices.Contains(w.parked[:i], j) ||
			slices.Contains(w.jobs[j.kind].items(), j.t) {
			return fmt.Errorf("place %d of the parked jobs has a transfer that is there twice, does not know, or could go on", i)
		}
	}
	for _, p := range peers {
		if p != nil && p.stalled {
			stalled++
		}
	}
	if w.load.pending != pending || w.load.stalled != stalled {
		return fmt.Errorf("%d things are pending, %d links stalled; there are %d and %d",
			w.load.pending, w.load.stalled, pending, stalled)
	}
	return nil
}
