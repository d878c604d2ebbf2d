package main

import (
	"time"

	"github.com/gorun-mpi/mpi"
)

// line is a queue that is served in turn: the oldest entry is the next to complete. It has room for the entries that
// wait and one batch; an entry's slot and request are its own from start until it is finished.
type line struct {
	requests []*mpi.Request
	buf      []byte
	started  int // entries ever put in; entry i uses slot i modulo the room
	finished int // entries waited for; finished <= started <= finished + room
}

func (q *queue) newLine() *line {
	room := q.length + len(q.batch)
	return &line{requests: make([]*mpi.Request, room), buf: make([]byte, room*messageBytes)}
}

// add starts n entries.
func (l *line) add(n int, start func(buf []byte) (*mpi.Request, error)) error {
	for range n {
		i := l.started % len(l.requests)
		var err error
		if l.requests[i], err = start(slot(l.buf, i)); err != nil {
			return err
		}
		l.started++
	}
	return nil
}

// finish waits for the n oldest entries.
func (l *line) finish(n int) error {
	for range n {
		if _, err := l.requests[l.finished%len(l.requests)].Wait(); err != nil {
			return err
		}
		l.finished++
	}
	return nil
}

// postedInTurn measures arrivals that each take the oldest of `length` receives that fit everything.
func (q *queue) postedInTurn() (float64, error) {
	if q.rank == 0 {
		if err := q.serve(q.sendBatch); err != nil {
			return 0, err
		}
		return 0, q.sendWaiting(anyBoth, 0)
	}
	l := q.newLine()
	post := func(buf []byte) (*mpi.Request, error) { return mpi.Irecv(q.world, buf, mpi.AnySource, mpi.AnyTag) }
	if err := l.add(q.length, post); err != nil {
		return 0, err
	}
	us, err := q.direct(func() (time.Duration, error) {
		if err := l.add(len(q.batch), post); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := q.say(true); err != nil {
			return 0, err
		}
		err := l.finish(len(q.batch))
		return time.Since(start), err
	})
	if err != nil {
		return 0, err
	}
	return us, l.finish(q.length)
}

// unexpectedInTurn measures receives that fit everything and so take the oldest of `length` unexpected messages.
func (q *queue) unexpectedInTurn() (float64, error) {
	if q.rank == 0 {
		return 0, q.serveInTurn()
	}
	us, err := q.direct(func() (time.Duration, error) { return q.takes(anyBoth) })
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

// serveInTurn sends what waits and then a batch whenever rank 1 wants one. A send may complete only when it is
// received, and those of the latest batches are not yet: only the oldest may be waited for.
func (q *queue) serveInTurn() error {
	l := q.newLine()
	send := func(buf []byte) (*mpi.Request, error) { return mpi.Isend(q.world, buf, 1, wantedTag) }
	if err := l.add(q.length, send); err != nil {
		return err
	}
	err := q.serve(func() error {
		// Rank 1 has taken all but `length` of the messages sent so far.
		if err := l.finish(l.started - l.finished - q.length); err != nil {
			return err
		}
		if err := l.add(len(q.batch), send); err != nil {
			return err
		}
		return q.sayLastWord()
	})
	if err != nil {
		return err
	}
	return l.finish(l.started - l.finished)
}
