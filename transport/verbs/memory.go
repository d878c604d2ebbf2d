//go:build verbs && linux && cgo

package verbs

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/gorun-mpi/mpi/transport"
)

// slab is memory off the Go heap, known to the device from beginning to end, cut into pieces of one size.
type slab struct {
	mem    []byte
	size   int // of a piece
	count  int
	region region
}

func (g *registry) slab(count, size, rights int) (s slab, err error) {
	s = slab{mem: pages(count * size), size: size, count: count}
	if s.mem == nil {
		return slab{}, fmt.Errorf("mapping %d KiB: out of memory", count*size>>10)
	}
	if s.region, err = g.dev.register(addressOf(s.mem), len(s.mem), rights); err != nil {
		unmap(s.mem)
		return slab{}, fmt.Errorf("registering %d KiB: %w", len(s.mem)>>10, err)
	}
	return s, nil
}

func (s *slab) drop(h *hca) {
	if s.mem != nil {
		h.deregister(s.region)
		unmap(s.mem)
		s.mem = nil
	}
}

func (s *slab) piece(i uint32) []byte {
	at := int(i) * s.size
	return s.mem[at : at+s.size : at+s.size]
}

// allocations are memory that is registered for as long as it lives: what Alloc gave and what Import was told of.
type allocations struct {
	mu   sync.Mutex
	all  []allocation // in the order of their addresses
	made uint64       // ever
}

// allocation is registered once for each kind of access that a peer is given, when the first is: a key allows no more
// than what the peer is to do. The region for reading is made at once. It is also the one for this rank's own use.
type allocation struct {
	mem     []byte
	ours    bool   // of Alloc
	number  uint64 // of made. Another allocation may lie at its place, when it has ended
	regions [transport.Readable | transport.Writable + 1]region
	coming  [transport.Readable | transport.Writable + 1]*sharedJob // what a goroutine registers
}

// find returns the region for this rank's own use of mem, if it lies in an allocation.
func (a *allocations) find(mem transport.Mem) (region, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.holding(mem)
	if in == nil {
		return region{}, false
	}
	return in.regions[transport.Readable], true
}

// holding is the allocation in which mem lies, or nil. mu is held.
func (a *allocations) holding(mem transport.Mem) *allocation {
	i := a.after(mem.Number()) - 1
	if i < 0 || mem.Kind != transport.Host {
		return nil
	}
	in := &a.all[i]
	if off := mem.Number() - addressOf(in.mem); off+uint64(mem.Len) > uint64(len(in.mem)) {
		return nil
	}
	return in
}

// reachable returns the region by which a peer has access to mem. found: mem lies in an allocation. errTakesLong:
// prepareAllocation makes it.
func (g *registry) reachable(mem transport.Mem, access transport.Access) (r region, found bool, err error) {
	a := &g.allocs
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.holding(mem)
	if in == nil {
		return region{}, false, nil
	}
	if in.regions[access].handle == nil {
		if len(in.mem) > registerAtOnce {
			return region{}, true, errTakesLong
		}
		in.regions[access], err = g.makeRegion(addressOf(in.mem), len(in.mem), g.rights(access))
	}
	return in.regions[access], true, err
}

// prepareAllocation has a goroutine make the region that reachable has not. found: mem lies in an allocation.
func (g *registry) prepareAllocation(mem transport.Mem, access transport.Access,
	then func(err error)) (found, begun bool) {
	a := &g.allocs
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.holding(mem)
	if in == nil || in.regions[access].handle != nil || len(in.mem) <= registerAtOnce {
		return in != nil, false
	}
	if in.coming[access] == nil {
		number := in.number
		in.coming[access] = g.share(transport.HostMem(in.mem), g.rights(access),
			func(x *registration, err error, _ int) { g.allocationPrepared(number, access, x, err) })
	}
	in.coming[access].tell = append(in.coming[access].tell, then)
	return true, true
}

// allocationPrepared is called when the region for an access has been made, or not. The allocation may have ended.
func (g *registry) allocationPrepared(number uint64, access transport.Access, x *registration, err error) {
	a := &g.allocs
	a.mu.Lock()
	i := slices.IndexFunc(a.all, func(in allocation) bool { return in.number == number })
	if i >= 0 {
		a.all[i].coming[access] = nil
		if err == nil {
			a.all[i].regions[access] = x.region
		}
	}
	a.mu.Unlock()
	if err != nil {
		return
	}
	if i < 0 {
		g.later.end(x.region)
	}
	g.regs.recycle(x)
}

// after is the index of the first allocation that begins behind an address. mu is held.
func (a *allocations) after(addr uint64) int {
	return sort.Search(len(a.all), func(i int) bool { return addressOf(a.all[i].mem) > addr })
}

func (g *registry) allocMem(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("verbs: %d bytes were asked for", bytes)
	}
	mem := pages(bytes)
	if mem == nil {
		return nil, fmt.Errorf("verbs: %d bytes were asked for: out of memory", bytes)
	}
	if err := g.addAllocation(mem, true); err != nil {
		unmap(mem)
		return nil, fmt.Errorf("verbs: %d bytes were asked for: registering them: %w", bytes, explainMemlock(err))
	}
	return mem, nil
}

func (g *registry) freeMem(mem []byte) error {
	if !g.endAllocation(mem, true) {
		return fmt.Errorf("verbs: %d bytes at %#x are not what Alloc gave", len(mem), addressOf(mem))
	}
	unmap(mem)
	return nil
}

func (g *registry) importMem(mem []byte) error { return g.addAllocation(mem, false) }

func (g *registry) forgetMem(mem []byte) { g.endAllocation(mem, false) }

func (g *registry) addAllocation(mem []byte, ours bool) error {
	r, err := g.makeRegion(addressOf(mem), len(mem), localWrite|g.rights(transport.Readable))
	if err != nil {
		return err
	}
	a := &g.allocs
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.after(addressOf(mem))
	a.all = append(a.all, allocation{})
	copy(a.all[i+1:], a.all[i:])
	a.made++
	a.all[i] = allocation{mem: mem, ours: ours, number: a.made}
	a.all[i].regions[transport.Readable] = r
	return nil
}

// endAllocation reports whether there was one.
func (g *registry) endAllocation(mem []byte, ours bool) bool {
	a := &g.allocs
	a.mu.Lock()
	i := slices.IndexFunc(a.all, func(x allocation) bool {
		return len(mem) == len(x.mem) && addressOf(mem) == addressOf(x.mem) && x.ours == ours
	})
	if i < 0 {
		a.mu.Unlock()
		return false
	}
	x := a.all[i]
	a.all = slices.Delete(a.all, i, i+1)
	a.mu.Unlock() // the caller of Poll takes it, and this takes long
	x.deregister(g.dev)
	return true
}

func (x *allocation) deregister(h *hca) {
	for _, r := range x.regions {
		if r.handle != nil {
			h.deregister(r)
		}
	}
}

// drop is for Close: the queue pairs are destroyed.
func (a *allocations) drop(h *hca) {
	for _, x := range a.all {
		x.deregister(h)
		if x.ours {
			unmap(x.mem)
		}
	}
	a.all = nil
}
