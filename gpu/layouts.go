package gpu

import (
	"errors"
	"reflect"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/door"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Messages with a layout. A message goes through pinned memory as a whole, over any transport: a send is copied there
// before it starts, and a receive is copied to the device when its result is collected. Each run of bytes that the
// layout names is a copy of its own.

// SendLayout is mpi.SendLayout from device memory: it sends the elements that l names in base. The receiver may use
// another layout, or a slice, of a device or of the host. A device copies each run of bytes by itself, which takes
// microseconds: let a kernel pack what has many short ones.
func SendLayout[T any](c *mpi.Comm, base Slice[T], l mpi.Layout, dest, tag int) error {
	return wait(sendLayout(c, door.SendLayout, base, l, dest, tag))
}

// IsendLayout starts a SendLayout. When it returns the message has been copied: base may be written again, or freed.
func IsendLayout[T any](c *mpi.Comm, base Slice[T], l mpi.Layout, dest, tag int) (*mpi.Request, error) {
	return sendLayout(c, door.IsendLayout, base, l, dest, tag)
}

// RecvLayout is mpi.RecvLayout into device memory: the elements that l names in base. A shorter message fills the first
// elements, and no byte changes that l does not name. A layout that names an element twice is mpi.ErrType.
func RecvLayout[T any](c *mpi.Comm, base Slice[T], l mpi.Layout, source, tag int) (mpi.Status, error) {
	return collect(recvLayout(c, door.RecvLayout, base, l, source, tag))
}

// IrecvLayout starts a RecvLayout. The message is in base when the request has been collected.
func IrecvLayout[T any](c *mpi.Comm, base Slice[T], l mpi.Layout, source, tag int) (*mpi.Request, error) {
	return recvLayout(c, door.IrecvLayout, base, l, source, tag)
}

func sendLayout[T any](c *mpi.Comm, op door.Op, base Slice[T], l mpi.Layout, dest, tag int) (*mpi.Request, error) {
	b, parts, bad := base.parts(op, l, false)
	if bad != nil {
		return nil, refused(bad, op.String(), c, dest, tag)
	}
	if len(parts) == 0 || dest == mpi.ProcNull {
		return startWhole[byte](c, op, stage{}, 0, dest, tag)
	}
	through, err := fetchWhole(c, op, b, parts, dest, tag)
	if err != nil {
		return nil, err
	}
	return startWhole[byte](c, op, through, int(parts.size()), dest, tag)
}

func recvLayout[T any](c *mpi.Comm, op door.Op, base Slice[T], l mpi.Layout, source, tag int) (*mpi.Request, error) {
	wrong := func(bad *mpi.Error) error { return refused(bad, op.String(), c, source, tag) }
	b, parts, bad := base.parts(op, l, true)
	if bad != nil {
		return nil, wrong(bad)
	}
	start := func(mem []byte) (*mpi.Request, error) { return mpi.Irecv(c, mem, source, tag) }
	if len(parts) == 0 || source == mpi.ProcNull {
		r, err := start(nil)
		if err != nil {
			return nil, named(err, op.String())
		}
		door.Through().Collect(r, func(_ int64, err error) error { return named(err, op.String()) })
		return r, nil
	}
	return recvWhole(op, base, b, parts, start, wrong)
}

// shape is where in a buffer the bytes of a message lie, in their order.
type shape []byteRun

type byteRun struct{ at, n int64 }

// contiguous is the shape of the bytes of b.
func contiguous(b accel.Buffer) shape { return shape{{0, b.Len}} }

func (p shape) size() (n int64) {
	for _, r := range p {
		n += r.n
	}
	return n
}

// parts are the bytes that a layout names in s.
func (s Slice[T]) parts(op door.Op, l mpi.Layout, write bool) (b accel.Buffer, p shape, bad *mpi.Error) {
	if b, bad = s.buffer(); bad != nil {
		return b, nil, bad
	}
	err := door.Through().Layout(l, reflect.TypeFor[T](), b.Len, write, func(at, n int64) {
		if k := len(p) - 1; k >= 0 && p[k].at+p[k].n == at {
			p[k].n += n
		} else {
			p = append(p, byteRun{at, n})
		}
	})
	if err != nil {
		bad = err.(*mpi.Error)
		return b, nil, mpierr.New(op.String(), bad.Class, "%w", bad.Err)
	}
	return b, p, nil
}

// copiesAtATime is how many copies of one message are under way.
const copiesAtATime = 32

// copies copies the bytes of a message, or the first of them, between b and pinned memory. It returns when no copy is
// under way.
func (p shape) copies(b accel.Buffer, mem []byte, toDevice bool) (err error) {
	var under [copiesAtATime]copying
	for i, r := range p {
		n := min(r.n, int64(len(mem)))
		if n == 0 {
			break
		}
		oldest := &under[i%copiesAtATime]
		if err = oldest.wait(); err == nil {
			dst, src := addressOf(mem), b.Addr+uint64(r.at)
			if toDevice {
				dst, src = src, dst
			}
			*oldest, err = startCopy(b.Driver, b.Memory.Device, dst, src, n)
		}
		if err != nil {
			*oldest = copying{}
			break
		}
		mem = mem[n:]
	}
	return errors.Join(err, waitAll(under[:]...))
}
