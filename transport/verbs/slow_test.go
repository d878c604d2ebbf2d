//go:build verbs && !guest && linux && cgo

package verbs

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

// What takes long for a device: a test holds it up, and packets of other peers go on meanwhile.

// untilCounted waits until a counter of the software HCA has that value.
func (e *end) untilCounted(name string, n uint64, others ...*end) {
	e.t.Helper()
	e.until(fmt.Sprint(name, " ", n), func() bool { return e.counted(name) == n }, others...)
}

// holdDestructions has the device of e destroy no queue pair until release_destructions.
func (e *end) holdDestructions() {
	e.t.Helper()
	e.t.Cleanup(func() { e.hca.inject("release_destructions") }) // or Close would wait for ever
	e.injected("hold_destructions")
}

// While a probe is destroyed, packets of other peers go on, also where a goroutine has something to tell Poll, and a
// session opens: that of the probe and a later one.
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
	hub.holdDestructions()
	for i, e := range peers[1:] {
		talk(hub.link(e), e)
		hub.untilCounted("held_destructions", uint64(i+1))
		for range 10 {
			talk(first, peers[0])
			talk(back, hub)
		}
		long := transport.HostMem(make([]byte, registerPiece))
		if !first.caps.RMA.Prepare(long, transport.Readable, 5) {
			t.Fatal("long memory is registered at once")
		}
		if p := hub.take(transport.RMADone); p.Cookie != 5 || p.Err != nil {
			t.Fatalf("%d, %v", p.Cookie, p.Err)
		}
	}
	if n := hub.counted("qps"); n != 5 {
		t.Errorf("%d queue pairs, want those of 3 peers and 2 probes", n)
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
	hub.holdDestructions()
	refused(t, hub, lost)
	hub.untilCounted("held_destructions", 1)
	talk(out, other)
	talk(back, hub)
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
	hub.holdDestructions()
	first := hub.link(a)
	hub.untilCounted("held_destructions", 1)
	result := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := hub.Connect(ctx, b.rank, b.Address())
		result <- err
	}()
	hub.untilCounted("held_destructions", 2) // the second is of a probe for which there was no queue pair
	talk(first, a)
	hub.injected("release_destructions")
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	talk(hub.link(b), b)
	hub.noProofs(2)
}
