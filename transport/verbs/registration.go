//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/gorun-mpi/mpi/transport"
)

// registration is ordinary memory that the device may use: pinned before, and unpinned after. Its rights are those that
// were asked for, no more: a key that was advertised for reading does not allow writing.
type registration struct {
	pin        runtime.Pinner
	region     region
	advertised int  // times that a peer may have its key: more than once only if the cache has it, or it is lasting
	lasting    bool // in registrations.lasting, by key
	cacheEntry
}

// registrations are those of ordinary memory. They belong to the engine's lock.
type registrations struct {
	advertised map[uint32]*registration   // those that a peer may use, by key
	lasting    map[cacheKey]*registration // those of Lasting, once each
	spare      []*registration
	cache      registrationCache // nil: a registration ends with its operation
	failed     bool              // a registration has failed, which has been logged
}

// registry is the memory that the device may use: slabs, allocations, registrations of ordinary memory. It decides with
// which rights. It belongs to the engine's lock, but for allocs.
type registry struct {
	dev    *hca
	port   *port
	opt    *Options
	stats  *Counters
	allocs allocations
	regs   registrations
}

var errKind = errors.New("the device reaches host memory only")

// useCache keeps up to n registrations of ordinary memory from now on.
func (g *registry) useCache(n int) {
	if n <= 0 {
		return
	}
	if !heapIsKnown() {
		g.opt.Log("no registrations are kept: this version of Go does not say what its heap is", "go", runtime.Version())
		return
	}
	g.regs.cache = newIdentityCache(g.dev, n)
}

// rights are what the device is told for an access of the peer.
func (g *registry) rights(access transport.Access) (rights int) {
	if access&transport.Readable != 0 {
		rights |= remoteRead
	}
	if access&transport.Writable != 0 {
		rights |= localWrite | remoteWrite // the device insists on the first for the second
		if g.port.caps.atomics {
			rights |= remoteAtomic
		}
	}
	return rights
}

// makeRegion registers memory that stays where it is. The cache makes room for it if need be.
func (g *registry) makeRegion(addr uint64, bytes, rights int) (region, error) {
	r, err := g.dev.register(addr, bytes, rights)
	if err != nil && g.regs.cache != nil && g.regs.cache.shrink() {
		return g.dev.register(addr, bytes, rights)
	}
	return r, err
}

// usable is what the device needs to know to use mem for one operation: the region, and a registration that is to end
// with the operation, or nil if the memory is registered for as long as it lives.
func (g *registry) usable(mem transport.Mem, rights int) (region, *registration, error) {
	if r, ok := g.allocs.find(mem); ok {
		return r, nil, nil
	}
	x, err := g.register(mem, rights)
	if err != nil {
		return region{}, nil, err
	}
	return x.region, x, nil
}

// register registers mem, which is not empty, until deregister.
func (g *registry) register(mem transport.Mem, rights int) (*registration, error) {
	if mem.Kind != transport.Host {
		return nil, fmt.Errorf("%w, not kind %d", errKind, mem.Kind)
	}
	if g.regs.cache == nil {
		return g.registerNew(mem, rights)
	}
	if x := g.regs.cache.take(mem, rights); x != nil {
		return x, nil
	}
	x, err := g.registerNew(mem, rights)
	if err == nil {
		g.regs.cache.keep(x, mem, rights)
	}
	return x, err
}

// registerLasting registers mem, which stays where it is until the last one of those who have called this ends it by
// revoke.
func (g *registry) registerLasting(mem transport.Mem, rights int) (*registration, error) {
	r, key := &g.regs, keyOf(mem, rights)
	if x := r.lasting[key]; x != nil {
		return x, nil
	}
	x, err := g.registerNew(mem, rights)
	if err != nil {
		return nil, err
	}
	if r.lasting == nil {
		r.lasting = map[cacheKey]*registration{}
	}
	x.lasting, x.key = true, key
	r.lasting[key] = x
	return x, nil
}

func (g *registry) registerNew(mem transport.Mem, rights int) (*registration, error) {
	r := &g.regs
	var x *registration
	if n := len(r.spare); n > 0 {
		x = r.spare[n-1]
		r.spare = r.spare[:n-1]
	} else {
		x = new(registration)
	}
	x.pin.Pin(mem.Addr)
	var err error
	if x.region, err = g.makeRegion(mem.Number(), mem.Len, rights); err != nil {
		x.pin.Unpin()
		r.spare = append(r.spare, x)
		if !r.failed {
			r.failed = true
			g.opt.Log("a message is copied because its memory could not be registered; further ones may be, which is not logged",
				"bytes", mem.Len, "error", explainMemlock(err))
		}
		return nil, err
	}
	g.stats.Registered++
	return x, nil
}

// deregister ends a registration, or the use of one that the cache has. The device has no request left that names the
// memory.
func (g *registry) deregister(x *registration) {
	if x.uses > 0 {
		g.regs.cache.give(x)
		return
	}
	g.dev.deregister(x.region)
	x.pin.Unpin()
	*x = registration{pin: x.pin}
	g.regs.spare = append(g.regs.spare, x)
}

// advertise notes that a peer is told the key of x.
func (r *registrations) advertise(x *registration) {
	if r.advertised == nil {
		r.advertised = map[uint32]*registration{}
	}
	r.advertised[x.region.rkey] = x
	x.advertised++
}

// revoke ends one advertisement. unsure: peers may still use the memory, so that its key must not live on.
func (g *registry) revoke(key uint32, unsure bool) {
	x := g.regs.advertised[key]
	if x == nil {
		return
	}
	if x.advertised--; x.lasting && x.advertised > 0 {
		return // ranks that are left have it
	}
	if x.advertised == 0 {
		delete(g.regs.advertised, key)
	}
	if x.lasting {
		delete(g.regs.lasting, x.key)
	}
	if x.uses > 0 && unsure {
		g.regs.cache.forget(x)
		return
	}
	g.deregister(x)
}

// drop is for Close: the queue pairs are destroyed.
func (r *registrations) drop(h *hca) {
	for _, x := range r.advertised {
		if !x.kept {
			h.deregister(x.region)
			x.pin.Unpin()
		}
	}
	r.advertised, r.lasting = nil, nil
	if r.cache != nil {
		r.cache.drop()
	}
}
