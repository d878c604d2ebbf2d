//go:build verbs && linux && cgo

package verbs

import (
	"runtime"
	"sync"
	"weak"
)

// cacheLeast is the shortest memory whose registration is kept: a page. It is also far above the size up to which the
// allocator puts several objects into one, where a weak pointer means all of them.
const cacheLeast = 4 << 10

// keeper keeps registrations of Go memory after the operation for which they were made. Its methods are called under
// the engine's lock, but for shrink.
type keeper interface {
	// take returns the registration of b, if there is one, for one more operation.
	take(b []byte, access int) *exposure
	// keep is offered a registration that has been made for one operation. If it is taken, x.kept is set.
	keep(x *exposure, b []byte, access int)
	// give ends an operation with a registration that is kept.
	give(x *exposure)
	// forget is give for memory that may still be written to by somebody who has the key: the registration must end.
	forget(x *exposure)
	// shrink ends all registrations that no operation needs, and reports whether there were any.
	shrink() bool
	drop()
}

// cache is the keeper by identity: a registration is used again for the object that it was made for, and for no other
// that lies at the same address later.
//
// Where to look is found by address, length and access. Whether what is found there is meant is decided by the weak
// pointer: while the object lives, it gives its address, and so equals that of the argument, which lives as well; two
// objects that live do not lie at one address. When the object has died it gives nil, for ever, whatever lies there by
// then. (It is what comparing it with weak.Make(&b[0]) says, for less, and without asking the runtime about memory that
// may not be its own.)
//
// Between two operations the device knows pages that nobody has pinned. That is as safe as pinning as long as the object
// lives: Go's heap does not move objects, and gives pages back to the kernel (MADV_DONTNEED) only where no object is. The
// kernel keeps its hands off pages that a device has: it neither swaps nor migrates nor merges them. If a future
// collector should move objects, the weak pointer gives the new address, and nothing is found there.
//
// When the object dies, the pages may be given back, and another object come to lie there on other pages: the device
// still knows the old ones. Nobody finds that registration any more; it only holds memory. A cleanup of the object's ends
// it, in the runtime's goroutine, soon after the collection that has found the object dead: also if this rank never
// communicates again. (Looking for dead objects whenever the cache is used would cost each use and leave the memory of a
// rank that computes.)
type cache struct {
	hca   *hca
	limit int // of len(entries)

	mu      sync.Mutex // guards what follows, and the cache's fields of all entries
	entries map[place]*exposure
	idle    exposure // head of the list of entries that no operation uses; next: used last
	closed  bool
	leaving sync.WaitGroup // cleanups that deregister: the device must not be closed meanwhile
	stats   cacheStats
}

// place is where a registration is looked for. It is not what it is.
type place struct {
	addr           uint64
	length, access int
}

type cacheStats struct {
	hits, kept, evicted, died int
}

// entry is an exposure's part that belongs to the cache.
type entry struct {
	kept       bool // in cache.entries
	at         place
	object     weak.Pointer[byte]
	cleanup    runtime.Cleanup
	uses       int       // operations; 0 for what is not the cache's. Changes under the engine's lock too, and needs only that to be read
	prev, next *exposure // in cache.idle while kept and not in use
}

func newCache(h *hca, limit int) *cache {
	c := &cache{hca: h, limit: limit, entries: map[place]*exposure{}}
	c.idle.next, c.idle.prev = &c.idle, &c.idle
	return c
}

func (c *cache) take(b []byte, access int) *exposure {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.entries[place{addressOf(b), len(b), access}]
	if x == nil {
		return nil
	}
	if x.object.Value() != &b[0] {
		c.end(x) // it has died, and its cleanup is still to come
		c.stats.died++
		return nil
	}
	if x.uses == 0 {
		x.unlink()
		x.pin.Pin(&b[0])
	}
	x.uses++
	c.stats.hits++
	return x
}

func (c *cache) keep(x *exposure, b []byte, access int) {
	if len(b) < cacheLeast || !onHeap(b) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.entries) >= c.limit && !c.evict() {
		return
	}
	x.entry = entry{kept: true, at: place{addressOf(b), len(b), access}, object: weak.Make(&b[0]), uses: 1}
	x.cleanup = runtime.AddCleanup(&b[0], c.died, x)
	c.entries[x.at] = x
	c.stats.kept++
}

func (c *cache) give(x *exposure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.uses--; x.uses > 0 || c.closed {
		return
	}
	x.pin.Unpin()
	if !x.kept { // forgotten
		c.hca.deregister(x.reg)
		return
	}
	x.prev, x.next = &c.idle, c.idle.next
	x.prev.next, x.next.prev = x, x
}

func (c *cache) forget(x *exposure) {
	c.mu.Lock()
	if x.kept {
		c.remove(x) // who else uses it may go on
	}
	c.mu.Unlock()
	c.give(x)
}

// evict ends the registration that has not been used for longest. False: all are in use.
func (c *cache) evict() bool {
	x := c.idle.prev
	if x == &c.idle {
		return false
	}
	c.end(x)
	c.stats.evicted++
	return true
}

// end ends an idle registration.
func (c *cache) end(x *exposure) {
	c.remove(x)
	c.hca.deregister(x.reg)
}

// remove takes x out. Its registration is the caller's.
func (c *cache) remove(x *exposure) {
	delete(c.entries, x.at)
	x.kept = false
	x.cleanup.Stop()
	if x.uses == 0 {
		x.unlink()
	}
}

func (x *exposure) unlink() {
	x.prev.next, x.next.prev = x.next, x.prev
	x.prev, x.next = nil, nil
}

// died is the cleanup of the memory's object. It is not in use: whoever uses it has pinned it.
func (c *cache) died(x *exposure) {
	c.mu.Lock()
	if !x.kept {
		c.mu.Unlock()
		return
	}
	c.remove(x)
	c.stats.died++
	c.leaving.Add(1)
	c.mu.Unlock()
	c.hca.deregister(x.reg) // takes its time where the memory is large: not under the lock
	c.leaving.Done()
}

func (c *cache) shrink() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	some := false
	for c.evict() {
		some = true
	}
	return some
}

func (c *cache) drop() {
	c.mu.Lock()
	c.closed = true
	for _, x := range c.entries {
		c.remove(x)
		x.pin.Unpin()
		c.hca.deregister(x.reg)
	}
	c.mu.Unlock()
	c.leaving.Wait()
}
