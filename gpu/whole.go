package gpu

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/door"
)

// Messages over a library that matches them by itself, as UCX does, and knows memory of the host only. A message goes
// through pinned memory as a whole: a send is copied there before it starts, and a receive is copied to the device when
// its result is collected, as the buffers of collective calls are.

// sendWhole is send of a buffer with bytes. The buffer may be written again when it returns.
func sendWhole[T any](c *mpi.Comm, op door.Op, s Slice[T], b accel.Buffer, dest, tag int) (*mpi.Request, error) {
	through, err := fetchWhole(c, op, b, contiguous(b), dest, tag)
	if err != nil {
		return nil, err
	}
	return startWhole[T](c, op, through, s.n, dest, tag)
}

// fetchWhole copies a message that is to be sent to pinned memory.
func fetchWhole(c *mpi.Comm, op door.Op, b accel.Buffer, parts shape, dest, tag int) (stage, error) {
	through, bad := take(b.Driver, parts.size())
	if bad != nil {
		return stage{}, refused(bad, op.String(), c, dest, tag)
	}
	err := ready(b)
	if err == nil {
		err = parts.copies(b, through.mem[:parts.size()], false)
	}
	if err != nil {
		through.giveBack()
		return stage{}, refused(driverError("", err), op.String(), c, dest, tag)
	}
	return through, nil
}

// startWhole sends n elements of pinned memory, and gives it back.
func startWhole[T any](c *mpi.Comm, op door.Op, through stage, n, dest, tag int) (*mpi.Request, error) {
	start := mpi.Isend[T]
	if op == door.Ssend || op == door.Issend {
		start = mpi.Issend[T]
	}
	r, err := start(c, elementsOf[T](through.mem, n), dest, tag)
	if err != nil {
		through.giveBack()
		return nil, named(err, op.String())
	}
	door.Through().Collect(r, func(_ int64, err error) error {
		through.giveBack()
		return named(err, op.String())
	})
	return r, nil
}

// recvWhole starts a receive by start, into memory of the host, from where the message is copied to parts of b.
func recvWhole[T any](op door.Op, s Slice[T], b accel.Buffer, parts shape, start func(mem []byte) (*mpi.Request, error),
	wrong func(*mpi.Error) error) (*mpi.Request, error) {
	through, bad := take(b.Driver, parts.size())
	if bad != nil {
		return nil, wrong(bad)
	}
	behind, err := markOf(b)
	if err != nil {
		through.giveBack()
		return nil, wrong(driverError("", err))
	}
	r, err := start(through.mem[:parts.size()])
	if err != nil {
		behind.drop()
		through.giveBack()
		return nil, named(err, op.String())
	}
	s.of.results.Add(1)
	door.Through().Collect(r, func(n int64, err error) error {
		defer through.giveBack()
		return landed(&behind, s, b, parts, through, n, err, op, wrong)
	})
	return r, nil
}

// sendInitWhole is SendInit of a buffer with bytes, which each start copies. The pinned memory is the request's until
// it is freed.
func sendInitWhole[T any](c *mpi.Comm, op door.Op, s Slice[T], b accel.Buffer, dest, tag int) (*mpi.Request, error) {
	through, bad := take(b.Driver, b.Len)
	if bad != nil {
		return nil, refused(bad, op.String(), c, dest, tag)
	}
	prepare := mpi.SendInit[T]
	if op == door.SsendInit {
		prepare = mpi.SsendInit[T]
	}
	r, err := prepare(c, elementsOf[T](through.mem, s.n), dest, tag)
	if err != nil {
		through.giveBack()
		return nil, named(err, op.String())
	}
	door.Through().Keep(r, door.Kept{Free: through.giveBack,
		Begin: func() error {
			b, bad := s.buffer()
			if bad == nil {
				if err := copyReady(b, through.mem[:b.Len]); err != nil {
					bad = driverError("", err)
				}
			}
			if bad != nil {
				return refused(bad, op.String(), c, dest, tag)
			}
			return nil
		},
		End: func(_ int64, err error) error { return named(err, op.String()) }})
	return r, nil
}

// recvInitWhole is RecvInit into a buffer with bytes.
func recvInitWhole[T any](c *mpi.Comm, op door.Op, s Slice[T], b accel.Buffer, source, tag int) (*mpi.Request, error) {
	wrong := func(bad *mpi.Error) error { return refused(bad, op.String(), c, source, tag) }
	through, bad := take(b.Driver, b.Len)
	if bad != nil {
		return nil, wrong(bad)
	}
	r, err := mpi.RecvInit(c, elementsOf[T](through.mem, s.n), source, tag)
	if err != nil {
		through.giveBack()
		return nil, named(err, op.String())
	}
	var behind streamMark
	door.Through().Keep(r, door.Kept{Free: through.giveBack,
		Begin: func() error {
			b, bad := s.buffer()
			if bad != nil {
				return wrong(bad)
			}
			var err error
			if behind, err = markOf(b); err != nil {
				return wrong(driverError("", err))
			}
			s.of.results.Add(1)
			return nil
		},
		End: func(n int64, err error) error {
			return landed(&behind, s, b, contiguous(b), through, n, err, op, wrong)
		}})
	return r, nil
}

// landed copies n bytes that have been received into the memory of the host to parts of b. err is the receive's.
func landed[T any](behind *streamMark, s Slice[T], b accel.Buffer, parts shape, through stage, n int64, err error,
	op door.Op, wrong func(*mpi.Error) error) error {
	if n = min(n, parts.size()); n > 0 {
		failed := behind.pass()
		if failed == nil {
			failed = parts.copies(b, through.mem[:n], true)
		}
		if failed != nil && err == nil {
			err = wrong(driverError("", failed))
		}
	}
	behind.drop()
	s.of.results.Add(-1)
	return named(err, op.String())
}

// exchangeWhole is Sendrecv with such messages. What is sent is fetched first: where that fails no message has begun.
// The receive is posted before the send, so that a rank that sends to itself finds it.
func exchangeWhole[S, R any](c *mpi.Comm, out Slice[S], from accel.Buffer, dest, stag int, in Slice[R], source,
	rtag int) (mpi.Status, error) {
	const op = door.Sendrecv
	start := func() (*mpi.Request, error) { return send(c, op, out, dest, stag) }
	var through stage
	if from.Len > 0 && dest != mpi.ProcNull {
		var err error
		if through, err = fetchWhole(c, op, from, contiguous(from), dest, stag); err != nil {
			return mpi.Status{}, err
		}
		start = func() (*mpi.Request, error) { return startWhole[S](c, op, through, out.n, dest, stag) }
	}
	r, err := recv(c, op, in, source, rtag)
	if err != nil {
		through.giveBack()
		return mpi.Status{}, err
	}
	s, err := start()
	if err != nil {
		r.Cancel()
	}
	st, failed := r.Wait()
	if err == nil {
		err = failed
		if failed = wait(s, nil); err == nil {
			err = failed
		}
	}
	return st, err
}
