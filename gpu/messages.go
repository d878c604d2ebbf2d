package gpu

import (
	"reflect"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/door"
)

// Messages. Each call is the call of package mpi that has its name, with a Slice. A request is an *mpi.Request: Wait,
// the Test…, the sets, Cancel and Start work as for other requests. A buffer belongs to the library until its request
// is done; it must not be freed before.

// Send is mpi.Send from device memory: it returns when s may be written again. A short message waits until its receiver
// is in a call of the library, and need not be matched.
func Send[T any](c *mpi.Comm, s Slice[T], dest, tag int) error {
	return wait(send(c, door.Send, s, dest, tag))
}

// Ssend is mpi.Ssend from device memory: it returns after a receive has matched the message.
func Ssend[T any](c *mpi.Comm, s Slice[T], dest, tag int) error {
	return wait(send(c, door.Ssend, s, dest, tag))
}

// Isend starts a Send.
func Isend[T any](c *mpi.Comm, s Slice[T], dest, tag int) (*mpi.Request, error) {
	return send(c, door.Isend, s, dest, tag)
}

// Issend starts an Ssend.
func Issend[T any](c *mpi.Comm, s Slice[T], dest, tag int) (*mpi.Request, error) {
	return send(c, door.Issend, s, dest, tag)
}

// SendInit makes a persistent request that sends s each time it is started, as mpi.SendInit.
func SendInit[T any](c *mpi.Comm, s Slice[T], dest, tag int) (*mpi.Request, error) {
	return send(c, door.SendInit, s, dest, tag)
}

// SsendInit is SendInit in synchronous mode.
func SsendInit[T any](c *mpi.Comm, s Slice[T], dest, tag int) (*mpi.Request, error) {
	return send(c, door.SsendInit, s, dest, tag)
}

// Recv is mpi.Recv into device memory. When it has returned, what is started on the device sees the message.
func Recv[T any](c *mpi.Comm, s Slice[T], source, tag int) (mpi.Status, error) {
	return collect(recv(c, door.Recv, s, source, tag))
}

// Irecv starts a Recv.
func Irecv[T any](c *mpi.Comm, s Slice[T], source, tag int) (*mpi.Request, error) {
	return recv(c, door.Irecv, s, source, tag)
}

// RecvInit makes a persistent request that receives into s each time it is started, as mpi.RecvInit.
func RecvInit[T any](c *mpi.Comm, s Slice[T], source, tag int) (*mpi.Request, error) {
	return recv(c, door.RecvInit, s, source, tag)
}

// Mrecv receives the message of a matched probe into s, as mpi.Mrecv.
func Mrecv[T any](m *mpi.Message, s Slice[T]) (mpi.Status, error) {
	return collect(mrecv(m, door.Mrecv, s))
}

// Imrecv starts an Mrecv.
func Imrecv[T any](m *mpi.Message, s Slice[T]) (*mpi.Request, error) { return mrecv(m, door.Imrecv, s) }

// Sendrecv sends one message to dest and receives another from source, as mpi.Sendrecv. If only one of the buffers is
// of a device, start an Isend and an Irecv, one of them of package mpi.
func Sendrecv[S, R any](c *mpi.Comm, send Slice[S], dest, stag int, recv Slice[R], source, rtag int) (mpi.Status, error) {
	const op = door.Sendrecv
	from, bad := send.buffer()
	if bad != nil {
		return mpi.Status{}, refused(bad, op.String(), c, dest, stag)
	}
	to, bad := recv.buffer()
	if bad != nil {
		return mpi.Status{}, refused(bad, op.String(), c, source, rtag)
	}
	if door.Through().MovesHostOnly(c) {
		return exchangeWhole(c, send, from, dest, stag, recv, source, rtag)
	}
	s, r, err := door.Through().Exchange(c, reflect.TypeFor[S](), reflect.TypeFor[R](), from, dest, stag, to, source, rtag)
	var st mpi.Status
	if r != nil {
		var failed error
		if st, failed = r.(*mpi.Request).Wait(); err == nil {
			err = failed
		}
	}
	if s != nil {
		if _, failed := s.(*mpi.Request).Wait(); err == nil {
			err = failed
		}
	}
	return st, err
}

func send[T any](c *mpi.Comm, op door.Op, s Slice[T], dest, tag int) (*mpi.Request, error) {
	b, bad := s.buffer()
	if bad != nil {
		return nil, refused(bad, op.String(), c, dest, tag)
	}
	if b.Len > 0 && dest != mpi.ProcNull && door.Through().MovesHostOnly(c) {
		if op == door.SendInit || op == door.SsendInit {
			return sendInitWhole(c, op, s, b, dest, tag)
		}
		return sendWhole(c, op, s, b, dest, tag)
	}
	return request(door.Through().Send(c, op, reflect.TypeFor[T](), b, dest, tag))
}

func recv[T any](c *mpi.Comm, op door.Op, s Slice[T], source, tag int) (*mpi.Request, error) {
	b, bad := s.buffer()
	if bad != nil {
		return nil, refused(bad, op.String(), c, source, tag)
	}
	if b.Len > 0 && source != mpi.ProcNull && door.Through().MovesHostOnly(c) {
		if op == door.RecvInit {
			return recvInitWhole(c, op, s, b, source, tag)
		}
		return recvWhole(op, s, b, contiguous(b), func(mem []byte) (*mpi.Request, error) {
			return mpi.Irecv(c, elementsOf[T](mem, s.n), source, tag)
		}, func(bad *mpi.Error) error { return refused(bad, op.String(), c, source, tag) })
	}
	return request(door.Through().Recv(c, op, reflect.TypeFor[T](), b, source, tag))
}

func mrecv[T any](m *mpi.Message, op door.Op, s Slice[T]) (*mpi.Request, error) {
	b, bad := s.buffer()
	if bad != nil {
		return nil, refused(bad, op.String(), nil, mpi.Undefined, mpi.Undefined)
	}
	if b.Len > 0 && door.Through().MovesHostOnly(m) {
		return recvWhole(op, s, b, contiguous(b), func(mem []byte) (*mpi.Request, error) {
			return mpi.Imrecv(m, elementsOf[T](mem, s.n))
		}, func(bad *mpi.Error) error { return refused(bad, op.String(), nil, mpi.Undefined, mpi.Undefined) })
	}
	return request(door.Through().Mrecv(m, op, reflect.TypeFor[T](), b))
}

func request(r any, err error) (*mpi.Request, error) {
	if err != nil {
		return nil, err
	}
	return r.(*mpi.Request), nil
}

func collect(r *mpi.Request, err error) (mpi.Status, error) {
	if err != nil {
		return mpi.Status{}, err
	}
	return r.Wait()
}

func wait(r *mpi.Request, err error) error {
	_, err = collect(r, err)
	return err
}
