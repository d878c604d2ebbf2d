//go:build linux && cgo

package cuda

// The only file that says import "C". A method is one call of C, since a context is current in a thread and a goroutine
// may change threads between two calls.

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#cgo noescape ca_init
#cgo nocallback ca_init
#cgo noescape ca_device
#cgo nocallback ca_device
#cgo noescape ca_query
#cgo nocallback ca_query
#cgo noescape ca_sync_memops
#cgo nocallback ca_sync_memops
#cgo noescape ca_alloc
#cgo nocallback ca_alloc
#cgo noescape ca_free
#cgo nocallback ca_free
#cgo noescape ca_export
#cgo nocallback ca_export
#cgo noescape ca_import
#cgo nocallback ca_import
#cgo noescape ca_unmap
#cgo nocallback ca_unmap
#cgo noescape ca_ipc_get
#cgo nocallback ca_ipc_get
#cgo noescape ca_ipc_open
#cgo nocallback ca_ipc_open
#cgo noescape ca_ipc_close
#cgo nocallback ca_ipc_close
#cgo nocallback ca_pin
#cgo nocallback ca_unpin
#cgo noescape ca_copy
#cgo nocallback ca_copy
#cgo noescape ca_mark
#cgo nocallback ca_mark
#cgo noescape ca_done
#cgo nocallback ca_done
#cgo nocallback ca_drop
#cgo noescape ca_notify
#cgo nocallback ca_notify
#cgo noescape ca_dmabuf
#cgo nocallback ca_dmabuf
#cgo noescape ca_flush
#cgo nocallback ca_flush
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/gorun-mpi/mpi/accel"
)

// failed is the error of a call that has filled in f.
func failed(f *C.struct_ca_fail) error {
	e := &accel.Error{Call: C.GoString(f.call), Code: int(f.code), Name: C.GoString(C.ca_error_name(C.int(f.code)))}
	if e.Name == "" {
		e.Name = "an error that the driver has no name for"
	}
	return e
}

func answer(r C.int, f *C.struct_ca_fail) error {
	if r < 0 {
		return failed(f)
	}
	return nil
}

// load opens the library and starts the driver. It returns the number of devices.
func load(path string) (int, error) {
	var text [C.CA_ERR]C.char
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	if C.ca_load(p, &text[0]) != 0 {
		return 0, errors.New(C.GoString(&text[0]) + "; install NVIDIA's driver, or name its library in GORUN_CUDA_LIB")
	}
	var f C.struct_ca_fail
	n := C.ca_init(&f)
	if err := answer(n, &f); err != nil {
		return 0, fmt.Errorf("%w; nvidia-smi shows what the driver has, and CUDA_VISIBLE_DEVICES what this process may use",
			err)
	}
	return int(n), nil
}

func describe(device int) (accel.Device, error) {
	var f C.struct_ca_fail
	var c C.struct_ca_device
	if C.ca_device(C.int(device), &c, &f) != 0 {
		return accel.Device{}, failed(&f)
	}
	d := accel.Device{Name: C.GoString(&c.name[0]), PCI: C.GoString(&c.pci[0]), Memory: int64(c.memory),
		DMABuf: c.dmabuf != 0}
	for i := range C.CA_MAX_DEVICES {
		if c.peers>>i&1 == 1 {
			d.Peers = append(d.Peers, i)
		}
	}
	return d, nil
}

// query also reports whether the older way of CUDA shares the memory with other processes.
func query(addr uint64) (m accel.Memory, ipc bool, err error) {
	var f C.struct_ca_fail
	var c C.struct_ca_memory
	if C.ca_query(C.uint64_t(addr), &c, &f) != 0 {
		return m, false, failed(&f)
	}
	switch {
	case c.size == 0:
		return m, false, nil
	case c.managed != 0:
		m.Kind = accel.Managed
	case c._type == 1:
		m.Kind = accel.Pinned
	case c._type == 2:
		m.Kind = accel.OnBoard
	default:
		return m, false, nil
	}
	m.Device, m.Base, m.Size, m.ID = int(c.device), uint64(c.base), int64(c.size), uint64(c.id)
	return m, c.ipc != 0, nil
}

func syncMemops(m accel.Memory) error {
	var f C.struct_ca_fail
	return answer(C.ca_sync_memops(C.int(m.Device), C.uint64_t(m.Base), &f), &f)
}

// block is memory that alloc or importFile has mapped.
type block struct {
	addr, size, handle uint64
}

func (b block) c() C.struct_ca_block {
	return C.struct_ca_block{addr: C.uint64_t(b.addr), size: C.uint64_t(b.size), handle: C.uint64_t(b.handle)}
}

func fromC(c C.struct_ca_block) block { return block{uint64(c.addr), uint64(c.size), uint64(c.handle)} }

func alloc(device int, n int64) (block, error) {
	var f C.struct_ca_fail
	var c C.struct_ca_block
	r := C.ca_alloc(C.int(device), C.uint64_t(n), &c, &f)
	return fromC(c), answer(r, &f)
}

func free(device int, b block) error {
	var f C.struct_ca_fail
	c := b.c()
	return answer(C.ca_free(C.int(device), &c, &f), &f)
}

func exportFile(handle uint64) (fd int, err error) {
	var f C.struct_ca_fail
	r := C.ca_export(C.uint64_t(handle), &f)
	return int(r), answer(r, &f)
}

func importFile(device, fd int, size int64) (block, error) {
	var f C.struct_ca_fail
	var c C.struct_ca_block
	r := C.ca_import(C.int(device), C.int(fd), C.uint64_t(size), &c, &f)
	return fromC(c), answer(r, &f)
}

func unmap(device int, b block) error {
	var f C.struct_ca_fail
	c := b.c()
	return answer(C.ca_unmap(C.int(device), &c, &f), &f)
}

var _ [C.CA_IPC]byte = ipcHandle{}

func ipcGet(device int, addr uint64) (h ipcHandle, err error) {
	var f C.struct_ca_fail
	r := C.ca_ipc_get(C.int(device), C.uint64_t(addr), (*C.uchar)(&h[0]), &f)
	return h, answer(r, &f)
}

func ipcOpen(device int, h ipcHandle) (addr uint64, err error) {
	var f C.struct_ca_fail
	var at C.uint64_t
	r := C.ca_ipc_open(C.int(device), (*C.uchar)(&h[0]), &at, &f)
	return uint64(at), answer(r, &f)
}

func ipcClose(device int, addr uint64) error {
	var f C.struct_ca_fail
	return answer(C.ca_ipc_close(C.int(device), C.uint64_t(addr), &f), &f)
}

// pin returns the device that unpin needs.
func pin(b []byte) (device int, err error) {
	var f C.struct_ca_fail
	r := C.ca_pin(unsafe.Pointer(unsafe.SliceData(b)), C.uint64_t(len(b)), &f)
	return int(r), answer(r, &f)
}

func unpin(device int, b []byte) error {
	var f C.struct_ca_fail
	return answer(C.ca_unpin(C.int(device), unsafe.Pointer(unsafe.SliceData(b)), &f), &f)
}

// address is where b begins, as a number.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func startCopy(device int, dst, src uint64, n int64) (accel.Event, error) {
	var f C.struct_ca_fail
	ev := C.ca_copy(C.int(device), C.uint64_t(dst), C.uint64_t(src), C.uint64_t(n), &f)
	if ev == 0 {
		return 0, failed(&f)
	}
	return accel.Event(ev), nil
}

func mark(device int, stream uint64) (accel.Event, error) {
	var f C.struct_ca_fail
	ev := C.ca_mark(C.int(device), C.uint64_t(stream), &f)
	if ev == 0 {
		return 0, failed(&f)
	}
	return accel.Event(ev), nil
}

func drop(device int, ev accel.Event) { C.ca_drop(C.int(device), C.uint64_t(ev)) }

func done(device int, ev accel.Event) (bool, error) {
	var f C.struct_ca_fail
	r := C.ca_done(C.int(device), C.uint64_t(ev), &f)
	return r != 0, answer(r, &f)
}

func notify(device, fd int) error {
	var f C.struct_ca_fail
	return answer(C.ca_notify(C.int(device), C.int(fd), &f), &f)
}

func dmabuf(device int, addr uint64, n int64) (fd int, err error) {
	var f C.struct_ca_fail
	r := C.ca_dmabuf(C.int(device), C.uint64_t(addr), C.uint64_t(n), &f)
	return int(r), answer(r, &f)
}

func flush(device int) error {
	var f C.struct_ca_fail
	return answer(C.ca_flush(C.int(device), &f), &f)
}

// userCall calls a function of the library by its name, as a user's program does, for tests. The context of device is
// current; -1: none need be. An argument is a number, or the address of memory off the Go heap.
func userCall(device int, name string, args ...uint64) error {
	var f C.struct_ca_fail
	var a [6]C.uint64_t
	for i, arg := range args {
		a[i] = C.uint64_t(arg)
	}
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	if err := answer(C.ca_user_call(C.int(device), n, &a[0], &f), &f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// reader is a function for cuLaunchHostFunc: it reads from the descriptor that is its argument.
func reader() uint64 { return uint64(C.ca_reader()) }
