package window

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// A dynamic window (§12.2.4) has regions of memory in the place of one part: each rank attaches and detaches its own,
// and no other rank hears of it. The elements of a region have numbers, which the rank passes on as it likes. So only
// the rank itself can check a request, and its requests to itself go the same way as the requests of other ranks.

// regionGap is the distance of the numbers of two regions: an operation that leaves one does not come to another one.
const regionGap = 1 << 16

// regions are the memory of this rank in a dynamic window.
type regions struct {
	mu        sync.Mutex // also taken under the engine's lock; held for a look and a change only
	next      int64      // the first element of the next region. No number is used twice: a stale one is an error
	byAt      []*region
	byAddress []*region // the same, without empty ones
	// givenUp are regions of a Detach whose context ended, until another one has returned nil: by their first elements.
	givenUp map[int64]*region
}

// region is memory that is attached.
type region struct {
	of      *regions
	at, n   int64 // its first element, and how many it has
	mem     []byte
	address uintptr // of mem

	// Guarded by of.mu.
	uses   int           // requests that are handled, and messages with elements that are under way
	ending chan struct{} // not nil: Detach has been called, and no request comes to it any more; closed at the last use
}

// Attach adds mem, of n elements, which begins at address, to a dynamic window. It returns the number of its first
// element.
func (w *Window) Attach(mem []byte, n int64, address uintptr) (at int64, err error) {
	const op = "Attach"
	if err := w.dynamic(op); err != nil {
		return 0, err
	}
	r, shares := w.regions.attach(mem, n, address)
	switch {
	case shares != nil:
		return 0, w.fail(op, mpierr.ErrBuffer, ranks.Undefined,
			"memory of %s shares some with the memory that is attached at %d; call Detach there first", elements(n),
			shares.at)
	case r == nil:
		return 0, w.fail(op, mpierr.ErrNoMemory, ranks.Undefined,
			"no numbers are left for %s; make another window", elements(n))
	}
	return r.at, nil
}

// attach adds a region. shares: the region with which it shares memory. Both are nil: there are no numbers for it.
func (d *regions) attach(mem []byte, n int64, address uintptr) (r, shares *region) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n >= math.MaxInt64-regionGap-d.next {
		return nil, nil
	}
	r = &region{of: d, at: d.next, n: n, mem: mem, address: address}
	if len(mem) > 0 {
		i, _ := slices.BinarySearchFunc(d.byAddress, address, func(r *region, a uintptr) int {
			return cmp.Compare(r.address, a)
		})
		for _, other := range d.byAddress[max(0, i-1):min(i+1, len(d.byAddress))] {
			if address < other.behind() && other.address < r.behind() {
				return nil, other
			}
		}
		d.byAddress = slices.Insert(d.byAddress, i, r)
	}
	d.byAt = append(d.byAt, r)
	d.next += n + regionGap
	return r, nil
}

// behind is the address behind the memory.
func (r *region) behind() uintptr { return r.address + uintptr(len(r.mem)) }

// dynamic reports why memory cannot be attached or detached.
func (w *Window) dynamic(op string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(op, ranks.Undefined); err != nil {
		return err
	}
	if w.regions == nil {
		return w.fail(op, mpierr.ErrUnavailable, ranks.Undefined,
			"the memory of the window is fixed; use a window of WinDynamic")
	}
	return nil
}

// Detach takes the region whose first element is at off the window: operations there are outside from now on. It
// returns when the ones under way are over, or ctx ends. In the latter case it can be called again.
func (w *Window) Detach(ctx context.Context, at int64) error {
	const op = "Detach"
	if err := w.dynamic(op); err != nil {
		return err
	}
	r := w.regions.end(at)
	if r == nil {
		return w.fail(op, mpierr.ErrRange, ranks.Undefined,
			"no memory is attached at %d; give what Attach has returned", at)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	select {
	case <-r.ending:
	case <-ctx.Done():
		if r.giveUp() {
			return w.wrap(op, ranks.Undefined, ctx.Err())
		}
	}
	return nil
}

// giveUp reports whether the region, which is ending, is still used. Then Detach can be called again, also after the
// last use.
func (r *region) giveUp() bool {
	d := r.of
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.uses == 0 {
		return false
	}
	if d.givenUp == nil {
		d.givenUp = map[int64]*region{}
	}
	d.givenUp[r.at] = r
	return true
}

// end begins the end of a region; nil: no region begins there. The last user forgets the region.
func (d *regions) end(at int64) *region {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.givenUp[at]; r != nil {
		delete(d.givenUp, at)
		return r
	}
	r := d.before(at)
	if r == nil || r.at != at {
		return nil
	}
	if r.ending == nil {
		r.ending = make(chan struct{})
		d.unused(r)
	}
	return r
}

// before is the last region that begins at an element or before it. d.mu is held.
func (d *regions) before(at int64) *region {
	i, found := slices.BinarySearchFunc(d.byAt, at, func(r *region, at int64) int { return cmp.Compare(r.at, at) })
	if found {
		return d.byAt[i]
	}
	if i == 0 {
		return nil
	}
	return d.byAt[i-1]
}

// unused forgets a region that is ending when nothing uses it. d.mu is held.
func (d *regions) unused(r *region) {
	if r.uses > 0 || r.ending == nil {
		return
	}
	d.byAt = without(d.byAt, r, r.at, func(r *region) int64 { return r.at })
	if len(r.mem) > 0 {
		d.byAddress = without(d.byAddress, r, r.address, func(r *region) uintptr { return r.address })
	}
	close(r.ending)
}

// without is all without r, whose key it is sorted by.
func without[K cmp.Ordered](all []*region, r *region, key K, of func(*region) K) []*region {
	i, _ := slices.BinarySearchFunc(all, key, func(r *region, k K) int { return cmp.Compare(of(r), k) })
	return slices.Delete(all, i, i+1)
}

// enter finds the memory of n elements from element at on, and uses its region until leave; nil: there is no such
// memory.
func (d *regions) enter(at, n int64, elem int) ([]byte, *region) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.before(at)
	if r == nil || r.ending != nil || !rma.Within(at-r.at, n, r.n, elem) {
		return nil, nil
	}
	r.uses++
	return r.mem[int(at-r.at)*elem:][:int(n)*elem], r
}

// leave ends a use of the region, if there is one.
func (r *region) leave() {
	if r == nil {
		return
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.uses--
	r.of.unused(r)
}

// during is a Follower that is f, and uses the region, if there is one, until the message is over.
func (r *region) during(f pml.Follower) pml.Follower {
	if r == nil {
		return f
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.uses++
	return usesRegion{f, r}
}

type usesRegion struct {
	pml.Follower
	region *region
}

// Follow implements pml.Follower.
func (u usesRegion) Follow(st pml.Status, err error) {
	u.region.leave()
	u.Follower.Follow(st, err)
}

// requested is the memory of this rank that a request is about, and its region, which the caller leaves. inside: there
// is such memory.
func (w *Window) requested(at, n int64) (mem []byte, in *region, inside bool) {
	if w.regions != nil {
		mem, in = w.regions.enter(at, n, w.elem)
		return mem, in, in != nil
	}
	if !rma.Within(at, n, w.own.count, w.elem) {
		return nil, nil, false
	}
	return w.own.mem[int(at)*w.elem:][:int(n)*w.elem], nil, true
}

// anywhere is the end of Operation of a dynamic window: the rank says whether there are such elements.
func (w *Window) anywhere(op string, r *Remote, rank int, at int64, n int) ([]byte, *Remote, error) {
	if !rma.Within(at, int64(n), math.MaxInt64, 0) {
		return nil, nil, w.fail(op, mpierr.ErrRange, rank, "%s from element %d on; no window has these",
			elements(int64(n)), at)
	}
	return nil, r, nil
}

// outside says which elements of an operation are outside the window; k is 0 if the caller knows which operation.
func (w *Window) outside(k rma.Kind, at, n int64) string {
	var what string
	switch k {
	case rma.Put, rma.PutAlone:
		what = "a Put of "
	case rma.Get:
		what = "a Get of "
	case rma.Update:
		what = "an Accumulate of "
	}
	what += fmt.Sprintf("%s from element %d on", elements(n), at)
	if w.regions == nil {
		return what + " is outside the window"
	}
	return what + ": the rank has attached no memory with these; give what Attach has returned there"
}

// makeDynamic makes the window dynamic, without memory.
func (s *sharing) makeDynamic() {
	s.alone(nil)
	s.w.regions = &regions{next: regionGap}
}

// isDynamic reports whether the ranks make a dynamic window.
func (s *Spec) isDynamic() bool { return s.Kind == agree.MakeWinDynamic }
