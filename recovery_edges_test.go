package mpi

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
)

// Agree does not wait for a rank that has freed the communicator, also where its number is not small, and where the
// rank has looked at the freed communicator.
func TestAgreeAfterFree(t *testing.T) {
	for name, test := range map[string]struct {
		numbers uint32
		look    func(c *Comm)
	}{
		"small number":          {100, func(*Comm) {}},
		"number beyond":         {4, func(*Comm) {}},
		"Failed after the Free": {100, func(c *Comm) { c.Failed() }},
	} {
		t.Run(name, func(t *testing.T) {
			overLoop(t)(3, func(w *Comm) {
				fewNumbers(w, test.numbers)
				var held []*Comm
				for range 5 {
					held = append(held, ok(w.Dup()))
				}
				c := held[4]
				if w.Rank() == 2 {
					must(c.Free())
					test.look(c)
				} else {
					in, stop := within(c)
					got, err := in.Agree(6)
					is(err, ErrPeerFailed)
					same(got, 6)
					same(c.Failed().Size(), 1)
					stop()
					must(c.Free())
				}
				must(Barrier(w)) // rank 2 is in the job until then
				for _, d := range held[:4] {
					must(d.Free())
				}
			})
		})
	}
}

// A failure that does not end a receive from any source leaves it at its place among the receives that were posted: the
// first message that matches two of them goes to the one that was posted first.
func TestDeathKeepsTheOrderOfReceives(t *testing.T) {
	whereRanksDie(t, func(t *testing.T, opt func() Option) {
		var posted, seen sync.WaitGroup
		posted.Add(1)
		seen.Add(1)
		outlive(t, 4, opt(), func(w *Comm, die func()) {
			half := ok(w.Split(w.Rank()/3, 0)) // 0, 1, 2 and 3
			switch w.Rank() {
			case 0:
				first, second := make([]byte, 1), make([]byte, 1)
				any, one := ok(Irecv(half, first, AnySource, 5)), ok(Irecv(half, second, 1, 5))
				posted.Done()
				_, err := Recv(w, []byte{0}, 3, 9)
				is(err, ErrPeerFailed)
				seen.Done()
				must(WaitAll(any, one))
				check(first[0] == 1 && second[0] == 2, "the messages of rank 1 are %d and %d", first[0], second[0])
			case 1:
				seen.Wait()
				must(Send(half, []byte{1}, 0, 5))
				must(Send(half, []byte{2}, 0, 5))
			case 3:
				posted.Wait()
				die()
			}
		})
	})
}

// A communicator is revoked at all its ranks, also where one of them revokes it before others have it.
func TestRevokeAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		const n = 4
		run(n, func(w *Comm) {
			makes := []func() (*Comm, error){w.Dup, w.Shrink, func() (*Comm, error) { return w.Split(0, -w.Rank()) },
				func() (*Comm, error) { return w.CreateGroup(w.Group(), 3) }}
			for i := range inShort(40*len(makes), 8*len(makes)) {
				c := ok(makes[i%len(makes)]())
				if w.Rank() == i/len(makes)%n {
					must(c.Revoke())
				} else {
					_, err := Recv(c, []byte{0}, AnySource, 1)
					is(err, ErrRevoked)
				}
				same(ok(c.Agree(5)), 5)
				must(c.Free())
			}
		})
	})
}

// hears has a rank hear that c is revoked, and no other rank.
func hears(c *Comm) {
	c.group.Engine.Revoke(c.group.Context, agree.ContextsEach, c.opError("", ErrRevoked, "%s", whyRevoked))
}

// A rank that leaves a collective call since it has heard of a revocation has not failed: the other ranks, which have
// not heard of it, end with ErrRevoked too.
func TestRevocationIsNoFailure(t *testing.T) {
	begun := func(r *Request, err error) func() error {
		must(err)
		return func() error { return second(r.Wait()) }
	}
	calls := []func(c *Comm) (wait func() error){
		func(c *Comm) func() error { return begun(Ibarrier(c)) },
		func(c *Comm) func() error { return begun(Ialltoall(c, []byte{1, 2, 3}, make([]byte, 3))) },
		func(c *Comm) func() error {
			r := ok(AllreduceInit(c, []int{1}, []int{0}, Sum))
			must(r.Start())
			return func() error {
				_, err := r.Wait()
				must(r.Free())
				return err
			}
		},
	}
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			for _, call := range calls {
				c := ok(w.Dup())
				if w.Rank() == 1 {
					hears(c) // the call has looked already whether it is revoked
				}
				wait := call(c)
				must(Barrier(w)) // all are in the call
				if w.Rank() == 1 {
					is(wait(), ErrRevoked)
					sendSignal(w, 0)
					sendSignal(w, 2)
					must(c.Revoke())
				} else {
					awaitSignal(w, 1) // what rank 1 has sent before is here
					is(wait(), ErrRevoked)
				}
				must(c.Free())
			}
		}, unchecked())
	})
}

// swallowing is a device that loses what it is told to.
type swallowing struct {
	transport.Device
	loses func(peer int, h *wire.Header) bool
}

// Facts implements transport.Device. Every link is made by Connect.
func (d *swallowing) Facts() *transport.Facts {
	f := *d.Device.Facts()
	f.ConnectNow = nil
	return &f
}

func (d *swallowing) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := d.Device.Connect(ctx, peer, address)
	if err != nil {
		return l, err
	}
	return &swallowingLink{l, d, peer}, nil
}

type swallowingLink struct {
	transport.Link
	d    *swallowing
	peer int
}

func (l *swallowingLink) TrySend(h *wire.Header, payload []byte) bool {
	return l.d.loses(l.peer, h) || l.Link.TrySend(h, payload)
}

// So it is where the rank hears of the revocation while it makes a board, and the other ranks have that already.
func TestRevocationIsNoFailureOnABoard(t *testing.T) {
	var revoked atomic.Pointer[Comm] // of rank 1
	var verdicts atomic.Int32
	over(t, loopBeneath, withDevices(func(rank int, d transport.Device) transport.Device {
		if rank != 0 {
			return d
		}
		return &swallowing{d, func(peer int, h *wire.Header) bool {
			c := revoked.Load()
			if c == nil || peer != 1 || h.Ctx != c.group.Context+agree.CtxCollective {
				return false
			}
			if name, number := coll.CallOf(h.Tag); name != "" || number == 0 {
				return false
			}
			if verdicts.Add(1) < 2 {
				return false
			}
			go hears(c)
			return true
		}}
	}), unchecked())(3, func(w *Comm) {
		c := ok(w.Dup())
		if w.Rank() == 1 {
			revoked.Store(c)
		}
		must(Barrier(w))
		must(Barrier(c))
		is(Barrier(c), ErrRevoked) // the ranks make the board in it
		must(Barrier(w))
		same(verdicts.Load(), 2)
		must(c.Revoke())
		must(c.Free())
	})
}

// breaking is a device whose connection to rank 2 breaks, as this rank sees it.
type breaking struct {
	transport.Device
	now atomic.Bool
}

// Facts implements transport.Device. All that comes is seen by Poll.
func (d *breaking) Facts() *transport.Facts {
	f := *d.Device.Facts()
	f.Short = nil
	return &f
}

func (d *breaking) Poll(pkts []transport.Packet) int {
	if d.now.CompareAndSwap(true, false) {
		pkts[0] = transport.Packet{Event: transport.Down, Peer: 2, Err: transport.ErrPeerGone}
		return 1
	}
	return d.Device.Poll(pkts)
}

// A rank that has heard of a failure leaves out a Fence and frees the window, and its Free meets the Fence of the
// others, which have heard of nothing. It answers them no more: their next calls end.
func TestFreeMeetsAFence(t *testing.T) {
	var device *breaking
	over(t, loopBeneath, onHosts(func(rank int) int { return rank }), withDevices(func(rank int,
		d transport.Device) transport.Device {
		if rank == 1 {
			device = &breaking{Device: d}
			return device
		}
		return d
	}), unchecked("GORUN_COLL=barrier:tree"))(4, func(w *Comm) { // in a tree 1 and 2 have nothing to say to each other
		win := ok(WinAlloc[int64](w, 1))
		must(win.Fence())
		if w.Rank() == 1 {
			device.now.Store(true)
			_, err := Recv(w, []byte{0}, 2, 9)
			is(err, ErrPeerFailed)
			must(win.Free())
			return
		}
		err := win.Fence()
		if err == nil {
			err = errors.Join(win.Get(make([]int64, 1), 1, 0), win.Fence())
		}
		is(err, ErrRevoked)
		if err := win.Free(); err != nil {
			check(outlived(err), "%v", err)
		}
	})
}

// Rank 2 passes a revocation on to rank 1, which takes it for dead and takes no message of it. Rank 2 ends all the
// same.
func TestFinalizeLeavesARevocation(t *testing.T) {
	var device *breaking
	over(t, loopBeneath, onHosts(func(rank int) int { return rank }), withDevices(func(rank int,
		d transport.Device) transport.Device {
		if rank == 1 {
			device = &breaking{Device: d}
			return device
		}
		return d
	}))(4, func(w *Comm) {
		c := ok(w.Dup())
		must(Barrier(w))
		switch w.Rank() {
		case 0:
			awaitSignal(w, 1)
			must(c.Revoke())
		case 1:
			device.now.Store(true)
			_, err := Recv(w, []byte{0}, 2, 9)
			is(err, ErrPeerFailed)
			sendSignal(w, 0)
		default:
			_, err := Recv(c, []byte{0}, AnySource, 1)
			is(err, ErrRevoked)
		}
		must(c.Free())
	})
}

// Communicators that are revoked and freed leave little, and so do agreements.
func TestRecoveryLeavesLittle(t *testing.T) {
	if proc.Race {
		t.Skip("the race detector runs: it keeps memory of its own")
	}
	overLoop(t)(2, func(w *Comm) {
		churn := func(n int) {
			for range n {
				c := ok(w.Shrink())
				must(c.Revoke())
				same(ok(c.Agree(5)), 5)
				must(c.Free())
			}
			must(Barrier(w))
		}
		churn(600) // as many as ranks remember, and more
		before := memory()
		n := inShort(5000, 1500)
		churn(n)
		if w.Rank() == 0 {
			each := (int64(memory()) - int64(before)) / int64(n)
			check(each < 300, "each leaves %d bytes", each)
		}
		must(Barrier(w))
	})
}

// stretching is a device that makes its rank announce control messages that are longer than any memory.
type stretching struct {
	transport.Device
	facts transport.Facts
}

func (d *stretching) Facts() *transport.Facts { return &d.facts }

func (d *stretching) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := d.Device.Connect(ctx, peer, address)
	if err != nil {
		return nil, err
	}
	caps := *l.Caps()
	caps.RMA, caps.ZeroCopy = nil, nil
	return &stretchingLink{losingLink{l, caps}}, nil
}

type stretchingLink struct{ losingLink }

// controlContext is the context on which ranks agree.
const controlContext = agree.SmallNumbers * agree.ContextsEach

func (l *stretchingLink) TrySend(h *wire.Header, payload []byte) bool {
	if h.Kind == wire.RTS && h.Ctx == controlContext {
		longer := *h
		longer.Len = math.MaxInt64
		h = &longer
	}
	return l.Link.TrySend(h, payload)
}

// A rank that announces a message to those that agree which is longer than any memory ends no other rank.
func TestHostileLengthToAgree(t *testing.T) {
	overLoop(t)(3, func(w *Comm) {
		same(ok(w.Agree(7)), 7)
		if w.Rank() == 2 {
			const asks = 1<<24 - 1
			_, err := w.group.Engine.Isend(nil, controlContext, 0, asks, make([]byte, long), pml.Standard).Wait()
			must(err)
		}
		same(ok(w.Agree(5)), 5)
		ring(w, 1)
	}, withDevices(func(rank int, d transport.Device) transport.Device {
		if rank != 2 {
			return d
		}
		facts := *d.Facts()
		facts.Short, facts.ConnectNow = nil, nil
		return &stretching{d, facts}
	}))
}
