//go:build verbs && !guest && linux && cgo

package verbs

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// changed has something happen to the address of a device, and waits until the log says what has changed.
func changed(e *end, log *notes, what string) {
	e.t.Helper()
	e.injected(what)
	e.until("the log", func() bool { return len(log.with("address has changed")) > 0 })
}

// A device with another address, of which each of these events tells, connects with peers, and peers with it. A session
// from before fails by itself, and no other one does.
func TestAddressChanges(t *testing.T) {
	needSoft(t)
	for _, c := range []struct{ mode, event, says string }{
		{"ib", "lid_change", "LID change"},
		{"ib", "sm_change", "SM change"},
		{"ib", "client_reregister", "client reregistration"},
		{"roce", "gid_change", "GID table change"},
	} {
		t.Run(c.mode+" "+c.event, func(t *testing.T) {
			watchdog(t)
			t.Setenv("SOFTHCA_MODE", c.mode)
			t.Setenv("SOFTHCA_RETRY_SCALE", "0.02")
			var log notes
			hub, before, first, second := newEnd(t, 0, 4, log.option), newEnd(t, 1, 4), newEnd(t, 2, 4), newEnd(t, 3, 4)
			old := hub.link(before)
			before.link(hub)
			talk(old, before)
			hub.mu.Lock()
			was := hub.at.where()
			hub.mu.Unlock()
			changed(hub, &log, c.event)
			hub.mu.Lock()
			now := hub.at.where()
			hub.mu.Unlock()
			line := log.with("address has changed")
			if len(line) != 1 || !strings.Contains(line[0], was) || !strings.Contains(line[0], now) || was == now ||
				!strings.Contains(line[0], c.says) {
				t.Errorf("the log has %q; the address was %s and is %s", line, was, now)
			}
			talk(hub.link(first), first) // this rank connects
			to := second.link(hub)       // and is connected with
			talk(to, hub)
			send(t, old, wire.Header{Kind: wire.Eager}, []byte("lost"))
			old.s.confirm()
			hub.down(1)
			before.down(0)
			talk(to, hub)
		})
	}
}

// An event that changes nothing, or is of another port, is no line in the log.
func TestAddressStays(t *testing.T) {
	needSoft(t)
	watchdog(t)
	var log notes
	e := newEnd(t, 0, 2, log.option)
	for kind := uint32(eventLID); kind <= eventSM; kind++ {
		e.happened(kind, 1)
	}
	e.happened(eventPortError, 2)
	if len(log.text) > 0 || e.portDown.Load() {
		t.Errorf("the log has %q", log.text)
	}
}

// After a change of the table of partitions queue pairs are in the right one, which has another place. If it is gone
// the log says so.
func TestPartitionMoves(t *testing.T) {
	needSoft(t)
	watchdog(t)
	t.Setenv("SOFTHCA_PKEYS", "8001")
	t.Setenv("SOFTHCA_RETRY_SCALE", "0.02")
	var log notes
	a, b := newEnd(t, 0, 2, log.option, func(o *Options) { o.Partition = "8001" }), newEnd(t, 1, 2)
	changed(a, &log, "pkey_change:7fff,8001")
	ab, ba := a.link(b), b.link(a)
	talk(ab, b)
	talk(ba, a)
	a.injected("pkey_change:7fff")
	a.until("the log", func() bool { return len(log.with("can take no new connections")) == 1 })
	if line := log.with("can take no new connections")[0]; !strings.Contains(line, "P_Key change") {
		t.Errorf("the log has %q", line)
	}
	if a.Poll(make([]transport.Packet, 1)) > 0 {
		t.Error("a session has ended")
	}
}

// An event of a queue pair that is destroyed before the event is dealt with does not end the session whose queue pair
// has got its number.
func TestEventOfADestroyedQueuePair(t *testing.T) {
	needSoft(t)
	watchdog(t)
	a, b := newEnd(t, 0, 3), newEnd(t, 1, 3)
	old := a.link(b).s
	a.mu.Lock()
	a.injected("port_err") // for which the goroutine of events waits, so that it leaves the next one to this test
	for limit := time.Now().Add(patience); readable(a.hca.async()); runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatal("no goroutine takes the event")
		}
	}
	a.injected(fmt.Sprintf("qp_fatal:%d", old.qpn))
	kind, of, ok := a.hca.event()
	if !ok || kind != eventQPFatal {
		t.Fatal("there is no event of the queue pair")
	}
	old.destroy()
	s, err := a.makeSession(2)
	if err != nil {
		t.Fatal(err)
	}
	s.qpn = old.qpn
	a.table.Load().put(s, s.qpn)
	a.mu.Unlock()
	a.happened(kind, of)
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.state == stateFailed || old.state != stateFailed {
		t.Errorf("states %d of the session whose event it is and %d of another", old.state, s.state)
	}
}
