package mpi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// A rank whose Free has failed, since others have died, refuses what others ask it that have not freed the window.
// No call waits for ever; §12.2.5.
func TestFreeOfTheDeadAnswers(t *testing.T) {
	for name, plan := range map[string]faulty.Plan{"linked": {}, "by messages": unreached} {
		for _, met := range []bool{true, false} { // rank 3 knows the memory of rank 2
			for _, locked := range []bool{true, false} { // rank 3 has the lock
				t.Run(fmt.Sprint(name, ", met ", met, ", locked ", locked), func(t *testing.T) {
					freeOfTheDead(t, plan, met, locked)
				})
			}
		}
	}
}

func freeOfTheDead(t *testing.T, plan faulty.Plan, met, locked bool) {
	const victims, n = 2, 3000 // ranks 0 and 1; elements: more than a request has
	var dies [victims]transport.Device
	overLoop(t, withDevices(func(rank int, d transport.Device) transport.Device {
		if d = faulty.Wrap(d, int64(rank), plan); rank < victims {
			dies[rank] = d
		}
		return d
	}), WithEnviron([]string{"GORUN_COLL_CHECK=0"}))(4, func(w *Comm) { // else Free waits for rank 3
		for other := range w.Size() { // a link to each, which tells of the end of a device
			second(Sendrecv(w, []byte{1}, other, 1, make([]byte, 1), other, 1))
		}
		win := ok(WinCreate(w, make([]int64, n)))
		must(win.SetName("sums"))
		if met && w.Rank() == 3 {
			must(win.Lock(2, Shared))
			ok(win.FetchOp(Sum, 1, 2, 0))
			must(win.Unlock(2))
		}
		must(Barrier(w))
		switch w.Rank() {
		case 0, 1: // from which rank 2 hears in Free
			dies[w.Rank()].Close() // as a kill does: the engine says nothing
		case 2:
			if locked {
				awaitSignal(w, 3)
			}
			is(win.Free(), ErrPeerFailed)
			is(win.Fence(), ErrComm)
			sendSignal(w, 3)
			awaitSignal(w, 3)
		case 3:
			if locked {
				must(win.Lock(2, Exclusive))
				sendSignal(w, 2)
				awaitSignal(w, 2)
				operationsAtFreed(win, n, met, plan.RefuseRegister == 0)
				refused("Unlock", win.Unlock(2))
			} else {
				awaitSignal(w, 2)
				refused("Lock", win.Lock(2, Exclusive))
				must(win.LockAll())
				operationsAtFreed(win, n, false, false)
				must(win.UnlockAll())
			}
			sendSignal(w, 2)
			is(win.Free(), ErrPeerFailed)
		}
	})
}

// refused checks the error of a call that rank 2 has been asked for.
func refused(call string, err error) {
	is(err, ErrPeerFailed)
	same(err.Error(), "mpi: "+call+" "+preposition(call)+" rank 2 on sums: the rank has freed the window, after another "+
		"rank had failed or returned; free it here too")
}

// operationsAtFreed are operations at rank 2, which has freed the window. known: the rank has told of its memory
// before, which a link reaches then, if linked: it stays.
func operationsAtFreed(win *Win[int64], n int, known, linked bool) {
	one, all := make([]int64, 1), make([]int64, n)
	refused("FetchOp", second(win.FetchOp(Sum, 5, 2, 1)))
	refused("CompareAndSwap", second(win.CompareAndSwap(2, 0, 0, 1)))
	wait := func(r *Request, err error) error {
		if err == nil {
			_, err = r.Wait()
		}
		return err
	}
	for _, o := range []struct {
		name string
		do   func() error
	}{
		{"Get", func() error { return win.Get(one, 2, 0) }},
		{"Get all", func() error { return win.Get(all, 2, 0) }},
		{"RGet", func() error { return wait(win.RGet(one, 2, 0)) }},
		{"Put", func() error { return win.Put(one, 2, 0) }},
		{"Put all", func() error { return win.Put(all, 2, 0) }},
		{"RPut", func() error { return wait(win.RPut(all, 2, 0)) }},
		{"Accumulate", func() error { return win.Accumulate(Sum, all, 2, 0) }},
	} {
		err := o.do()
		reached := linked && known && strings.Contains(o.name, "Get")
		switch {
		case !known:
			is(err, ErrPeerFailed)
		case reached, o.name != "RGet": // the next flush says so
			must(err)
		default:
			is(err, ErrPeerFailed)
		}
		switch err = win.Flush(2); {
		case reached || !known:
			must(err)
		default:
			refused("Flush", err)
		}
	}
}
