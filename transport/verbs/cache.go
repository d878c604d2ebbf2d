//go:build verbs && linux && cgo

package verbs

import (
	"runtime"
	"sync"
	"weak"

	"github.com/gorun-mpi/mpi/transport"
)

// cacheLeast is the shortest memory whose registration is kept: a page. It is also far above the size up to which the
// allocator puts several objects into one, where a weak pointer means all of them.
const cacheLeast = 4 << 10

// registrationCache keeps registrations of Go memory after the operation for which they were made. Its methods are
// called under the engine's lock, but for shrink.
type registrationCache interface {
	// take returns the registration of mem with these rights, if there is one, for one more operation.
	take(mem transport.Mem, rights int) *registration
	// keep is offered a registration that has been made for one operation. If it is taken, x.kept is set. One by which a
	// peer may write is not taken: its key must not outlive the operation.
	keep(x *registration, mem transport.Mem, rights int)
	// give ends an operation with a registration that is kept.
	give(x *registration)
	// shrink ends all registrations that no operation needs, and reports whether there were any.
	shrink() bool
	drop()
}

// identityCache is the cache by identity: a registration is used again for the object that it was made for, and for no
// other that lies at the same address later; and for the same rights.
//
// Where to look is found by address, length and rights. Whether what is found there is meant is decided by the weak
// pointer: while the object lives, it gives its address, and so equals that of the argument, which lives as well; two
// objects that live do not lie at one address. When the object has died it gives nil, for ever, whatever lies there by
// then. (It is what comparing it with weak.Make(&b[0]) says, for less, and without asking the runtime about memory that
// may not be its own.)
//
// Between two operations the device knows pages that are not pinned. That is as safe as pinning as long as the object
// lives: Go's heap does not move objects, and gives pages back to the kernel (MADV_DONTNEED) only where no object is.
// The kernel leaves pages that a device has where they are: it neither swaps nor migrates nor merges them. If a future
// collector should move objects, the weak pointer gives the new address, and nothing is found there.
//
// When the object dies, the pages may be given back, and another object come to lie there on other pages: the device
// still knows the old ones. That registration is not found any more; it only holds memory. A cleanup of the object's
// ends it, in the runtime's goroutine, soon after the collection that has found the object dead: also if this rank
// never communicates again. (Looking for dead objects whenever the cache is used would cost each use, and leave the
// memory of a rank that computes.)
type identityCache struct {
	hca   *hca
	ends  *registrar // ends registrations of long memory
	limit int        // of len(entries)

	mu      sync.Mutex // guards what follows, and the cache's fields of all entries
	entries map[cacheKey]*registration
	idle    registration // head of the list of entries that no operation uses; next: used last
	closed  bool
	leaving sync.WaitGroup // cleanups that deregister: the device must not be closed meanwhile
	stats   cacheStats
}

// cacheKey is where a registration is looked for. It is not what it is.
type cacheKey struct {
	addr           uint64
	length, rights int
}

func keyOf(mem transport.Mem, rights int) cacheKey { return cacheKey{mem.Number(), mem.Len, rights} }

type cacheStats struct {
	hits, kept, evicted, died int
}

// cacheEntry is a registration's part that belongs to the cache.
type cacheEntry struct {
	kept    bool // in the cache's entries
	key     cacheKey
	object  weak.Pointer[byte]
	cleanup runtime.Cleanup
	// uses are operations; 0 for what is not the cache's. It changes under the engine's lock too, and needs only that to
	// be read.
	uses       int
	prev, next *registration // in the cache's idle list while kept and not in use
}

func newIdentityCache(h *hca, ends *registrar, limit int) *identityCache {
	c := &identityCache{hca: h, ends: ends, limit: limit, entries: map[cacheKey]*registration{}}
	c.idle.next, c.idle.prev = &c.idle, &c.idle
	return c
}

func (c *identityCache) take(mem transport.Mem, rights int) *registration {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.entries[keyOf(mem, rights)]
	if x == nil {
		return nil
	}
	if x.object.Value() != (*byte)(mem.Addr) {
		c.end(x) // it has died, and its cleanup is still to come
		c.stats.died++
		return nil
	}
	if x.uses == 0 {
		x.unlink()
		x.pin.Pin(mem.Addr)
	}
	x.uses++
	c.stats.hits++
	return x
}

func (c *identityCache) keep(x *registration, mem transport.Mem, rights int) {
	b := mem.Bytes()
	if len(b) < cacheLeast || rights&remoteWrite != 0 || !onHeap(b) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.entries[keyOf(mem, rights)] != nil || // two operations have registered it at the same time
		len(c.entries) >= c.limit && !c.evict() {
		return
	}
	x.cacheEntry = cacheEntry{kept: true, key: keyOf(mem, rights), object: weak.Make(&b[0]), uses: 1}
	x.cleanup = runtime.AddCleanup(&b[0], c.died, x)
	c.entries[x.key] = x
	c.stats.kept++
}

func (c *identityCache) give(x *registration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.uses--; x.uses > 0 || c.closed {
		return
	}
	x.pin.Unpin()
	x.prev, x.next = &c.idle, c.idle.next
	x.prev.next, x.next.prev = x, x
}

// evict ends the registration that has not been used for longest. It reports whether there was one: all may be in use.
func (c *identityCache) evict() bool {
	x := c.idle.prev
	if x == &c.idle {
		return false
	}
	c.end(x)
	c.stats.evicted++
	return true
}

// end ends an idle registration.
func (c *identityCache) end(x *registration) {
	c.remove(x)
	c.ends.end(x.region)
}

// remove takes x out. Its registration is the caller's.
func (c *identityCache) remove(x *registration) {
	delete(c.entries, x.key)
	x.kept = false
	x.cleanup.Stop()
	if x.uses == 0 {
		x.unlink()
	}
}

func (x *registration) unlink() {
	x.prev.next, x.next.prev = x.next, x.prev
	x.prev, x.next = nil, nil
}

// died is the cleanup of the memory's object. It is not in use, since an operation that uses it has pinned it.
func (c *identityCache) died(x *registration) {
	c.mu.Lock()
	if !x.kept {
		c.mu.Unlock()
		return
	}
	c.remove(x)
	c.stats.died++
	c.leaving.Add(1)
	c.mu.Unlock()
	c.hca.deregister(x.region) // takes its time where the memory is large: not under the lock
	c.leaving.Done()
}

func (c *identityCache) shrink() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	some := false
	for c.evict() {
		some = true
	}
	return some
}

func (c *identityCache) drop() {
	c.mu.Lock()
	c.closed = true
	for _, x := range c.entries {
		c.remove(x)
		x.pin.Unpin()
		c.hca.deregister(x.region)
	}
	c.mu.Unlock()
	c.leaving.Wait()
}
