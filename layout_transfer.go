package mpi

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
)

// A message with a layout is sent from the caller's memory, and received there, if its data is one run. Otherwise a
// long one is packed as its fragments are sent, and unpacked as they arrive, where they are copied anyway. All others
// are packed into memory of the library first, or unpacked from there when their result is collected.

// SendLayout is Send of the elements that l names in base; §3.2.1, §5.1.11. The receiver may use another layout, or a
// slice.
func SendLayout[T any](c *Comm, base []T, l Layout, dest, tag int) error {
	if err := checkSendLayout(c, "SendLayout", base, l, dest, tag); err != nil || dest == ProcNull {
		if err == errHooked {
			return c.hook().sends("SendLayout", dest, tag, l.Size(), func(c *Comm) error {
				return SendLayout(c, base, l, dest, tag)
			})
		}
		return err
	}
	return c.group.Wrap("SendLayout", dest, tag, c.sendLayout(bytesOf(base), l, dest, tag))
}

// sendLayout is SendLayout with arguments that are right.
func (c *Comm) sendLayout(base []byte, l Layout, dest, tag int) error {
	if r := c.sendPieces(l.is, base, dest, tag); r != nil {
		_, err := r.Wait()
		return err
	}
	payload, spare := l.is.outgoing(base)
	err := c.group.Engine.Send(c.ctx, c.group.Context, c.group.ToWorld(dest), int32(tag), payload, pml.Standard)
	if err == nil {
		useAgain(spare)
	}
	return err
}

// IsendLayout starts a SendLayout; §3.7.2. base belongs to the library until the request is done.
func IsendLayout[T any](c *Comm, base []T, l Layout, dest, tag int) (*Request, error) {
	if err := checkSendLayout(c, "IsendLayout", base, l, dest, tag); err != nil {
		if err == errHooked {
			return c.hook().starts(callWith("IsendLayout", CallSend, dest, tag, l.Size()), func(c *Comm) (*Request, error) {
				return IsendLayout(c, base, l, dest, tag)
			})
		}
		return nil, err
	}
	if dest == ProcNull {
		return c.nullRequest(opIsendLayout, tag), nil
	}
	r := c.sendPieces(l.is, bytesOf(base), dest, tag)
	if r == nil {
		payload, _ := l.is.outgoing(bytesOf(base))
		r = c.group.Engine.Isend(c.ctx, c.group.Context, c.group.ToWorld(dest), int32(tag), payload, pml.Standard)
	}
	return c.request(opIsendLayout, dest, tag, r), nil
}

// RecvLayout is Recv into the elements that l names in base; §3.2.4, §5.1.11. A shorter message fills the first
// elements. A layout that names an element twice is ErrType.
func RecvLayout[T any](c *Comm, base []T, l Layout, source, tag int) (Status, error) {
	if err := checkRecvLayout(c, "RecvLayout", base, l, source, tag); err != nil || source == ProcNull {
		if err == errHooked {
			return c.hook().receives(callWith("RecvLayout", CallRecv, source, tag, l.Size()), func(c *Comm) (Status, error) {
				return RecvLayout(c, base, l, source, tag)
			})
		}
		return nullStatus, err
	}
	buf, later := l.is.incoming(bytesOf(base))
	var st pml.Status
	var err error
	if len(buf) < piecesMin || later == nil {
		st, err = c.group.Engine.Recv(c.ctx, c.group.Context, c.group.ToWorld(source), int32(tag), buf)
	} else {
		st, err = c.group.Engine.IrecvPieces(c.ctx, c.group.Context, c.group.ToWorld(source), int32(tag), buf,
			later).Wait()
	}
	if later.land(st); later != nil && err == nil {
		useAgain(buf)
	}
	return c.status(st), c.group.Wrap("RecvLayout", source, tag, err)
}

// IrecvLayout starts a RecvLayout; §3.7.2. base belongs to the library until Wait, or a Test… that reports done, has
// returned the result.
func IrecvLayout[T any](c *Comm, base []T, l Layout, source, tag int) (*Request, error) {
	if err := checkRecvLayout(c, "IrecvLayout", base, l, source, tag); err != nil {
		if err == errHooked {
			return c.hook().starts(callWith("IrecvLayout", CallRecv, source, tag, l.Size()), func(c *Comm) (*Request, error) {
				return IrecvLayout(c, base, l, source, tag)
			})
		}
		return nil, err
	}
	if source == ProcNull {
		return c.nullRequest(opIrecvLayout, AnyTag), nil
	}
	return c.irecvLayout(opIrecvLayout, bytesOf(base), l, source, tag), nil
}

// irecvLayout is IrecvLayout, of the call op, with arguments that are right.
func (c *Comm) irecvLayout(op opCode, base []byte, l Layout, source, tag int) *Request {
	buf, later := l.is.incoming(base)
	if later == nil {
		return c.request(op, source, tag, c.group.Engine.Irecv(c.ctx, c.group.Context, c.group.ToWorld(source),
			int32(tag), buf))
	}
	c = &Comm{commState: c.commState, ctx: c.ctx, landing: later}
	return c.request(op, source, tag,
		c.group.Engine.IrecvPieces(c.ctx, c.group.Context, c.group.ToWorld(source), int32(tag), buf, later))
}

// SendrecvLayout is Sendrecv of the elements that from names in send, into the elements that into names in recv; §3.10,
// §5.1.11. The two have no element in common.
func SendrecvLayout[S, R any](c *Comm, send []S, from Layout, dest, stag int, recv []R, into Layout, source, rtag int) (
	Status, error,
) {
	op := opSendrecvLayout.String()
	if err := checkSendLayout(c, op, send, from, dest, stag); err != nil {
		if err == errHooked {
			call := sendrecvCall(opSendrecvLayout, from.Size(), dest, stag, into.Size(), source, rtag)
			return c.hook().receives(call, func(c *Comm) (Status, error) {
				return SendrecvLayout(c, send, from, dest, stag, recv, into, source, rtag)
			})
		}
		return Status{}, err
	}
	if err := checkRecvLayout(c, op, recv, into, source, rtag); err != nil {
		return Status{}, err
	}
	received := (*Request)(nil) // posted first: the ranks of a ring may all send before one of them receives
	if source != ProcNull {
		received = c.irecvLayout(opSendrecvLayout, bytesOf(recv), into, source, rtag)
	}
	if dest != ProcNull {
		if err := c.sendLayout(bytesOf(send), from, dest, stag); err != nil {
			if received != nil {
				received.Cancel()
				received.Wait()
			}
			return Status{}, c.group.Wrap(op, dest, stag, err)
		}
	}
	if received == nil {
		return nullStatus, nil
	}
	return received.Wait()
}

// SendLayoutInit is SendInit of the elements that l names in base; §3.9, §5.1.11. A layout with gaps is packed by
// Start.
func SendLayoutInit[T any](c *Comm, base []T, l Layout, dest, tag int) (*Request, error) {
	if err := checkSendLayout(c, opSendLayoutInit.String(), base, l, dest, tag); err != nil {
		if err == errHooked {
			call := preparing("SendLayoutInit", CallSend, dest, tag, l.Size())
			return c.hook().starts(call, func(c *Comm) (*Request, error) {
				return SendLayoutInit(c, base, l, dest, tag)
			})
		}
		return nil, err
	}
	buf, one := l.is.run(bytesOf(base))
	if !one {
		buf = make([]byte, l.Size())
	}
	p := c.group.Engine.PrepareSend(c.ctx, c.group.Context, max(c.group.ToWorld(dest), 0), int32(tag), buf, pml.Standard)
	k := &landing{layout: l.is, base: bytesOf(base), packed: buf, persistent: true, sends: true}
	return c.persistentLayout(opSendLayoutInit, dest, tag, p, k, !one), nil
}

// RecvLayoutInit is RecvInit into the elements that l names in base; §3.9, §5.1.11. base belongs to the library from
// Start until Wait, or a Test… that reports done, has returned the result.
func RecvLayoutInit[T any](c *Comm, base []T, l Layout, source, tag int) (*Request, error) {
	if err := checkRecvLayout(c, opRecvLayoutInit.String(), base, l, source, tag); err != nil {
		if err == errHooked {
			call := preparing("RecvLayoutInit", CallRecv, source, tag, l.Size())
			return c.hook().starts(call, func(c *Comm) (*Request, error) {
				return RecvLayoutInit(c, base, l, source, tag)
			})
		}
		return nil, err
	}
	buf, one := l.is.run(bytesOf(base))
	if !one {
		buf = make([]byte, l.Size())
	}
	p := c.group.Engine.PrepareRecv(c.ctx, c.group.Context, c.group.ToWorld(source), int32(tag), buf)
	k := &landing{layout: l.is, base: bytesOf(base), packed: buf, persistent: true}
	return c.persistentLayout(opRecvLayoutInit, source, tag, p, k, !one), nil
}

// persistentLayout returns the persistent request that p is. k brings its data to the memory that p uses, or from
// there.
func (c *Comm) persistentLayout(op opCode, peer, tag int, p *pml.Request, k *landing, gaps bool) *Request {
	if !gaps || peer == ProcNull {
		r := c.request(op, peer, tag, p)
		r.null = peer == ProcNull
		return r
	}
	r := (&Comm{commState: c.commState, ctx: c.ctx, landing: k}).request(op, peer, tag, p)
	r.start = func() error { return k.startPersistent(p) }
	return r
}

// Pack appends the bytes of a message with layout l in base to dst, and returns the result; §5.2.
func Pack[T any](dst []byte, base []T, l Layout) ([]byte, error) {
	if err := checkLayout("Pack", base, l, false); err != nil {
		return dst, err
	}
	n := len(dst)
	dst = append(dst, make([]byte, l.Size())...)
	l.is.mustMove(l.is.Type.Pack(dst[n:], bytesOf(base), 0, 0))
	return dst, nil
}

// Unpack copies a message with layout l from the beginning of src into base, and returns the rest of src; §5.2. If src
// is too short, it returns ErrTruncate and does not change base.
func Unpack[T any](src []byte, base []T, l Layout) ([]byte, error) {
	if err := checkLayout("Unpack", base, l, true); err != nil {
		return src, err
	}
	n := l.Size()
	if int64(len(src)) < n {
		return src, mpierr.New("Unpack", ErrTruncate, "%d bytes are left, and the layout has %d", len(src), n)
	}
	l.is.mustMove(l.is.Type.Unpack(src[:n], bytesOf(base), 0, 0))
	return src[n:], nil
}

// checkSendLayout reports which argument is wrong.
func checkSendLayout[T any](c *Comm, op string, base []T, l Layout, dest, tag int) error {
	if err := c.checkSend(op, dest, tag); err != nil {
		return err
	}
	if err := checkLayout(op, base, l, false); err != nil {
		return mpierr.At(mpierr.On(err, c.Name()), dest, tag, false)
	}
	return nil
}

// checkRecvLayout reports which argument is wrong.
func checkRecvLayout[T any](c *Comm, op string, base []T, l Layout, source, tag int) error {
	if err := c.checkRecv(op, source, tag); err != nil {
		return err
	}
	if err := checkLayout(op, base, l, true); err != nil {
		return mpierr.At(mpierr.On(err, c.Name()), source, tag, true)
	}
	return nil
}

// checkLayout reports whether l, in base, can be read, or written to.
func checkLayout[T any](op string, base []T, l Layout, write bool) *Error {
	return checkLayoutOf(op, reflect.TypeFor[T](), int64(len(bytesOf(base))), l, write)
}

// checkLayoutOf is checkLayout in so many bytes of elements of type t.
func checkLayoutOf(op string, t reflect.Type, bytes int64, l Layout, write bool) *Error {
	has := contentsOf(t)
	err := holdsNumbersOf(t)
	if err == nil {
		err = l.Err()
	}
	if err == nil {
		err = l.is.matches(t, has)
	}
	if err == nil && write && l.is.overlapping() {
		err = errOverlap
	}
	if err != nil {
		return mpierr.New(op, ErrType, "%w", err)
	}
	if err := l.is.Fits(bytes, 0); err != nil {
		return mpierr.New(op, ErrCount, "%w", err)
	}
	if has.pointers {
		if err := l.is.touches(t); err != nil {
			return mpierr.New(op, ErrType, "%w", err)
		}
	}
	return nil
}

var errOverlap = errors.New("the layout names some memory twice, and only one value can be there; receive into another")

// errOverlapInWindow is errOverlap of a call with a window.
var errOverlapInWindow = errors.New("the layout names some memory twice, and only one value can be there; name it once")

// outgoing is what is sent: base itself, or the packed data, which is spare memory afterwards.
func (d *derived) outgoing(base []byte) (payload, spare []byte) {
	if run, ok := d.run(base); ok {
		return run, nil
	}
	packed := packingMemory(d.Size())
	d.mustMove(d.Type.Pack(packed, base, 0, 0))
	return packed, packed
}

// piecesMin is how long a message is, in bytes, that may be worth more than one copy by the engine.
const piecesMin = 16 << 10

// strewn is a message that is sent from base in pieces.
type strewn struct {
	layout *derived
	base   []byte
}

// Pack implements pml.Packer.
func (s strewn) Pack(dst []byte, from int64) {
	s.layout.mustMove(s.layout.Type.Pack(dst, s.base, 0, from))
}

// sendPieces starts to send what d names in base in pieces; nil: it is one piece, short, or the link wants it whole.
func (c *Comm) sendPieces(d *derived, base []byte, dest, tag int) *pml.Request {
	if _, one := d.Contiguous(); one || d.Size() < piecesMin {
		return nil
	}
	return c.group.Engine.IsendPieces(c.ctx, c.group.Context, c.group.ToWorld(dest), int32(tag), d.Size(), strewn{d,
		base})
}

// incoming is where a message is received: base itself, or memory from where landing brings it to base.
func (d *derived) incoming(base []byte) ([]byte, *landing) {
	if run, ok := d.run(base); ok {
		return run, nil
	}
	packed := packingMemory(d.Size())
	landingsOpen.Add(1)
	return packed, &landing{layout: d, base: base, packed: packed}
}

// packs is memory of blocking calls that are over, *[]byte: fresh memory costs as much as packing does. The collector
// empties it.
var packs sync.Pool

// packingMemory is n bytes, whatever they are.
func packingMemory(n int64) []byte {
	if b, _ := packs.Get().(*[]byte); b != nil && int64(cap(*b)) >= n {
		return (*b)[:n]
	}
	return make([]byte, n)
}

// useAgain takes memory that nothing reads or writes any more.
func useAgain(packed []byte) {
	if cap(packed) > 0 {
		packs.Put(&packed)
	}
}

// run is the data in base, if it lies there as it is sent.
func (d *derived) run(base []byte) ([]byte, bool) {
	at, ok := d.Contiguous()
	if !ok {
		return nil, false
	}
	return base[at : at+d.Size() : at+d.Size()], true
}

// landing is a message that is received packed. packed is the engine's until the receive is complete, base is the
// library's until land.
type landing struct {
	layout       *derived
	base, packed []byte
	done         int64 // bytes, from the beginning, that are in base and not in packed; the engine's, as packed

	collect func(int64, error) error // not nil: there is no layout, and this gets the call's result; see door.Mpi

	// Of a persistent request, which has its landing for ever. sends: it sends what is packed. underWay: it has been
	// started, and its result has not been collected. free, of one with collect, is called when the request is freed.
	persistent, sends, underWay bool
	free                        func()
}

// startKept starts the persistent request p, which has the landing. begin comes before that, and collect after it,
// unless begin has failed.
func (l *landing) startKept(p *pml.Request, begin func() error) error {
	if l.underWay {
		return p.Start() // which says so
	}
	if err := begin(); err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return l.collect(0, err)
	}
	l.underWay = true
	landingsOpen.Add(1)
	return nil
}

// startPersistent starts the persistent request p, which has the landing.
func (l *landing) startPersistent(p *pml.Request) error {
	if l.underWay {
		return p.Start() // which says so
	}
	if l.sends {
		l.layout.PackAll(l.packed, l.base)
	}
	l.underWay = true
	landingsOpen.Add(1)
	err := p.Start()
	if err != nil {
		l.underWay = false
		landingsOpen.Add(-1)
	}
	return err
}

// Unpack implements pml.Unpacker: what follows on the part before goes straight to base.
func (l *landing) Unpack(src []byte, from int64) bool {
	if from != l.done {
		return false
	}
	l.layout.mustMove(l.layout.Type.Unpack(src, l.base, 0, from))
	l.done += int64(len(src))
	return true
}

// landingsOpen is how many there are whose request has not been collected: nearly always none, and no set has to look.
var landingsOpen atomic.Int64

// land unpacks what has been received. The result of a request is collected once.
func (l *landing) land(st pml.Status) {
	if l == nil || l.persistent && !l.underWay {
		return
	}
	landingsOpen.Add(-1)
	if l.persistent {
		if l.underWay = false; !l.sends {
			n := min(st.Bytes, int64(len(l.packed)))
			l.layout.mustMove(l.layout.Type.Unpack(l.packed[:n], l.base, 0, 0))
		}
		return
	}
	if n := min(st.Bytes, int64(len(l.packed))); n > l.done {
		l.layout.mustMove(l.layout.Type.Unpack(l.packed[l.done:n], l.base, 0, l.done))
	}
	l.base, l.packed = nil, nil // the request, which keeps l until it is used again, keeps nothing of these
}

// result is the result of call, once the message is where it belongs.
func (l *landing) result(call *callInfo, st pml.Status, err error) (Status, error) {
	if l.collect == nil {
		l.land(st)
		return call.result(st, err)
	}
	if l.persistent && !l.underWay {
		return call.result(st, err)
	}
	l.underWay = false
	landingsOpen.Add(-1)
	s, err := call.result(st, err)
	return s, l.collect(s.Bytes, err)
}

// mustMove: the layout has been checked against its buffer.
func (d *derived) mustMove(err error) {
	if err != nil {
		panic(fmt.Sprintf("mpi: a layout of %d bytes: %v", d.Size(), err))
	}
}

// PackAll and UnpackAll implement coll.Layout.
func (d *derived) PackAll(packed, base []byte)   { d.mustMove(d.Type.Pack(packed, base, 0, 0)) }
func (d *derived) UnpackAll(packed, base []byte) { d.mustMove(d.Type.Unpack(packed, base, 0, 0)) }
