package device

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/gpu"
)

// Open finds the device of this rank, for each rank whose buffers are to be there. All ranks call it. go: every rank has
// what it needs. Otherwise one rank returns an error, and the other ranks have nothing more to do.
func Open(j *bench.Job) (device int, ok bool, err error) {
	if j.Options.Accelerator.Kind == "" {
		return mpi.Undefined, true, nil
	}
	device, err = gpu.Local(j.World)
	if !j.Options.Accelerator.Has(j.Rank) {
		device, err = mpi.Undefined, nil
	}
	failed := []int64{int64(j.Ranks)} // the first rank that has no device
	if err != nil {
		failed[0] = int64(j.Rank)
	}
	if e := mpi.Allreduce(j.World, nil, failed, mpi.Min); e != nil {
		return device, false, e
	}
	if failed[0] == int64(j.Rank) {
		return device, false, fmt.Errorf("%s: -d %s: rank %d has no device: %w", j.Program.Name,
			j.Options.Accelerator.Kind, j.Rank, err)
	}
	return device, failed[0] == int64(j.Ranks), nil
}

// Memory is n elements on the device, of zeros, freed when the job's body has returned.
func Memory[T any](j *bench.Job, device, n int) (gpu.Slice[T], error) {
	s, err := gpu.Alloc[T](device, n)
	if err != nil {
		return s, err
	}
	j.AtEnd(s.Free)
	return s, s.CopyFrom(make([]T, n))
}

// buffer is memory of the device, and on the host what it is filled with or compared with.
type buffer struct {
	whole, now gpu.Slice[byte]
	host       []byte // as long as now; nil before the first validation
}

func newBuffer(j *bench.Job, device int) (b buffer, err error) {
	b.whole, err = Memory[byte](j, device, int(j.Options.MaxSize))
	b.now = b.whole
	return b, err
}

func (b *buffer) resize(size int64) { b.now, b.host = b.whole.Slice(0, int(size)), nil }

func (b *buffer) onHost() []byte {
	if b.host == nil {
		b.host = make([]byte, b.now.Len())
	}
	return b.host
}

// fill writes a pattern; clear takes every pattern out.
func (b *buffer) fill(round, sender int) error {
	harness.Fill(b.onHost(), round, sender)
	return b.now.CopyFrom(b.host)
}

func (b *buffer) clear() error {
	clear(b.onHost())
	return b.now.CopyFrom(b.host)
}

// holds reports whether the device has the pattern.
func (b *buffer) holds(round, sender int) (bool, error) {
	err := b.now.CopyTo(b.onHost())
	return err == nil && harness.Check(b.host, round, sender), err
}

// mishap keeps the error of Fill and Check, which return none; the next Play returns it.
type mishap struct{ err error }

func (m *mishap) add(err error) { m.err = errors.Join(m.err, err) }
