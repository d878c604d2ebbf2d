package coll

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/collectives"
)

// planCache keeps the plans of a communicator that no call uses.
type planCache struct {
	mu     sync.Mutex
	idle   []*Plan // the latest last
	kept   int64   // bytes that idle takes
	closed bool    // the communicator has been freed: nothing is kept

	recent [collectives.Operations]atomic.Pointer[Plan] // of each operation's last call, not in idle; nil: none
}

// A communicator keeps so many plans for later calls, and together no more memory than that.
const (
	plansKept  = 16
	memoryKept = 4 << 20
	// recentMost is the size of a plan up to which it is in recent, and does not count for memoryKept.
	recentMost = 64 << 10
)

// Plan finds or makes a plan for a call that is made in way w. The plan is the call's until it is given back. want has
// no counts; in and out are the counts of the v forms.
func (g *Group) Plan(w Way, want *Key, in, out []int64) *Plan {
	want.unattended = w != Blocking // with a context its caller waits, and other ranks' may have none
	k := &g.plans
	if p := k.recent[want.Operation].Swap(nil); p != nil {
		if p.fits(want, in, out) {
			return p
		}
		k.keep(p)
	}
	if p := k.take(want, in, out); p != nil {
		return p
	}
	p := newPlan(g, want, slices.Clone(in), slices.Clone(out))
	g.Setup.choices.add(p, w)
	return p
}

// fits reports whether p is a plan for such a call.
func (p *Plan) fits(want *Key, in, out []int64) bool {
	return p.Key == *want && slices.Equal(p.params.InCounts, in) && slices.Equal(p.params.OutCounts, out)
}

// take takes a plan that is kept; nil: there is none for such a call.
func (k *planCache) take(want *Key, in, out []int64) *Plan {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := len(k.idle) - 1; i >= 0; i-- {
		if p := k.idle[i]; p.fits(want, in, out) {
			k.idle = slices.Delete(k.idle, i, i+1)
			k.kept -= p.memory()
			return p
		}
	}
	return nil
}

// giveBack ends the call's use of the plan.
func (p *Plan) giveBack() {
	for s, blocks := range p.spaces[:collectives.Tmp] { // the caller's buffers
		if len(blocks) == 1 {
			blocks[0] = nil
		} else {
			clear(blocks)
		}
		p.spaces[s] = p.spaces[s][:0]
	}
	clear(p.scattered)
	p.scattered, p.failed, p.ctx, p.callerBuffers = p.scattered[:0], nil, nil, nil
	p.attributes, p.alone, p.hollow = nil, nil, false
	if p.Operator != nil {
		p.Operator.Forget() // it may hold memory
	}
	p.returnScratch()
	k := &p.group.plans
	switch n := p.memory(); {
	case n <= recentMost:
		if p = k.recent[p.Operation].Swap(p); p != nil {
			k.keep(p)
		}
	case n <= memoryKept:
		k.keep(p)
	}
}

// keep keeps a plan that no call uses, and drops the oldest ones beyond the limits.
func (k *planCache) keep(p *Plan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.idle = append(k.idle, p)
	k.kept += p.memory()
	for len(k.idle) > plansKept || k.kept > memoryKept {
		k.kept -= k.idle[0].memory()
		k.idle = slices.Delete(k.idle, 0, 1)
	}
}

// close gives all plans up: the communicator has been freed.
func (k *planCache) close() {
	for i := range k.recent {
		k.recent[i].Store(nil)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.idle, k.kept, k.closed = nil, 0, true
}
