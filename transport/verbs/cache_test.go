//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport"
)

// caching has a device keep registrations.
func caching(n int) func(*Options) { return func(o *Options) { o.Cache = n } }

func (e *end) cached() *identityCache { return e.regs.cache.(*identityCache) }

func (c *identityCache) counts() (s cacheStats, entries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats, len(c.entries)
}

func register(t testing.TB, l *link, b []byte) (addr, key uint64) {
	t.Helper()
	return registerFor(t, l, b, transport.Readable)
}

// registerFor registers b, and waits where that takes long.
func registerFor(t testing.TB, l *link, b []byte, access transport.Access) (addr, key uint64) {
	t.Helper()
	rma, mem := l.caps.RMA, transport.HostMem(b)
	addr, key, ok := rma.Register(mem, access)
	if !ok && rma.Prepare(mem, access, 98) {
		var pkts [1]transport.Packet
		for l.s.d.Poll(pkts[:]) == 0 {
			runtime.Gosched()
		}
		if p := &pkts[0]; p.Event != transport.RMADone || p.Cookie != 98 || p.Err != nil {
			t.Fatalf("event %d, cookie %d, %v; want the end of a registration", p.Event, p.Cookie, p.Err)
		}
		addr, key, ok = rma.Register(mem, access)
	}
	if !ok {
		t.Fatalf("%d bytes were not registered", len(b))
	}
	return addr, key
}

// fetch reads into dst what the peer has advertised.
func fetch(t testing.TB, l *link, e, peer *end, dst []byte, addr, key uint64) error {
	t.Helper()
	st, err := l.caps.RMA.Get(transport.HostMem(dst), addr, key, 99)
	if err != nil {
		return err
	}
	if st != transport.Started {
		t.Fatalf("a READ of %d bytes: state %d", len(dst), st)
	}
	e.until("the end of a READ", func() bool { return len(e.in) > 0 }, peer)
	p := e.in[0]
	e.in = e.in[1:]
	if p.Event != transport.RMADone || p.Cookie != 99 {
		t.Fatalf("event %d, cookie %d, %v; want the end of a READ", p.Event, p.Cookie, p.Err)
	}
	return p.Err
}

// carried has b read what src of a is, and reports whether that is what it has.
func carried(t testing.TB, a, b *end, ab, ba *link, src, dst []byte) bool {
	t.Helper()
	addr, key := register(t, ab, src)
	if err := fetch(t, ba, b, a, dst, addr, key); err != nil {
		t.Fatal(err)
	}
	ab.caps.RMA.Deregister(addr, key)
	return bytes.Equal(src, dst)
}

// carry does it where anything else would be wrong.
func carry(t testing.TB, a, b *end, ab, ba *link, src, dst []byte) {
	t.Helper()
	if !carried(t, a, b, ab, ba, src, dst) {
		t.Errorf("%d bytes: other contents than those that were sent", len(src))
	}
}

// counts returns what a counter of the software HCA has gone up by since, at both ends together.
func counts(a, b *end, name string) (since func() int) {
	both := func() int { return int(a.counted(name) + b.counted(name)) }
	before := both()
	return func() int { return both() - before }
}

// Memory of other kinds than objects of their own on the heap.
var linked [3 * cacheLeast]byte

type holder struct {
	_      [5000]byte
	p      *int
	inside [9000]byte
}

// anonymous is memory that Go knows nothing of.
func anonymous(t *testing.T, prot int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, 1<<20, prot, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// Memory of every kind may be asked about, and none ends the program.
func TestHeapIsKnown(t *testing.T) {
	if !heapIsKnown() {
		t.Fatal("reflect does not say any more what the heap is: onHeap needs another way")
	}
	mapped := anonymous(t, unix.PROT_READ|unix.PROT_WRITE)
	slab := pages(1 << 20)
	defer unmap(slab)
	r := new(holder)
	large := make([]byte, 64<<20)
	for _, c := range []struct {
		what string
		mem  []byte
		want bool
	}{
		{"an object of its own", make([]byte, 100<<10), true},
		{"a small object", make([]byte, 100), true},
		{"a tiny object", make([]byte, 1), true},
		{"the middle of an object", large[31<<20+7:], true},
		{"the end of an object", large[len(large)-1:], true},
		{"a part of a struct", r.inside[:], true},
		{"a global", linked[:], false},
		{"the middle of a global", linked[5000:], false},
		{"no bytes", []byte{}, false},
		{"no slice", nil, false},
		{"mmap's", mapped, false},
		{"the end of mmap's", mapped[len(mapped)-1:], false},
		{"memory that may not be touched", anonymous(t, unix.PROT_NONE), false},
		{"a slab", slab[123:], false},
	} {
		if got := onHeap(c.mem); got != c.want && len(c.mem) > 0 {
			t.Errorf("%s: on the heap: %v", c.what, got)
		}
	}
}

// Messages in memory of every kind, twice: right contents, nothing ends the program, and kept is what may be.
func TestCacheTakesMemoryOfAllKinds(t *testing.T) {
	watchdog(t)
	a, b, ab, ba := two(t, caching(64))
	mapped := anonymous(t, unix.PROT_READ|unix.PROT_WRITE)
	given, err := a.facts.Memory.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer a.facts.Memory.Free(given)
	r := &holder{p: new(int)}
	object := make([]byte, 1<<20)
	for i, c := range []struct {
		what string
		mem  []byte
		kept bool
	}{
		{"an object", object[:], true},
		{"its first part", object[:100<<10], true},
		{"another part", object[4097 : 200<<10], true},
		{"its end", object[len(object)-cacheLeast:], true},
		{"a part of a struct with pointers", r.inside[:], true},
		{"the shortest that is kept", make([]byte, cacheLeast), true},
		{"less than that", make([]byte, cacheLeast-1), false},
		{"a tiny object", make([]byte, 3), false},
		{"a global", linked[1:], false},
		{"mmap's", mapped[10 : 500<<10], false},
		{"Alloc's", given[10 : 500<<10], false},
	} {
		before, _ := a.cached().counts()
		for again := range 2 {
			fill(c.mem, uint64(2*i+again))
			dst := make([]byte, len(c.mem))
			carry(t, a, b, ab, ba, c.mem, dst)
		}
		after, _ := a.cached().counts()
		kept, hits := after.kept-before.kept, after.hits-before.hits
		if c.kept && (kept != 1 || hits != 1) || !c.kept && kept+hits != 0 {
			t.Errorf("%s: %d registrations kept and %d used again", c.what, kept, hits)
		}
	}
}

// The second message in the same memory needs no registration; one in other memory, of another length or for another
// use does.
func TestCacheIsUsed(t *testing.T) {
	watchdog(t)
	needSoft(t)
	a, b, ab, ba := two(t, caching(64))
	src, dst := make([]byte, 1<<20), make([]byte, 1<<20)
	carry(t, a, b, ab, ba, src, dst)
	registrations, regions := counts(a, b, "registrations"), counts(a, b, "mrs")
	for i := range 10 {
		fill(src, uint64(i))
		carry(t, a, b, ab, ba, src, dst)
	}
	if n := registrations(); n != 0 {
		t.Errorf("%d registrations for messages in memory that was registered", n)
	}
	carry(t, a, b, ab, ba, src[1:], dst[:len(dst)-1])
	carry(t, b, a, ba, ab, dst, src) // the other way: to be read, and to be written
	if n := registrations(); n != 4 {
		t.Errorf("%d registrations for two new parts and two new uses", n)
	}
	if n := regions(); n != 4 {
		t.Errorf("%d regions more", n)
	}
}

// Without the setting a registration ends with its message.
func TestNoCache(t *testing.T) {
	watchdog(t)
	needSoft(t)
	a, b, ab, ba := two(t)
	if a.regs.cache != nil {
		t.Fatal("a cache that was not asked for")
	}
	src, dst := make([]byte, 1<<20), make([]byte, 1<<20)
	registrations, regions := counts(a, b, "registrations"), counts(a, b, "mrs")
	for i := range 3 {
		carry(t, a, b, ab, ba, fill(src, uint64(i)), dst)
	}
	if n := regions(); n != 0 {
		t.Errorf("%d regions are left", n)
	}
	if n := registrations(); n != 6 {
		t.Errorf("%d registrations for 3 messages at 2 ends", n)
	}
}

// The cache has a bound. What is in use stays; of the rest, what was used last.
func TestCacheIsBounded(t *testing.T) {
	watchdog(t)
	needSoft(t)
	a, _, ab, _ := two(t, caching(4))
	mrs := a.counted("mrs")
	var bufs [8][]byte
	for i := range bufs {
		bufs[i] = make([]byte, 64<<10)
	}
	use := func(i int) (hit bool) {
		t.Helper()
		before, _ := a.cached().counts()
		ab.caps.RMA.Deregister(register(t, ab, bufs[i]))
		after, n := a.cached().counts()
		if n > 4 || a.counted("mrs")-mrs > 4 {
			t.Errorf("%d entries, %d regions", n, a.counted("mrs")-mrs)
		}
		return after.hits > before.hits
	}
	for i := range 4 {
		use(i)
	}
	use(0)
	use(4) // in place of 1
	for i, want := range []bool{true, false, false, false, false} {
		if i == 0 && use(i) != want {
			t.Error("what was used last was given up")
		}
	}
	if use(1) {
		t.Error("what was used first was kept beyond the bound")
	}

	var addrs, keys [8]uint64
	for i := range bufs { // eight in use: four are kept, and four end with their operations
		addrs[i], keys[i] = register(t, ab, bufs[i])
	}
	if _, n := a.cached().counts(); n != 4 || a.counted("mrs")-mrs != 8 {
		t.Errorf("%d entries, %d regions with 8 in use and a bound of 4", n, a.counted("mrs")-mrs)
	}
	for i := range bufs {
		ab.caps.RMA.Deregister(addrs[i], keys[i])
	}
	if _, n := a.cached().counts(); n != 4 || a.counted("mrs")-mrs != 4 {
		t.Errorf("%d entries, %d regions after all have ended", n, a.counted("mrs")-mrs)
	}
}

// Two operations use one registration; it stays pinned, and is not given up, until both have ended.
func TestCacheIsShared(t *testing.T) {
	watchdog(t)
	needSoft(t)
	a, b, ab, ba := two(t, caching(1))
	src, dst := fill(make([]byte, 256<<10), 1), make([]byte, 256<<10)
	addr, key := register(t, ab, src)
	again, sameKey := register(t, ab, src)
	if again != addr || sameKey != key {
		t.Fatalf("two registrations of one memory: %#x and %#x", key, sameKey)
	}
	ab.caps.RMA.Deregister(addr, key)
	ab.caps.RMA.Deregister(register(t, ab, make([]byte, 256<<10))) // finds no room
	if err := fetch(t, ba, b, a, dst, addr, key); err != nil || !bytes.Equal(src, dst) {
		t.Errorf("the memory that the second operation needs: %v", err)
	}
	ab.caps.RMA.Deregister(addr, key)
	if x := a.regs.advertised[uint32(key)]; x != nil {
		t.Error("it is still advertised")
	}
	ab.caps.RMA.Deregister(addr, key) // once too often: nothing
	if s, n := a.cached().counts(); n != 1 || s.kept != 1 {
		t.Errorf("%d entries, %+v", n, s)
	}
}

// When the object dies its registration ends, without a call of the device.
func TestCacheForgetsTheDead(t *testing.T) {
	watchdog(t)
	needSoft(t)
	a, _, ab, _ := two(t, caching(64))
	mrs := a.counted("mrs")
	alive := make([]byte, 256<<10)
	ab.caps.RMA.Deregister(register(t, ab, alive))
	for range 10 {
		ab.caps.RMA.Deregister(register(t, ab, make([]byte, 256<<10)))
	}
	ab.caps.RMA.Deregister(register(t, ab, make([]byte, 1<<20)[4097:])) // by a pointer into the object
	for limit := time.Now().Add(patience); a.counted("mrs")-mrs > 1; time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Now().After(limit) {
			t.Fatalf("%d regions, of which one has a live object", a.counted("mrs")-mrs)
		}
	}
	s, n := a.cached().counts()
	if n != 1 || s.died != 11 {
		t.Errorf("%d entries, %+v", n, s)
	}
	ab.caps.RMA.Deregister(register(t, ab, alive))
	if s, _ := a.cached().counts(); s.hits != 1 {
		t.Errorf("that of the live object is gone: %+v", s)
	}
	runtime.KeepAlive(alive)
}

// Where no more may be registered, what is kept makes room.
func TestCacheMakesRoom(t *testing.T) {
	watchdog(t)
	needSoft(t)
	t.Setenv("SOFTHCA_MEMLOCK", "30000000") // the device's own slabs are 13 MB
	a, _, ab, _ := two(t, caching(64))
	var kept [][]byte
	for range 20 {
		b := make([]byte, 5<<20)
		ab.caps.RMA.Deregister(register(t, ab, b))
		kept = append(kept, b)
	}
	if s, _ := a.cached().counts(); s.evicted == 0 || s.kept != len(kept) {
		t.Errorf("%+v", s)
	}
	ab.caps.RMA.Deregister(register(t, ab, make([]byte, 5<<20)))
	given, err := a.facts.Memory.Alloc(14 << 20)
	if err != nil {
		t.Errorf("Alloc gets no room: %v", err)
	} else if err := a.facts.Memory.Free(given); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(kept)
}

// Objects that die while the device is closed, and after.
func TestCacheEnds(t *testing.T) {
	watchdog(t)
	for range 5 {
		a, _, ab, _ := two(t, caching(64))
		c := a.cached()
		inUse := make([]byte, 256<<10)
		addr, key := register(t, ab, inUse)
		for range 20 {
			ab.caps.RMA.Deregister(register(t, ab, make([]byte, 256<<10)))
		}
		x, err := a.register(transport.HostMem(make([]byte, 256<<10)), localWrite)
		if err != nil || x.uses != 1 {
			t.Fatal(x, err)
		}
		go runtime.GC()
		a.Close()
		ab.caps.RMA.Deregister(addr, key)
		a.deregister(x)
		if x.uses != 0 || !c.closed {
			t.Errorf("%d uses, closed %v", x.uses, c.closed)
		}
		runtime.GC()
		if _, n := c.counts(); n != 0 {
			t.Errorf("%d entries are left", n)
		}
	}
}

// Messages in memory that is registered make no garbage.
func TestCacheAllocatesNothing(t *testing.T) {
	watchdog(t)
	a, b, ab, ba := two(t, caching(64))
	src, dst := make([]byte, 256<<10), make([]byte, 256<<10)
	one := func() {
		addr, key := register(t, ab, src)
		x, err := b.register(transport.HostMem(dst), localWrite)
		if err != nil {
			t.Fatal(err)
		}
		b.deregister(x)
		ab.caps.RMA.Deregister(addr, key)
	}
	carry(t, a, b, ab, ba, src, dst)
	if n := testing.AllocsPerRun(100, one); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
