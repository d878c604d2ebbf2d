package mpi

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
)

// Request is a started operation, or a persistent one that can be started; §3.7. Complete it once, by Wait or by a
// Test… that reports done; a second Wait is ErrRequest. A persistent request can then be started again. The library
// reuses completed requests, so do not keep one. Calls on a nil Request return ErrRequest; a set of requests ignores
// it.
type Request struct {
	request pml.Request // first: requestOf relies on it
	callInfo

	// start starts a persistent request in another way than the engine's, or makes its send: of a buffered send, and of
	// a message in device memory.
	start func() error
	plan  *coll.Plan // of a persistent collective call
}

// callInfo is what the caller asked for. It is the holder's until the result is collected, and the next holder's from
// then on: a method that needs it after that copies it before.
type callInfo struct {
	comm      *Comm
	peer, tag int32
	op        opCode
	null      bool // the status is that of ProcNull
}

// opCode is the call that has made a request: what its errors name.
type opCode uint8

const (
	opIsend opCode = iota
	opIssend
	opIrsend
	opIbsend
	opIrecv
	opIsendrecv
	opSendrecv
	opSendrecvReplace
	opImrecv
	opMrecv
	opSendInit
	opSsendInit
	opRsendInit
	opBsendInit
	opRecvInit
	opIsendLayout
	opIrecvLayout
	opSendrecvLayout
	opSendLayoutInit
	opRecvLayoutInit
	opSend // blocking calls of package gpu, with onDevice
	opSsend
	opRecv
	opRPut
	opRGet
	opRAccumulate
	opRGetAccumulate
	opRPutLayout
	opRGetLayout
	opRAccumulateLayout
	opRGetAccumulateLayout
	opStandIn    // the request stands for another one; see hooked.go
	opCollective // the first of the codes of collectives.Operation: of each the nonblocking call, and the persistent one

	onDevice opCode = 1 << 7 // in the code of a message's call: it is the call of package gpu
)

var opNames = [...]string{opIsend: "Isend", opIssend: "Issend", opIrsend: "Irsend", opIbsend: "Ibsend",
	opIrecv: "Irecv", opIsendrecv: "Isendrecv", opSendrecv: "Sendrecv", opSendrecvReplace: "SendrecvReplace",
	opImrecv: "Imrecv", opMrecv: "Mrecv", opSendInit: "SendInit", opSsendInit: "SsendInit", opRsendInit: "RsendInit",
	opBsendInit: "BsendInit", opRecvInit: "RecvInit", opIsendLayout: "IsendLayout", opIrecvLayout: "IrecvLayout",
	opSendrecvLayout: "SendrecvLayout", opSendLayoutInit: "SendLayoutInit", opRecvLayoutInit: "RecvLayoutInit",
	opSend: "Send", opSsend: "Ssend", opRecv: "Recv", opRPut: "RPut", opRGet: "RGet", opRAccumulate: "RAccumulate", opRGetAccumulate: "RGetAccumulate",
	opRPutLayout: "RPutLayout", opRGetLayout: "RGetLayout", opRAccumulateLayout: "RAccumulateLayout",
	opRGetAccumulateLayout: "RGetAccumulateLayout", opStandIn: "a call"}

func (o opCode) String() string {
	if o&onDevice != 0 {
		return "gpu." + (o &^ onDevice).String()
	}
	if o >= opCollective {
		return (coll.Nonblocking + coll.Way((o-opCollective)%2)).Call(collectives.Operation((o - opCollective) / 2))
	}
	return opNames[o]
}

// codeOf returns the code of a call of an operation that is not blocking.
func codeOf(w coll.Way, o collectives.Operation) opCode {
	return opCollective + 2*opCode(o) + opCode(w-coll.Nonblocking)
}

// newRequest makes what the engine hands out.
func newRequest() *pml.Request {
	return &new(Request).request
}

func (c *Comm) request(op opCode, peer, tag int, p *pml.Request) *Request {
	r := requestOf(p)
	// One by one: a literal would be made on the stack and read back before it has arrived there.
	r.comm, r.op, r.peer, r.tag, r.null = c, op, int32(peer), int32(tag), false
	return r
}

func (c *Comm) nullRequest(op opCode, tag int) *Request {
	r := c.request(op, ProcNull, tag, c.group.Engine.Completed(pml.Status{}))
	r.null = true
	return r
}

// result translates the engine's result.
func (i *callInfo) result(st pml.Status, err error) (Status, error) {
	if err != nil {
		g := &i.comm.group.Group
		if i.op >= opCollective && i.op < onDevice && g.Both != nil { // the call runs on ranks of both groups
			g = g.Both
		}
		err = g.Wrap(i.op.String(), int(i.peer), int(i.tag), err)
	}
	if i.null {
		return nullStatus, err
	}
	return i.comm.status(st), err
}

// valid is the error of a call on a request that no operation has returned.
func (r *Request) valid(op string) error {
	if r == nil || r.comm == nil {
		return r.missing(op)
	}
	return nil
}

// missing is why a call on r, which has no Comm, cannot be made. It is not part of valid, which its callers take in.
//
//go:noinline
func (r *Request) missing(op string) error {
	if r.standIn() != nil {
		return errHooked
	}
	return mpierr.New(op, ErrRequest, "the request is nil: no operation returned it")
}

// misuse is the error of a call on a request that is not active.
func (i *callInfo) misuse(op string, err error) error {
	return &Error{Op: op, Class: ErrRequest, Comm: i.comm.Name(), Peer: Undefined, Tag: Undefined, Err: err}
}

// Wait returns when the operation is complete, with its status and error; §3.7.3. For a persistent request that is not
// started it returns at once. If the context of the communicator ends first, Wait cancels the operation, or waits for
// it if it is too late to cancel.
func (r *Request) Wait() (Status, error) {
	if r == nil || r.comm == nil {
		return r.waitOther()
	}
	call := r.callInfo
	st, err := r.request.Wait()
	if err == nil && !call.null && call.comm.landing == nil && call.comm.group.Peers == nil {
		// the usual case of what follows, without the calls
		return Status{Source: int(st.Source), Tag: int(st.Tag), Bytes: st.Bytes, Cancelled: st.Cancelled}, nil
	}
	if err != nil && errors.Is(err, pml.ErrRequest) {
		return Status{}, call.misuse("Wait", err)
	}
	if l := call.comm.landing; l != nil {
		return l.result(&call, st, err)
	}
	return call.result(st, err)
}

// waitOther is Wait of a request that has no Comm.
func (r *Request) waitOther() (Status, error) {
	if s := r.standIn(); s != nil {
		return s.wait()
	}
	return Status{}, r.missing("Wait")
}

// Test reports whether the operation is complete, and then returns its status and error; §3.7.3. It does not wait.
func (r *Request) Test() (bool, Status, error) {
	if err := r.valid("Test"); err != nil {
		if err == errHooked {
			return r.standIn().test()
		}
		return false, Status{}, err
	}
	call := r.callInfo
	done, st, err := r.request.Test()
	if err != nil && errors.Is(err, pml.ErrRequest) {
		return false, Status{}, call.misuse("Test", err)
	}
	if !done {
		return false, Status{}, nil
	}
	if l := call.comm.landing; l != nil {
		s, err := l.result(&call, st, err)
		return true, s, err
	}
	s, err := call.result(st, err)
	return true, s, err
}

// Cancel asks for the operation to be cancelled; §3.8.4. The request must still be completed; Status.Cancelled then
// says whether it was cancelled. For collective operations and Isendrecv, Cancel returns ErrRequest.
func (r *Request) Cancel() error {
	if err := r.valid("Cancel"); err != nil {
		if err == errHooked {
			return r.standIn().about("Cancel", CallOther, func(r *Request) error { return r.Cancel() })
		}
		return err
	}
	if r.op >= opRPut && r.op < opCollective {
		return r.misuse("Cancel", fmt.Errorf("an operation on a window cannot be cancelled; wait for it"))
	}
	if err := r.request.Cancel(); err != nil {
		return r.misuse("Cancel", err)
	}
	return nil
}

// Done returns a channel that is closed when the operation is complete, for use in select. Wait must still collect the
// result. The channel of a nil request is closed.
func (r *Request) Done() <-chan struct{} {
	if err := r.valid("Done"); err != nil {
		if err == errHooked && r.standIn().plain != nil {
			return r.standIn().plain.Done()
		}
		ch := make(chan struct{})
		close(ch)
		return ch
	}
	return r.request.Done()
}

// Start starts a persistent request; §3.9. A request that is already started, or is not persistent, is ErrRequest.
func (r *Request) Start() error {
	if r == nil || r.comm == nil {
		return r.startStandIn()
	}
	if r.plan != nil {
		return r.startCollective()
	}
	if c := r.comm; c.usual == nil || c.ended.Load() != 0 {
		if err := c.usable("Start"); err != nil {
			return err
		}
	}
	if r.start != nil || r.null {
		return r.startOther()
	}
	if err := r.request.Start(); err != nil {
		return r.misuse("Start", err)
	}
	return nil
}

// startStandIn is Start of a request that has no Comm.
func (r *Request) startStandIn() error {
	if s := r.standIn(); s != nil {
		return s.start()
	}
	return r.missing("Start")
}

// startOther is Start of a request that the engine does not send or receive as it does others.
func (r *Request) startOther() error {
	var err error
	if r.op != opBsendInit && !r.null { // its start does all, and that of a buffered send is the send alone
		err = r.start()
	} else if err = r.request.StartDone(pml.Status{}); err == nil && r.start != nil {
		if err := r.start(); err != nil {
			return r.comm.group.Wrap("Start", int(r.peer), int(r.tag), err)
		}
	}
	if ours, ok := err.(*Error); ok { // of package gpu
		return ours
	}
	if err != nil {
		return r.misuse("Start", err)
	}
	return nil
}

// startCollective is Start of a collective call.
func (r *Request) startCollective() error {
	c := r.comm
	if err := c.valid("Start"); err != nil {
		return err
	}
	if r.plan.Abandoned() {
		return c.collError("Start", ErrRequest, "the call before goes on without its caller, since a rank has failed "+
			"or the context has ended; make another request")
	}
	if err := r.request.Start(); err != nil {
		return r.misuse("Start", err)
	}
	return nil
}

// StartAll starts persistent requests; §3.9. It stops at the first one that it cannot start; the requests before it are
// started.
func StartAll(rs ...*Request) error {
	for i, r := range rs {
		if err := r.Start(); err != nil {
			return fmt.Errorf("request %d of %d: %w", i, len(rs), err)
		}
	}
	return nil
}

// Free releases a persistent request; §3.7.3. A started request is ErrRequest until its result has been collected.
func (r *Request) Free() error {
	if err := r.valid("Free"); err != nil {
		if err == errHooked {
			return r.standIn().free()
		}
		return err
	}
	kept := r.comm.landing
	if err := r.request.Free(); err != nil {
		return r.misuse("Free", err)
	}
	if kept != nil && kept.free != nil {
		kept.free()
	}
	if p := r.plan; p != nil {
		r.plan = nil
		p.Release()
	}
	return nil
}
