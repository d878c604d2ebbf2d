package mpi

import (
	"errors"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// A rank whose Free has failed, since others have died, ends the calls of a rank that has not freed the window: none
// waits for ever; §12.2.5.
func TestFreeOfTheDeadEndsCalls(t *testing.T) {
	for name, call := range map[string]func(w *Comm, win *Win[int64]) error{
		"Lock":  func(_ *Comm, win *Win[int64]) error { return win.Lock(2, Exclusive) },
		"Start": func(w *Comm, win *Win[int64]) error { return win.Start(ok(w.Group().Incl(2))) },
		"Post":  func(w *Comm, win *Win[int64]) error { return errors.Join(win.Post(ok(w.Group().Incl(2))), win.Wait()) },
		"Fence": func(_ *Comm, win *Win[int64]) error { return win.Fence() },
		"Free":  func(_ *Comm, win *Win[int64]) error { return win.Free() },
		"WaitNote": func(_ *Comm, win *Win[int64]) error {
			_, _, err := win.WaitNote(nil)
			return err
		},
		"FetchOp": func(_ *Comm, win *Win[int64]) error {
			return errors.Join(win.LockAll(), second(win.FetchOp(Sum, 1, 2, 0)))
		},
		"Get": func(_ *Comm, win *Win[int64]) error {
			return errors.Join(win.LockAll(), win.Get(make([]int64, 3000), 2, 0), win.Flush(2))
		},
	} {
		for way, plan := range map[string]faulty.Plan{"linked": {}, "by messages": unreached} {
			t.Run(name+" "+way, func(t *testing.T) { freeOfTheDead(t, plan, call) })
		}
	}
}

func freeOfTheDead(t *testing.T, plan faulty.Plan, call func(w *Comm, win *Win[int64]) error) {
	const victims = 2 // ranks 0 and 1
	var dies [victims]transport.Device
	overLoop(t, withDevices(func(rank int, d transport.Device) transport.Device {
		if rank < victims {
			dies[rank] = d
		}
		return faulty.Wrap(d, int64(rank), plan)
	}), WithEnviron([]string{"GORUN_COLL_CHECK=0"}))(4, func(w *Comm) { // else Free waits for rank 3
		for other := range w.Size() { // a link to each, which tells of the end of a device
			second(Sendrecv(w, []byte{1}, other, 1, make([]byte, 1), other, 1))
		}
		win := ok(WinCreate(w, make([]int64, 3000)))
		must(Barrier(w))
		switch w.Rank() {
		case 0, 1: // from which rank 2 hears in Free
			dies[w.Rank()].Close() // as a kill does: the engine says nothing
			return
		case 2:
			is(win.Free(), ErrPeerFailed)
			sendSignal(w, 3)
		case 3:
			awaitSignal(w, 2)
			err := call(w, win)
			check(outlived(err), "the call ends with %v", err)
			if errors.Is(err, ErrRevoked) {
				check(strings.Contains(err.Error(), whyRevokedWin), "the error is %v", err)
			}
			win.Free()
		}
		second(Sendrecv(w, []byte{1}, 5-w.Rank(), 1, make([]byte, 1), 5-w.Rank(), 1))
	})
}
