package pml

import (
	"math"
	"runtime"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

const askTag, answerTag = 8, 9 // of a server

// flushes fails the test where Flush would wait or count something.
func flushes(t *testing.T, e *Engine, when string) {
	t.Helper()
	e.lock()
	open, over, load := e.load.open(), e.load.flushed(), e.load
	e.unlock()
	if open != 0 || !over {
		t.Fatalf("%s: Flush would wait, or count: %+v", when, load)
	}
	if open := e.Flush(); open != 0 {
		t.Fatalf("%s: Flush returns %d", when, open)
	}
}

// A rank takes another one for dead, which has heard of nothing and sends to its server. It never takes that message,
// and Flush of the other one does not wait for it: nor while there is no link, nor when the message has left.
func TestFlushLeavesAMessageToAServer(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 100, unexpectedMax: 1 << 20})
	defer n.close()
	n.linkAll()
	e, deaf := n.engines[0], n.engines[1]
	deaf.StartServer(1, askTag, answerTag, func() {})
	deaf.lock()
	deaf.links.peer(0).isDown(transport.ErrPeerGone)
	deaf.unlock()
	e.SendToServer(1, 1, askTag, []byte{1})
	flushes(t, e, "under way")
	n.deliver(1, math.MaxInt)
	n.deliver(0, math.MaxInt)
	flushes(t, e, "ignored")
	if n := e.Pending(); n != 1 {
		t.Errorf("%d operations are under way, want the message", n)
	}
}

// Flush does not wait for a link either. The engine makes it, and sends the message, also when its rank has returned:
// a rank that waits for the message has not.
func TestMessageToAServerLeavesBehindFlush(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 100, unexpectedMax: 1 << 20})
	defer n.close()
	gate, w := make(chan error), [2]int{0, 1}
	n.gates[w] = gate
	started := make(chan bool, 1)
	n.engines[1].StartServer(1, askTag, answerTag, func() { started <- true })
	e := n.engines[0]
	e.SendToServer(1, 1, askTag, []byte{1})
	flushes(t, e, "without a link")
	e.Return()
	gate <- nil
	n.mu.Lock()
	delete(n.gates, w)
	n.mu.Unlock()
	n.awaitConnects()
	n.work(0)
	n.deliver(1, math.MaxInt)
	<-started
	if _, _, is, _ := n.engines[1].Iprobe(1, 0, askTag, false); !is {
		t.Error("the message has not come")
	}
}

// From the moment that a server's wait is over, Flush counts what is under way without it: the server has not run yet.
func TestFlushCountsWhileAServerWakes(t *testing.T) {
	watchdog(t)
	e := newRanks(t, 1, Config{}).e[0]
	e.StartServer(1, askTag, answerTag, func() {
		for e.Serve(1, askTag, 0) == nil {
		}
	})
	e.CallServer()
	open := e.Irecv(nil, 0, 0, 3, nil)
	waits := func() bool { return len(e.probers) > 0 && e.probers[0].w != nil }
	for e.lock(); !waits(); e.lock() {
		e.unlock()
		runtime.Gosched()
	}
	before := e.load.open()
	e.probers.end(e, everyProbe, nil)
	after, over := e.load.open(), e.load.flushed()
	e.exitCall()
	e.unlock()
	if before != 1 || after != 1 || over {
		t.Errorf("%d requests are open, and %d when the server's wait is over (flushed: %t); want 1", before, after, over)
	}
	answered := make(chan error)
	go func() { answered <- e.AwaitServer(nil, 1, answerTag) }()
	for e.lock(); len(e.links.table.Receives()) < 2; e.lock() {
		e.unlock()
		runtime.Gosched()
	}
	if n := e.load.open(); n != 1 {
		t.Errorf("%d requests are open while a caller waits for the server, want 1", n)
	}
	e.unlock()
	e.SendDetached(1, 0, answerTag, nil)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	e.SendDetached(0, 0, 3, nil)
	if _, err := open.Wait(); err != nil {
		t.Error(err)
	}
	flushes(t, e, "at the end")
}

// The goroutine that has made a link does what has waited for that: no caller may come for long.
func TestLinkThatStandsWorks(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 512, unexpectedMax: 1 << 20})
	defer n.close()
	back, gate := [2]int{1, 0}, make(chan error)
	n.gates[back] = gate
	s := n.engines[0].Isend(nil, 1, 1, 1, make([]byte, 1000), Standard)
	r := n.engines[1].Irecv(nil, 1, 0, 1, make([]byte, 1000))
	n.awaitConnects()
	n.deliver(1, math.MaxInt) // the READ of what is announced waits for the link
	gate <- nil
	for said := false; !said; runtime.Gosched() { // without the engine's lock, which the goroutine would leave to this one
		n.mu.Lock()
		said = len(n.wires[back]) > 0
		n.mu.Unlock()
	}
	n.mu.Lock()
	delete(n.gates, back)
	n.mu.Unlock()
	n.awaitConnects()
	n.deliver(0, math.MaxInt)
	for what, r := range map[string]*Request{"send": s, "receive": r} {
		if done, _, err := r.Test(); !done || err != nil {
			t.Errorf("the %s: done %v, %v", what, done, err)
		}
	}
	n.check(t)
}
