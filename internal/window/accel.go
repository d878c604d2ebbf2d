package window

import (
	"context"
	"errors"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// A window over device memory (package gpu) has the epochs, locks and checks of any window whose ranks share no board.
// A rank that cannot copy to or from another one's memory asks it, also where that is its own: the elements are a
// message, which the engine receives into device memory, or sends from there. There are no atomic steps.
//
// Package gpu makes the copies where a device of this rank reaches the memory: Operation checks and notes such an
// operation, and Free ends the copies.

// Accel is this rank's memory in such a window.
type Accel struct {
	Mem accel.Buffer // no bytes: there is no memory
	// Quiesce is called once, by Free before the last barrier. It returns when no copy of this rank is under way, and
	// no copy can reach the memory of other ranks any more.
	Quiesce func() error
	// Release is called once, after the end of the window. No message touches the memory any more.
	Release func()

	count int64 // elements
}

// Data is what an operation moves at the rank that calls it: memory of the host, or, if that has bytes, of a device.
type Data struct {
	Host   []byte
	Device accel.Buffer
}

// useDevice has the window be one over device memory.
func (s *sharing) useDevice() *agree.Veto {
	a := s.spec.Accel
	if a.Mem.Len > 0 {
		if err := s.w.group.Engine.UseDevice(a.Mem.Driver); err != nil {
			return &agree.Veto{Class: classOfDevice(err), Text: err.Error()}
		}
	}
	s.alone(nil)
	s.w.near[s.w.group.Rank].count = 0 // for the CPU
	a.count = s.spec.Count
	s.w.accel = a
	return nil
}

// classOfDevice is the class of the error of a message that device memory cannot be in.
func classOfDevice(err error) error {
	class := mpierr.ClassOf(err)
	if class == mpierr.ErrRequest { // the transport
		class = mpierr.ErrUnavailable
	}
	return class
}

// ready prepares a message in b, before another rank is asked for its part in it.
func (w *Window) ready(op string, rank int, b accel.Buffer) (pml.Ready, error) {
	d := w.group.Engine.ReadyDevice(b)
	if d.Err != nil {
		return d, w.fail(op, classOfDevice(d.Err), rank, "%w", d.Err)
	}
	return d, nil
}

// servedOnDevice is served of such a window.
type servedOnDevice struct{ *served }

// Handle implements pml.Handler.
func (d servedOnDevice) Handle(source int32, msg []byte) (again bool) {
	s, a := d.served, d.w.accel
	var r rma.Request
	if _, err := r.Decode(msg); err != nil || s.w.group.RankOf(source) < 0 || s.gone[source] {
		return false
	}
	inside := rma.Within(r.At, r.N, a.count, s.w.elem)
	switch r.Kind {
	case rma.Info:
		m := rma.Region{Count: a.count}
		s.answer(source, r.Slot, rma.Answer{}, len(m.Append(s.out[rma.AnswerSize:rma.AnswerSize])))
	case rma.PutAlone, rma.Get:
		ok := r.Runs == 0
		s.note(source, &r, inside, ok, nil)
		o := s.moves(source)
		switch mem := a.part(r.At, r.N, s.w.elem, inside && ok); {
		case o == nil:
		case r.Kind == rma.Get:
			s.port.SendDevice(int(source), r.Slot, mem, (*deviceOrigin)(o))
		default: // what is outside is received into no memory, so that its sender goes on
			s.port.RecvDevice(int(source), r.Slot, mem, (*deviceOrigin)(o))
		}
	case rma.Put, rma.Update: // of a program that is none of ours
		s.note(source, &r, inside, false, nil)
		if r.Then != 0 {
			s.end(source, rma.Request{Kind: r.Then, Slot: r.Slot})
		}
	case rma.Fetch, rma.Swap:
		s.answer(source, r.Slot, rma.Answer{Result: rma.Senseless}, 0)
	default: // which are about no elements
		r.At, r.N = 0, 0
		return s.Handle(source, r.Append(nil))
	}
	return false
}

// deviceOrigin is an origin that is told when a message in device memory is over.
type deviceOrigin origin

// Follow implements pml.Follower. The device that has failed may be the other rank's. That rank lives in either case,
// and waits for the answer to its flush, which says so.
func (d *deviceOrigin) Follow(st pml.Status, err error) {
	o := (*origin)(d)
	if errors.Is(err, pml.ErrDevice) {
		o.deviceFailed(err)
		err = nil
	}
	o.Follow(st, err)
}

// causeMost bounds the text of an rma.DeviceFailed.
const causeMost = 300

// deviceFailed has the next flush of the rank told err, unless it is told something else.
func (o *origin) deviceFailed(err error) {
	s := o.s
	if s.gone[o.rank] || o.wrong.Result != rma.Done {
		return
	}
	if s.causes == nil {
		s.causes = map[int32]string{}
	}
	text := err.Error()
	o.wrong, s.causes[o.rank] = rma.Answer{Result: rma.DeviceFailed}, text[:min(len(text), causeMost)]
}

// takeCause returns the text of the rma.DeviceFailed that a rank is told now.
func (s *served) takeCause(rank int32) string {
	text := s.causes[rank]
	delete(s.causes, rank)
	return text
}

// part is the memory of n elements from element at on; none, unless inside.
func (a *Accel) part(at, n int64, elem int, inside bool) accel.Buffer {
	if !inside || a.Mem.Len == 0 {
		return accel.Buffer{}
	}
	return a.Mem.Part(at*int64(elem), n*int64(elem))
}

// PutData writes n elements of a window over device memory at a rank, which is asked. src is the window's until the
// next flush there.
func (w *Window) PutData(ctx context.Context, op string, rank int, at int64, n int, src Data) error {
	_, far, err := w.Operation(ctx, op, rank, at, n)
	if err != nil || len(src.Host) == 0 && src.Device.Len == 0 {
		return err
	}
	from, err := w.ready(op, rank, src.Device)
	if err != nil {
		return err
	}
	want := rma.Request{Kind: rma.PutAlone, At: at, N: int64(n), Slot: w.slot(tagElements)}
	sent, err := w.announce(ctx, op, rank, far, &want)
	if !sent {
		from.Drop()
		return err
	}
	to := w.group.ToWorld(rank)
	var m *pml.Request
	if src.Device.Len > 0 {
		m = from.Isend(nil, w.requests(), to, want.Slot, pml.Standard)
	} else {
		m = w.group.Engine.Isend(nil, w.requests(), to, want.Slot, src.Host, pml.Standard)
	}
	w.beganTransfer(far, &want, m)
	return err
}

// GetData reads n elements of a window over device memory at a rank, which is asked. dst is the window's until the next
// flush there.
func (w *Window) GetData(ctx context.Context, op string, rank int, at int64, n int, dst Data) error {
	_, far, err := w.Operation(ctx, op, rank, at, n)
	if err != nil || len(dst.Host) == 0 && dst.Device.Len == 0 {
		return err
	}
	into, err := w.ready(op, rank, dst.Device)
	if err != nil {
		return err
	}
	from := w.group.ToWorld(rank)
	want := rma.Request{Kind: rma.Get, At: at, N: int64(n), Slot: w.slot(tagAnswers)}
	var m *pml.Request
	if dst.Device.Len > 0 {
		m = into.Irecv(nil, w.requests(), from, want.Slot)
	} else {
		m = w.group.Engine.Irecv(nil, w.requests(), from, want.Slot, dst.Host)
	}
	sent, err := w.announce(ctx, op, rank, far, &want)
	if !sent {
		m.Cancel()
		m.Wait()
		return err
	}
	w.beganTransfer(far, &want, m)
	return err
}

// quiesce ends the copies of package gpu, if this is a window of its.
func (w *Window) quiesce(op string) error {
	if w.accel == nil {
		return nil
	}
	if err := w.accel.Quiesce(); err != nil {
		return w.fail(op, mpierr.ClassOf(err), ranks.Undefined, "%w", err)
	}
	return nil
}
