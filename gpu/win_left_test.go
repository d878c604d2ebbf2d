package gpu

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/transport"
)

// After the failure of a rank the others free the window without waiting for each other. The memory of one of them is
// freed when the copies of another rank of its process are over, and later copies do not begin: other memory may have
// its address by then.
func TestWinLeft(t *testing.T) {
	m := acceltest.New(acceltest.Options{})
	d := m.Process()
	useDriver(t, d)
	var devices [3]transport.Device
	where := mpi.Option(func(o *join.Options) {
		o.Wrap = func(rank int, d transport.Device) transport.Device {
			devices[rank] = d
			return d
		}
	})
	defer time.AfterFunc(hangs, func() { panic(t.Name() + " hangs") }).Stop()
	var living sync.WaitGroup
	living.Add(2)
	var errs [3]error
	mpi.RunLocal(3, func(c *mpi.Comm) (err error) {
		r := rank{c, d, 0}
		if r.Rank() != 0 {
			defer living.Done()
		}
		defer func() {
			if p := recover(); p != nil {
				errs[r.Rank()] = fmt.Errorf("%s: %v", testLines(), p)
			}
		}()
		for other := range 3 { // a link to each, which tells of the end
			ok(mpi.Sendrecv(c, []byte{1}, other, 1, make([]byte, 1), other, 1))
		}
		mem := of(r, make([]byte, 2*chunk))
		w := ok(WinCreate(c, mem))
		switch r.Rank() {
		case 0:
			devices[0].Close()
			living.Wait()
			return errors.New("the rank has died")
		case 1:
			leave(r, w)
			return nil
		case 2:
			useWhileItLeaves(r, w)
		}
		check(w.Free() != nil, "Free of a window of a dead rank")
		freeLater(mem)
		return nil
	}, where)
	drain()
	if err := errors.Join(errs[:]...); err != nil {
		t.Error(err)
	}
	if left := m.Left(); strings.Contains(left, "under") { // what the dead rank has is left
		t.Error(left)
	}
}

// useWhileItLeaves has copies of all kinds under way at rank 1, which leaves the window.
func useWhileItLeaves(r rank, w *Win[byte]) {
	must(w.LockAll())
	must(Put(w, message(100, 1), 1, 0))
	must(w.Flush(1)) // this rank knows where the memory is
	buf := of(r, message(2000, 2))
	stream := r.d.Stream(0)
	stream.Hold()
	before := r.d.Calls("Copy")
	must(Put(w, buf.Slice(0, 1000).On(stream.Handle()), 1, 0)) // what follows goes behind it on the device
	must(Get(w, buf.Slice(1000, 2000), 1, 5000))
	must(Put(w, message(100, 3), 1, 3000))
	got := make([]byte, 100)
	must(Get(w, got, 1, 4000))
	long := make(chan error)
	go func() { long <- Put(w, message(chunk+1, 4), 1, 0) }()
	for r.d.Calls("Copy") < before+5 {
		time.Sleep(time.Millisecond)
	}
	must(mpi.Send(r.Comm, []byte{0}, 1, 5))
	ok(mpi.Recv(r.Comm, make([]byte, 1), 1, 5))
	time.Sleep(5 * time.Millisecond) // for the other rank to free the memory
	stream.Release()
	must(<-long)
	ok(mpi.Recv(r.Comm, make([]byte, 1), 1, 6))
	for _, err := range []error{Put(w, message(100, 5), 1, 0), Get(w, got, 1, 0), Put(w, buf, 1, 0),
		Put(w, message(chunk+1, 6), 1, 0)} {
		isError(err, mpi.ErrPeerFailed, "rank 1")
	}
	must(w.FlushLocalAll())
	must(mpi.Send(r.Comm, []byte{0}, 1, 7))
	w.UnlockAll() // which rank 1 may have left alone
	free(buf)
}

// leave frees the window and its memory while copies of rank 2 are under way there.
func leave(r rank, w *Win[byte]) {
	mem := w.Local()
	ok(mpi.Recv(r.Comm, make([]byte, 1), 2, 5))
	check(w.Free() != nil, "Free of a window of a dead rank")
	must(mpi.Send(r.Comm, []byte{0}, 2, 5))
	freeLater(mem)
	fresh := of(r, make([]byte, 2*chunk))
	check(fresh.Addr() == mem.Addr(), "other memory has the address %#x and not %#x", fresh.Addr(), mem.Addr())
	must(mpi.Send(r.Comm, []byte{0}, 2, 6))
	ok(mpi.Recv(r.Comm, make([]byte, 1), 2, 7))
	same(contents(r, fresh), make([]byte, 2*chunk))
	free(fresh)
}
