// Package accel is what the engine asks of an accelerator's driver: where memory is, copies that run while the caller
// goes on, memory that another process maps, memory that an adapter reaches. Package accel/cuda asks CUDA; package
// accel/acceltest has a driver in this process, for tests. HIP and Level Zero have the same calls under other names.
//
//	Owns:     the interface, the errors and their texts, the driver that this process uses
//	May call: nothing
//	Never:    touch a payload, know a message or a communicator, start a driver before the program has a device buffer
package accel
