//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

const holdLong = "hold_registrations:1048577" // of what is longer than registerAtOnce

// untilHeld waits until so many registrations of e are under way, and held up.
func (e *end) untilHeld(n uint64, others ...*end) {
	e.t.Helper()
	e.until(fmt.Sprint(n, " registrations"), func() bool { return e.counted("held_registrations") == n }, others...)
}

// While long memory is registered, at either end, the ranks go on. The operation ends when the registration has.
func TestLongRegistrations(t *testing.T) {
	watchdog(t)
	needSoft(t)
	a, b, ab, ba := two(t)
	src, dst := pattern(2*registerPiece+77, 1), make([]byte, 2*registerPiece+77)
	a.injected(holdLong)
	if _, _, ok := ab.caps.RMA.Register(transport.HostMem(src), transport.Readable); ok ||
		!ab.caps.RMA.Prepare(transport.HostMem(src), transport.Readable, 4) {
		t.Fatal("long memory is registered at once")
	}
	a.untilHeld(1)
	for range 10 {
		talk(ab, b)
		talk(ba, a)
	}
	a.injected("release_registrations")
	if p := a.take(transport.RMADone); p.Cookie != 4 || p.Err != nil {
		t.Fatalf("%d, %v", p.Cookie, p.Err)
	}
	addr, key, ok := ab.caps.RMA.Register(transport.HostMem(src), transport.Readable)
	if !ok {
		t.Fatal("what is prepared is refused")
	}

	b.injected(holdLong)
	if st, err := ba.caps.RMA.Get(transport.HostMem(dst), addr, key, 5); st != transport.Started || err != nil {
		t.Fatal(st, err)
	}
	b.untilHeld(2) // the third piece is short
	for range 10 {
		talk(ab, b)
		talk(ba, a)
	}
	if bytes.Equal(dst[:100], src[:100]) {
		t.Error("a piece has come whose memory is not registered")
	}
	b.injected("release_registrations")
	if p := b.take(transport.RMADone); p.Cookie != 5 || p.Err != nil || !bytes.Equal(dst, src) {
		t.Fatalf("%d, %v", p.Cookie, p.Err)
	}
	ab.caps.RMA.Deregister(addr, key)
	if _, err := ba.caps.RMA.Get(transport.HostMem(dst[:10]), addr, key, 6); err != nil {
		t.Fatal(err)
	}
}

// Long READs and WRITEs of lengths about the ends of pieces have the right contents, with a cache and without one, and
// leave no registration.
func TestPiecesContents(t *testing.T) {
	watchdog(t)
	for _, kept := range []int{0, 3, 64} {
		a, b, ab, ba := two(t, caching(kept))
		before := a.regions() + b.regions()
		for i, n := range []int{registerAtOnce + 1, registerPiece - 1, registerPiece, registerPiece + 1,
			(piecesAhead+2)*registerPiece + 5} {
			src, dst := pattern(n, uint64(i)), make([]byte, n)
			carry(t, a, b, ab, ba, src, dst)
			carry(t, a, b, ab, ba, fill(src, uint64(i+100)), dst)
			addr, key := registerFor(t, ba, dst, readWrite|transport.Lasting)
			fill(src, uint64(i+200))
			if st, err := ab.caps.RMA.Put(transport.HostMem(src), addr, key, 3); err != nil || st != transport.Started {
				t.Fatal(st, err)
			}
			if p := a.take(transport.RMADone); p.Err != nil || !bytes.Equal(src, dst) {
				t.Errorf("a WRITE of %d bytes: %v", n, p.Err)
			}
			ba.caps.RMA.Deregister(addr, key)
		}
		a.later.settle()
		b.later.settle()
		if n := a.regions() + b.regions(); kept == 0 && n != before {
			t.Errorf("%d regions, %d before", n, before)
		}
	}
}

// The failure of a piece is the operation's, when what is under way has ended, and leaves no registration.
func TestPieceFails(t *testing.T) {
	watchdog(t)
	needSoft(t)
	for fails := range 4 {
		b := newEnd(t, 1, 2)
		t.Setenv("SOFTHCA_FAIL", fmt.Sprint("reg:", 4+fails)) // two are the buffers, one is for probes
		a := newEnd(t, 0, 2)
		os.Unsetenv("SOFTHCA_FAIL")
		ab, ba := a.link(b), b.link(a)
		src, dst := pattern(4*registerPiece, 1), make([]byte, 4*registerPiece)
		before := a.regions()
		addr, key := register(t, ba, src)
		for i, want := range []string{"registering bytes ", ""} {
			err := fetch(t, ab, a, b, dst, addr, key)
			if want != "" && (err == nil || !strings.Contains(err.Error(), want)) || want == "" && err != nil {
				t.Errorf("piece %d, READ %d: %v", fails, i, err)
			}
		}
		a.later.settle()
		if n := a.regions(); n != before || !bytes.Equal(src, dst) {
			t.Errorf("%d regions, %d before", n, before)
		}
	}
}

// A peer that goes, and a device that is closed, while memory is registered: the memory is the caller's when the
// registration is over, and not before.
func TestPiecesEnd(t *testing.T) {
	watchdog(t)
	needSoft(t)
	a, b, ab, ba := two(t)
	before := a.regions()
	dst := make([]byte, 3*registerPiece)
	addr, key := register(t, ba, pattern(len(dst), 1))
	a.injected(holdLong)
	if st, err := ab.caps.RMA.Get(transport.HostMem(dst), addr, key, 5); st != transport.Started || err != nil {
		t.Fatal(st, err)
	}
	ab.caps.RMA.Prepare(transport.HostMem(dst), transport.Readable, 6)
	a.untilHeld(4)
	b.Close()
	a.down(1)
	a.injected("release_registrations")
	for range 2 {
		p := a.take(transport.RMADone)
		if p.Cookie == 5 && !errors.Is(p.Err, transport.ErrPeerGone) || p.Cookie == 6 && p.Err != nil {
			t.Errorf("operation %d: %v", p.Cookie, p.Err)
		}
	}
	_, key, ok := ab.caps.RMA.Register(transport.HostMem(dst), transport.Readable)
	if !ok {
		t.Error("what was prepared is refused")
	}
	ab.caps.RMA.Deregister(0, key)
	a.later.settle()
	if n := a.regions(); n != before {
		t.Errorf("%d regions, %d before", n, before)
	}

	c, d, cd, dc := two(t)
	before = c.regions()
	own, ownKey := register(t, cd, make([]byte, registerPiece))
	addr, key = register(t, dc, pattern(len(dst), 1))
	c.injected(holdLong)
	if st, err := cd.caps.RMA.Get(transport.HostMem(dst), addr, key, 5); st != transport.Started || err != nil {
		t.Fatal(st, err)
	}
	for i := range 6 { // more than there are goroutines
		cd.caps.RMA.Prepare(transport.HostMem(dst[i:]), transport.Readable, uint64(6+i))
	}
	c.untilHeld(registrars, d)
	cd.caps.RMA.Deregister(own, ownKey) // whose end waits for a goroutine
	if n := c.regions(); n != before+1 {
		t.Errorf("%d regions, %d before; want the one more of the registration that is to end", n, before)
	}
	closed := make(chan bool)
	go func() {
		c.Close()
		close(closed)
	}()
	for !c.closed.Load() {
		runtime.Gosched()
	}
	c.injected("release_registrations")
	<-closed
	if r := &c.later; len(r.jobs)+len(r.ends)+len(r.over)+r.workers != 0 {
		t.Errorf("a closed device has %d jobs, %d ends, %d results and %d goroutines", len(r.jobs), len(r.ends),
			len(r.over), r.workers)
	}
}

// occupied holds up all goroutines that register, until release_registrations. Each tells RMADone then.
func (e *end) occupied(l *link, others ...*end) {
	e.t.Helper()
	e.t.Cleanup(func() { e.hca.inject("release_registrations") }) // or Close would wait for ever
	e.injected(holdLong)
	long := make([]byte, 2*registerPiece)
	for i := range registrars {
		if !l.caps.RMA.Prepare(transport.HostMem(long[i:]), transport.Readable, uint64(i)) {
			e.t.Fatal("long memory is not registered by a goroutine")
		}
	}
	e.untilHeld(registrars, others...)
}

// When Deregister has returned, or the end of Revoke, a WRITE with the key fails and writes nothing, however long the
// memory is, though no goroutine is free to end a registration, and whether or not there is a cache.
func TestDeregisterEndsWrites(t *testing.T) {
	watchdog(t)
	needSoft(t)
	for _, n := range []int{2 * cacheLeast, registerPiece + 5} {
		for _, access := range []transport.Access{transport.Writable, readWrite, readWrite | transport.Lasting} {
			for i, kept := range []int{0, 8, 0} {
				t.Run(fmt.Sprintf("%d bytes, access %d, cache %d, way %d", n, access, kept, i), func(t *testing.T) {
					a, b, ab, ba := two(t, caching(kept))
					mem := pattern(n, 1)
					addr, key := registerFor(t, ba, mem, access)
					b.occupied(ba, a)
					if i < 2 {
						ba.caps.RMA.Deregister(addr, key)
					} else if end := ba.caps.RMA.Revoke(addr, key); end != nil {
						end()
					}
					st, err := ab.caps.RMA.Put(transport.HostMem(pattern(100, 2)), addr+uint64(n)-100, key, 5)
					if err != nil || st != transport.Started {
						t.Fatal(st, err)
					}
					if p := a.take(transport.RMADone); p.Cookie != 5 || p.Err == nil || !bytes.Equal(mem, pattern(n, 1)) {
						t.Fatalf("operation %d ended with %v; the memory is as it was: %v", p.Cookie, p.Err,
							bytes.Equal(mem, pattern(n, 1)))
					}
					a.down(1)
					b.down(0)
				})
			}
		}
	}
}

// A goroutine ends the registration of long memory that a peer may only read: the caller of Deregister goes on. A
// second Deregister does nothing.
func TestReadableEndsLater(t *testing.T) {
	watchdog(t)
	needSoft(t)
	a, b, _, ba := two(t)
	before := b.regions()
	addr, key := register(t, ba, make([]byte, 2*registerPiece))
	short, shortKey := register(t, ba, make([]byte, registerAtOnce))
	b.occupied(ba, a)
	for range 2 {
		ba.caps.RMA.Deregister(short, shortKey)
		ba.caps.RMA.Deregister(addr, key)
	}
	if n := b.regions(); n != before+1 {
		t.Errorf("%d regions, %d before; want one more", n, before)
	}
	b.injected("release_registrations")
	for range registrars {
		if p := b.take(transport.RMADone); p.Err != nil {
			t.Error(p.Err)
		}
	}
	b.later.settle()
	if n := b.regions(); n != before+registrars { // what is prepared is there until Register takes it
		t.Errorf("%d regions, want %d", n, before+registrars)
	}
}

// What a completion orders is registered with relaxed ordering; what peers write, and results of atomics, are not. The
// slabs ask for huge pages.
func TestRelaxedOrdering(t *testing.T) {
	watchdog(t)
	needSoft(t)
	a, _, ab, _ := two(t)
	if n := a.counted("relaxed_registrations"); n != 2 {
		t.Errorf("%d relaxed registrations of the slabs", n)
	}
	for access, want := range map[transport.Access]uint64{transport.Readable: 1, transport.Writable: 0, readWrite: 0} {
		before := a.counted("relaxed_registrations")
		addr, key, _ := ab.caps.RMA.Register(transport.HostMem(make([]byte, 1<<20)), access)
		if n := a.counted("relaxed_registrations") - before; n != want {
			t.Errorf("access %d: %d relaxed registrations", access, n)
		}
		ab.caps.RMA.Deregister(addr, key)
	}
	if text, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil {
		t.Logf("a kernel without huge pages: %s, %v", text, err)
		return
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, mine, found := strings.Cut(string(maps), fmt.Sprintf("%x-", addressOf(a.recv.mem)))
	_, flags, _ := strings.Cut(mine, "VmFlags:")
	flags, _, _ = strings.Cut(flags, "\n")
	if addressOf(a.recv.mem)%(2<<20) != 0 || !found || !strings.Contains(flags+" ", " hg ") {
		t.Errorf("the slab at %#x, %v, has the flags %q", addressOf(a.recv.mem), found, flags)
	}
}
