package pml

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/transport"
)

// Persistent requests for messages in device memory. Each start is a message like one of IsendDevice or IrecvDevice.

// PrepareSendDevice is PrepareSend of a message in device memory, of at least one byte. StartDevice starts it.
func (e *Engine) PrepareSendDevice(cc context.Context, ctx uint32, dest int, tag int32, b accel.Buffer,
	mode Mode) *Request {
	e.lock()
	defer e.unlock()
	r := e.requests.fresh()
	r.prepareSend(cc, ctx, dest, tag, nil, mode)
	return r.persistDevice(b)
}

// PrepareRecvDevice is PrepareSendDevice for a receive.
func (e *Engine) PrepareRecvDevice(cc context.Context, ctx uint32, source int, tag int32, b accel.Buffer) *Request {
	e.lock()
	defer e.unlock()
	r := e.requests.fresh()
	r.prepareRecv(cc, ctx, source, tag, nil)
	return r.persistDevice(b)
}

func (r *Request) persistDevice(b accel.Buffer) *Request {
	r.persist()
	r.keep.device = &b
	return r
}

// StartDevice is Start of a request of PrepareSendDevice or PrepareRecvDevice.
func (r *Request) StartDevice() error {
	e := r.e
	e.lock()
	if r.state != stIdle {
		defer e.unlock()
		return r.notIdle()
	}
	k := r.keep
	e.unlock() // pinning takes long; a second Start at this moment is the caller's mistake
	err := lives(k.device)
	var a *accelerators
	var m mark
	if err == nil {
		a, m, err = e.useBuffer(k.device)
	}
	e.lock()
	defer e.unlock()
	if r.state != stIdle {
		if a != nil {
			a.dropMark(k.device, m)
		}
		return r.notIdle()
	}
	if r.op == opRecv {
		r.prepareRecv(k.cctx, r.recv.Ctx, int(k.source), k.tag, nil)
	} else {
		r.prepareSend(k.cctx, r.recv.Ctx, int(k.source), k.tag, nil, r.mode)
		r.buf.Len, r.announce = int(k.device.Len), true
	}
	e.startDevice(r, a, *k.device, m, err)
	return nil
}

// lives reports that the memory of b has been freed since the request was made: a copy would fail, or would go into
// what lies there now.
func lives(b *accel.Buffer) error {
	m, err := b.Driver.Query(b.Addr)
	switch {
	case err != nil:
		return deviceError("asking for the memory of the request", err)
	case m.Kind != accel.OnBoard || m.ID != b.Memory.ID:
		return fmt.Errorf("%w: the device memory at %#x of the request has been freed; make another request",
			transport.ErrNoMemory, b.Addr)
	}
	return nil
}
