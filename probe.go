package mpi

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
)

// Probe waits until a message has arrived that a receive with source and tag would match, and returns its Status;
// §3.8.1. The message stays: a receive of any goroutine may take it.
func Probe(c *Comm, source, tag int) (Status, error) {
	if err := c.checkRecv("Probe", source, tag); err != nil || source == ProcNull {
		if err == errHooked {
			return c.hook().receives(callWith("Probe", CallProbe, source, tag, 0), func(c *Comm) (Status, error) {
				return Probe(c, source, tag)
			})
		}
		return nullStatus, err
	}
	_, st, err := c.group.Engine.Probe(c.ctx, c.group.Context, c.group.ToWorld(source), int32(tag), false)
	if err != nil {
		return Status{}, c.group.Wrap("Probe", source, tag, err)
	}
	return c.status(st), nil
}

// Iprobe is Probe without waiting: it reports whether such a message has arrived; §3.8.1. It returns ErrPeerFailed if
// there is no such message and source has failed, or, in a loop of probes, has returned.
func Iprobe(c *Comm, source, tag int) (Status, bool, error) {
	if c.usualRecv(source, tag) == nil {
		if err := c.checkRecv("Iprobe", source, tag); err != nil || source == ProcNull {
			if err == errHooked {
				return iprobeHooked(c, source, tag)
			}
			return nullStatus, err == nil, err
		}
	}
	_, st, found, err := c.group.Engine.Iprobe(c.group.Context, c.group.ToWorld(source), int32(tag), false)
	switch {
	case err != nil:
		return Status{}, false, c.group.Wrap("Iprobe", source, tag, err)
	case !found:
		return Status{}, false, nil
	}
	return c.status(st), true, nil
}

func iprobeHooked(c *Comm, source, tag int) (st Status, found bool, err error) {
	err = c.hook().probes("Iprobe", source, tag, func(c *Comm) (Status, bool, error) {
		st, found, err = Iprobe(c, source, tag)
		return st, found, err
	})
	return st, found, err
}

// Message is a message that a matched probe has taken; §3.8.2. Only its Mrecv or Imrecv can receive it, once.
type Message struct {
	comm   *Comm
	m      *pml.Message // nil: from ProcNull
	source int
	tag    int
	hooked *hookedMessage // of a stand-in, which has no comm
}

// Mprobe is Probe that takes the message, so that no receive of another goroutine matches it; §3.8.2.
func Mprobe(c *Comm, source, tag int) (*Message, Status, error) {
	if err := c.checkRecv("Mprobe", source, tag); err != nil {
		if err == errHooked {
			m, st, _, err := c.mprobeHooked("Mprobe", source, tag, func(c *Comm) (*Message, Status, bool, error) {
				m, st, err := Mprobe(c, source, tag)
				return m, st, true, err
			})
			return m, st, err
		}
		return nil, Status{}, err
	}
	return mprobe(c, "Mprobe", source, tag)
}

func mprobe(c *Comm, op string, source, tag int) (*Message, Status, error) {
	if source == ProcNull {
		return &Message{comm: c, source: ProcNull, tag: AnyTag}, nullStatus, nil
	}
	m, st, err := c.group.Engine.Probe(c.ctx, c.group.Context, c.group.ToWorld(source), int32(tag), true)
	if err != nil {
		return nil, Status{}, c.group.Wrap(op, source, tag, err)
	}
	s := c.status(st)
	return &Message{comm: c, m: m, source: s.Source, tag: s.Tag}, s, nil
}

// Improbe is Mprobe without waiting: it reports whether there was such a message; §3.8.2.
func Improbe(c *Comm, source, tag int) (*Message, Status, bool, error) {
	if err := c.checkRecv("Improbe", source, tag); err != nil {
		if err == errHooked {
			return c.mprobeHooked("Improbe", source, tag, func(c *Comm) (*Message, Status, bool, error) {
				return Improbe(c, source, tag)
			})
		}
		return nil, Status{}, false, err
	}
	if source == ProcNull {
		return &Message{comm: c, source: ProcNull, tag: AnyTag}, nullStatus, true, nil
	}
	m, st, found, err := c.group.Engine.Iprobe(c.group.Context, c.group.ToWorld(source), int32(tag), true)
	if err != nil || !found {
		return nil, Status{}, false, c.group.Wrap("Improbe", source, tag, err)
	}
	s := c.status(st)
	return &Message{comm: c, m: m, source: s.Source, tag: s.Tag}, s, true, nil
}

// Mrecv receives the message into buf; §3.8.3. A longer message fills buf and is ErrTruncate. A message that was
// already received is ErrRequest.
func Mrecv[T any](m *Message, buf []T) (Status, error) {
	r, err := imrecv(m, opMrecv, buf)
	if err != nil {
		if err == errHooked {
			h := m.hooked
			return h.at.receives(h.call("Mrecv", bytesIn(buf)), func(*Comm) (Status, error) { return Mrecv(h.plain, buf) })
		}
		return Status{}, err
	}
	return r.Wait()
}

// Imrecv starts an Mrecv into buf; §3.8.3. buf belongs to the library until the request is done.
func Imrecv[T any](m *Message, buf []T) (*Request, error) {
	r, err := imrecv(m, opImrecv, buf)
	if err == errHooked {
		h := m.hooked
		return h.at.starts(h.call("Imrecv", bytesIn(buf)), func(*Comm) (*Request, error) { return Imrecv(h.plain, buf) })
	}
	return r, err
}

func imrecv[T any](m *Message, op opCode, buf []T) (*Request, error) {
	if m == nil || m.comm == nil {
		return nil, m.missing(op)
	}
	if err := fixedType[T](); err != nil {
		return nil, &Error{Op: op.String(), Class: ErrType, Comm: m.comm.Name(), Peer: m.source, Tag: m.tag, Err: err}
	}
	if m.m == nil {
		return m.comm.nullRequest(op, AnyTag), nil
	}
	r, err := m.comm.group.Engine.Imrecv(m.comm.ctx, m.m, bytesOf(buf))
	if err != nil {
		return nil, m.failed(op, err)
	}
	return m.comm.request(op, m.source, m.tag, r), nil
}

// missing is why m, which has no Comm, cannot be received.
func (m *Message) missing(op opCode) error {
	if m != nil && m.hooked != nil {
		return errHooked
	}
	return mpierr.New(op.String(), ErrRequest, "the message is nil: no matched probe returned it")
}

// failed is the error of a receive of m that the engine has refused.
func (m *Message) failed(op opCode, err error) error {
	class := mpierr.ClassOf(err)
	if errors.Is(err, pml.ErrRequest) {
		class = ErrRequest
	}
	return &Error{Op: op.String(), Class: class, Comm: m.comm.Name(), Peer: m.source, Tag: m.tag, Err: err}
}

// discard receives the message and drops it.
func (m *Message) discard() {
	if r, err := imrecv(m, opMrecv, []byte(nil)); err == nil {
		r.Wait()
	}
}

// String describes the message.
func (m *Message) String() string {
	if m != nil && m.hooked != nil {
		return m.hooked.plain.String()
	}
	if m == nil || m.m == nil {
		return "message from no process"
	}
	return fmt.Sprintf("message from rank %d, tag %d, %d bytes", m.source, m.tag, m.m.Bytes())
}
