package pml

import (
	"context"

	"github.com/gorun-mpi/mpi/transport"
)

// Atomic steps on memory of a window that a device makes (transport.RMA). Where that is so for one rank's memory, all
// ranks have its device make them, the rank itself too: a device need not be atomic with respect to a CPU. A rank whose
// link makes none asks the rank, whose Handler has its own device make the step.

// Step is an atomic step on an integer of 8 bytes.
type Step struct {
	Swap bool   // set the integer to To if it is By; else add By to it
	By   uint64 // in the byte order of the machine
	To   uint64
}

func (s *Step) begin(r *transport.RMA, addr, key, cookie uint64) (transport.State, error) {
	if s.Swap {
		return r.CompareSwap(s.By, s.To, addr, key, cookie)
	}
	return r.FetchAdd(s.By, addr, key, cookie)
}

// Result is what became of a Step.
type Result struct {
	Over  bool   // else what follows is not known yet
	Value uint64 // of the integer before
	Err   error  // the step may have been made
}

// stepBytes is how much memory a step is about. Its request has a buffer of so many bytes that is not there: nothing
// touches it.
const stepBytes = 8

// StepByDevice has the device make all atomic steps on mem, which Lend lends afterwards, and which consists of integers
// of 8 bytes. The result is how this rank makes its steps; nil: its CPU makes them. Then links of other ranks make
// theirs if the device is coherent with the CPU, and otherwise nothing is changed.
func (w *Window) StepByDevice(mem []byte) (own *Reach) {
	e := w.e
	e.lock()
	defer e.unlock()
	defer e.exitCall()
	rma := e.ownRMA()
	if !e.direct || rma == nil || rma.FetchAdd == nil || len(mem) == 0 {
		return nil
	}
	m := transport.HostMem(mem)
	if rma.Coherent {
		w.steps = true
		return nil
	}
	rank := int32(e.cfg.Rank)
	const access = transport.Readable | transport.Writable | transport.Lasting
	addr, key, ok := rma.Register(m, access)
	if !ok && e.awaitMemory(rank, rma, m, access) {
		addr, key, ok = rma.Register(m, access)
	}
	if !ok || addr%stepBytes != 0 {
		return nil
	}
	l := loan{rma, m, Lent{Addr: addr, Key: key, Reads: true, Writes: true, Steps: true, ByDevice: true}}
	if w.loans == nil { // a rank that does not wait until the window is made may have asked meanwhile
		w.loans = map[int32]loan{}
	}
	w.loans[rank] = l
	w.steps, w.byDevice = true, true
	return &Reach{p: e.links.peer(rank), rma: rma, lent: l.Lent}
}

// awaitMemory waits while a link registers memory, if that takes long. It reports whether it has waited: Register says
// then what came of it.
func (e *Engine) awaitMemory(rank int32, rma *transport.RMA, mem transport.Mem, access transport.Access) bool {
	r := e.requests.take()
	if !e.links.transfers.prepareMemory(r, e.links.peer(rank), rma, mem, access) {
		e.requests.putBack(r)
		return false
	}
	e.activate(r, nil)
	e.await(r)
	e.requests.putBack(r)
	return !e.gone
}

// ownRMA reaches this rank's memory through the device; nil: it cannot.
func (e *Engine) ownRMA() *transport.RMA {
	if f := e.cfg.Net.Facts().OwnRMA; f != nil && e.closed == nil {
		return f()
	}
	return nil
}

// isOwn reports whether the memory is this rank's.
func (f *Reach) isOwn() bool { return int(f.p.rank) == f.p.l.e.cfg.Rank }

// Steps reports whether the link makes atomic steps.
func (f *Reach) Steps() bool { return f.lent.Steps }

// Step makes an atomic step at an offset of the memory, and returns the integer as it was. If cc ends meanwhile, the
// step goes on, and the error is the context's. ok: it has begun; otherwise the link cannot make it, and has not.
func (f *Reach) Step(cc context.Context, s Step, off int64) (before uint64, ok bool, err error) {
	e := f.p.l.e
	e.lock()
	defer e.unlock()
	defer e.exitCall()
	t := f.openStep(&s, off)
	gate := f.waits(cc)
	t.one.gate = gate
	f.start(t)
	e.await(gate)
	before, err = uint64(gate.status.Bytes), gate.err
	e.requests.putBack(gate)
	if err == errOtherWay {
		return 0, false, nil
	}
	return before, true, err
}

// StartStep is Step that does not wait: r is Over when the step is. It is for Handle.
func (f *Reach) StartStep(s Step, off int64, r *Result) {
	*r = Result{}
	t := f.openStep(&s, off)
	t.one.tell = r
	f.start(t)
}

func (f *Reach) openStep(s *Step, off int64) *transfer {
	t := f.open(f.p.l.e.unasked(), transport.Mem{Len: stepBytes}, off)
	t.one.isStep, t.one.step = true, *s
	return t
}

// start begins a step, now or when the link has room. t may be closed afterwards.
func (f *Reach) start(t *transfer) {
	ts := &f.p.l.transfers
	if err := f.p.err; err != nil {
		ts.end(t, err)
	} else {
		ts.tryOperation(t)
	}
}

// stepped tells what became of a step.
func (o *oneSided) stepped(e *Engine, err error) {
	if o.tell != nil {
		*o.tell = Result{true, o.value, err}
	}
	if gate := o.gate; gate != nil {
		gate.status.Bytes = int64(o.value)
		o.pass(e, err)
	}
}
