//go:build verbs && linux && cgo

package mpi

import (
	"context"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/multi"
)

// altered is a device whose facts and links a test has changed.
type altered struct {
	transport.Device
	facts   transport.Facts
	connect func(peer int, caps *transport.Caps)
}

func (d *altered) Facts() *transport.Facts { return &d.facts }

func (d *altered) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := d.Device.Connect(ctx, peer, address)
	if err != nil || d.connect == nil {
		return l, err
	}
	caps := *l.Caps()
	d.connect(peer, &caps)
	return &alteredLink{l, caps}, nil
}

type alteredLink struct {
	transport.Link
	caps transport.Caps
}

func (l *alteredLink) Caps() *transport.Caps { return &l.caps }

// The device makes all atomic steps on the memory of a rank: of the rank itself, of ranks of its host, which map the
// memory, and of ranks whose links make none. Where it is coherent with the CPU, either makes them. The software HCA is
// not coherent.
func TestNICWays(t *testing.T) {
	hosts := onHosts(func(rank int) int { return rank % 2 })
	noSteps := func(_ int, caps *transport.Caps) {
		rma := *caps.RMA
		rma.FetchAdd, rma.CompareSwap = nil, nil
		caps.RMA = &rma
	}
	for _, c := range []struct {
		name string
		made [4]bool // which devices have been asked for steps, each by its rank
		wrap func(rank int, d *altered)
	}{
		{"links", [4]bool{true, true, true, true}, func(int, *altered) {}},
		{"asked on a host", [4]bool{true, true, false, true}, func(rank int, d *altered) {
			d.connect = func(peer int, caps *transport.Caps) {
				if peer%2 == rank%2 {
					noSteps(peer, caps)
				}
			}
		}},
		{"asked", [4]bool{true}, func(rank int, d *altered) { d.connect = noSteps }},
		{"no way to oneself", [4]bool{}, func(rank int, d *altered) { d.facts.OwnRMA = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var v verbsRanks
			rdma := v.devices(t)
			countByAll(over(t, withDevices(func(rank int, d transport.Device) transport.Device {
				dev := rdma(rank)
				a := &altered{Device: dev, facts: *dev.Facts()}
				c.wrap(rank, a)
				return ok(multi.New(nil, a, d)) // only d has boards
			}), hosts), func(rank int) {
				n := v.count(rank, "atomics")
				check(n > 0 == c.made[rank], "device %d has made %d steps", rank, n)
			})
		})
	}
}

// The device makes the steps also on memory that it takes long to register.
func TestNICLongMemory(t *testing.T) {
	for _, create := range []bool{false, true} {
		var v verbsRanks
		apart := onHosts(func(rank int) int { return rank })
		over(t, v.option(t), apart)(2, func(w *Comm) {
			win := nicWindow[int64](w, create, 3<<17)
			must(win.LockAll())
			own, other := w.Rank(), 1-w.Rank()
			same(ok(win.FetchOp(Sum, 5, own, 1)), 0)
			same(v.count(own, "atomics"), 1)
			same(ok(win.FetchOp(Sum, 7, other, 2)), 0)
			same(v.count(own, "atomics"), 2)
			must(win.UnlockAll())
			must(win.Free())
		})
	}
}

// FetchOp and CompareAndSwap need nothing of the rank that has the memory.
func TestNICNeedsNoRank(t *testing.T) {
	var v verbsRanks
	f := &frozen{make(chan struct{}), make(chan struct{})}
	over(t, v.option(t))(2, func(w *Comm) {
		c := ok(w.Dup())
		win := nicWindow[int64](w, true, 2)
		if w.Rank() == 1 {
			freezes(c, f)
			sendSignal(w, 0)
			<-f.over
			awaitSignal(w, 0)
		} else {
			awaitSignal(w, 1)
			must(win.Lock(1, Shared))
			same(ok(win.FetchOp(Sum, 5, 1, 1)), 0) // has the memory lent
			func() {
				defer close(f.over)
				freeze(c, 1, f)
				same(ok(win.FetchOp(Sum, 5, 1, 1)), 5)
				same(ok(win.FetchOp(Prod, 3, 1, 1)), 10)
				same(ok(win.CompareAndSwap(1, 1, 30, 7)), 30)
				same(ok(win.CompareAndSwap(1, 1, 30, 8)), 7)
				same(ok(win.FetchOp(NoOp, 0, 1, 1)), 7)
				must(win.Flush(1))
			}()
			must(win.Unlock(1))
			sendSignal(w, 1)
		}
		must(win.Free())
		must(c.Free())
	})
}

// A rank that is lost in the middle of a step is ErrPeerFailed in the call, and from then on.
func TestNICPeerLost(t *testing.T) {
	t.Setenv("SOFTHCA_FAIL", "atomic:20")
	var v verbsRanks
	over(t, v.option(t))(2, func(w *Comm) {
		win := nicWindow[int64](w, true, 1)
		must(win.LockAll())
		if w.Rank() == 1 {
			_, err := Recv[byte](w, nil, 0, 0)
			is(err, ErrPeerFailed)
			return
		}
		var err error
		for i := int64(0); err == nil; i++ {
			check(i < 100, "%d steps have not failed", i)
			var was int64
			if was, err = win.FetchOp(Sum, 1, 1, 0); err == nil {
				same(was, i)
			}
		}
		is(err, ErrPeerFailed)
		is(second(win.FetchOp(Sum, 1, 1, 0)), ErrPeerFailed)
		is(second(win.CompareAndSwap(1, 0, 1, 2)), ErrPeerFailed)
		check(win.UnlockAll() != nil, "UnlockAll: no error")
	})
}

// Where a device says that it is coherent with the CPU, it makes the steps of other ranks, and the CPU the rank's own.
func TestNICCoherent(t *testing.T) {
	var v verbsRanks
	rdma := v.devices(t)
	over(t, withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		dev := rdma(rank)
		a := &altered{Device: dev, facts: *dev.Facts()}
		a.facts.OwnRMA = func() *transport.RMA {
			rma := *dev.Facts().OwnRMA()
			rma.Coherent = true // the ranks take turns: the software HCA is not
			return &rma
		}
		return a
	}))(2, func(w *Comm) {
		win := nicWindow[int64](w, true, 100)
		must(win.LockAll())
		if w.Rank() == 0 {
			must(win.Accumulate(Sum, make([]int64, 100), 0, 0)) // as many as a rank updates alone elsewhere
			same(ok(win.FetchOp(Sum, 5, 0, 1)), 0)
			sendSignal(w, 1)
			awaitSignal(w, 1)
			same(ok(win.CompareAndSwap(0, 1, 12, 3)), 12)
			same(v.count(0, "atomics"), 0)
		} else {
			awaitSignal(w, 0)
			same(ok(win.FetchOp(Sum, 7, 0, 1)), 5)
			same(v.count(1, "atomics"), 1)
			sendSignal(w, 0)
		}
		must(win.UnlockAll())
		must(win.Free())
	})
}

// A note of at most 22 bits is a WRITE with the elements, and no message. A longer one, one behind operations that are
// messages, and one without elements are messages, in their order.
func TestNoteByWrite(t *testing.T) {
	var v verbsRanks
	over(t, v.option(t))(2, func(w *Comm) {
		const n = 100
		win := ok(WinCreate(w, make([]int64, n)))
		must(win.LockAll())
		next := func(note uint32, at int, v int64) {
			from, got, err := win.WaitNote(nil)
			must(err)
			same(from, 1)
			same(got, note)
			same(win.Local()[at], v)
		}
		exchangeSignals(w, 1-w.Rank())
		if w.Rank() == 0 {
			next(1<<22, 0, 5) // the first contact
			sendSignal(w, 1)
			for i := range n {
				next(uint32(i)<<15|1, i, int64(i))
			}
			sendSignal(w, 1)
			next(7, 1, 9)
			next(1<<32-1, 2, 4)
			next(8, 3, 6)
			next(9, 3, 6)
		} else {
			must(win.PutNotify([]int64{5}, 0, 0, 1<<22))
			awaitSignal(w, 0)
			sends, writes := v.count(1, "sends"), v.count(1, "writes")
			for i := range n {
				must(win.PutNotify([]int64{int64(i)}, 0, int64(i), uint32(i)<<15|1))
			}
			must(win.Flush(0))
			check(v.count(1, "writes") >= writes+n, "%d writes", v.count(1, "writes")-writes)
			same(v.count(1, "sends"), sends)
			awaitSignal(w, 0)
			must(win.Accumulate(Sum, []int64{8}, 0, 1))
			must(win.PutNotify([]int64{2}, 0, 2, 7))
			must(win.PutNotify([]int64{4}, 0, 2, 1<<32-1))
			must(win.Put([]int64{6}, 0, 3))
			must(win.PutNotify([]int64{2}, 0, 4, 8))
			must(win.PutNotify(nil, 0, 2, 9))
		}
		must(win.UnlockAll())
		must(win.Free())
	})
}
