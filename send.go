package mpi

import "github.com/gorun-mpi/mpi/pml"

// Send sends buf to rank dest with tag, 0 … MaxTag; §3.4 (standard mode). It returns when the caller may reuse buf: a
// short message is then on its way or in the receiver's memory, and the receiver has received a long one.
func Send[T any](c *Comm, buf []T, dest, tag int) error {
	if s := c.usualSend(dest, tag); s != nil && known[T]() {
		if err := s.group.Engine.Send(nil, s.group.Context, s.group.ToWorld(dest), int32(tag), bytesOf(buf),
			pml.Standard); err != nil {
			return c.group.Wrap("Send", dest, tag, err)
		}
		return nil
	}
	return send(c, "Send", buf, dest, tag, pml.Standard)
}

// Ssend is Send that returns only after a receive has matched the message; §3.4 (synchronous mode).
func Ssend[T any](c *Comm, buf []T, dest, tag int) error {
	return send(c, "Ssend", buf, dest, tag, pml.Synchronous)
}

// Rsend is Send for a caller that knows that the receive is posted; §3.4 (ready mode). Here it does the same as Send,
// also if no receive is posted.
func Rsend[T any](c *Comm, buf []T, dest, tag int) error {
	return send(c, "Rsend", buf, dest, tag, pml.Standard)
}

// Bsend copies buf and returns at once, whatever the receiver does; §3.4 (buffered mode), §3.6. The copy stays on this
// rank's heap until it is sent; no buffer needs to be attached. Finalize waits for the send.
func Bsend[T any](c *Comm, buf []T, dest, tag int) error {
	if err := checkSend[T](c, "Bsend", dest, tag); err != nil || dest == ProcNull {
		if err == errHooked {
			return c.hook().sends("Bsend", dest, tag, bytesIn(buf), func(c *Comm) error { return Bsend(c, buf, dest, tag) })
		}
		return err
	}
	err := c.group.Engine.SendDetached(c.group.Context, c.group.ToWorld(dest), int32(tag), bytesOf(buf))
	return c.group.Wrap("Bsend", dest, tag, err)
}

func send[T any](c *Comm, op string, buf []T, dest, tag int, mode pml.Mode) error {
	if err := checkSend[T](c, op, dest, tag); err != nil || dest == ProcNull {
		if err == errHooked {
			return sendHooked(c, op, buf, dest, tag, mode)
		}
		return err
	}
	if err := c.group.Engine.Send(c.ctx, c.group.Context, c.group.ToWorld(dest), int32(tag), bytesOf(buf),
		mode); err != nil {
		return c.group.Wrap(op, dest, tag, err)
	}
	return nil
}

func sendHooked[T any](c *Comm, op string, buf []T, dest, tag int, mode pml.Mode) error {
	return c.hook().sends(op, dest, tag, bytesIn(buf), func(c *Comm) error {
		if op == "Send" {
			return Send(c, buf, dest, tag)
		}
		return send(c, op, buf, dest, tag, mode)
	})
}

// checkSend reports which argument of a send is wrong, T included.
func checkSend[T any](c *Comm, op string, dest, tag int) error {
	if c == nil || c.commState == nil || c.ctx != nil || uint(dest) >= uint(c.group.Size) || uint(tag) > MaxTag ||
		c.freed.Load() {
		if err := c.checkSend(op, dest, tag); err != nil {
			return err
		}
	}
	if err := fixedType[T](); err != nil {
		return &Error{Op: op, Class: ErrType, Comm: c.Name(), Peer: dest, Tag: tag, Err: err}
	}
	knownTypes.add(typeOf[T]())
	return nil
}

// Isend starts a Send; §3.7.2. buf belongs to the library until the request is done.
func Isend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	if s := c.usualSend(dest, tag); s != nil && known[T]() {
		p := s.group.Engine.Isend(nil, s.group.Context, s.group.ToWorld(dest), int32(tag), bytesOf(buf), pml.Standard)
		return c.request(opIsend, dest, tag, p), nil
	}
	return isend(c, opIsend, buf, dest, tag, pml.Standard)
}

// Issend is Isend in synchronous mode: the request is done only after a receive has matched the message; §3.7.2.
func Issend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return isend(c, opIssend, buf, dest, tag, pml.Synchronous)
}

// Irsend is Isend in ready mode, see Rsend; §3.7.2.
func Irsend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return isend(c, opIrsend, buf, dest, tag, pml.Standard)
}

// Ibsend is Isend in buffered mode, see Bsend; §3.7.2. The request is done at once.
func Ibsend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	if err := checkSend[T](c, "Ibsend", dest, tag); err != nil {
		if err == errHooked {
			return c.hook().starts(callWith("Ibsend", CallSend, dest, tag, bytesIn(buf)), func(c *Comm) (*Request, error) {
				return Ibsend(c, buf, dest, tag)
			})
		}
		return nil, err
	}
	if dest == ProcNull {
		return c.nullRequest(opIbsend, tag), nil
	}
	world, payload := c.group.ToWorld(dest), bytesOf(buf)
	if err := c.group.Engine.SendDetached(c.group.Context, world, int32(tag), payload); err != nil {
		return nil, c.group.Wrap("Ibsend", dest, tag, err)
	}
	done := pml.Status{Source: int32(world), Tag: int32(tag), Bytes: int64(len(payload))}
	return c.request(opIbsend, dest, tag, c.group.Engine.Completed(done)), nil
}

func isend[T any](c *Comm, op opCode, buf []T, dest, tag int, mode pml.Mode) (*Request, error) {
	if err := checkSend[T](c, op.String(), dest, tag); err != nil {
		if err == errHooked {
			return isendHooked(c, op, buf, dest, tag, mode)
		}
		return nil, err
	}
	if dest == ProcNull {
		return c.nullRequest(op, tag), nil
	}
	return c.request(op, dest, tag, c.group.Engine.Isend(c.ctx, c.group.Context, c.group.ToWorld(dest), int32(tag),
		bytesOf(buf), mode)), nil
}

func isendHooked[T any](c *Comm, op opCode, buf []T, dest, tag int, mode pml.Mode) (*Request, error) {
	return c.hook().starts(callWith(op.String(), CallSend, dest, tag, bytesIn(buf)), func(c *Comm) (*Request, error) {
		if op == opIsend {
			return Isend(c, buf, dest, tag)
		}
		return isend(c, op, buf, dest, tag, mode)
	})
}
