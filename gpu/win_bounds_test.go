package gpu

import (
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// alone runs a body as the one rank of a job with one device.
func alone(t *testing.T, body func(r rank)) {
	d := useMachine(t, acceltest.Options{})
	run(t, 1, func(c *mpi.Comm) { body(rank{c, d, 0}) })
}

// copies waits until the driver is asked for no more copies, and returns how many there have been.
func (r rank) copies() int {
	for last := -1; ; time.Sleep(5 * time.Millisecond) {
		n := r.d.Calls("Copy")
		if n == last {
			return n
		}
		last = n
	}
}

// Copies that become possible all at once, since they have waited for one stream, and the copies of many windows, are
// asked for up to a number: a driver whose queue is full blocks an engine, which has its lock. The others follow.
func TestWinStartsSoMany(t *testing.T) {
	alone(t, func(r rank) {
		const each, pieces, size = copiesMost - 1, 2*startedMost + 10, 10
		var mems []Slice[byte]
		var wins []*Win[byte]
		for range 2 + startedMost/each {
			mem := of(r, make([]byte, pieces*size))
			w := ok(WinCreate(r.Comm, mem))
			must(w.LockAll())
			mems, wins = append(mems, mem), append(wins, w)
		}
		want := message(pieces*size, 1)
		buf := of(r, want)
		part := func(i int) Slice[byte] { return buf.Slice(i*size, (i+1)*size) }
		flushed := make(chan error)

		kernels := r.d.Stream(0)
		before := r.d.Calls("Copy")
		kernels.Hold()
		for i := range pieces {
			must(Put(wins[0], part(i).On(kernels.Handle()), 0, int64(i*size)))
		}
		r.d.Copies(0).Hold()
		kernels.Release()
		kernels.Sync()
		go func() { flushed <- wins[0].FlushAll() }()
		if n := r.copies() - before; n < startedMost || n > startedMost+1 {
			t.Errorf("behind one stream: %d copies are asked for, want %d, and one for the goroutine that waits", n, startedMost)
		}
		r.d.Copies(0).Release()
		must(<-flushed)
		same(contents(r, mems[0]), want)

		before = r.d.Calls("Copy")
		r.d.Copies(0).Hold()
		for _, w := range wins[1:] {
			for i := range each {
				must(Put(w, part(i), 0, int64(i*size)))
			}
		}
		if n := r.copies() - before; n != startedMost {
			t.Errorf("of %d windows: %d copies are asked for, want %d", len(wins)-1, n, startedMost)
		}
		r.d.Copies(0).Release()
		for i, w := range wins {
			must(w.UnlockAll())
			if i > 0 {
				same(contents(r, mems[i].Slice(0, each*size)), want[:each*size])
			}
			must(w.Free())
			free(mems[i])
		}
		free(buf)
		started.mu.Lock()
		defer started.mu.Unlock()
		check(len(started.all) == 0, "copies are counted that have ended: %v", started.all)
	})
}

// A copy waits for its stream, and not for one of another copy that waits itself for what this one brings.
func TestWinStreamsOfOneFlush(t *testing.T) {
	alone(t, func(r rank) {
		mem, buf := of(r, make([]byte, 20)), of(r, message(20, 1))
		w := ok(WinCreate(r.Comm, mem))
		must(w.LockAll())
		first, second := r.d.Stream(0), r.d.Stream(0)
		first.Launch(func() {
			for r.d.Read(mem.Addr()+10, 1)[0] != message(20, 1)[10] {
				time.Sleep(100 * time.Microsecond)
			}
		})
		second.Launch(func() { time.Sleep(2 * time.Millisecond) })
		must(Put(w, buf.Slice(0, 10).On(first.Handle()), 0, 0))
		must(Put(w, buf.Slice(10, 20).On(second.Handle()), 0, 10))
		must(w.FlushAll())
		same(contents(r, mem), message(20, 1))
		must(w.UnlockAll())
		must(w.Free())
		free(mem, buf)
	})
}

// The buffer of an operation is the library's until the epoch ends. Free is an error before that, and no copy touches
// memory that is freed.
func TestWinBufferIsNotFreed(t *testing.T) {
	alone(t, func(r rank) {
		mem, src, dst := of(r, message(10, 1)), of(r, message(10, 2)), of(r, make([]byte, 10))
		w := ok(WinCreate(r.Comm, mem))
		must(w.LockAll())
		r.d.Copies(0).Hold()
		must(Get(w, dst, 0, 0))
		must(w.Sync())
		must(Put(w, src, 0, 0))
		for _, s := range []Slice[byte]{src, dst} {
			isError(s.Free(), mpi.ErrBuffer, "or end its epoch")
		}
		r.d.Copies(0).Release()
		must(w.FlushAll())
		same(contents(r, dst), message(10, 1))
		same(contents(r, mem), message(10, 2))
		free(src, dst)
		must(w.UnlockAll())
		must(w.Free())
		free(mem)
	})
}

// A window over a library that matches messages by itself is an error that says what to do, at each rank.
func TestWinWhole(t *testing.T) {
	way{name: "whole", own: true, whole: true}.test(t, 2, func(r rank) {
		mem := alloc[byte](r, 10)
		_, err := WinCreate(r.Comm, mem)
		isError(err, mpi.ErrUnavailable, "choose other transports with GORUN_TRANSPORTS")
		must(mpi.Barrier(r.Comm))
		free(mem)
	})
}
