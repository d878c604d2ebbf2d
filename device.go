package mpi

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/door"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
)

// The calls of package gpu. Each checks its arguments in the order in which the call for memory of the host does, so
// that its errors are the same. A buffer without bytes needs no device, and is sent as one of the host.

// deviceDoor implements door.Mpi.
type deviceDoor struct{}

func init() { door.Open(deviceDoor{}) }

// deviceOps are the codes of the calls.
var deviceOps = [...]opCode{door.Send: opSend, door.Ssend: opSsend, door.Isend: opIsend, door.Issend: opIssend,
	door.SendInit: opSendInit, door.SsendInit: opSsendInit, door.Recv: opRecv, door.Irecv: opIrecv,
	door.RecvInit: opRecvInit, door.Sendrecv: opSendrecv, door.Mrecv: opMrecv, door.Imrecv: opImrecv}

// modeOf is how a call sends.
func modeOf(op door.Op) pml.Mode {
	if op == door.Ssend || op == door.Issend || op == door.SsendInit {
		return pml.Synchronous
	}
	return pml.Standard
}

// Type implements door.Mpi.
func (deviceDoor) Type(t reflect.Type) error { return fixedTypeOf(t) }

// Layout implements door.Mpi.
func (deviceDoor) Layout(layout any, t reflect.Type, bytes int64, write bool, visit func(at, n int64)) error {
	l := layout.(Layout)
	if err := checkLayoutOf("", t, bytes, l, write); err != nil {
		return err
	}
	l.is.Runs(func(at, size, count, stride int64) bool {
		for i := range count {
			visit(at+i*stride, size)
		}
		return true
	})
	return nil
}

// Send implements door.Mpi.
func (d deviceDoor) Send(comm any, op door.Op, t reflect.Type, b accel.Buffer, dest, tag int) (any, error) {
	c, code := comm.(*Comm), deviceOps[op]|onDevice
	if err := c.checkDeviceSend(code, t, dest, tag); err != nil {
		if err == errHooked {
			return startsDevice(c, code, CallSend, dest, tag, b, func(c *Comm) (any, error) {
				return d.Send(c, op, t, b, dest, tag)
			})
		}
		return nil, err
	}
	if op == door.SendInit || op == door.SsendInit {
		return c.persistentDevice(code, dest, tag, c.prepareDeviceSend(b, dest, tag, modeOf(op)), b), nil
	}
	if dest == ProcNull {
		return c.nullRequest(code, tag), nil
	}
	return c.request(code, dest, tag, c.sendDevice(b, dest, tag, modeOf(op))), nil
}

// Recv implements door.Mpi.
func (d deviceDoor) Recv(comm any, op door.Op, t reflect.Type, b accel.Buffer, source, tag int) (any, error) {
	c, code := comm.(*Comm), deviceOps[op]|onDevice
	if err := c.checkDeviceRecv(code, t, source, tag); err != nil {
		if err == errHooked {
			return startsDevice(c, code, CallRecv, source, tag, b, func(c *Comm) (any, error) {
				return d.Recv(c, op, t, b, source, tag)
			})
		}
		return nil, err
	}
	if op == door.RecvInit {
		return c.persistentDevice(code, source, tag, c.prepareDeviceRecv(b, source, tag), b), nil
	}
	if source == ProcNull {
		return c.nullRequest(code, AnyTag), nil
	}
	return c.request(code, source, tag, c.recvDevice(b, source, tag)), nil
}

// Exchange implements door.Mpi. First comes what a device may fail at before a message begins: then none has begun, and
// the other rank has heard nothing. Later the receive goes on also where the send has failed: the other rank has heard
// of it, and its own message may be on its way. The receive is posted first, so that a rank that sends to itself finds
// it.
func (deviceDoor) Exchange(comm any, t, u reflect.Type, send accel.Buffer, dest, stag int, recv accel.Buffer,
	source, rtag int,
) (sent, received any, err error) {
	c := comm.(*Comm)
	plain := c.withoutHooks()
	if err := plain.checkDeviceSend(opSendrecv|onDevice, t, dest, stag); err != nil {
		return nil, nil, err
	}
	if err := plain.checkDeviceRecv(opSendrecv|onDevice, u, source, rtag); err != nil {
		return nil, nil, err
	}
	out, in := plain.readyDevice(send, dest), plain.readyDevice(recv, source)
	switch { // one that has failed ends at once, and the other one does not begin
	case out.Err != nil:
		in.Drop()
	case in.Err != nil:
		out.Drop()
	}
	if out.Err == nil {
		received = c.exchanges(CallRecv, source, rtag, recv, func(c *Comm) *pml.Request {
			return in.Irecv(c.ctx, c.group.Context, c.group.ToWorld(source), int32(rtag))
		})
	}
	if in.Err == nil || out.Err != nil {
		sent = c.exchanges(CallSend, dest, stag, send, func(c *Comm) *pml.Request {
			return out.Isend(c.ctx, c.group.Context, c.group.ToWorld(dest), int32(stag), pml.Standard)
		})
	}
	return sent, received, nil
}

// exchanges starts one of the messages of a Sendrecv.
func (c *Comm) exchanges(kind CallKind, peer, tag int, b accel.Buffer, start func(c *Comm) *pml.Request) any {
	const code = opSendrecv | onDevice
	begin := func(c *Comm) (any, error) {
		if peer == ProcNull {
			return c.nullRequest(code, tag), nil
		}
		return c.request(code, peer, tag, start(c)), nil
	}
	if c.hook() == nil {
		r, _ := begin(c)
		return r
	}
	r, _ := startsDevice(c, code, kind, peer, tag, b, begin)
	return r
}

// readyDevice prepares a message in b, from or to a rank or ProcNull.
func (c *Comm) readyDevice(b accel.Buffer, peer int) pml.Ready {
	if peer == ProcNull {
		b.Len = 0
	}
	if b.Len > 0 {
		engines.uses(c.group.Engine)
	}
	return c.group.Engine.ReadyDevice(b)
}

// Mrecv implements door.Mpi.
func (d deviceDoor) Mrecv(message any, op door.Op, t reflect.Type, b accel.Buffer) (any, error) {
	m, code := message.(*Message), deviceOps[op]|onDevice
	if m == nil || m.comm == nil {
		err := m.missing(code)
		if err == errHooked {
			h := m.hooked
			return startsDevice(h.comm, code, CallRecv, h.plain.source, h.plain.tag, b, func(*Comm) (any, error) {
				return d.Mrecv(h.plain, op, t, b)
			})
		}
		return nil, err
	}
	if err := fixedTypeOf(t); err != nil {
		return nil, &Error{Op: code.String(), Class: ErrType, Comm: m.comm.Name(), Peer: m.source, Tag: m.tag, Err: err}
	}
	if m.m == nil {
		return m.comm.nullRequest(code, AnyTag), nil
	}
	e := m.comm.group.Engine
	var r *pml.Request
	var err error
	if b.Len == 0 {
		r, err = e.Imrecv(m.comm.ctx, m.m, nil)
	} else {
		engines.uses(e)
		r, err = e.MrecvDevice(m.comm.ctx, m.m, b)
	}
	if err != nil {
		return nil, m.failed(code, err)
	}
	return m.comm.request(code, m.source, m.tag, r), nil
}

// CollectiveBegins implements door.Mpi.
func (deviceDoor) CollectiveBegins(comm any, op string, root int, bytes int64) (plain, seen any) {
	c := comm.(*Comm)
	h := c.hook()
	if h == nil {
		return c, nil
	}
	call := callOf(op, CallCollective)
	if call.Bytes = bytes; !h.plain.IsInter() {
		call.Peer = root
	}
	return h.plain, h.begin(call)
}

// CollectiveEnds implements door.Mpi.
func (deviceDoor) CollectiveEnds(seen any, err error) { seen.(*Call).end(err) }

// CollectiveStarts implements door.Mpi.
func (deviceDoor) CollectiveStarts(seen, request any) any {
	r, _ := seen.(*Call).started(request.(*Request), nil)
	return r
}

// Mistaken implements door.Mpi.
func (deviceDoor) Mistaken(comm any, op string, nonblocking bool, err error) error {
	c, way := comm.(*Comm), coll.Blocking
	if unusable := c.valid(op); unusable != nil {
		return unusable
	}
	if nonblocking {
		way = coll.Nonblocking
	}
	return c.mistaken(way, err)
}

// Unable implements door.Mpi.
func (deviceDoor) Unable(comm any, op string, err error) any {
	c := comm.(*Comm)
	if c.valid(op) != nil || c.group.Setup.Check {
		return nil
	}
	ctx := c.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	return &Comm{commState: c.commState, ctx: &coll.Unable{Context: ctx, Why: err}}
}

// MovesHostOnly implements door.Mpi.
func (deviceDoor) MovesHostOnly(commOrMessage any) bool {
	c, _ := commOrMessage.(*Comm)
	if m, ok := commOrMessage.(*Message); ok && m != nil {
		if c = m.comm; m.hooked != nil {
			c = m.hooked.comm
		}
	}
	return c != nil && c.commState != nil && c.group.Engine != nil && !c.group.Engine.MovesDevices()
}

// Collect implements door.Mpi.
func (deviceDoor) Collect(request any, f func(int64, error) error) {
	r := request.(*Request).withoutHooks()
	landingsOpen.Add(1)
	r.comm = &Comm{commState: r.comm.commState, ctx: r.comm.ctx, landing: &landing{collect: f}}
}

// Keep implements door.Mpi.
func (deviceDoor) Keep(request any, k door.Kept) {
	r := request.(*Request).withoutHooks()
	l := &landing{collect: k.End, persistent: true, free: k.Free}
	r.comm = &Comm{commState: r.comm.commState, ctx: r.comm.ctx, landing: l}
	r.start = func() error { return l.startKept(&r.request, k.Begin) }
}

// Host implements door.Mpi.
func (deviceDoor) Host(comm any, rank int) int { return comm.(*Comm).group.Hosts().Host(rank) }

// Forget implements door.Mpi.
func (deviceDoor) Forget(d accel.Driver, m accel.Memory) error {
	var failed []error
	var all []*pml.Engine // those that know this driver's numbers of allocations
	n := 0
	for _, e := range engines.all() {
		if users, has := e.DeviceUsers(d, m.ID); has {
			n, all = n+users, append(all, e)
		}
	}
	if n > 0 {
		return mpierr.New("", ErrBuffer, "requests that are not done use the memory: %d; complete each with Wait or Test "+
			"first", n)
	}
	for _, e := range all {
		failed = append(failed, e.ForgetDevice(m))
	}
	return errors.Join(failed...)
}

// startsDevice is hooked.starts of a call of package gpu.
func startsDevice(c *Comm, code opCode, kind CallKind, peer, tag int, b accel.Buffer,
	f func(plain *Comm) (any, error)) (any, error) {
	call := callWith(code.String(), kind, peer, tag, b.Len)
	switch code &^ onDevice {
	case opSendInit, opSsendInit, opRecvInit:
		call.keep = true
	}
	r, err := c.hook().starts(call, func(c *Comm) (*Request, error) {
		r, err := f(c)
		if err != nil {
			return nil, err
		}
		return r.(*Request), nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (c *Comm) checkDeviceSend(code opCode, t reflect.Type, dest, tag int) error {
	if err := c.checkSend(code.String(), dest, tag); err != nil {
		return err
	}
	if err := fixedTypeOf(t); err != nil {
		return &Error{Op: code.String(), Class: ErrType, Comm: c.Name(), Peer: dest, Tag: tag, Err: err}
	}
	return nil
}

func (c *Comm) checkDeviceRecv(code opCode, t reflect.Type, source, tag int) error {
	if err := c.checkRecv(code.String(), source, tag); err != nil {
		return err
	}
	if err := fixedTypeOf(t); err != nil {
		return mpierr.At(c.opError(code.String(), ErrType, "%w", err), source, tag, true)
	}
	return nil
}

func (c *Comm) sendDevice(b accel.Buffer, dest, tag int, mode pml.Mode) *pml.Request {
	e, ctx, world := c.group.Engine, c.group.Context, c.group.ToWorld(dest)
	if b.Len == 0 {
		return e.Isend(c.ctx, ctx, world, int32(tag), nil, mode)
	}
	engines.uses(e)
	return e.IsendDevice(c.ctx, ctx, world, int32(tag), b, mode)
}

func (c *Comm) recvDevice(b accel.Buffer, source, tag int) *pml.Request {
	e, ctx, world := c.group.Engine, c.group.Context, c.group.ToWorld(source)
	if b.Len == 0 {
		return e.Irecv(c.ctx, ctx, world, int32(tag), nil)
	}
	engines.uses(e)
	return e.IrecvDevice(c.ctx, ctx, world, int32(tag), b)
}

func (c *Comm) prepareDeviceSend(b accel.Buffer, dest, tag int, mode pml.Mode) *pml.Request {
	e, ctx, world := c.group.Engine, c.group.Context, max(c.group.ToWorld(dest), 0)
	if b.Len == 0 || dest == ProcNull {
		return e.PrepareSend(c.ctx, ctx, world, int32(tag), nil, mode)
	}
	engines.uses(e)
	return e.PrepareSendDevice(c.ctx, ctx, world, int32(tag), b, mode)
}

// persistentDevice returns the request that p is. Its Start is not the usual one if b has bytes to move.
func (c *Comm) persistentDevice(code opCode, peer, tag int, p *pml.Request, b accel.Buffer) *Request {
	r := c.request(code, peer, tag, p)
	if r.null = peer == ProcNull; b.Len > 0 && !r.null {
		r.start = p.StartDevice
	}
	return r
}

func (c *Comm) prepareDeviceRecv(b accel.Buffer, source, tag int) *pml.Request {
	e, ctx, world := c.group.Engine, c.group.Context, c.group.ToWorld(source)
	if b.Len == 0 || source == ProcNull {
		return e.PrepareRecv(c.ctx, ctx, world, int32(tag), nil)
	}
	engines.uses(e)
	return e.PrepareRecvDevice(c.ctx, ctx, world, int32(tag), b)
}

// engines are the engines of this process that device buffers have been given to: RunLocal has one for each rank.
var engines deviceEngines

type deviceEngines struct {
	mu   sync.Mutex
	list []*pml.Engine // guarded by mu
}

// uses notes e. It drops engines that have ended, so that the list is as long as the process has ranks.
func (d *deviceEngines) uses(e *pml.Engine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.list, e) {
		return
	}
	d.list = append(slices.DeleteFunc(d.list, func(e *pml.Engine) bool { return e.Closed() != nil }), e)
}

func (d *deviceEngines) all() []*pml.Engine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}
