package mpi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/door"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/internal/window"
)

// deviceWin is a window of package gpu. Its elements have no type here, and are never touched: package gpu calls the
// methods for epochs only.
type deviceWin = Win[struct{}]

// WinCreate implements door.Mpi. The ranks tell each other, in the call that makes the window, what package gpu needs:
// either all of them have the window then, or none has.
func (deviceDoor) WinCreate(comm any, s door.WinSpec, wrong error) (win any, told []byte, err error) {
	const kind = agree.MakeWinCreate
	var has atomic.Bool // a window, whose end calls Release
	release := sync.OnceFunc(s.Release)
	defer func() {
		if goesOn := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded); err != nil && !goesOn &&
			!has.Load() {
			release()
		}
	}()
	c := comm.(*Comm)
	if h := c.hook(); h != nil {
		w, err := makesWin(h, "gpu.WinCreate", 0, func(c *Comm) (*deviceWin, error) {
			has.Store(true) // the call on the plain communicator releases
			w, all, err := deviceDoor{}.WinCreate(c, s, wrong)
			if told = all; err != nil {
				return nil, err
			}
			return w.(*deviceWin), nil
		})
		if err != nil {
			return nil, nil, err
		}
		return w, told, nil
	}
	if err := c.intra(kind.String()); err != nil {
		return nil, nil, err
	}
	var bad *Error
	if wrong != nil {
		bad = wrong.(*Error)
	} else if err := fixedTypeOf(s.Type); err != nil {
		bad = c.badElement(kind.String(), err)
	}
	spec := window.Spec{Kind: kind, Count: int64(s.Count), Elem: int(s.Type.Size()), Update: updater[struct{}]{},
		Accel: &window.Accel{Mem: s.Mem, Quiesce: s.Quiesce, Release: release}}
	tell := &tellAll{size: c.Size(), each: len(s.Tell), heard: s.Tell}
	like := fmt.Sprint("device ", s.Type, spec.Elem)
	made, err := c.create(plan{kind: kind, args: []byte(like), bad: bad,
		members: func() *ranks.Set { return c.group.Members() },
		finish:  func(s *commState) { c.group.Duplicate(&s.group) },
		after: func(m *agree.Exchange, made *Comm) (no *agree.Veto) {
			defer func() {
				if has.Store(no == nil); no != nil {
					release()
				}
			}()
			// This comes first: a rank that cannot use its device has the others wait in no call.
			if _, no = m.Round(0, nil, nil, tell); no != nil {
				return no
			}
			made.win, no = window.Make(m, &made.group, spec)
			return no
		}})
	if err != nil {
		return nil, nil, err
	}
	if s.Mem.Len > 0 {
		engines.uses(c.group.Engine)
	}
	state := &winState[struct{}]{comm: made, win: made.win, pairs: sync.Pool{New: func() any { return new([4]struct{}) }}}
	return &deviceWin{winState: state, ctx: c.ctx}, tell.heard, nil
}

// tellAll is the payload of a round in which each rank tells all others as many bytes as they tell it.
type tellAll struct {
	size, each int    // ranks, and bytes of each
	heard      []byte // of this rank and those that it speaks for, and at last of all
}

// Take implements agree.Payload.
func (t *tellAll) Take(child int, d *agree.Decoder) *agree.Veto {
	b := d.Bytes()
	d.Bad = d.Bad || len(b) != t.each*min(child&-child, t.size-child)
	t.heard = append(t.heard[:len(t.heard):len(t.heard)], b...)
	return nil
}

// Up implements agree.Payload.
func (t *tellAll) Up() []byte { return agree.AppendBytes(nil, t.heard) }

// Decide implements agree.Payload.
func (t *tellAll) Decide() *agree.Veto { return nil }

// Down implements agree.Payload.
func (t *tellAll) Down(int) []byte { return t.Up() }

// ReadVerdict implements agree.Payload.
func (t *tellAll) ReadVerdict(d *agree.Decoder) {
	t.heard = d.Bytes()
	d.Bad = d.Bad || len(t.heard) != t.each*t.size
}

// WinCheck implements door.Mpi.
func (deviceDoor) WinCheck(win any, op string, rank int, at int64, n int) error {
	w := win.(*deviceWin)
	if w.hooked != nil {
		return askedWith(w, op, rank, n, func(w *deviceWin) error { return deviceDoor{}.WinCheck(w, op, rank, at, n) })
	}
	_, _, err := w.win.Operation(w.ctx, op, rank, at, n)
	return err
}

// WinPut implements door.Mpi.
func (deviceDoor) WinPut(win any, op string, rank int, at int64, n int, host []byte, b accel.Buffer) error {
	w := win.(*deviceWin)
	if w.hooked != nil {
		return askedWith(w, op, rank, n, func(w *deviceWin) error {
			return deviceDoor{}.WinPut(w, op, rank, at, n, host, b)
		})
	}
	if b.Len > 0 {
		engines.uses(w.comm.group.Engine)
	}
	return w.win.PutData(w.ctx, op, rank, at, n, window.Data{Host: host, Device: b})
}

// WinGet implements door.Mpi.
func (deviceDoor) WinGet(win any, op string, rank int, at int64, n int, host []byte, b accel.Buffer) error {
	w := win.(*deviceWin)
	if w.hooked != nil {
		return askedWith(w, op, rank, n, func(w *deviceWin) error {
			return deviceDoor{}.WinGet(w, op, rank, at, n, host, b)
		})
	}
	if b.Len > 0 {
		engines.uses(w.comm.group.Engine)
	}
	return w.win.GetData(w.ctx, op, rank, at, n, window.Data{Host: host, Device: b})
}

// askedWith calls the hooks around f, an operation of package gpu. w stands for a window, with which f makes it.
func askedWith(w *deviceWin, op string, rank, n int, f func(w *deviceWin) error) error {
	kind := CallPut
	if op == "gpu.Get" {
		kind = CallGet
	}
	h := w.hooked
	bytes := int64(n) * int64(h.plain.win.ElemSize())
	return h.at.observe(callWith(op, kind, rank, Undefined, bytes), func(*Comm) error { return f(h.plain) })
}
