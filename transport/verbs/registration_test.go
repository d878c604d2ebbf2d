//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/transport"
)

const readWrite = transport.Readable | transport.Writable

// A key allows what its memory was registered for and nothing else, also if the same memory is registered for something
// else, and if the cache has such registrations. What it does not allow fails and writes nothing.
func TestRights(t *testing.T) {
	type try func(rma *transport.RMA, buf transport.Mem, addr, key uint64) (transport.State, error)
	get := func(rma *transport.RMA, buf transport.Mem, addr, key uint64) (transport.State, error) {
		return rma.Get(buf, addr, key, 5)
	}
	put := func(rma *transport.RMA, buf transport.Mem, addr, key uint64) (transport.State, error) {
		return rma.Put(buf, addr, key, 5)
	}
	note := func(rma *transport.RMA, buf transport.Mem, addr, key uint64) (transport.State, error) {
		return rma.PutNote(buf, addr, key, 1, 5)
	}
	add := func(rma *transport.RMA, _ transport.Mem, addr, key uint64) (transport.State, error) {
		return rma.FetchAdd(1, addr, key, 5)
	}
	swap := func(rma *transport.RMA, _ transport.Mem, addr, key uint64) (transport.State, error) {
		return rma.CompareSwap(word(pattern(bytesOfRights, 1)), 1, addr, key, 5)
	}
	for _, c := range []struct {
		what   string
		access transport.Access
		try    try
		ok     bool
	}{
		{"Get of Readable", transport.Readable, get, true},
		{"Put into Readable", transport.Readable, put, false},
		{"PutNote into Readable", transport.Readable, note, false},
		{"FetchAdd to Readable", transport.Readable, add, false},
		{"CompareSwap of Readable", transport.Readable, swap, false},
		{"Get of Writable", transport.Writable, get, false},
		{"Put into Writable", transport.Writable, put, true},
		{"FetchAdd to Writable", transport.Writable, add, true},
		{"CompareSwap of Writable", transport.Writable, swap, true},
		{"Get of both", readWrite, get, true},
		{"Put into both", readWrite, put, true},
	} {
		for _, cached := range []int{0, 8} {
			t.Run(fmt.Sprint(c.what, ", cache ", cached), func(t *testing.T) {
				watchdog(t)
				a, b, ab, ba := two(t, caching(cached))
				mem, buf := pattern(bytesOfRights, 1), pattern(bytesOfRights, 2)
				others := map[uint64]bool{}
				for _, other := range []transport.Access{transport.Readable, transport.Writable, readWrite} {
					if other == c.access {
						continue
					}
					addr, key, ok := ba.caps.RMA.Register(transport.HostMem(mem), other)
					if !ok {
						t.Fatal("not registered")
					}
					others[key] = true
					defer ba.caps.RMA.Deregister(addr, key)
				}
				addr, key, ok := ba.caps.RMA.Register(transport.HostMem(mem), c.access)
				if !ok || others[key] {
					t.Fatalf("registered %v, with the key of other rights %v", ok, others[key])
				}
				if cached > 0 && c.access == transport.Readable { // the one that is used is the one that is kept
					ba.caps.RMA.Deregister(addr, key)
					if _, again, _ := ba.caps.RMA.Register(transport.HostMem(mem), c.access); again != key {
						t.Errorf("key %#x, and %#x for the same memory and rights", key, again)
					}
				}
				if st, err := c.try(ab.caps.RMA, transport.HostMem(buf), addr, key); err != nil || st != transport.Started {
					t.Fatal(st, err)
				}
				if p := a.take(transport.RMADone); p.Cookie != 5 || (p.Err == nil) != c.ok {
					t.Fatalf("operation %d ended with %v", p.Cookie, p.Err)
				}
				if c.ok {
					if bytes.Equal(mem, pattern(len(mem), 1)) && bytes.Equal(buf, pattern(len(buf), 2)) {
						t.Error("nothing was written")
					}
					return
				}
				a.down(1)
				b.down(0)
				if !bytes.Equal(mem, pattern(len(mem), 1)) || !bytes.Equal(buf, pattern(len(buf), 2)) {
					t.Error("something was written")
				}
			})
		}
	}
}

const bytesOfRights = 2 * cacheLeast

func word(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// Memory of Alloc has one registration for each kind of access, with those rights; so each part of it has the same key.
func TestRightsOfAlloc(t *testing.T) {
	watchdog(t)
	a, _, ab, _ := two(t)
	mem, err := a.facts.Memory.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	registered := a.stats.Registered
	seen := map[uint64]bool{}
	for _, access := range []transport.Access{readWrite, transport.Readable, transport.Writable} {
		_, key, _ := ab.caps.RMA.Register(transport.HostMem(mem), access)
		addr, again, ok := ab.caps.RMA.Register(transport.HostMem(mem[100:200]), access)
		if !ok || again != key || addr != addressOf(mem[100:]) {
			t.Errorf("%v, key %#x, want %#x; address %#x of %#x", ok, again, key, addr, addressOf(mem))
		}
		if seen[key] {
			t.Errorf("access %d has the key of another", access)
		}
		seen[key] = true
	}
	if a.stats.Registered != registered {
		t.Error("what is registered was registered again")
	}
}

// A device without atomics offers none, and asks for no right to them.
func TestNoAtomics(t *testing.T) {
	watchdog(t)
	a, b := newEnd(t, 0, 2), newEnd(t, 1, 2)
	a.at.caps.atomics = false
	if rma := a.link(b).caps.RMA; rma.FetchAdd != nil || rma.CompareSwap != nil || rma.Put == nil {
		t.Errorf("%+v", rma)
	}
	if r := a.rights(readWrite); r != remoteRead|localWrite|remoteWrite {
		t.Errorf("rights %#x", r)
	}
	if r := b.rights(transport.Writable); r != localWrite|remoteWrite|remoteAtomic {
		t.Errorf("rights %#x", r)
	}
}

// Memory that is not the host's is refused wherever it is given, whatever its address is.
func TestOtherKinds(t *testing.T) {
	g := newTaggers(t)
	own, err := g.dev[1].facts.Memory.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	rma := g.link[1].Caps().RMA
	for _, b := range [][]byte{make([]byte, 1<<20), own} {
		mem := transport.HostMem(b)
		addr, key, ok := rma.Register(mem, readWrite)
		if !ok {
			t.Fatal("not registered")
		}
		mem.Kind = transport.Host + 1
		if _, _, ok := rma.Register(mem, readWrite); ok {
			t.Error("registered")
		}
		if st, err := rma.Get(mem, addr, key, 1); !errors.Is(err, errKind) {
			t.Errorf("Get: state %d, %v", st, err)
		}
		if st, err := rma.Put(mem, addr, key, 1); !errors.Is(err, errKind) {
			t.Errorf("Put: state %d, %v", st, err)
		}
		if got := g.dev[1].Facts().Offload.Post(5, transport.MaskExact, mem, 1); got != transport.PostedUnmapped {
			t.Errorf("Post: %d", got)
		}
	}
}

// A registration that fails is copied around, which is said once; the next may succeed.
func TestRegistrationFails(t *testing.T) {
	needSoft(t)
	watchdog(t)
	var log notes
	b := newEnd(t, 1, 2)
	t.Setenv("SOFTHCA_FAIL", "reg:4") // two are the buffers, one is for probes
	a := newEnd(t, 0, 2, log.option)
	ab, ba := a.link(b), b.link(a)
	mem, dst := pattern(100_000, 1), make([]byte, 100_000)
	addr, key, ok := ba.caps.RMA.Register(transport.HostMem(mem), transport.Readable)
	if !ok {
		t.Fatal("not registered")
	}
	if state, err := ab.caps.RMA.Get(transport.HostMem(dst), addr, key, 1); err == nil ||
		!strings.Contains(err.Error(), "registering 100000 bytes") {
		t.Fatalf("state %d, %v; its registration was to fail", state, err)
	}
	if said := log.with("a message is copied because its memory could not be registered"); len(said) != 1 ||
		!strings.Contains(said[0], "100000") {
		t.Errorf("said %q", said)
	}
	talk(ab, b)
	talk(ba, a)
	if state, err := ab.caps.RMA.Get(transport.HostMem(dst), addr, key, 2); err != nil || state != transport.Started {
		t.Fatal(state, err)
	}
	if p := a.take(transport.RMADone); p.Cookie != 2 || p.Err != nil || string(dst) != string(mem) {
		t.Errorf("%d, %v", p.Cookie, p.Err)
	}
	a.noPackets()
}

// Memory for half of the buffers is enough; for too few the device says what it needs, and leaves nothing behind.
func TestFewBuffers(t *testing.T) {
	needSoft(t)
	watchdog(t)
	t.Setenv("SOFTHCA_MEMLOCK", strconv.Itoa((receives+sends)*slotSize/4))
	a, b, ab, ba := two(t)
	if a.recv.count >= receives || a.send.count >= sends {
		t.Fatalf("%d and %d buffers, and there is no room for them", a.recv.count, a.send.count)
	}
	random(t, 1, 3000, eagerMax, a, b, ab, ba)
	t.Setenv("SOFTHCA_MEMLOCK", "1000000")
	files := leak.Files()
	opt := options(t, 0, 2, func(string, ...any) {})
	if d, err := New(opt); !errors.Is(err, transport.ErrUnavailable) ||
		!strings.Contains(err.Error(), "KiB for receive and send buffers: registering ") {
		t.Errorf("%v, %v", d, err)
	}
	if now := leak.Files(); now > files {
		t.Errorf("%d descriptors, %d before", now, files)
	}
}

// Memory that is registered for long is so once, for all peers, however short it is, until the last one's registration
// ends. What comes later fails and writes nothing.
func TestLasting(t *testing.T) {
	watchdog(t)
	long := func(o *Options) { o.RegisterFrom = 1 << 30 }
	a, b, c := newEnd(t, 0, 3, long), newEnd(t, 1, 3, long), newEnd(t, 2, 3, long)
	ab, ba, bc := a.link(b), b.link(a), b.link(c)
	mem, src := make([]byte, 8), pattern(8, 1)
	before := b.stats.Registered
	addr, key, ok := ba.caps.RMA.Register(transport.HostMem(mem), readWrite|transport.Lasting)
	again, same, _ := bc.caps.RMA.Register(transport.HostMem(mem), readWrite|transport.Lasting)
	if !ok || again != addr || same != key || b.stats.Registered != before+1 {
		t.Fatalf("keys %#x and %#x, %d registrations", key, same, b.stats.Registered-before)
	}
	bc.caps.RMA.Deregister(addr, key)
	if _, err := ab.caps.RMA.Put(transport.HostMem(src), addr, key, 1); err != nil {
		t.Fatal(err)
	}
	if p := a.take(transport.RMADone); p.Err != nil || !bytes.Equal(mem, src) {
		t.Fatal(p.Err, mem)
	}
	ba.caps.RMA.Deregister(addr, key)
	ab.caps.RMA.Put(transport.HostMem(make([]byte, 8)), addr, key, 2)
	if p := a.take(transport.RMADone); p.Err == nil || !bytes.Equal(mem, src) {
		t.Errorf("a WRITE with a key that has ended: %v, and the memory is %x", p.Err, mem)
	}
	a.down(1)
	b.down(0)
}

// Short memory is not registered for a READ or a WRITE, but copied; it is right whatever its length, also where more is
// under way than there are buffers.
func TestShortIsCopied(t *testing.T) {
	watchdog(t)
	a, _, ab, ba := two(t)
	far := make([]byte, 1<<20)
	addr, key, ok := ba.caps.RMA.Register(transport.HostMem(far), readWrite)
	if !ok {
		t.Fatal("not registered")
	}
	registered, free := a.stats.Registered, len(a.freeSends)
	full := 0
	each := func(op func(mem transport.Mem, addr, key, cookie uint64) (transport.State, error), bufs [][]byte) {
		under := 0
		for i := 0; i < len(bufs) || under > 0; {
			if i < len(bufs) {
				st, err := op(transport.HostMem(bufs[i]), addr+uint64(i*eagerMax), key, 1)
				if err != nil {
					t.Fatal(err)
				}
				if st == transport.Started {
					i, under = i+1, under+1
					continue
				}
				full++
			}
			a.until("an end", func() bool { return len(a.in) > 0 })
			for _, p := range a.in {
				if p.Event == transport.RMADone {
					under--
				}
				if p.Err != nil {
					t.Fatal(p.Err)
				}
			}
			a.in = nil
		}
	}
	for _, size := range []int{1, 8, ab.s.inline, ab.s.inline + 1, 4096, eagerMax} {
		var src, dst [][]byte
		for i := range len(far) / eagerMax {
			src, dst = append(src, pattern(size, uint64(size+i))), append(dst, make([]byte, size))
		}
		each(ab.caps.RMA.Put, src)
		each(ab.caps.RMA.Get, dst)
		for i := range src {
			if !bytes.Equal(dst[i], src[i]) {
				t.Fatalf("%d bytes: place %d is wrong", size, i)
			}
		}
	}
	if a.stats.Registered != registered || len(a.freeSends) != free || full == 0 {
		t.Errorf("%d registrations; %d of %d buffers are free; the link was full %d times",
			a.stats.Registered-registered, len(a.freeSends), free, full)
	}
}
