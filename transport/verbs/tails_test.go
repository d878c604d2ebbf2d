//go:build verbs && !guest && linux && cgo

package verbs

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A device goes on for as long as GORUN_PEER_TIMEOUT says, and not twice as long, between the bounds of what it can be
// told. docs/rdma.md has the table.
func TestDevicePatience(t *testing.T) {
	for silence, want := range map[time.Duration]uint8{
		0: 16, time.Second: 16, 2 * time.Second: 17, 7 * time.Second: 18, 15 * time.Second: 19, defaultPatience: 20,
		time.Minute: 21, 10 * time.Minute: 25, 17 * time.Hour: 31, 1 << 62: 31,
	} {
		if got := ackTimeoutFor(silence); got != want {
			t.Errorf("%v: timeout %d, want %d", silence, got, want)
		}
	}
	for silence := 2 * time.Second; silence < 17*time.Hour; silence += silence / 3 {
		if got := devicePatience(ackTimeoutFor(silence)); got < silence || got >= 2*silence {
			t.Errorf("%v: the device goes on for %v", silence, got)
		}
	}
	text, err := os.ReadFile("../../docs/rdma.md")
	if err != nil {
		t.Fatal(err)
	}
	for timeout := uint8(ackTimeoutLeast); timeout <= 22; timeout++ {
		row := fmt.Sprintf("| %d | %.2f s | %.1f s |", timeout, ackTime(timeout).Seconds(), devicePatience(timeout).Seconds())
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/rdma.md has no row %s", row)
		}
	}
}

// slowDevices have a timeout of twenty minutes, so that what is lost comes only if it is looked after.
func slowDevices(t *testing.T, tags string) (a, b *end, ab, ba *link) {
	needSoft(t)
	t.Setenv("SOFTHCA_RETRY_SCALE", "1000")
	return two(t, func(o *Options) { o.Tags, o.tails = tags, 20*time.Millisecond })
}

// What is lost with nothing behind it comes, long before the device's timeout: a message, and a READ. The packet that
// shows the loss may be lost too. A queue that is full has room for it.
func TestTailIsLost(t *testing.T) {
	watchdog(t)
	for _, tags := range []string{"off", "on"} {
		a, b, ab, ba := slowDevices(t, tags)
		mem := pattern(100, 1)
		addr, key := register(t, ba, mem)
		arrives := func(n int) {
			b.until("the message", func() bool { return len(b.in) == n }, a)
			b.in = nil
		}
		a.injected("lose")
		send(t, ab, wire.Header{Kind: wire.Eager}, []byte("hello"))
		arrives(1)
		a.injected("lose")
		buf := make([]byte, len(mem))
		if _, err := ab.caps.RMA.Get(transport.HostMem(buf), addr, key, 7); err != nil {
			t.Fatal(err)
		}
		if p := a.take(transport.RMADone); p.Err != nil || string(buf) != string(mem) {
			t.Errorf("the READ: %v", p.Err)
		}
		b.injected("pause")
		n := 0
		for h := (wire.Header{Kind: wire.Eager}); ab.TrySend(&h, nil); n++ {
			if n > receives {
				t.Fatal("a full queue takes everything")
			}
		}
		a.until("a packet more", func() bool { return int(ab.s.next-ab.s.done) > ab.s.most })
		b.injected("resume")
		arrives(n)
		a.injected("lose")
		send(t, ab, wire.Header{Kind: wire.Eager}, []byte("hello"), a, b)
		a.until("two looks", func() bool { return ab.s.silent >= 1 || len(b.in) > 0 }, b)
		a.injected("lose")
		arrives(1)
	}
}

// A rank that sleeps is woken to look after what it has sent, and sleeps on when nothing is under way.
func TestTailWakes(t *testing.T) {
	watchdog(t)
	a, b, ab, _ := slowDevices(t, "off")
	woken := make(chan struct{}, 100)
	a.facts.Wake[0].Notify(func(bool) {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	for !a.Arm(transport.Urgent) { // computes
		a.poll()
	}
	drain := func() {
		for len(woken) > 0 {
			<-woken
		}
	}
	time.Sleep(100 * time.Millisecond)
	drain()
	time.Sleep(100 * time.Millisecond)
	if len(woken) > 0 {
		t.Error("a rank with nothing under way is woken")
	}
	a.Disarm()
	a.injected("lose")
	send(t, ab, wire.Header{Kind: wire.Eager}, []byte("hello"))
	for len(b.in) == 0 {
		drain()
		if a.Arm(transport.Urgent) {
			select {
			case <-woken:
			case <-time.After(patience):
				t.Fatal("the rank is not woken, and its message is lost")
			}
			a.Disarm()
		}
		a.poll()
		b.poll()
	}
}

// A rank that computes, and so is armed, sends: it is woken to look after that too.
func TestTailOfAnArmedRank(t *testing.T) {
	watchdog(t)
	a, b, ab, _ := slowDevices(t, "off")
	woken := make(chan struct{}, 1)
	for !a.Arm(transport.Urgent) {
		a.poll()
	}
	a.facts.Wake[0].Notify(func(bool) {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	a.injected("lose")
	send(t, ab, wire.Header{Kind: wire.Eager}, []byte("hello"))
	select {
	case <-woken:
	case <-time.After(patience / 6):
		t.Fatal("the rank is not woken, and its message is lost")
	}
	a.Disarm()
	b.until("the message", func() bool { return len(b.in) > 0 }, a)
}

// A port may be down for as long as GORUN_PEER_TIMEOUT says: what was sent meanwhile arrives.
func TestPortIsDownForLong(t *testing.T) {
	needSoft(t)
	watchdog(t)
	t.Setenv("SOFTHCA_RETRY_SCALE", "0.01")
	// The device tries seven times in 4.8 s. With the patience of seven seconds of real time it would do so in 75 ms.
	a, b, ab, _ := two(t, func(o *Options) { o.patience = 8 * time.Minute })
	a.injected("port_err")
	send(t, ab, wire.Header{Kind: wire.Eager}, []byte("hello"))
	for range 20 {
		b.noPackets()
		a.noPackets()
	}
	a.injected("port_active")
	b.take(transport.Arrived)
	talk(ab, b)
}

// A rank whose own port is down when its device gives up says so, and so does its peer.
func TestOwnPortIsDown(t *testing.T) {
	needSoft(t)
	watchdog(t)
	t.Setenv("SOFTHCA_RETRY_SCALE", "0.01")
	var log notes
	a, b, ab, _ := two(t, log.option)
	a.injected("port_err")
	a.until("the event", func() bool { return len(log.with("port error")) > 0 })
	send(t, ab, wire.Header{Kind: wire.Eager}, []byte("hello"))
	ab.s.confirm()
	for _, err := range []error{a.down(1), b.down(0)} {
		if !strings.Contains(err.Error(), statusText(statusRetries)) ||
			!strings.Contains(err.Error(), "port 1 of softhca0 is down: check its cable") {
			t.Errorf("%v does not say what to do", err)
		}
	}
}
