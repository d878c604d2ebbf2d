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
	promised   int  // calls of registerLasting that are to come, by ranks that prepareLasting has told
	cacheEntry
}

// registrations are those of ordinary memory. They belong to the engine's lock.
type registrations struct {
	advertised map[uint32]*registration   // those that a peer may use, by key
	lasting    map[cacheKey]*registration // those of Lasting, once each
	coming     map[cacheKey]*sharedJob    // and those that a goroutine makes
	spare      []*registration
	ready      map[cacheKey][]*registration // what prepareOne has made, until prepared takes it
	cache      registrationCache            // nil: a registration ends with its operation
	failed     bool                         // a registration has failed, which has been logged
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
	later  registrar
}

var (
	errKind      = errors.New("the device reaches host memory only")
	errTakesLong = errors.New("a goroutine registers it")
)

// useCache keeps up to n registrations of ordinary memory from now on.
func (g *registry) useCache(n int) {
	if n <= 0 {
		return
	}
	if !heapIsKnown() {
		g.opt.Log("no registrations are kept: this version of Go does not say what its heap is", "go", runtime.Version())
		return
	}
	g.regs.cache = newIdentityCache(g.dev, &g.later, n)
}

// rights are what the device is told for an access of the peer.
//
// Relaxed ordering lets writes of the device overtake each other on their way to memory. That is right where no rank
// looks at the bytes before a completion, which overtakes nothing: buffers of messages and of READs, and the slabs of
// receive and send buffers. It is wrong where peers write: a rank polls the memory of a window, and a WRITE that its
// peer has flushed must be seen before the next one. Atomics likewise: so the slab of their results is not relaxed.
func (g *registry) rights(access transport.Access) (rights int) {
	if access&transport.Readable != 0 {
		rights |= remoteRead
	}
	if access&transport.Writable == 0 {
		rights |= relaxed
	} else {
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
	if err != nil && g.makeRoom() {
		return g.dev.register(addr, bytes, rights)
	}
	return r, err
}

// makeRoom ends the registrations that no operation needs. It reports whether there were any. Any goroutine may call
// it.
func (g *registry) makeRoom() bool {
	some := g.regs.cache != nil && g.regs.cache.shrink()
	return g.later.settle() || some
}

// isLong reports whether a goroutine is to register mem: it is long, and not registered for as long as it lives.
func (g *registry) isLong(mem transport.Mem) bool {
	if mem.Len <= registerAtOnce || mem.Kind != transport.Host {
		return false
	}
	_, known := g.allocs.find(mem)
	return !known
}

// sharedJob is a registration that a goroutine makes for all that have asked for it before its end.
type sharedJob struct {
	tell []func(err error) // of the end
}

// share has a goroutine make such a registration. keep gets it, and the number of functions that are told next.
func (g *registry) share(mem transport.Mem, rights int, keep func(x *registration, err error, told int)) *sharedJob {
	j := &sharedJob{}
	then := func(x *registration, err error) {
		keep(x, err, len(j.tell))
		for _, f := range j.tell {
			f(err)
		}
	}
	g.later.start(&registerJob{x: g.regs.pinned(mem), mem: mem, rights: rights, shared: true, then: then})
	return j
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
// withdraw.
func (g *registry) registerLasting(mem transport.Mem, rights int) (*registration, error) {
	r, key := &g.regs, keyOf(mem, rights)
	if x := r.lasting[key]; x != nil {
		x.promised = max(0, x.promised-1)
		return x, nil
	}
	if g.isLong(mem) {
		return nil, errTakesLong
	}
	x, err := g.registerNew(mem, rights)
	if err != nil {
		return nil, err
	}
	r.last(x, key)
	return x, nil
}

// last notes a registration of Lasting.
func (r *registrations) last(x *registration, key cacheKey) {
	if r.lasting == nil {
		r.lasting = map[cacheKey]*registration{}
	}
	x.lasting, x.key = true, key
	r.lasting[key] = x
}

// prepareLasting has a goroutine do what registerLasting does, once for all peers, unless that is done. It reports
// whether a registration is under way.
func (g *registry) prepareLasting(mem transport.Mem, rights int, then func(err error)) bool {
	r, key := &g.regs, keyOf(mem, rights)
	if r.lasting[key] != nil {
		return false
	}
	j := r.coming[key]
	if j == nil {
		j = g.share(mem, rights, func(x *registration, err error, told int) {
			if delete(r.coming, key); err == nil {
				x.promised = told
				r.last(x, key)
			}
		})
		if r.coming == nil {
			r.coming = map[cacheKey]*sharedJob{}
		}
		r.coming[key] = j
	}
	j.tell = append(j.tell, then)
	return true
}

func (g *registry) registerNew(mem transport.Mem, rights int) (*registration, error) {
	x := g.regs.pinned(mem)
	var err error
	x.region, err = g.makeRegion(mem.Number(), mem.Len, rights)
	return g.made(x, mem, err)
}

// pinned is a record for the registration of mem, which is pinned.
func (r *registrations) pinned(mem transport.Mem) *registration {
	var x *registration
	if n := len(r.spare); n > 0 {
		x = r.spare[n-1]
		r.spare = r.spare[:n-1]
	} else {
		x = new(registration)
	}
	x.pin.Pin(mem.Addr)
	return x
}

// made is called when mem has been registered, or not: then it is unpinned, and err is returned.
func (g *registry) made(x *registration, mem transport.Mem, err error) (*registration, error) {
	if err == nil {
		g.stats.Registered++
		return x, nil
	}
	x.pin.Unpin()
	g.regs.spare = append(g.regs.spare, x)
	if !g.regs.failed && !errors.Is(err, errClosed) {
		g.regs.failed = true
		g.opt.Log("a message is copied because its memory could not be registered; further ones may be, which is not logged",
			"bytes", mem.Len, "error", explainMemlock(err))
	}
	return nil, err
}

// registerLater has a goroutine register mem. A Poll calls then with what has come of it.
func (g *registry) registerLater(mem transport.Mem, rights int, then func(x *registration, err error)) {
	g.later.start(&registerJob{x: g.regs.pinned(mem), mem: mem, rights: rights, then: then})
}

// registered goes on with what goroutines have registered.
func (g *registry) registered() {
	for _, j := range g.later.done() {
		x, err := g.made(j.x, j.mem, j.err)
		if err == nil && g.regs.cache != nil && !j.shared {
			g.regs.cache.keep(x, j.mem, j.rights)
		}
		j.then(x, err)
	}
}

// kept returns the registration of mem that the cache has, if there is one, for one more operation.
func (g *registry) kept(mem transport.Mem, rights int) *registration {
	if g.regs.cache == nil {
		return nil
	}
	return g.regs.cache.take(mem, rights)
}

// prepareOne has a goroutine register mem for one call of prepared.
func (g *registry) prepareOne(mem transport.Mem, rights int, then func(err error)) {
	g.registerLater(mem, rights, func(x *registration, err error) {
		if err == nil {
			r, key := &g.regs, keyOf(mem, rights)
			if r.ready == nil {
				r.ready = map[cacheKey][]*registration{}
			}
			r.ready[key] = append(r.ready[key], x)
		}
		then(err)
	})
}

// prepared is register of long memory: of what prepareOne has made, or the cache has.
func (g *registry) prepared(mem transport.Mem, rights int) (*registration, error) {
	key := keyOf(mem, rights)
	if list := g.regs.ready[key]; len(list) > 0 {
		x := list[0]
		if g.regs.ready[key] = list[1:]; len(list) == 1 {
			delete(g.regs.ready, key)
		}
		return x, nil
	}
	if x := g.kept(mem, rights); x != nil {
		return x, nil
	}
	return nil, errTakesLong
}

// deregister ends a registration, or the use of one that the cache has. The device has no request left that names the
// memory.
func (g *registry) deregister(x *registration) {
	if x.uses > 0 {
		g.regs.cache.give(x)
		return
	}
	g.later.end(x.region)
	g.regs.recycle(x)
}

// recycle gives the record of a registration back, whose region is another's.
func (r *registrations) recycle(x *registration) {
	x.pin.Unpin()
	*x = registration{pin: x.pin}
	r.spare = append(r.spare, x)
}

// advertise notes that a peer is told the key of x.
func (r *registrations) advertise(x *registration) {
	if r.advertised == nil {
		r.advertised = map[uint32]*registration{}
	}
	r.advertised[x.region.rkey] = x
	x.advertised++
}

// withdraw ends one advertisement. It returns the registration of which that was a use, nil: it lasts for other ranks.
func (r *registrations) withdraw(key uint32) *registration {
	x := r.advertised[key]
	if x == nil {
		return nil
	}
	if x.advertised--; x.lasting && x.advertised > 0 {
		return nil
	}
	if x.advertised == 0 {
		delete(r.advertised, key)
	}
	if x.lasting {
		if x.promised > 0 {
			return nil
		}
		delete(r.lasting, x.key)
	}
	return x
}

// drop is for Close: the queue pairs are destroyed.
func (r *registrations) drop(h *hca) {
	for _, x := range r.advertised {
		if !x.kept {
			h.deregister(x.region)
			x.pin.Unpin()
		}
	}
	for _, x := range r.lasting {
		if x.advertised == 0 && !x.kept {
			h.deregister(x.region)
			x.pin.Unpin()
		}
	}
	for _, list := range r.ready {
		for _, x := range list {
			if !x.kept {
				h.deregister(x.region)
				x.pin.Unpin()
			}
		}
	}
	r.advertised, r.lasting, r.ready = nil, nil, nil
	if r.cache != nil {
		r.cache.drop()
	}
}
