package main

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/gpu"
)

// onGPU adds vectors in the memory of the GPU that is nearest to this rank; the ranks of a host take turns.
//
// Package gpu moves memory and starts no kernels. So this program computes its gradients on the host, and copies them to
// the GPU and back. In a program whose kernels compute them they are there already: it passes the address that its CUDA
// package has to gpu.Wrap, in place of Alloc, and the stream of its kernels to On. Stream 0 is CUDA's default stream:
// Allreduce waits for the kernels on it, and kernels that are started on it later see the sum.
func onGPU(c *mpi.Comm) (add summer, free func() error, err error) {
	device, err := gpu.Local(c)
	if err != nil {
		return nil, nil, err
	}
	x, err := gpu.Alloc[float64](device, vectorLen)
	if err != nil {
		return nil, nil, err
	}
	x = x.On(0)
	add = func(vector []float64) error {
		if err := x.CopyFrom(vector); err != nil {
			return err
		}
		if err := gpu.Allreduce(c, gpu.InPlace[float64](), x, mpi.Sum); err != nil {
			return err
		}
		return x.CopyTo(vector)
	}
	return add, x.Free, nil
}
