package pml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// lender is the Handler of a window that nobody asks for anything.
type lender struct{}

func (lender) Handle(int32, []byte) bool { return false }
func (lender) Failed(int32, error)       {}
func (lender) Returned()                 {}
func (lender) Locks() []int32            { return nil }

// lend has a rank lend memory to another one. It returns what that is told.
func (n *testNet) lend(rank, to int, mem []byte) (w *Window, got Lent) {
	w = n.engines[rank].OpenWindow(1, 1, make([]byte, 10), lender{})
	return w, n.lendMore(w, to, mem)
}

func (n *testNet) lendMore(w *Window, to int, mem []byte) (got Lent) {
	w.e.lock()
	defer w.e.unlock()
	w.Lend(int32(to), mem, func(l Lent) { got = l })
	return got
}

// reach is a Reach of rank 0 to memory of rank 1.
func (n *testNet) reach(t *testing.T, mem []byte) (*Window, *Reach) {
	t.Helper()
	w, lent := n.lend(1, 0, mem)
	f := n.engines[0].Reach(1, lent)
	if f == nil || !lent.Reads || !lent.Writes {
		t.Fatalf("there is no way to %+v", lent)
	}
	return w, f
}

type starts func(context.Context, []byte, int64) (*Request, bool, error)

// begun reports whether an operation has begun.
func begun(ok bool, err error) bool { return ok && err == nil }

// Puts and gets of all lengths move what they say, in pieces where the link does not take long ones, and wait for room.
func TestReachMoves(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20, put: true})
	defer n.close()
	n.linkAll()
	n.polls[1] = false
	mem := contents(1, 0, 3*readPiece)
	_, f := n.reach(t, mem)
	for _, size := range []int{0, 1, 100, readPiece, readPiece + 1, 3*readPiece - 10} {
		for room := range 3 {
			n.noRoom[0] = room
			src, dst := contents(size+room, 0, size), make([]byte, size)
			if !begun(f.Put(nil, src, 10)) || f.Flush(nil) != nil || !bytes.Equal(mem[10:][:size], src) {
				t.Fatalf("%d bytes are not there", size)
			}
			n.noRoom[0] = room
			if !begun(f.Get(nil, dst, 10)) || f.Flush(nil) != nil || !bytes.Equal(dst, src) {
				t.Fatalf("%d bytes are not read", size)
			}
			clear(dst)
			n.noRoom[0] = room
			for _, start := range []starts{f.StartPut, f.StartGet} {
				r, ok, err := start(nil, dst, 10)
				if !ok || err != nil {
					t.Fatal("not begun", err)
				}
				if st, err := r.Wait(); err != nil || st.Bytes != int64(size) {
					t.Fatal(st, err)
				}
			}
			if len(bytes.Trim(mem[10:][:size], "\x00")) != 0 {
				t.Fatal("zeros are not there")
			}
		}
	}
	n.check(t)
	if left := n.engines[0].Pending() + n.engines[0].load.detached; left != 0 {
		t.Errorf("%d operations are left", left)
	}
}

// While the peer polls it takes its part in long operations, which go another way then.
func TestReachLeavesLongOnes(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20, put: true})
	defer n.close()
	n.linkAll()
	mem := make([]byte, aloneMost+1)
	_, f := n.reach(t, mem)
	for _, polls := range []bool{true, false} {
		n.polls[1] = polls
		put, get := begun(f.Put(nil, mem, 0)), begun(f.Get(nil, mem, 0))
		if put == polls || get == polls || !begun(f.Put(nil, mem[:aloneMost], 0)) {
			t.Errorf("the peer polls: %v", polls)
		}
	}
	n.check(t)
}

// A buffer is the link's until RMADone, whatever becomes of the peer; the result is the peer's error.
func TestReachBufferUntilUntouched(t *testing.T) {
	for how, fail := range fails {
		for _, put := range []bool{true, false} {
			t.Run(fmt.Sprint(how, ", put ", put), func(t *testing.T) {
				n := ownerNet(t)
				defer n.close()
				mem, buf := make([]byte, 1000), contents(1, 0, 1000)
				_, f := n.reach(t, mem)
				begin, start := f.Get, f.StartGet
				if put {
					begin, start = f.Put, f.StartPut
				}
				r, ok, _ := start(nil, buf, 0)
				if !ok || !begun(begin(nil, buf, 0)) || len(n.rma) != 2 {
					t.Fatal("nothing is under way")
				}
				r.Cancel() // does nothing
				if down := fail(n); !down {
					n.sayDown(0, 1)
				}
				if done, _, _ := r.Test(); done || f.oldest == nil {
					t.Fatal("the buffer is the caller's, and the link has it")
				}
				n.endRMA(nil)
				if done, _, err := r.Test(); !done || err == nil || f.oldest == nil {
					t.Errorf("done %v, %v", done, err)
				}
				n.endRMA(errors.New("cut"))
				if err := f.Flush(nil); err == nil || f.oldest != nil {
					t.Error("no error")
				}
				if !begun(begin(nil, buf, 0)) || f.Flush(nil) == nil {
					t.Error("an operation at a rank that has failed is no error")
				}
				n.hostile = true
				n.check(t)
			})
		}
	}
}

// An operation that the link does not begin leaves nothing behind, and its caller goes another way.
func TestReachOtherWay(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20, put: true})
	defer n.close()
	n.linkAll()
	mem, buf := make([]byte, 100), make([]byte, 100)
	_, f := n.reach(t, mem)
	for room := range 2 {
		n.noRoom[0], n.reads[0], n.writes[0] = room, 0, 0
		if begun(f.Put(nil, buf, 0)) || begun(f.Get(nil, buf, 0)) {
			t.Error("begun, and the link refuses")
		}
		n.noRoom[0] = room
		if _, ok, _ := f.StartPut(nil, buf, 0); ok {
			t.Error("begun, and the link refuses")
		}
		if _, ok, _ := f.StartGet(nil, buf, 0); ok {
			t.Error("begun, and the link refuses")
		}
		if err := f.Flush(nil); err != nil || f.oldest != nil {
			t.Error(err)
		}
		n.check(t)
		if load := &n.engines[0].load; load.outstanding != 0 || load.detached != 0 || load.stalled != 0 {
			t.Errorf("left: %+v", *load)
		}
	}
}

// An operation that fails while its peer lives is tried again: its buffer is the library's until then.
func TestReachTriesAgain(t *testing.T) {
	n := ownerNet(t)
	defer n.close()
	mem, src := make([]byte, 100), contents(1, 0, 100)
	_, f := n.reach(t, mem)
	if !begun(f.Put(nil, src, 0)) {
		t.Fatal("not begun")
	}
	for range 3 {
		n.endRMA(errors.New("the test says so"))
		if f.oldest == nil {
			t.Fatal("the operation is over")
		}
	}
	n.endRMA(nil)
	if err := f.Flush(nil); err != nil || !bytes.Equal(mem, src) {
		t.Error(err, mem)
	}
	f.Put(nil, src, 0)
	for range mostTries {
		n.endRMA(errors.New("the test says so"))
	}
	if err := f.Flush(nil); err == nil {
		t.Error("an operation that always fails ends well")
	}
	n.check(t)
}

// An operation whose peer the link says is gone ends with the Down that follows, and not before.
func TestReachPeerGone(t *testing.T) {
	n := ownerNet(t)
	defer n.close()
	_, f := n.reach(t, make([]byte, 100))
	r, _, _ := f.StartPut(nil, make([]byte, 100), 0)
	f.Put(nil, make([]byte, 100), 0)
	n.endRMA(transport.ErrPeerGone)
	n.endRMA(transport.ErrPeerGone)
	n.check(t)
	if done, _, _ := r.Test(); done || len(n.rma) != 0 {
		t.Fatal("done, or tried again, before Down")
	}
	n.sayDown(0, 1)
	if done, _, err := r.Test(); !done || !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("done %v, %v", done, err)
	}
	if err := f.Flush(nil); !errors.Is(err, transport.ErrPeerGone) {
		t.Error(err)
	}
}

// Flush waits for the operations before it, and not for those that other goroutines begin meanwhile.
func TestReachFlushIsBounded(t *testing.T) {
	n := ownerNet(t)
	defer n.close()
	_, f := n.reach(t, make([]byte, 100))
	e := n.engines[0]
	buf := make([]byte, 100)
	f.Put(nil, buf, 0)
	f.Get(nil, buf, 0)
	e.lock()
	r := f.flushNow(nil) // as Flush, which would sleep
	e.unlock()
	f.Put(nil, buf, 0)
	n.endRMA(nil)
	if r.state != stActive {
		t.Error("the Flush is over, and an operation is under way that was begun before it")
	}
	n.endRMA(nil)
	if r.state != stDone || f.oldest == nil {
		t.Error("the Flush waits for an operation that was begun later")
	}
	n.endRMA(nil)
	if err := f.Flush(nil); err != nil || f.oldest != nil {
		t.Error(err)
	}
	n.check(t)
}

// A wait that a context ends leaves the operation to the link, and its buffer until a Flush that has not been ended.
func TestReachWithContext(t *testing.T) {
	n := ownerNet(t)
	defer n.close()
	mem, src := make([]byte, 100), contents(1, 0, 100)
	_, f := n.reach(t, mem)
	over, end := context.WithCancel(context.Background())
	end()
	f.Put(nil, src, 0)
	if err := f.Flush(over); !errors.Is(err, context.Canceled) || f.flushes.len() != 0 || f.oldest == nil {
		t.Errorf("Flush: %v", err)
	}
	n.endRMA(nil)
	if err := f.Flush(over); err != nil || !bytes.Equal(mem, src) {
		t.Errorf("Flush of what is over: %v", err)
	}
	soon, end := context.WithCancel(context.Background())
	r, _, _ := f.StartPut(soon, src, 0)
	end()
	if _, err := r.Wait(); !errors.Is(err, context.Canceled) || f.oldest == nil {
		t.Errorf("Wait: %v", err)
	}
	n.endRMA(nil)
	n.noRoom[0] = 1 << 30
	ok, err := f.Put(over, src[:50], 50)
	r, begun, failed := f.StartGet(over, make([]byte, 100), 0)
	if !ok || !begun || r != nil || !errors.Is(err, context.Canceled) || !errors.Is(failed, context.Canceled) {
		t.Errorf("Put: %v, %v; StartGet: %v, %v", ok, err, begun, failed)
	}
	n.noRoom[0] = 0
	n.work(0)
	n.endRMA(nil)
	n.endRMA(nil)
	if err := f.Flush(nil); err != nil || !bytes.Equal(mem[50:], src[:50]) {
		t.Errorf("Flush: %v", err)
	}
	n.check(t)
	if load := &n.engines[0].load; load.outstanding != 0 || load.detached != 0 {
		t.Errorf("left: %+v", *load)
	}
}

// Memory is lent once to a rank, when there is a link, until it is withdrawn. Then nothing is lent any more.
func TestLend(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 3, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20, put: true})
	defer n.close()
	mem := make([]byte, 100)
	w := n.engines[1].OpenWindow(1, 1, make([]byte, 10), lender{})
	said := make(chan Lent, 1)
	w.e.lock()
	w.Lend(0, mem, func(l Lent) { said <- l })
	w.e.unlock()
	first := <-said // when it has connected
	if again := n.lendMore(w, 0, mem); again != first || !first.Reads || !first.Writes || len(n.regions) != 1 {
		t.Errorf("lent as %+v and %+v; %d registrations", first, again, len(n.regions))
	}
	w.Withdraw()
	if late := n.lendMore(w, 0, mem); late != (Lent{}) || len(n.regions) != 0 {
		t.Errorf("after Withdraw %+v is lent; %d registrations", late, len(n.regions))
	}
	n.refused = true
	if w, none := n.lend(1, 0, mem); none != (Lent{}) || n.engines[0].Reach(1, none) != nil || w.Keep() {
		t.Errorf("the device refuses, and %+v is lent", none)
	}
	n.refused = false
	if w, l := n.lend(1, 0, mem); !l.Reads || !w.Keep() || n.lendMore(w, 2, mem).Reads || len(n.regions) != 1 {
		t.Errorf("%+v is lent, and kept", l)
	}
}

// A note waits for the operations before it, and for no later one of another goroutine: there may always be one.
func TestNoteWaitsForEarlierOnes(t *testing.T) {
	n := ownerNet(t)
	defer n.close()
	_, f := n.reach(t, make([]byte, 100))
	rma := *f.rma
	rma.PutNote = func(transport.Mem, uint64, uint64, uint32, uint64) (transport.State, error) {
		return transport.Done, nil
	}
	f.rma, f.lent.Notes = &rma, 1
	if !begun(f.Put(nil, make([]byte, 10), 0)) || n.rmaUnderWay() != 1 {
		t.Fatal("no operation is under way")
	}
	e := n.engines[0]
	e.lock()
	n.devices[0].inbox = append(n.devices[0].inbox, n.rma[0].end(nil)) // is found when PutNote waits
	n.rma = n.rma[1:]
	r := e.requests.take()
	r.then, r.extra = laterPut{f}, true
	e.windows.over(e, r) // likewise
	e.unlock()
	if !begun(f.PutNote(nil, make([]byte, 10), 0, 5)) || n.rmaUnderWay() != 1 {
		t.Errorf("the note is not sent, or %d operations are under way", n.rmaUnderWay())
	}
	if sent := e.Glance().Sent; sent != 1 {
		t.Errorf("a note, which its receiver counts as a message taken, counts as %d messages sent", sent)
	}
	n.endRMA(nil)
	if err := f.Flush(nil); err != nil {
		t.Error(err)
	}
}

// laterPut is a Follower that begins a Put, as another goroutine may while a caller waits.
type laterPut struct{ *Reach }

func (l laterPut) Follow(Status, error) {
	t := l.open(l.p.l.e.unasked(), transport.HostMem(make([]byte, 10)), 50)
	t.one.put = true
	l.start(t)
}

// A peer cannot speak of an operation: it has no message.
func TestReachHostilePackets(t *testing.T) {
	n := ownerNet(t)
	defer n.close()
	_, f := n.reach(t, make([]byte, 100))
	r, _, _ := f.StartPut(nil, make([]byte, 100), 0)
	n.speaksOf(t, 0, 1, r)
	n.endRMA(nil)
	if done, _, err := r.Test(); !done || err != nil {
		t.Errorf("done %v, %v", done, err)
	}
}

// speaksOf has a peer send a rank all packets that speak of a transfer, by the number of one that has no message. They
// do nothing to its request.
func (n *testNet) speaksOf(t *testing.T, rank, peer int, r *Request) {
	t.Helper()
	id := r.transfer.id
	for _, h := range []wire.Header{{Kind: wire.FIN, ID: id}, {Kind: wire.CTS, ID: id, Len: 100},
		{Kind: wire.Matched, ID: id}, {Kind: wire.PutReq, ID: id, Key: 1, Len: 100}, {Kind: wire.PutDone, Key: id},
		{Kind: wire.Data, Key: id}, {Kind: wire.CancelReply, ID: id, Len: 1}} {
		n.devices[rank].inbox = append(n.devices[rank].inbox, transport.Packet{Peer: int32(peer), Header: h})
		n.work(rank)
		if r.state != stActive || len(n.wires[[2]int{rank, peer}]) != 0 ||
			n.engines[rank].links.peer(int32(peer)).err != nil {
			t.Fatalf("%v of an operation has done something", h.Kind)
		}
	}
}

// A window whose context is revoked asks for no requests any more: a caller that waits for anything, or the watcher,
// would look again and again.
func TestWindowOfRevokedContext(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 1, eagerMax: 100, fragMax: 1000, unexpectedMax: 1 << 20})
	defer n.close()
	e := n.engines[0]
	for _, late := range []bool{false, true} { // it is opened before the revocation, or after it
		e.OpenWindow(1, 1, make([]byte, 10), lender{})
		e.Revoke(1, 1, errOver)
		e.lock()
		for range 3 {
			e.progress()
		}
		if e.load.pending != 0 || e.wait.rounds != 0 || len(e.windows.open) != 0 {
			t.Errorf("late %t: %d things are to be done, %d windows are open, and %d wait for every arrival", late,
				e.load.pending, len(e.windows.open), e.wait.rounds)
		}
		e.unlock()
	}
}
