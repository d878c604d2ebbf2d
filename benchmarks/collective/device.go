package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/device"
	"github.com/gorun-mpi/mpi/gpu"
)

// deviceCalls are what package gpu has of an operation.
type deviceCalls struct {
	call  func(b *buffers) error
	start func(b *buffers) (*mpi.Request, error)
}

var deviceOperations = map[string]deviceCalls{
	"allgather": {
		func(b *buffers) error { return gpu.Allgather(b.world, b.device.send, b.device.recv) },
		func(b *buffers) (*mpi.Request, error) { return gpu.Iallgather(b.world, b.device.send, b.device.recv) },
	},
	"allreduce": {
		func(b *buffers) error { return gpu.Allreduce(b.world, b.device.in, b.device.out, mpi.Sum) },
		func(b *buffers) (*mpi.Request, error) {
			return gpu.Iallreduce(b.world, b.device.in, b.device.out, mpi.Sum)
		},
	},
	"alltoall": {
		func(b *buffers) error { return gpu.Alltoall(b.world, b.device.send, b.device.recv) },
		func(b *buffers) (*mpi.Request, error) { return gpu.Ialltoall(b.world, b.device.send, b.device.recv) },
	},
	"bcast": {
		func(b *buffers) error { return gpu.Bcast(b.world, b.device.recv, root) },
		func(b *buffers) (*mpi.Request, error) { return gpu.Ibcast(b.world, b.device.recv, root) },
	},
	"gather": {
		func(b *buffers) error { return gpu.Gather(b.world, b.device.send, b.device.recv, root) },
		func(b *buffers) (*mpi.Request, error) {
			return gpu.Igather(b.world, b.device.send, b.device.recv, root)
		},
	},
	"reduce": {
		func(b *buffers) error { return gpu.Reduce(b.world, b.device.in, b.device.out, mpi.Sum, root) },
		func(b *buffers) (*mpi.Request, error) {
			return gpu.Ireduce(b.world, b.device.in, b.device.out, mpi.Sum, root)
		},
	},
	"reduce_scatter_block": {
		func(b *buffers) error { return gpu.ReduceScatterBlock(b.world, b.device.in, b.device.out, mpi.Sum) },
		func(b *buffers) (*mpi.Request, error) {
			return gpu.IreduceScatterBlock(b.world, b.device.in, b.device.out, mpi.Sum)
		},
	},
	"scatter": {
		func(b *buffers) error { return gpu.Scatter(b.world, b.device.send, b.device.recv, root) },
		func(b *buffers) (*mpi.Request, error) {
			return gpu.Iscatter(b.world, b.device.send, b.device.recv, root)
		},
	},
}

// onDevice replaces the calls of package mpi by those of package gpu.
func onDevice(chosen []form) (replaced []form, err error) {
	for _, f := range chosen {
		calls, ok := deviceOperations[f.name]
		if !ok || f.way == persistent {
			var there []string
			for _, name := range names() {
				if _, ok := deviceOperations[name]; ok {
					there = append(there, name)
				}
			}
			return nil, fmt.Errorf("-d: %s is no call of package gpu; there are %s, also with i before the name", f,
				strings.Join(there, ", "))
		}
		o := *f.operation
		o.call, o.start, o.keep = calls.call, calls.start, nil
		replaced = append(replaced, form{&o, f.way})
	}
	return replaced, nil
}

// deviceBuffers are one rank's buffers on its device. Each is as long as the buffer of the host that has its name, and
// is zero where that is nil.
type deviceBuffers struct {
	used       bool
	of         *buffers
	send, recv gpu.Slice[byte]
	in, out    gpu.Slice[float64]

	bytes   [2]gpu.Slice[byte]
	numbers [2]gpu.Slice[float64]
}

// make allocates as much on a device as the host has.
func (d *deviceBuffers) make(j *bench.Job, where int, b *buffers) (err error) {
	if where == mpi.Undefined {
		return nil
	}
	d.used, d.of = true, b
	for i := range 2 {
		if b.bytes[i] != nil && err == nil {
			d.bytes[i], err = device.Memory[byte](j, where, len(b.bytes[i]))
		}
		if b.numbers[i] != nil && err == nil {
			d.numbers[i], err = device.Memory[float64](j, where, len(b.numbers[i]))
		}
	}
	return err
}

// resize makes the lengths those of the host's buffers.
func (d *deviceBuffers) resize(b *buffers) {
	if !d.used {
		return
	}
	d.send, d.recv = cut(d.bytes[0], b.send), cut(d.bytes[1], b.recv)
	d.in, d.out = cut(d.numbers[0], b.in), cut(d.numbers[1], b.out)
}

func cut[T any](s gpu.Slice[T], host []T) gpu.Slice[T] {
	if host == nil {
		return gpu.Slice[T]{}
	}
	return s.Slice(0, len(host))
}

// put copies what was filled to the device, and get copies what is there to the host. Without -d both do nothing.
func (d *deviceBuffers) put() error {
	if !d.used {
		return nil
	}
	b := d.of
	return errors.Join(d.send.CopyFrom(b.send), d.recv.CopyFrom(b.recv), d.in.CopyFrom(b.in), d.out.CopyFrom(b.out))
}

func (d *deviceBuffers) get() error {
	if !d.used {
		return nil
	}
	return errors.Join(d.recv.CopyTo(d.of.recv), d.out.CopyTo(d.of.out))
}
