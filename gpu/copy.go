package gpu

import (
	"errors"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// A copy between a Go slice and a device goes through pinned memory, in chunks: while the device copies one, the CPU
// copies another.
const (
	chunk  = 2 << 20
	chunks = 4
)

// CopyFrom copies src, of the same length, to the device, and returns when it is there. mpi.ErrCount: the lengths
// differ; mpi.ErrDevice: the driver reports an error, and the contents of s are not defined.
func (s Slice[T]) CopyFrom(src []T) error { return s.copy("gpu.CopyFrom", src, true) }

// CopyTo copies s to dst, of the same length, on the host. Its errors are those of CopyFrom; then the contents of dst
// are not defined.
func (s Slice[T]) CopyTo(dst []T) error { return s.copy("gpu.CopyTo", dst, false) }

func (s Slice[T]) copy(op string, host []T, toDevice bool) error {
	b, bad := s.buffer()
	if bad != nil {
		return mpierr.New(op, bad.Class, "%w", bad.Err)
	}
	if len(host) != s.n {
		return mpierr.New(op, mpi.ErrCount, "the slice of the device has %d elements and the slice of the host %d; both must "+
			"have the same length", s.n, len(host))
	}
	if b.Len == 0 {
		return nil
	}
	p := pipe{b: b, host: bytesOf(host), toDevice: toDevice}
	p.part = min(chunk, b.Len)
	var err *mpi.Error
	if p.through, err = take(b.Driver, p.part*min(chunks, (b.Len+p.part-1)/p.part)); err != nil {
		return mpierr.New(op, err.Class, "%w", err.Err)
	}
	defer p.through.giveBack() // run has waited for all copies
	if err := p.run(); err != nil {
		return driverError(op, err)
	}
	return nil
}

// pipe is a copy in chunks of part bytes. Chunk i uses place i modulo chunks of the pinned memory: the device's from the
// start of its copy until that has ended, the CPU's else.
type pipe struct {
	b        accel.Buffer
	host     []byte
	toDevice bool
	through  stage
	part     int64
	started  [chunks]copying
	offset   [chunks]int64 // of the chunk that was started there last
}

func (p *pipe) run() error {
	err := ready(p.b)
	place := 0
	for off := int64(0); err == nil && off < p.b.Len; off += p.part {
		if err = p.finish(place); err == nil {
			err = p.start(place, off)
		}
		place = (place + 1) % chunks
	}
	for range chunks { // in the order in which they were started
		err = errors.Join(err, p.finish(place))
		place = (place + 1) % chunks
	}
	return err
}

// start starts the copy of the chunk at off.
func (p *pipe) start(place int, off int64) (err error) {
	n := min(p.part, p.b.Len-off)
	mem := p.place(place)[:n]
	dst, src := addressOf(mem), p.b.Addr+uint64(off)
	if p.toDevice {
		copy(mem, p.host[off:])
		dst, src = src, dst
	}
	p.offset[place] = off
	c, err := startCopy(p.b.Driver, p.b.Memory.Device, dst, src, n)
	if err == nil {
		p.started[place] = c
	}
	return err
}

// finish waits for the chunk of a place, if there is one, and takes it from there.
func (p *pipe) finish(place int) error {
	if p.started[place].driver == nil {
		return nil
	}
	err := p.started[place].wait()
	p.started[place] = copying{}
	if err == nil && !p.toDevice {
		off := p.offset[place]
		copy(p.host[off:min(off+p.part, p.b.Len)], p.place(place))
	}
	return err
}

func (p *pipe) place(i int) []byte { return p.through.mem[int64(i)*p.part : int64(i+1)*p.part] }
