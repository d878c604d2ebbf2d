package gpu

import (
	"context"
	"testing"

	"github.com/gorun-mpi/mpi"
)

// asks reports whether operations at another rank are messages.
func (w way) asks() bool { return w.options.NotShared || w.hosts > 1 }

// testAsking runs a body as two ranks, in the ways in which the operations of one at the other are messages.
func testAsking(t *testing.T, body func(r rank)) {
	for _, w := range ways {
		if w.asks() {
			w.test(t, 2, body)
		}
	}
}

// An operation whose stream cannot be marked is an error of its call. The other rank has heard of no message: neither
// waits for one, no byte changes, and both use the window on. Nor does an operation that begins no message since its
// context has ended.
func TestWinMarkFails(t *testing.T) {
	testAsking(t, func(r rank) {
		const size = 300_001
		me := r.Rank()
		mem, buf := of(r, message(size, me)), of(r, message(size, 10+me))
		w := ok(WinCreate(r.Comm, mem))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		fail := func() {
			for _, n := range []int{1, 333, size} {
				part := buf.Slice(0, n).On(0)
				r.d.Fail("Mark", 1)
				isError(Put(w, part, 1, 0), mpi.ErrDevice, "gpu.Put to rank 1 on world.win1: the device has failed: "+
					"waiting for the stream 0x0 of On: Mark: CUDA_ERROR_UNKNOWN")
				r.d.Fail("Mark", 1)
				isError(Get(w, part, 1, 0), mpi.ErrDevice, "of On: Mark: CUDA_ERROR_UNKNOWN")
				isError(Put(w.WithContext(ctx), part, 1, 0), context.Canceled, "gpu.Put")
				isError(Get(w.WithContext(ctx), part, 1, 0), context.Canceled, "gpu.Get")
			}
		}
		must(w.Fence())
		if me == 0 {
			must(Get(w, make([]byte, 1), 1, 0)) // this rank knows how many elements there are
			fail()
			must(Put(w, buf.Slice(5, 50).On(0), 1, 5))
		}
		must(w.Fence())
		want := message(size, me)
		if me == 1 {
			copy(want[5:50], message(size, 10)[5:])
		}
		same(contents(r, mem), want)
		same(contents(r, buf), message(size, 10+me))
		must(mpi.Barrier(r.Comm))
		if me == 0 {
			must(w.Lock(1, mpi.Exclusive))
			fail()
			must(w.Flush(1))
			must(Get(w, buf.On(0), 1, 0))
			must(w.Unlock(1))
			copy(want, message(size, 1))
			copy(want[5:50], message(size, 10)[5:])
			same(contents(r, buf), want)
		}
		must(mpi.Barrier(r.Comm))
		must(w.Fence())
		if me == 0 {
			fail()
		}
		must(w.Free())
		free(mem, buf)
	})
}

// failure is a copy of an operation of rank 0 at rank 1 that fails.
type failure struct {
	put, device bool   // the operation; its buffer is of a device
	at          int    // the rank whose device fails
	method      string // see acceltest.Process.Fail
}

// failures are of all copies that an operation needs.
func failures() (all []failure) {
	for _, put := range []bool{true, false} {
		for _, method := range []string{"Copy", "CopyEnd"} {
			all = append(all, failure{put, false, 1, method}, failure{put, true, 0, method}, failure{put, true, 1, method})
		}
		all = append(all, failure{put, true, 0, "MarkEnd"})
	}
	return all
}

// says is what the driver answers.
func (f failure) says() string {
	if f.method == "Copy" {
		return "Copy: CUDA_ERROR_UNKNOWN (999)"
	}
	return "cuEventQuery: CUDA_ERROR_LAUNCH_FAILED (719)"
}

// operate makes the operation with the first n elements.
func (f failure) operate(w *Win[byte], host []byte, device Slice[byte], n int) error {
	switch device = device.Slice(0, n).On(0); {
	case f.put && f.device:
		return Put(w, device, 1, 0)
	case f.put:
		return Put(w, host[:n], 1, 0)
	case f.device:
		return Get(w, device, 1, 0)
	}
	return Get(w, host[:n], 1, 0)
}

// A device that fails while it reads or writes elements of an operation, at the rank that makes it or at the other one,
// is the error of the call that ends the epoch there, with the driver's answer. Neither rank waits for ever, what the
// operation does not name is as it was, and both ranks use the window on.
func TestWinCopyFails(t *testing.T) {
	const size = 300_001
	testAsking(t, func(r rank) {
		me := r.Rank()
		mem, buf, host := alloc[byte](r, size+1), alloc[byte](r, size), make([]byte, size)
		w := ok(WinCreate(r.Comm, mem))
		for _, f := range failures() {
			for i, n := range []int{333, 333, size} {
				must(mem.CopyFrom(message(size+1, me)))
				must(buf.CopyFrom(message(size, 10+me)))
				copy(host, message(size, 10+me))
				must(mpi.Barrier(r.Comm))
				if me == f.at {
					r.d.Fail(f.method, 1)
				}
				must(mpi.Barrier(r.Comm))
				f.inEpoch(r, w, i == 0, func() { must(f.operate(w, host, buf, n)) }, func(err error) {
					isError(err, mpi.ErrDevice, f.says())
				})
				same(contents(r, mem.Slice(n, size+1)), message(size+1, me)[n:])
				if !f.put || me == 0 {
					same(contents(r, mem), message(size+1, me))
				}
				if f.put {
					same(contents(r, buf), message(size, 10+me))
				}
				f.inEpoch(r, w, i == 0, func() {}, must)
				f.inEpoch(r, w, i == 0, func() { must(f.operate(w, host, buf, n)) }, must)
				switch {
				case f.put && me == 1:
					same(contents(r, mem.Slice(0, n)), message(size, 10)[:n])
				case !f.put && me == 0 && f.device:
					same(contents(r, buf.Slice(0, n)), message(size+1, 1)[:n])
				case !f.put && me == 0:
					same(host[:n], message(size+1, 1)[:n])
				}
			}
		}
		must(mpi.Barrier(r.Comm))
		must(w.Fence())
		if me == 1 {
			r.d.Fail("Copy", 1)
		}
		must(mpi.Barrier(r.Comm))
		if me == 0 {
			must(Put(w, buf, 1, 0))
			err := w.Free()
			isError(err, mpi.ErrDevice, "gpu.Free to rank 1 on world.win1: an operation at the rank has failed, and its "+
				`elements are not defined: "the device has failed: `)
			isError(err, mpi.ErrDevice, failure{method: "Copy"}.says())
		} else {
			must(w.Free())
		}
		freeLater(mem)
		free(buf)
	})
}

// inEpoch makes an operation of rank 0 in an epoch of Lock or of Fence, and hands the error of its end to ends.
func (f failure) inEpoch(r rank, w *Win[byte], lock bool, operate func(), ends func(error)) {
	if !lock {
		must(w.Fence())
	}
	if r.Rank() == 0 {
		if lock {
			must(w.Lock(1, mpi.Exclusive))
		}
		if operate(); lock {
			ends(w.Unlock(1))
		}
	}
	switch {
	case lock:
		must(mpi.Barrier(r.Comm))
	case r.Rank() == 0:
		ends(w.Fence())
	default:
		must(w.Fence())
	}
}
