//go:build verbs && !guest && linux && cgo

package verbs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// What takes long for a device: a test holds it up, and packets of other peers go on meanwhile.

// untilCounted waits until a counter of the software HCA has that value.
func (e *end) untilCounted(name string, n uint64, others ...*end) {
	e.t.Helper()
	e.until(fmt.Sprint(name, " ", n), func() bool { return e.counted(name) == n }, others...)
}

// hold has the device of e be slow at calls: destructions, or registrations or deregistrations of so many bytes.
func (e *end) hold(calls string) {
	e.t.Helper()
	kind, _, _ := strings.Cut(calls, ":")
	e.t.Cleanup(func() {
		if !e.closed.Load() { // Close would wait for ever
			e.hca.inject("release_" + kind)
		}
	})
	e.injected("hold_" + calls)
}

// fromLong are the bytes of what is longer than registerAtOnce.
const fromLong = ":1048577"

// goesOn checks that packets go both ways between e and another end, also where a goroutine has something to tell Poll.
func (e *end) goesOn(l, back *link, other *end) {
	e.t.Helper()
	for range 10 {
		talk(l, other)
		talk(back, e)
	}
	if !l.caps.RMA.Prepare(transport.HostMem(make([]byte, registerPiece)), transport.Readable, 5) {
		e.t.Fatal("long memory is registered at once")
	}
	if p := e.take(transport.RMADone); p.Cookie != 5 || p.Err != nil {
		e.t.Fatalf("%d, %v", p.Cookie, p.Err)
	}
}

// connecting connects, without waiting.
func (e *end) connecting(to *end) (result chan error) {
	result = make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := e.Connect(ctx, to.rank, to.Address())
		result <- err
	}()
	return result
}

// While the device makes a queue pair, packets of other peers go on.
func TestSlowCreation(t *testing.T) {
	needSoft(t)
	watchdog(t)
	hub, first, second := newEnd(t, 0, 3), newEnd(t, 1, 3), newEnd(t, 2, 3)
	out, back := hub.link(first), first.link(hub)
	hub.hold("creations")
	result := hub.connecting(second)
	hub.untilCounted("held_creations", 1)
	hub.goesOn(out, back, first)
	hub.injected("release_creations")
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	talk(hub.link(second), second)
}

// While a probe is destroyed, packets of other peers go on, also where a goroutine has something to tell Poll, and
// sessions open: the probe's own and a later one.
func TestSlowDestruction(t *testing.T) {
	needSoft(t)
	watchdog(t)
	hub := newEnd(t, 0, 4)
	var peers [3]*end
	for i := range peers {
		peers[i] = newEnd(t, i+1, 4)
	}
	first, back := hub.link(peers[0]), peers[0].link(hub)
	hub.noProofs(1)
	hub.hold("destructions")
	for i, e := range peers[1:] {
		talk(hub.link(e), e)
		hub.untilCounted("held_destructions", uint64(i+1))
		hub.goesOn(first, back, peers[0])
	}
	if n := hub.counted("qps"); n != 5 {
		t.Errorf("%d queue pairs, want one for each of 3 peers and 2 probes", n)
	}
	hub.injected("release_destructions")
	hub.noProofs(3)
}

// A peer whose path fails its proof leaves a probe too, and Poll does not wait for its destruction.
func TestSlowDestructionOfFailure(t *testing.T) {
	needSoft(t)
	watchdog(t)
	way := holes{at0: none, at1: "1"}
	var ends [3]*end
	for rank := range ends {
		way.dig(t, rank)
		ends[rank] = newEnd(t, rank, 3)
	}
	hub, lost, other := ends[0], ends[1], ends[2]
	out, back := hub.link(other), other.link(hub)
	hub.noProofs(1)
	hub.hold("destructions")
	refused(t, hub, lost)
	hub.untilCounted("held_destructions", 1)
	hub.goesOn(out, back, other)
	hub.injected("release_destructions")
	hub.noProofs(2)
}

// Where a device has no queue pair left, the next connection waits for those that are being destroyed.
func TestRoomAfterDestruction(t *testing.T) {
	needSoft(t)
	watchdog(t)
	t.Setenv("SOFTHCA_MAX_QP", "3") // of two peers and a probe
	hub := newEnd(t, 0, 3)
	os.Unsetenv("SOFTHCA_MAX_QP")
	a, b := newEnd(t, 1, 3), newEnd(t, 2, 3)
	hub.hold("destructions")
	first := hub.link(a)
	hub.untilCounted("held_destructions", 1)
	result := hub.connecting(b)
	hub.untilCounted("held_destructions", 2) // the second is of a probe for which there was no queue pair
	talk(first, a)
	hub.injected("release_destructions")
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	talk(hub.link(b), b)
	hub.noProofs(2)
}

// lastingMemory are the kinds of memory of a window.
var lastingMemory = map[string]func(e *end, n int) []byte{
	"ordinary": func(_ *end, n int) []byte { return make([]byte, n) },
	"of Alloc": func(e *end, n int) []byte {
		mem, err := e.facts.Memory.Alloc(n)
		if err != nil {
			e.t.Fatal(err)
		}
		return mem
	},
	"imported": func(e *end, n int) []byte {
		mem := make([]byte, n)
		if err := e.facts.Memory.Import(mem); err != nil {
			e.t.Fatal(err)
		}
		return mem
	},
}

// Long memory of a window is registered once for all peers, by a goroutine: meanwhile packets go on. Each peer for
// which it was prepared is granted it, also when another peer's registration of it has ended.
func TestLastingIsPrepared(t *testing.T) {
	needSoft(t)
	for kind, alloc := range lastingMemory {
		t.Run(kind, func(t *testing.T) {
			watchdog(t)
			a, b, c := newEnd(t, 0, 3), newEnd(t, 1, 3), newEnd(t, 2, 3)
			ab, ba, bc := a.link(b), b.link(a), b.link(c)
			mem := alloc(b, 2*registerPiece+77)
			before := b.regions()
			b.hold("registrations" + fromLong)
			const access = readWrite | transport.Lasting
			for i, l := range []*link{ba, bc} {
				if _, _, ok := l.caps.RMA.Register(transport.HostMem(mem), access); ok ||
					!l.caps.RMA.Prepare(transport.HostMem(mem), access, uint64(4+i)) {
					t.Fatal("long memory is registered at once")
				}
			}
			b.untilHeld(1, a, c)
			for range 10 {
				talk(ab, b)
				talk(ba, a)
			}
			b.injected("release_registrations")
			for i := range 2 {
				if p := b.take(transport.RMADone); p.Cookie != uint64(4+i) || p.Err != nil {
					t.Fatalf("%d, %v", p.Cookie, p.Err)
				}
			}
			addr, key, ok := ba.caps.RMA.Register(transport.HostMem(mem), access)
			ba.caps.RMA.Deregister(addr, key)
			addr, again, same := bc.caps.RMA.Register(transport.HostMem(mem), access)
			if n := b.regions(); !ok || !same || again != key || n != before+1 {
				t.Fatalf("granted %v and %v, keys %#x and %#x, %d regions more", ok, same, key, again, n-before)
			}
			src := pattern(len(mem), 1)
			if st, err := ab.caps.RMA.Put(transport.HostMem(src), addr, key, 6); err != nil || st != transport.Started {
				t.Fatal(st, err)
			}
			if p := a.take(transport.RMADone); p.Cookie != 6 || p.Err != nil || !bytes.Equal(mem, src) {
				t.Errorf("%d, %v; the bytes are there: %v", p.Cookie, p.Err, bytes.Equal(mem, src))
			}
			bc.caps.RMA.Deregister(addr, key)
			if kind == "ordinary" { // other memory is registered for as long as it lives
				if n := b.regions(); n != before {
					t.Errorf("%d regions, %d before", n, before)
				}
			}
		})
	}
}

// What ends while a goroutine registers memory of a window: the memory, the device, or this rank, which may have waited
// for the registration and not have asked for it. Nothing is left of it.
func TestLastingEnds(t *testing.T) {
	needSoft(t)
	const access = readWrite | transport.Lasting
	for kind, alloc := range lastingMemory {
		for what, happens := range map[string]func(b *end, l *link, mem []byte){
			"freed": func(b *end, _ *link, mem []byte) {
				want := b.regions() - 1
				switch kind {
				case "of Alloc":
					b.facts.Memory.Free(mem)
				case "imported":
					b.facts.Memory.Forget(mem)
				default:
					want += 2 // nothing ends, and one is registered
				}
				b.injected("release_registrations")
				b.take(transport.RMADone)
				if n := b.regions(); n != want {
					t.Errorf("%s: %d regions, want %d", kind, n, want)
				}
			},
			"device fails": func(b *end, l *link, mem []byte) {
				b.injected("device_fatal")
				b.until("the end", func() bool { return len(b.in) > 0 })
				if _, _, ok := l.caps.RMA.Register(transport.HostMem(mem), access); ok {
					t.Errorf("%s: what could not be registered is granted", kind)
				}
			},
			"not asked for": func(b *end, _ *link, _ []byte) {
				b.injected("release_registrations")
				b.take(transport.RMADone)
			},
			"closed": func(*end, *link, []byte) {},
		} {
			t.Run(kind+" "+what, func(t *testing.T) {
				watchdog(t)
				a, b, _, ba := two(t)
				mem := alloc(b, registerPiece)
				b.hold("registrations" + fromLong)
				if !ba.caps.RMA.Prepare(transport.HostMem(mem), access, 4) {
					t.Fatal("not prepared")
				}
				b.untilHeld(1, a)
				happens(b, ba, mem)
			})
		}
	}
	collect()
}

// While the registration of long memory of a window ends, packets go on, and this rank's end waits for it.
func TestSlowDeregistration(t *testing.T) {
	needSoft(t)
	watchdog(t)
	a, b, ab, ba := two(t)
	const size = 4 * registerPiece // more than anything that Close deregisters
	addr, key := registerFor(t, ba, make([]byte, size), readWrite|transport.Lasting)
	b.hold(fmt.Sprint("deregistrations:", size))
	end := ba.caps.RMA.Revoke(addr, key)
	if end == nil {
		t.Fatal("the registration of long memory has ended at once")
	}
	ended, closed := make(chan bool), make(chan bool)
	go func() {
		end()
		close(ended)
	}()
	b.untilCounted("held_deregistrations", 1, a)
	for range 10 {
		talk(ab, b)
		talk(ba, a)
	}
	go func() {
		b.Close()
		close(closed)
	}()
	for closing := false; !closing; runtime.Gosched() {
		b.later.mu.Lock()
		closing = b.later.closed
		b.later.mu.Unlock()
	}
	select {
	case <-closed:
		t.Error("the device is closed, and a registration has not ended")
	case <-time.After(100 * time.Millisecond):
	}
	b.injected("release_deregistrations")
	<-ended
	<-closed
}

// While memory of Alloc is given back, this rank goes on to look for other memory.
func TestSlowFree(t *testing.T) {
	needSoft(t)
	watchdog(t)
	a, b, ab, ba := two(t)
	mem := lastingMemory["of Alloc"](b, 2*registerPiece)
	b.hold("deregistrations" + fromLong)
	freed := make(chan error)
	go func() { freed <- b.facts.Memory.Free(mem) }()
	b.untilCounted("held_deregistrations", 1, a)
	src, dst := pattern(2*cacheLeast, 1), make([]byte, 2*cacheLeast)
	carry(t, a, b, ab, ba, src, dst)
	carry(t, b, a, ba, ab, src, dst)
	b.injected("release_deregistrations")
	if err := <-freed; err != nil {
		t.Error(err)
	}
}

// collect has the program end if a registration has left memory pinned: the devices are closed, and garbage.
func collect() {
	for range 5 {
		runtime.GC()
		time.Sleep(time.Millisecond) // for finalizers
	}
}
