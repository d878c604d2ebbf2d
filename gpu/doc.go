// Package gpu sends and receives memory of accelerators: its calls are the calls of package mpi for a [Slice] of device
// memory in place of a Go slice. One side of a message may be a device and the other one the host.
//
//	x, err := gpu.Wrap[float32](ptr, n) // memory of any CUDA package, by its address
//	err = gpu.Send(world, x, 1, 0)
//	err = gpu.Allreduce(world, gpu.InPlace[float32](), x, mpi.Sum)
//
// A program that uses it is built on Linux with cgo, which needs a C compiler and nothing of NVIDIA's. Without cgo every
// call that needs a device is mpi.ErrUnavailable. The first call that needs the driver opens it.
//
// A buffer must be ready: work of the program's streams that writes what is sent, or reads what is received into, has
// ended when the call is made. [Slice.On] names a stream instead, and the library waits for it. Work that is started after
// the call has returned, or after the request has been collected, sees the result.
//
// Over UCX and libfabric a message goes through memory of the host as a whole. The copy to the device is made when the
// request is collected. No test has run that over libfabric.
//
// A collective call copies its buffers to memory of the host, makes the call of package mpi there, and copies the result
// back: it gives the same bits. A nonblocking one copies the result when the request is collected.
//
// A [Win] is a window over device memory, for [Put] and [Get]: a rank of the same host copies to and from it by its own
// device, where that can map it, and any other rank by messages, which the rank need not wait for.
//
// docs/gpu.md is the manual.
//
//	Owns:     slices of device memory, the copies of windows, pinned memory for copies, the choice of a rank's device
//	May call: mpi, internal/door (what mpi does not export), internal/mpierr, accel and accel/cuda (the driver),
//	          internal/topology, internal/cpuset (what is near this rank), internal/memfile (memory without contents)
//	Never:    touch device memory with the CPU, start a driver before a call needs it
package gpu
