package window

import (
	"context"
	"sync"

	"github.com/gorun-mpi/mpi/internal/layout"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// An operation with layouts moves what one of them names in the caller's buffer to what another one names at a rank, or
// back. In mapped memory that is a copy. A rank that is asked gets the runs of its layout with each request, as many as
// fit (rma.Runs).

// Strewn is the data of a layout in memory, whose byte Origin is displacement 0. It is within the memory.
type Strewn struct {
	*layout.Type
	Mem    []byte
	Origin int64
}

// pack copies bytes of the data from byte from on to dst.
func (s *Strewn) pack(dst []byte, from int64) { s.must(s.Pack(dst, s.Mem, s.Origin, from)) }

// unpack copies src to the data from byte from on.
func (s *Strewn) unpack(src []byte, from int64) { s.must(s.Unpack(src, s.Mem, s.Origin, from)) }

func (s *Strewn) must(err error) {
	if err != nil {
		panic("mpi: a layout in a window: " + err.Error())
	}
}

// run is the data, if it is one run.
func (s *Strewn) run() ([]byte, bool) {
	at, ok := s.Contiguous()
	if !ok {
		return nil, false
	}
	return s.Mem[s.Origin+at:][:s.Size()], true
}

// copyPiece is how many bytes go at a time from one layout to another one, or from a run to another one: the cache has
// that.
const copyPiece = 64 << 10

var copyPieces = sync.Pool{New: func() any { return new([copyPiece]byte) }}

// copyStrewn copies data of one size.
func copyStrewn(dst, src *Strewn) {
	from, one := src.run()
	to, other := dst.run()
	var piece *[copyPiece]byte
	if !one && !other {
		piece = copyPieces.Get().(*[copyPiece]byte)
		defer copyPieces.Put(piece)
	}
	for at := int64(0); at < src.Size(); at += copyPiece {
		n := min(copyPiece, src.Size()-at)
		switch {
		case one && other:
			copy(to[at:at+n], from[at:])
		case one:
			dst.unpack(from[at:at+n], at)
		case other:
			src.pack(to[at:at+n], at)
		default:
			src.pack(piece[:n], at)
			dst.unpack(piece[:n], at)
		}
	}
}

// aim is what a layout names at a rank.
type aim struct {
	Strewn // in the elements from first on; Mem is nil if they are not mapped here
	rank   int
	far    *Remote // if they are not mapped here
	first  int64
	n      int64 // elements that it reaches over, from displacement 0 or to there
}

// aim notes an operation at a rank, where displacement 0 of a layout is element at.
func (w *Window) aim(ctx context.Context, op string, rank int, at int64, t *layout.Type) (a aim, err error) {
	lo, hi := t.TrueBounds()
	elem := int64(max(1, w.elem))
	below, above := min(lo, 0)/elem, max(hi, 0)/elem
	if below*elem > lo {
		below--
	}
	if above*elem < hi {
		above++
	}
	a = aim{Strewn: Strewn{Type: t, Origin: -below * elem}, rank: rank, first: at + below, n: above - below}
	if at < 0 {
		a.first = at // for the error, and so that no sum overflows
	}
	a.Mem, a.far, err = w.Operation(ctx, op, rank, a.first, int(a.n))
	return a, err
}

// oneRun reports whether the layout names elements that follow on each other, in order, and data is one run too. It
// returns the first element, and the run.
func (a *aim) oneRun(elem int, data *Strewn) (first int64, run []byte, ok bool) {
	at, one := a.Contiguous()
	e := int64(max(1, elem))
	at += a.Origin
	if !one || at%e != 0 || a.Size()%e != 0 {
		return 0, nil, false
	}
	run, ok = data.run()
	return a.first + at/e, run, ok
}

// PutLayout writes src to what a layout names at a rank, whose displacement 0 is element at. Both have one size. start:
// it returns the request of StartPut, or nil if src is the caller's again.
func (w *Window) PutLayout(ctx context.Context, op string, src Strewn, rank int, at int64, to *layout.Type,
	start bool) (*pml.Request, error) {
	a, err := w.aim(ctx, op, rank, at, to)
	if err != nil {
		return nil, err
	}
	if a.far == nil {
		copyStrewn(&a.Strewn, &src)
		return nil, nil
	}
	switch first, run, one := a.oneRun(w.elem, &src); {
	case !one:
	case start:
		return w.StartPut(ctx, op, a.far, rank, first, run)
	default:
		return nil, w.Put(ctx, op, a.far, rank, first, run)
	}
	return nil, w.inBatches(&a, true, 1, func(b *batch) error { return w.tellBatch(ctx, op, &a, rma.Put, 0, b, &src) })
}

// GetLayout is PutLayout the other way. Unless dst and the elements of a rank that is asked are one run each, it
// returns when dst has them.
func (w *Window) GetLayout(ctx context.Context, op string, dst Strewn, rank int, at int64, from *layout.Type,
	start bool) (*pml.Request, error) {
	a, err := w.aim(ctx, op, rank, at, from)
	if err != nil {
		return nil, err
	}
	if a.far == nil {
		copyStrewn(&dst, &a.Strewn)
		return nil, nil
	}
	switch first, run, one := a.oneRun(w.elem, &dst); {
	case !one:
	case start:
		return w.StartGet(ctx, op, a.far, rank, first, run)
	default:
		return nil, w.Get(ctx, op, a.far, rank, first, run)
	}
	r := reads{w: w, ctx: ctx, op: op, a: &a, dst: &dst, room: w.remote(rank).asks}
	if err := w.inBatches(&a, false, 1, r.ask); err != nil {
		r.abandon()
		return nil, err
	}
	for len(r.under) > 0 {
		if err := r.collect(); err != nil {
			r.abandon()
			return nil, err
		}
	}
	return nil, nil
}

// readsMost is how many reads GetLayout has under way.
const readsMost = 16

// reads are the requests of a GetLayout that are under way, oldest first. Each has an element of room.
type reads struct {
	w     *Window
	ctx   context.Context
	op    string
	a     *aim
	dst   *Strewn
	room  chan struct{}
	under []read
}

type read struct {
	want    rma.Request
	s       *scratch // of the answer
	m       *pml.Request
	from, n int64 // as in batch
}

// ask sends the request of a batch. It waits for a place in room only while it has none: others may wait likewise.
func (r *reads) ask(b *batch) error {
	for free := false; !free; {
		if len(r.under) == 0 {
			if err := enter(r.ctx, r.room); err != nil {
				return r.w.wrap(r.op, r.a.rank, err)
			}
			break
		}
		if len(r.under) < readsMost {
			select {
			case r.room <- struct{}{}:
				free = true
				continue
			default:
			}
		}
		if err := r.collect(); err != nil {
			return err
		}
	}
	w, to := r.w, r.w.group.ToWorld(r.a.rank)
	t := read{want: rma.Request{Kind: rma.Get, At: r.a.first, N: r.a.n, Runs: uint16(len(b.table())),
		Slot: w.slot(tagAnswers)}, s: w.take(), from: b.from, n: b.n}
	t.m = w.group.Engine.Irecv(nil, w.requests(), to, t.want.Slot, t.s.in[:])
	sent, err := w.tellRequest(r.ctx, r.op, r.a.rank, r.a.far, &t.want, b.table())
	if sent {
		r.under = append(r.under, t)
		return err
	}
	t.m.Cancel()
	t.m.Wait()
	w.give(t.s, r.room)
	return err
}

// collect waits for the answer to the oldest request. With an error the request may be under way still.
func (r *reads) collect() error {
	t, w := r.under[0], r.w
	if err := t.m.Await(r.ctx); err != nil {
		return w.wrap(r.op, r.a.rank, err)
	}
	r.under = r.under[1:]
	defer w.give(t.s, r.room)
	st, err := t.m.Wait()
	if err != nil {
		return w.wrap(r.op, r.a.rank, err)
	}
	data := t.s.out[:elementsMost][:t.n]
	if err := w.answered(r.op, r.a.rank, &t.want, t.s.in[:st.Bytes], data); err != nil {
		return err
	}
	r.dst.unpack(data, t.from)
	return nil
}

// abandon leaves what is under way to the background.
func (r *reads) abandon() {
	for _, t := range r.under {
		r.w.later(t.m, func() { r.w.give(t.s, r.room) })
	}
}

// toDevice has a rank be asked whose device makes the atomic steps, though its memory is mapped here.
func (w *Window) toDevice(a *aim) {
	if a.far == nil && w.nic {
		if r := w.remote(a.rank); w.stepsByDevice(r) {
			a.far = r
		}
	}
}

// AccumulateLayout combines src with what a layout names at a rank, as PutLayout writes it. Both consist of whole
// elements.
func (w *Window) AccumulateLayout(ctx context.Context, call string, op uint8, src Strewn, rank int, at int64,
	to *layout.Type) error {
	a, err := w.aim(ctx, call, rank, at, to)
	if err != nil {
		return err
	}
	w.toDevice(&a)
	if first, run, one := a.oneRun(w.elem, &src); one && a.far != nil {
		return w.Accumulate(ctx, call, a.far, rank, first, op, run)
	}
	return w.inBatches(&a, true, w.elem, func(b *batch) (err error) {
		if a.far != nil {
			return w.tellBatch(ctx, call, &a, rma.Update, op, b, &src)
		}
		data := b.s.in[:b.n]
		src.pack(data, b.from)
		b.table().Each(func(at, n, before int64) bool {
			err = w.Update(call, rank, op, a.Mem[at:at+n], data[before:before+n], nil)
			return err == nil
		})
		return err
	})
}

// GetAccumulateLayout is AccumulateLayout that leaves the elements as they were in result. src has no Type if the
// operator does not use it.
func (w *Window) GetAccumulateLayout(ctx context.Context, call string, op uint8, src, result Strewn, rank int, at int64,
	to *layout.Type) error {
	a, err := w.aim(ctx, call, rank, at, to)
	if err != nil {
		return err
	}
	w.toDevice(&a)
	was := w.take()
	defer w.scratch.Put(was)
	return w.inBatches(&a, true, w.elem, func(b *batch) (err error) {
		elements := b.s.out[rma.RequestSize:][:len(b.table())]
		var data []byte
		if src.Type != nil {
			elements = elements[:len(elements)+int(b.n)]
			data = elements[len(b.table()):]
			src.pack(data, b.from)
		}
		before := was.in[:b.n]
		if a.far != nil {
			want := rma.Request{Kind: rma.Fetch, Op: op, At: a.first, N: a.n, Runs: uint16(len(b.table()))}
			err = w.askWithin(ctx, call, rank, &want, elements, before)
		} else {
			b.table().Each(func(at, n, from int64) bool {
				var piece []byte
				if data != nil {
					piece = data[from:][:n]
				}
				err = w.Update(call, rank, op, a.Mem[at:at+n], piece, before[from:][:n])
				return err == nil
			})
		}
		if err == nil {
			result.unpack(before, b.from)
		}
		return err
	})
}

// Elements reports whether a layout consists of whole elements of the window, at places where it has such.
func (w *Window) Elements(t *layout.Type) bool {
	elem := int64(max(1, w.elem))
	return t.Runs(func(at, size, _, stride int64) bool { return at%elem == 0 && size%elem == 0 && stride%elem == 0 })
}

// batch is data of a layout that one request is about: n bytes from byte from on. s.out has its table of runs, behind
// room for the request.
type batch struct {
	s       *scratch
	from, n int64
}

func (b *batch) table() rma.Runs { return b.s.out[rma.RequestSize:] }

// room is how many bytes a batch can have more. carried: they go with the table.
func (b *batch) room(carried bool) int64 {
	left := int64(elementsMost - len(b.table()) - rma.RunMost - tableAlign)
	switch {
	case left < 0:
		return 0
	case carried:
		return max(0, left-b.n)
	}
	return elementsMost - b.n
}

func (b *batch) add(r rma.Run) {
	b.s.out = b.s.out[:rma.RequestSize+len(b.table().Append(r))]
	b.n += r.Size * r.Count
}

// tableAlign is what the length of a table is a multiple of: so the elements behind it are aligned as those of any
// request.
const tableAlign = 8

// inBatches calls f with all that a names, as much at a time as fits a request. A batch has multiples of unit bytes.
func (w *Window) inBatches(a *aim, carried bool, unit int, f func(*batch) error) (err error) {
	s := w.take()
	defer w.scratch.Put(s)
	b := &batch{s: s}
	begin := func() {
		s.out = s.out[:rma.RequestSize]
		b.from, b.n = b.from+b.n, 0
	}
	end := func() bool {
		for len(b.table())%tableAlign != 0 {
			s.out = append(s.out, 0)
		}
		if b.n > 0 {
			err = f(b)
		}
		begin()
		return err == nil
	}
	begin()
	u := int64(unit)
	most := b.room(carried) / u * u // of a batch
	if a.Runs(func(at, size, count, stride int64) bool {
		for at += a.Origin; count > 0; {
			room := b.room(carried) / u * u
			if room < min(size, most) {
				if !end() {
					return false
				}
				continue
			}
			k := room / size
			if k > 0 {
				k = min(k, count)
				b.add(rma.Run{At: at, Size: size, Count: k, Stride: stride})
				at, count = at+k*stride, count-k
				continue
			}
			for part := int64(0); part < size; { // longer than a batch
				n := min(b.room(carried)/u*u, size-part)
				if n > 0 {
					b.add(rma.Run{At: at + part, Size: n, Count: 1})
					part += n
				} else if !end() {
					return false
				}
			}
			at, count = at+stride, count-1
		}
		return true
	}) {
		end()
	}
	return err
}

// tellBatch makes a request with runs, and what src has for these.
func (w *Window) tellBatch(ctx context.Context, call string, a *aim, kind rma.Kind, op uint8, b *batch,
	src *Strewn) error {
	want := rma.Request{Kind: kind, Op: op, At: a.first, N: a.n, Runs: uint16(len(b.table()))}
	elements := b.s.out[rma.RequestSize:][:len(b.table())+int(b.n)]
	src.pack(elements[len(b.table()):], b.from)
	return w.hold(ctx, call, a.rank, a.far, &want, elements)
}

// handleRuns is Handle of a request with runs. It reports whether the request is to be handled again.
func (s *served) handleRuns(source int32, r *rma.Request, mem []byte, inside bool, elements []byte) (again bool) {
	table, elements := rma.Runs(elements[:r.Runs]), elements[r.Runs:]
	unit := 1
	if r.Kind == rma.Update || r.Kind == rma.Fetch {
		unit = s.w.elem
	}
	n, ok := table.Check(int64(len(mem)), elementsMost, unit)
	if r.Kind == rma.Get {
		if ok = ok && len(elements) == 0; inside && ok {
			out := s.out[rma.AnswerSize:]
			table.Each(func(at, n, before int64) bool {
				copy(out[before:], mem[at:at+n])
				return true
			})
		}
		s.answer(source, r.Slot, s.verdict(r, inside, ok, nil), int(n))
		return false
	}
	ok = ok && (n == int64(len(elements)) || r.Kind == rma.Fetch && len(elements) == 0)
	if r.Kind == rma.Fetch && s.fetched == nil {
		s.fetched = make([]byte, elementsMost)
	}
	var err error
	if inside && ok {
		table.Each(func(at, n, before int64) bool {
			if r.Kind == rma.Put {
				copy(mem[at:at+n], elements[before:])
				return true
			}
			if before < s.handled {
				return true
			}
			var src, was []byte
			if len(elements) > 0 {
				src = elements[before:][:n]
			}
			if r.Kind == rma.Fetch {
				was = s.fetched[before:][:n]
			}
			if ok, err = s.w.combine(r.Op, s.offset(r)+at, mem[at:at+n], src, was); err == errBusy {
				s.handled = before
			}
			return ok && err == nil
		})
		if err == errBusy {
			return true
		}
	}
	s.handled = 0
	if r.Kind != rma.Fetch {
		s.note(source, r, inside, ok, err)
		return false
	}
	if ok {
		copy(s.out[rma.AnswerSize:], s.fetched[:n])
	}
	s.answer(source, r.Slot, s.verdict(r, inside, ok, err), int(n))
	return false
}
