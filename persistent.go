package mpi

import "github.com/gorun-mpi/mpi/pml"

// SendInit makes a persistent request that sends buf to rank dest each time it is started; §3.9. buf belongs to the
// library from Start to completion. Free releases the request.
func SendInit[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return sendInit(c, opSendInit, buf, dest, tag, pml.Standard)
}

// SsendInit is SendInit in synchronous mode; §3.9.
func SsendInit[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return sendInit(c, opSsendInit, buf, dest, tag, pml.Synchronous)
}

// RsendInit is SendInit in ready mode; §3.9.
func RsendInit[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return sendInit(c, opRsendInit, buf, dest, tag, pml.Standard)
}

// BsendInit is SendInit in buffered mode: Start copies buf; §3.9.
func BsendInit[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	if h := c.hook(); h != nil {
		return h.starts(preparing("BsendInit", CallSend, dest, tag, bytesIn(buf)), func(c *Comm) (*Request, error) {
			return BsendInit(c, buf, dest, tag)
		})
	}
	r, err := sendInit(c, opBsendInit, buf, dest, tag, pml.Standard)
	if err == nil && dest != ProcNull {
		r.start = func() error {
			return c.group.Engine.SendDetached(c.group.Context, c.group.ToWorld(dest), int32(tag), bytesOf(buf))
		}
	}
	return r, err
}

func sendInit[T any](c *Comm, op opCode, buf []T, dest, tag int, mode pml.Mode) (*Request, error) {
	if err := checkSend[T](c, op.String(), dest, tag); err != nil {
		if err == errHooked {
			call := preparing(op.String(), CallSend, dest, tag, bytesIn(buf))
			return c.hook().starts(call, func(c *Comm) (*Request, error) {
				return sendInit(c, op, buf, dest, tag, mode)
			})
		}
		return nil, err
	}
	r := c.request(op, dest, tag, c.group.Engine.PrepareSend(c.ctx, c.group.Context, max(c.group.ToWorld(dest), 0),
		int32(tag), bytesOf(buf), mode))
	r.null = dest == ProcNull
	return r, nil
}

// RecvInit makes a persistent request that receives into buf each time it is started; §3.9. source may be AnySource,
// and tag AnyTag. A message longer than buf completes it with ErrTruncate.
func RecvInit[T any](c *Comm, buf []T, source, tag int) (*Request, error) {
	if err := checkRecv[T](c, "RecvInit", source, tag); err != nil {
		if err == errHooked {
			call := preparing("RecvInit", CallRecv, source, tag, bytesIn(buf))
			return c.hook().starts(call, func(c *Comm) (*Request, error) {
				return RecvInit(c, buf, source, tag)
			})
		}
		return nil, err
	}
	r := c.request(opRecvInit, source, tag, c.group.Engine.PrepareRecv(c.ctx, c.group.Context, c.group.ToWorld(source),
		int32(tag), bytesOf(buf)))
	r.null = source == ProcNull
	return r, nil
}
