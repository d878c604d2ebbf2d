// Package cuda is the driver of NVIDIA's GPUs: libcuda.so.1, which it opens at run time. It needs Linux and cgo; without
// them it registers no driver. docs/decisions/gpu.md gives the reasons. Its tests need the build tag cuda, which says
// that the software GPU can be built.
//
// The package uses the primary context of each device only, as CUDA's runtime library does: it retains the context at
// the first need of that device and keeps it. A user's pointers and streams must belong to that context.
//
//	Owns:     a stream and a pool of events per device, the allocations of Alloc, what Open has mapped
//	May call: accel, golang.org/x/sys, libcuda
//	Never:    call from C into Go; touch a byte of a message; believe a handle of another process before it is checked;
//	          leave a handler of signals that the driver has set
package cuda
