//go:build verbs && linux && cgo

package verbs

import (
	"fmt"
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

func (d *Device) slab(count, size int) (s slab, err error) {
	s = slab{mem: pages(count * size), size: size, count: count}
	if s.mem == nil {
		return slab{}, fmt.Errorf("mapping %d KiB: out of memory", count*size>>10)
	}
	if s.region, err = d.hca.register(addressOf(s.mem), len(s.mem), localWrite); err != nil {
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

// allocations are memory that is registered for as long as it lives, once, with all rights: what Alloc gave and what
// Import was told of.
type allocations struct {
	mu  sync.Mutex
	all []allocation // in the order of their addresses
}

type allocation struct {
	mem    []byte
	ours   bool // of Alloc
	region region
}

// find returns the region that mem lies in.
func (a *allocations) find(mem transport.Mem) (region, bool) {
	if mem.Kind != transport.Host {
		return region{}, false
	}
	at := mem.Number()
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.after(at) - 1
	if i < 0 {
		return region{}, false
	}
	in := &a.all[i]
	if off := at - addressOf(in.mem); off+uint64(mem.Len) > uint64(len(in.mem)) {
		return region{}, false
	}
	return in.region, true
}

// after is the index of the first allocation that begins behind an address. mu is held.
func (a *allocations) after(addr uint64) int {
	return sort.Search(len(a.all), func(i int) bool { return addressOf(a.all[i].mem) > addr })
}

func (d *Device) allocMem(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("verbs: %d bytes were asked for", bytes)
	}
	mem := pages(bytes)
	if mem == nil {
		return nil, fmt.Errorf("verbs: %d bytes were asked for: out of memory", bytes)
	}
	if err := d.addAllocation(mem, true); err != nil {
		unmap(mem)
		return nil, fmt.Errorf("verbs: %d bytes were asked for: registering them: %w", bytes, explainMemlock(err))
	}
	return mem, nil
}

func (d *Device) freeMem(mem []byte) error {
	if !d.endAllocation(mem, true) {
		return fmt.Errorf("verbs: %d bytes at %#x are not what Alloc gave", len(mem), addressOf(mem))
	}
	unmap(mem)
	return nil
}

func (d *Device) importMem(mem []byte) error { return d.addAllocation(mem, false) }

func (d *Device) forgetMem(mem []byte) { d.endAllocation(mem, false) }

func (d *Device) addAllocation(mem []byte, ours bool) error {
	r, err := d.makeRegion(addressOf(mem), len(mem), d.rights(transport.Readable|transport.Writable))
	if err != nil {
		return err
	}
	a := &d.allocs
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.after(addressOf(mem))
	a.all = append(a.all, allocation{})
	copy(a.all[i+1:], a.all[i:])
	a.all[i] = allocation{mem, ours, r}
	return nil
}

// endAllocation reports whether there was one.
func (d *Device) endAllocation(mem []byte, ours bool) bool {
	a := &d.allocs
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, x := range a.all {
		if len(mem) == len(x.mem) && addressOf(mem) == addressOf(x.mem) && x.ours == ours {
			d.hca.deregister(x.region)
			a.all = append(a.all[:i], a.all[i+1:]...)
			return true
		}
	}
	return false
}

// drop is for Close: the queue pairs are destroyed.
func (a *allocations) drop(h *hca) {
	for _, x := range a.all {
		h.deregister(x.region)
		if x.ours {
			unmap(x.mem)
		}
	}
	a.all = nil
}
