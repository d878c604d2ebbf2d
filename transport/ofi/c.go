//go:build ofi && linux && cgo

package ofi

// The only file that says import "C". What it exports to the package are Go types and plain records.

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#cgo noescape of_probe
#cgo nocallback of_probe
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/gorun-mpi/mpi/transport"
)

// endpoint is one of libfabric, with all that it needs. One goroutine at a time calls its methods.
type endpoint struct {
	c    *C.struct_of_dev
	h    C.of_handle // c
	ring *C.struct_of_ring
}

// end is struct of_end.
type end struct {
	slot        uint32
	status      int32
	tag, length uint64
	answer      uint64
}

// The results of send, receive and take that are not negative.
const (
	stDone    = C.OF_DONE
	stStarted = C.OF_STARTED
	stFull    = C.OF_FULL
)

type errorText [C.OF_ERR]C.char

func (t *errorText) String() string { return C.GoString(&t[0]) }

// load opens the library; path "": that of the system.
func load(path string) error {
	var text errorText
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	if C.of_load(p, &text[0]) != 0 {
		if path == "" {
			path = "libfabric.so.1"
		}
		return fmt.Errorf("%w: opening %s: %s", transport.ErrUnavailable, path, text.String())
	}
	return nil
}

// libraryPath is where it was found.
func libraryPath() string { return C.GoString(C.of_path()) }

func libraryVersion() string {
	var major, minor C.uint
	C.of_version(&major, &minor)
	return fmt.Sprintf("%d.%d", major, minor)
}

// status is an error of libfabric: positive in an end, negative where a call returns it.
type status int32

func (s status) Error() string { return "libfabric: " + C.GoString(C.of_text(C.int32_t(s))) }

// Those that are told apart: the numbers of errno, and libfabric's own.
const (
	statusCancelled = status(125)
	statusTruncated = status(265)
)

var errNoProvider = errors.New("libfabric has no such provider here")

// list are the providers and domains that can do what is needed, in libfabric's order of preference.
func list(provider string) (all [][2]string, err error) {
	var b [16 << 10]C.char
	p := C.CString(provider)
	defer C.free(unsafe.Pointer(p))
	if st := C.of_list(p, &b[0], C.int(len(b))); st != 0 {
		return nil, status(st)
	}
	for line := range strings.Lines(C.GoString(&b[0])) {
		name, domain, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "|")
		all = append(all, [2]string{name, domain})
	}
	return all, nil
}

func openEndpoint(provider string, rank int, registers bool) (*endpoint, error) {
	var text errorText
	var none, reg C.int
	if registers {
		reg = 1
	}
	p := C.CString(provider)
	defer C.free(unsafe.Pointer(p))
	c := C.of_open(p, C.uint32_t(rank), reg, &none, &text[0])
	switch {
	case c == nil && none != 0:
		return nil, errNoProvider
	case c == nil:
		return nil, errors.New(text.String())
	}
	return &endpoint{c, C.of_handle(uintptr(unsafe.Pointer(c))), C.of_ring_of(c)}, nil
}

func (e *endpoint) close() { C.of_close(e.c) }

// facts are what the provider says.
type facts struct {
	provider  string
	address   []byte
	format    uint32
	longest   uint64 // bytes of a message
	fd        int    // -1: none
	registers bool
}

func (e *endpoint) facts() facts {
	var f C.struct_of_facts
	C.of_facts(e.c, &f)
	return facts{C.GoString(f.provider), C.GoBytes(f.address, C.int(f.address_length)), uint32(f.format),
		uint64(f.longest), int(f.fd), f.registers != 0}
}

// reserve makes room for slots operations.
func (e *endpoint) reserve(slots int) error {
	if C.of_reserve(e.c, C.uint32_t(slots)) != 0 {
		return fmt.Errorf("room for %d operations: %w", slots, transport.ErrNoMemory)
	}
	return nil
}

// smallMax is how long a buffer may be that libfabric does not get: what comes is copied from the slot.
const smallMax = C.OF_SMALL

// small is a slot's own memory.
func (e *endpoint) small(slot int) *[smallMax]byte {
	return (*[smallMax]byte)(C.of_small(e.c, C.uint32_t(slot)))
}

// insert returns the number of a peer's address.
func (e *endpoint) insert(address []byte) (uint64, error) {
	p := C.CBytes(address)
	defer C.free(p)
	var to C.uint64_t
	if st := C.of_insert(e.c, p, &to); st != 0 {
		return 0, status(st)
	}
	return uint64(to), nil
}

// send returns stDone, stStarted, stFull or a status.
func (e *endpoint) send(to uint64, peer int32, tag uint64, buf transport.Mem, sync bool, slot uint32) int {
	s := C.int(0)
	if sync {
		s = 1
	}
	st := int(C.of_send(e.h, C.uint64_t(to), C.uint32_t(peer), C.uint64_t(tag), C.uint64_t(buf.Number()),
		C.uint64_t(buf.Len), s, C.uint32_t(slot)))
	runtime.KeepAlive(buf.Addr) // C gets a number, and what is sent at once is not pinned
	return st
}

// trySend reports whether it has sent a short message.
func (e *endpoint) trySend(to, tag uint64, buf transport.Mem) bool {
	sent := C.of_try_send(e.h, C.uint64_t(to), C.uint64_t(tag), C.uint64_t(buf.Number()), C.uint64_t(buf.Len)) != 0
	runtime.KeepAlive(buf.Addr)
	return sent
}

// answer returns stDone, stFull or a status.
func (e *endpoint) answer(to, number uint64) int {
	return int(C.of_answer(e.h, C.uint64_t(to), C.uint64_t(number)))
}

// receive returns stStarted, stFull or a status. The caller has pinned buf, or pins it before it does anything else.
func (e *endpoint) receive(tag, ignore uint64, buf transport.Mem, slot uint32) int {
	st := int(C.of_recv(e.h, C.uint64_t(tag), C.uint64_t(ignore), number(buf), C.uint64_t(buf.Len), C.uint32_t(slot)))
	runtime.KeepAlive(buf.Addr)
	return st
}

// take receives a message that probe has taken. It returns as receive does.
func (e *endpoint) take(message uint64, buf transport.Mem, slot uint32) int {
	st := int(C.of_take(e.h, C.uint64_t(message), number(buf), C.uint64_t(buf.Len), C.uint32_t(slot)))
	runtime.KeepAlive(buf.Addr)
	return st
}

// number is where a message is received; 0: in the slot.
func number(buf transport.Mem) C.uint64_t {
	if buf.Len <= smallMax {
		return 0
	}
	return C.uint64_t(buf.Number())
}

func (e *endpoint) probe(tag, ignore uint64, take bool) (message, found, length uint64, ok bool) {
	t := C.int(0)
	if take {
		t = 1
	}
	var f C.struct_of_found
	ok = C.of_probe(e.h, C.uint64_t(tag), C.uint64_t(ignore), t, &f) != 0
	return uint64(f.message), uint64(f.tag), uint64(f.length), ok
}

func (e *endpoint) cancel(slot uint32) { C.of_cancel(e.h, C.uint32_t(slot)) }

// hasEnded reports whether the operation's end is in the ring.
func (e *endpoint) hasEnded(slot uint32) bool { return C.of_ended(e.h, C.uint32_t(slot)) != 0 }

// onlyAnswer reports whether of a send only the peer's answer is missing.
func (e *endpoint) onlyAnswer(slot uint32) bool { return C.of_answers(e.h, C.uint32_t(slot)) != 0 }

// turn goes on until something has ended, at most turns times; drain takes all of them.
func (e *endpoint) turn(turns int)  { C.of_turn(e.h, C.uint(turns)) }
func (e *endpoint) drain(turns int) { C.of_drain(e.h, C.uint(turns)) }

// next returns what has ended, oldest first. It is no call of C.
func (e *endpoint) next() (x end, ok bool) {
	r := e.ring
	if r.head == r.tail {
		return end{}, false
	}
	i := uintptr(r.head & r.mask)
	x = *(*end)(unsafe.Add(unsafe.Pointer(r.entries), i*unsafe.Sizeof(end{})))
	r.head++
	return x, true
}

// some reports whether there is something for next.
func (e *endpoint) some() bool { return e.ring.head != e.ring.tail }

// arm reports whether the descriptor, if there is one, shows what comes from now on.
func (e *endpoint) arm() bool { return C.of_arm(e.h) == C.OF_DONE }

// layouts are the sizes of the record that both sides share.
func layouts() [2]uintptr { return [2]uintptr{unsafe.Sizeof(end{}), unsafe.Sizeof(C.struct_of_end{})} }
