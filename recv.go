package mpi

import (
	"fmt"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
)

// Recv receives a message with tag (or AnyTag) from rank source (or AnySource) into buf; §3.2.4. The message may be
// shorter than buf: Count[T](status) returns its length in elements. A longer message fills buf, the rest is lost, and
// the error is ErrTruncate.
func Recv[T any](c *Comm, buf []T, source, tag int) (Status, error) {
	if s := c.usualRecv(source, tag); s != nil && known[T]() {
		st, err := s.group.Engine.Recv(nil, s.group.Context, s.group.ToWorld(source), int32(tag), bytesOf(buf))
		if err == nil && s.group.Peers == nil { // the usual case of status and wrap, without the calls
			return Status{Source: int(st.Source), Tag: int(st.Tag), Bytes: st.Bytes, Cancelled: st.Cancelled}, nil
		}
		return c.status(st), c.group.Wrap("Recv", source, tag, err)
	}
	if err := checkRecv[T](c, "Recv", source, tag); err != nil || source == ProcNull {
		if err == errHooked {
			return recvHooked(c, buf, source, tag)
		}
		return nullStatus, err
	}
	st, err := c.group.Engine.Recv(c.ctx, c.group.Context, c.group.ToWorld(source), int32(tag), bytesOf(buf))
	return c.status(st), c.group.Wrap("Recv", source, tag, err)
}

func recvHooked[T any](c *Comm, buf []T, source, tag int) (Status, error) {
	return c.hook().receives(callWith("Recv", CallRecv, source, tag, bytesIn(buf)), func(c *Comm) (Status, error) {
		return Recv(c, buf, source, tag)
	})
}

// RecvAlloc is Recv into a new slice of the message's length; §3.2.4. It consumes a message that is not a whole number
// of T, and returns ErrType.
func RecvAlloc[T any](c *Comm, source, tag int) ([]T, Status, error) {
	if err := checkRecv[T](c, "RecvAlloc", source, tag); err != nil || source == ProcNull {
		if err == errHooked {
			return recvAllocHooked[T](c, source, tag)
		}
		return nil, nullStatus, err
	}
	m, st, err := mprobe(c, "RecvAlloc", source, tag)
	if err != nil {
		return nil, st, err
	}
	n := Count[T](st)
	if n == Undefined {
		// The message is consumed, as by any receive of the wrong type.
		m.discard()
		return nil, st, &Error{Op: "RecvAlloc", Class: ErrType, Comm: c.Name(), Peer: source, Tag: tag,
			Err: fmt.Errorf("the message has %d bytes, which is %w of %d bytes (%T)",
				st.Bytes, errNotMultiple, sizeOf[T](), *new(T))}
	}
	buf := make([]T, n)
	st, err = Mrecv(m, buf)
	return buf, st, err
}

func recvAllocHooked[T any](c *Comm, source, tag int) (buf []T, st Status, err error) {
	st, err = c.hook().receives(callWith("RecvAlloc", CallRecv, source, tag, 0), func(c *Comm) (st Status, err error) {
		buf, st, err = RecvAlloc[T](c, source, tag)
		return st, err
	})
	return buf, st, err
}

// checkRecv reports which argument of a receive is wrong, T included.
func checkRecv[T any](c *Comm, op string, source, tag int) error {
	if c == nil || c.commState == nil || c.ctx != nil || uint(source) >= uint(c.group.Size) || uint(tag) > MaxTag ||
		c.freed.Load() {
		if err := c.checkRecv(op, source, tag); err != nil {
			return err
		}
	}
	if err := fixedType[T](); err != nil {
		return mpierr.At(c.opError(op, ErrType, "%w", err), source, tag, true)
	}
	knownTypes.add(typeOf[T]())
	return nil
}

// Irecv starts a Recv; §3.7.2. buf belongs to the library until the request is done. A message longer than buf
// completes it with ErrTruncate.
func Irecv[T any](c *Comm, buf []T, source, tag int) (*Request, error) {
	if s := c.usualRecv(source, tag); s != nil && known[T]() {
		p := s.group.Engine.Irecv(nil, s.group.Context, s.group.ToWorld(source), int32(tag), bytesOf(buf))
		return c.request(opIrecv, source, tag, p), nil
	}
	if err := checkRecv[T](c, "Irecv", source, tag); err != nil {
		if err == errHooked {
			return irecvHooked(c, buf, source, tag)
		}
		return nil, err
	}
	if source == ProcNull {
		return c.nullRequest(opIrecv, AnyTag), nil
	}
	return c.request(opIrecv, source, tag, c.group.Engine.Irecv(c.ctx, c.group.Context, c.group.ToWorld(source),
		int32(tag), bytesOf(buf))), nil
}

func irecvHooked[T any](c *Comm, buf []T, source, tag int) (*Request, error) {
	return c.hook().starts(callWith("Irecv", CallRecv, source, tag, bytesIn(buf)), func(c *Comm) (*Request, error) {
		return Irecv(c, buf, source, tag)
	})
}

// Sendrecv sends one message to dest and receives another from source, which may be the same rank; §3.10. Ranks that
// call it for each other do not deadlock. The status is the receive's. A message longer than recv is ErrTruncate.
func Sendrecv[S, R any](c *Comm, send []S, dest, stag int, recv []R, source, rtag int) (Status, error) {
	return sendrecv(c, opSendrecv, send, dest, stag, recv, source, rtag)
}

// SendrecvReplace is Sendrecv with one buffer: it sends a copy of buf and receives into buf; §3.10.
func SendrecvReplace[T any](c *Comm, buf []T, dest, stag, source, rtag int) (Status, error) {
	return sendrecv(c, opSendrecvReplace, append([]T(nil), buf...), dest, stag, buf, source, rtag)
}

func sendrecv[S, R any](c *Comm, op opCode, send []S, dest, stag int, recv []R, source, rtag int) (Status, error) {
	if dest == ProcNull {
		if c.hook() != nil {
			return sendrecvHooked(c, op, send, dest, stag, recv, source, rtag)
		}
		r, err := isendrecv(c, op, send, dest, stag, recv, source, rtag)
		if err != nil {
			return Status{}, err
		}
		return r.Wait()
	}
	if err := checkSendrecv[S, R](c, op.String(), dest, stag, source, rtag); err != nil {
		if err == errHooked {
			return sendrecvHooked(c, op, send, dest, stag, recv, source, rtag)
		}
		return Status{}, err
	}
	if source == ProcNull {
		err := c.group.Engine.Send(c.ctx, c.group.Context, c.group.ToWorld(dest), int32(stag), bytesOf(send),
			pml.Standard)
		return nullStatus, c.group.Wrap(op.String(), dest, stag, err)
	}
	st, err := c.group.Engine.Sendrecv(c.ctx, c.group.Context, c.group.ToWorld(dest), int32(stag), bytesOf(send),
		c.group.ToWorld(source), int32(rtag), bytesOf(recv))
	if err != nil {
		err = c.group.Wrap(op.String(), source, rtag, err)
	}
	return c.status(st), err
}

func sendrecvHooked[S, R any](c *Comm, op opCode, send []S, dest, stag int, recv []R, source, rtag int) (Status,
	error) {
	call := sendrecvCall(op, bytesIn(send), dest, stag, bytesIn(recv), source, rtag)
	return c.hook().receives(call, func(c *Comm) (Status, error) {
		return sendrecv(c, op, send, dest, stag, recv, source, rtag)
	})
}

// checkSendrecv reports which argument is wrong.
func checkSendrecv[S, R any](c *Comm, op string, dest, stag, source, rtag int) error {
	if err := checkSend[S](c, op, dest, stag); err != nil {
		return err
	}
	return checkRecv[R](c, op, source, rtag)
}

// Isendrecv starts a Sendrecv; §3.10. Both buffers belong to the library until the request is done. Its status is the
// receive's. Cancel of it returns ErrRequest, as MPI_Isendrecv cannot be cancelled in Open MPI and MPICH; an Isend and
// an Irecv can.
func Isendrecv[S, R any](c *Comm, send []S, dest, stag int, recv []R, source, rtag int) (*Request, error) {
	return isendrecv(c, opIsendrecv, send, dest, stag, recv, source, rtag)
}

func isendrecv[S, R any](c *Comm, op opCode, send []S, dest, stag int, recv []R, source, rtag int) (*Request, error) {
	if err := checkSendrecv[S, R](c, op.String(), dest, stag, source, rtag); err != nil {
		if err == errHooked {
			call := sendrecvCall(op, bytesIn(send), dest, stag, bytesIn(recv), source, rtag)
			return c.hook().starts(call, func(c *Comm) (*Request, error) {
				return isendrecv(c, op, send, dest, stag, recv, source, rtag)
			})
		}
		return nil, err
	}
	switch {
	case dest == ProcNull && source == ProcNull:
		return c.nullRequest(op, AnyTag), nil
	case dest == ProcNull:
		return c.request(op, source, rtag, c.group.Engine.Irecv(c.ctx, c.group.Context, c.group.ToWorld(source),
			int32(rtag), bytesOf(recv))), nil
	case source == ProcNull:
		r := c.request(op, dest, stag, c.group.Engine.Isend(c.ctx, c.group.Context, c.group.ToWorld(dest), int32(stag),
			bytesOf(send), pml.Standard))
		r.null = true // the status is that of the receive
		return r, nil
	}
	return c.request(op, source, rtag, c.group.Engine.Isendrecv(c.ctx, c.group.Context, c.group.ToWorld(dest),
		int32(stag), bytesOf(send),
		c.group.ToWorld(source), int32(rtag), bytesOf(recv))), nil
}
