package main

import (
	"time"

	"github.com/gorun-mpi/mpi"
)

// fifo is a queue whose oldest entry is the next to complete. It has room for the entries that wait and one batch; an
// entry's slot and request are its own from start until it is finished.
type fifo struct {
	requests []*mpi.Request
	buf      []byte
	started  int // entries ever put in; entry i uses slot i modulo the room
	finished int // entries waited for; finished <= started <= finished + room
}

func (q *queue) newFifo() *fifo {
	room := q.length + len(q.batch)
	return &fifo{requests: make([]*mpi.Request, room), buf: make([]byte, room*messageBytes)}
}

// add starts n entries.
func (f *fifo) add(n int, start func(buf []byte) (*mpi.Request, error)) error {
	for range n {
		i := f.started % len(f.requests)
		var err error
		if f.requests[i], err = start(slot(f.buf, i)); err != nil {
			return err
		}
		f.started++
	}
	return nil
}

// finish waits for the n oldest entries.
func (f *fifo) finish(n int) error {
	for range n {
		if _, err := f.requests[f.finished%len(f.requests)].Wait(); err != nil {
			return err
		}
		f.finished++
	}
	return nil
}

// postedInTurn measures arrivals that each complete the oldest of `length` receives, which match everything.
func (q *queue) postedInTurn() (float64, error) {
	if q.rank == 0 {
		if err := q.serve(q.sendBatch); err != nil {
			return 0, err
		}
		return 0, q.sendWaiting(anyBoth, 0)
	}
	f := q.newFifo()
	post := func(buf []byte) (*mpi.Request, error) { return mpi.Irecv(q.world, buf, mpi.AnySource, mpi.AnyTag) }
	if err := f.add(q.length, post); err != nil {
		return 0, err
	}
	us, err := q.measure(func() (time.Duration, error) {
		if err := f.add(len(q.batch), post); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := q.request(true); err != nil {
			return 0, err
		}
		err := f.finish(len(q.batch))
		return time.Since(start), err
	})
	if err != nil {
		return 0, err
	}
	return us, f.finish(q.length)
}

// unexpectedInTurn measures receives that match everything and so take the oldest of `length` unexpected messages.
func (q *queue) unexpectedInTurn() (float64, error) {
	if q.rank == 0 {
		return 0, q.serveInTurn()
	}
	us, err := q.measure(func() (time.Duration, error) { return q.receiveBatch(anyBoth) })
	if err != nil {
		return 0, err
	}
	for range q.length {
		if _, err := mpi.Recv(q.world, slot(q.batchBuf, 0), mpi.AnySource, mpi.AnyTag); err != nil {
			return 0, err
		}
	}
	return us, nil
}

// serveInTurn sends what waits and then a batch whenever rank 1 requests one. A send may complete only when it is
// received, and those of the latest batches are not yet: only the oldest may be waited for.
func (q *queue) serveInTurn() error {
	f := q.newFifo()
	send := func(buf []byte) (*mpi.Request, error) { return mpi.Isend(q.world, buf, 1, wantedTag) }
	if err := f.add(q.length, send); err != nil {
		return err
	}
	err := q.serve(func() error {
		// Rank 1 has received all but `length` of the messages sent so far.
		if err := f.finish(f.started - f.finished - q.length); err != nil {
			return err
		}
		if err := f.add(len(q.batch), send); err != nil {
			return err
		}
		return q.sendLast()
	})
	if err != nil {
		return err
	}
	return f.finish(f.started - f.finished)
}
