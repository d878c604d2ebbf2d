//go:build ucx && linux && cgo

package ucx

// The only file that says import "C". What it exports to the package are Go types and plain records.

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#cgo noescape ux_probe
#cgo nocallback ux_probe
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/gorun-mpi/mpi/transport"
)

// worker is a worker of UCX in a context of its own. One goroutine at a time calls its methods, but for mapMem and
// unmapMem.
type worker struct {
	c    *C.struct_ux_worker
	h    C.ux_handle // c
	ring *C.struct_ux_ring
	held *C.struct_ux_queue
}

// end is struct ux_done.
type end struct {
	slot        uint32
	status      int32
	tag, length uint64
}

// downSlot is the slot of an end that says that an endpoint has failed.
const downSlot = C.UX_DOWN

// The results of send and receive that are not negative.
const (
	stDone    = C.UX_DONE
	stStarted = C.UX_STARTED
)

type errorText [C.UX_ERR]C.char

func (t *errorText) String() string { return C.GoString(&t[0]) }

// load opens the library; path "": that of the system.
func load(path string) error {
	var text errorText
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	if C.ux_load(p, &text[0]) != 0 {
		if path == "" {
			path = "libucp.so.0"
		}
		return fmt.Errorf("%w: opening %s: %s", transport.ErrUnavailable, path, text.String())
	}
	return nil
}

// libraryPath is where it was found.
func libraryPath() string    { return C.GoString(C.ux_path()) }
func libraryVersion() string { return C.GoString(C.ux_version()) }

const contextMost = 16 << 10

// contextText is what UCX prints of a context made now.
func contextText() (string, error) {
	var b [contextMost]C.char
	if st := C.ux_names(&b[0], C.int(len(b))); st != 0 {
		return "", status(st)
	}
	return C.GoString(&b[0]), nil
}

// status is a status of UCX.
type status int32

func (s status) Error() string { return "UCX: " + C.GoString(C.ux_status_text(C.int32_t(s))) }

// Those that are told apart: ucs_status_t is part of UCX's interface.
const (
	statusTruncated = status(-9)
	statusCancelled = status(-16)
)

var errNoTransport = errors.New("no transport of UCX is left: see UCX_TLS and UCX_NET_DEVICES")

func openWorker() (*worker, error) {
	var text errorText
	var none C.int
	c := C.ux_open(&none, &text[0])
	switch {
	case c == nil && none != 0:
		return nil, fmt.Errorf("%w: %w (%s)", transport.ErrUnavailable, errNoTransport, text.String())
	case c == nil:
		return nil, fmt.Errorf("%w: %s", transport.ErrUnavailable, text.String())
	}
	return &worker{c, C.ux_handle(uintptr(unsafe.Pointer(c))), C.ux_ring_of(c), C.ux_queue_of(c)}, nil
}

func (w *worker) close() { C.ux_close(w.c) }

func (w *worker) address() []byte {
	var n C.size_t
	p := C.ux_address(w.c, &n)
	return C.GoBytes(p, C.int(n))
}

func (w *worker) fd() int { return int(C.ux_fd(w.c)) }

// mayUseTCP reports whether TCP is among what UCX_TLS leaves.
func (w *worker) mayUseTCP() bool {
	var b [contextMost]C.char
	C.ux_worker_names(w.c, &b[0], C.int(len(b)))
	return slices.ContainsFunc(resources(C.GoString(&b[0])), func(name string) bool {
		return strings.HasPrefix(name, "tcp/")
	})
}

// reserve makes room for slots operations, and for the failures of so many endpoints.
func (w *worker) reserve(slots, endpoints int) error {
	if C.ux_reserve(w.c, C.uint32_t(slots), C.uint32_t(endpoints)) != 0 {
		return fmt.Errorf("room for %d operations: %w", slots, transport.ErrNoMemory)
	}
	return nil
}

// endpoint is the C layer's handle; 0: none.
type endpoint uint64

func (w *worker) connect(address []byte, peer int32, watched bool) (endpoint, error) {
	p := C.CBytes(address)
	defer C.free(p)
	var st C.int32_t
	yes := C.int(0)
	if watched {
		yes = 1
	}
	ep := C.ux_connect(w.c, p, C.uint32_t(peer), yes, &st)
	if ep == 0 {
		return 0, status(st)
	}
	return endpoint(ep), nil
}

func (w *worker) disconnect(ep endpoint) { C.ux_disconnect(w.c, C.uint64_t(ep)) }

// send returns stDone, stStarted or a status.
func (w *worker) send(ep endpoint, tag uint64, buf transport.Mem, mapped uint64, sync bool, slot uint32) int {
	s := C.int(0)
	if sync {
		s = 1
	}
	st := int(C.ux_send(w.h, C.uint64_t(ep), C.uint64_t(tag), C.uint64_t(buf.Number()), C.uint64_t(buf.Len),
		C.uint64_t(mapped), s, C.uint32_t(slot)))
	runtime.KeepAlive(buf.Addr) // C gets a number, and what is sent at once is not pinned
	return st
}

// trySend reports whether it has sent a short message.
func (w *worker) trySend(ep endpoint, tag uint64, buf transport.Mem) bool {
	sent := C.ux_try_send(C.uint64_t(ep), C.uint64_t(tag), C.uint64_t(buf.Number()), C.uint64_t(buf.Len)) != 0
	runtime.KeepAlive(buf.Addr)
	return sent
}

// receive begins what toReceive has written. It returns stStarted or a status. It then goes on until something has
// ended, at most turns times.
func (w *worker) receive(slot uint32, turns int) int {
	return int(C.ux_recv(w.h, C.uint32_t(slot), C.uint(turns)))
}

// take receives a message that probe has taken, to where toReceive has written. It returns stStarted or a status.
func (w *worker) take(message uint64, slot uint32) int {
	return int(C.ux_take(w.h, C.uint64_t(message), C.uint32_t(slot)))
}

// slot is one of the C layer's, off the Go heap.
func (w *worker) slot(i uint32) *C.struct_ux_slot {
	return *(**C.struct_ux_slot)(unsafe.Add(unsafe.Pointer(w.ring.slots), uintptr(i)*unsafe.Sizeof(w.ring.slots)))
}

// toReceive writes what a slot, which is Go's, is to receive. It is no call of C.
func (w *worker) toReceive(slot uint32, tag, mask uint64, buf transport.Mem, mapped uint64) {
	s := w.slot(slot)
	s.tag, s.mask = C.uint64_t(tag), C.uint64_t(mask)
	s.length, s.with, s.buf = C.uint64_t(buf.Len), C.uint64_t(mapped), 0
	if buf.Len > smallMax {
		s.buf = C.uint64_t(buf.Number())
	}
}

// inlineMax is the longest send that is held.
const inlineMax = C.UX_INLINE

// holds is how many operations wait for the next call of C.
func (w *worker) holds() int {
	q := w.held
	return int(q.tail - q.head + q.sends_tail - q.sends_head)
}

// keptMost is how many sends there are at most whose bytes are in the C layer's memory.
const keptMost = C.UX_KEPT

// mayHold reports whether one more receive may wait, mayHoldSend whether a send may.
func (w *worker) mayHold() bool { return w.held.tail-w.held.head < C.UX_HELD }
func (w *worker) mayHoldSend() bool {
	held := int(w.held.sends_tail - w.held.sends_head)
	return held < C.UX_HELD && held+int(w.held.kept) < keptMost
}

// holdSend has the next call of C send a short message, and copies it. It is no call of C.
func (w *worker) holdSend(ep endpoint, tag uint64, buf transport.Mem) {
	h := &w.held.sends[w.held.sends_tail%C.UX_HELD]
	h.tag, h.ep, h.length = C.uint64_t(tag), C.uint64_t(ep), C.uint64_t(buf.Len)
	if buf.Len > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&h.data)), inlineMax), buf.Bytes())
	}
	w.held.sends_tail++
}

// holdReceive has the next call of C post what toReceive has written. It is no call of C.
func (w *worker) holdReceive(slot uint32) {
	w.held.receives[w.held.tail%C.UX_HELD] = C.uint32_t(slot)
	w.held.tail++
}

func (w *worker) probe(tag, mask uint64, take bool) (message, found, length uint64, ok bool) {
	t := C.int(0)
	if take {
		t = 1
	}
	var f C.struct_ux_found
	ok = C.ux_probe(w.c, C.uint64_t(tag), C.uint64_t(mask), t, &f) != 0
	return uint64(f.message), uint64(f.tag), uint64(f.length), ok
}

func (w *worker) cancel(slot uint32) { C.ux_cancel(w.c, C.uint32_t(slot)) }

// hasEnded reports whether the operation's end is in the ring.
func (w *worker) hasEnded(slot uint32) bool { return C.ux_ended(w.c, C.uint32_t(slot)) != 0 }

// turn begins what is held, and goes on until something has ended, at most turns times.
func (w *worker) turn(turns int) { C.ux_turn(w.h, C.uint(turns)) }

// drain goes on until nothing comes for a while, at most turns times.
func (w *worker) drain(turns int) { C.ux_drain(w.c, C.uint(turns)) }

// next returns what has ended, oldest first. It is no call of C.
func (w *worker) next() (end, bool) {
	r := w.ring
	if r.head == r.tail {
		return end{}, false
	}
	e := *w.at(uint64(r.head))
	r.head++
	return e, true
}

// ended takes the end of the operation in slot, if it is the latest of all.
func (w *worker) ended(slot uint32) (end, bool) {
	r := w.ring
	if r.head == r.tail {
		return end{}, false
	}
	e := w.at(uint64(r.tail - 1))
	if e.slot != slot {
		return end{}, false
	}
	r.tail--
	return *e, true
}

func (w *worker) at(i uint64) *end {
	return (*end)(unsafe.Add(unsafe.Pointer(w.ring.entries), uintptr(i&uint64(w.ring.mask))*unsafe.Sizeof(end{})))
}

// smallMax is how long a buffer may be that UCX does not get: what comes is copied from the slot, which costs less than
// a pin.
const smallMax = C.UX_SMALL

// copySmall copies a message of length bytes out of a slot.
func (w *worker) copySmall(to transport.Mem, slot uint32, length uint64) {
	if length > 0 {
		copy(to.Bytes(), unsafe.Slice((*byte)(unsafe.Pointer(&w.slot(slot).small)), length))
	}
}

// some reports whether there is something for next.
func (w *worker) some() bool { return w.ring.head != w.ring.tail }

// arm reports whether the descriptor shows what comes from now on.
func (w *worker) arm() (bool, error) {
	switch st := C.ux_arm(w.h); st {
	case C.UX_DONE:
		return true, nil
	case C.UX_STARTED:
		return false, nil
	default:
		return false, status(st)
	}
}

// use has settle look at an endpoint.
func (w *worker) use(ep endpoint) { C.ux_use(C.uint64_t(ep)) }

// flushed reports whether UCX has moved all that was sent.
func (w *worker) flushed() bool { return C.ux_settle(w.c) != 0 }

// mapMem has UCX know mem, which is off the Go heap, until unmapMem.
func (w *worker) mapMem(mem []byte) (uint64, error) {
	var st C.int32_t
	m := C.ux_map(w.c, C.uint64_t(addressOf(mem)), C.uint64_t(len(mem)), &st)
	if st != 0 {
		return 0, status(st)
	}
	return uint64(m), nil
}

func (w *worker) unmapMem(mapped uint64) error {
	if st := C.ux_unmap(w.c, C.uint64_t(mapped)); st != 0 {
		return status(st)
	}
	return nil
}

// pages maps memory off the Go heap.
func pages(bytes int) []byte {
	p := C.ux_pages(C.size_t(bytes))
	if p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(p), bytes)
}

func unmap(mem []byte) { C.ux_unpages(unsafe.Pointer(unsafe.SliceData(mem)), C.size_t(len(mem))) }

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// layouts are the sizes of the record that both sides share.
func layouts() [2]uintptr { return [2]uintptr{unsafe.Sizeof(end{}), unsafe.Sizeof(C.struct_ux_done{})} }

// resources are the lines of text that name a device: those that begin with a name and a slash.
func resources(text string) (names []string) {
	for line := range strings.Lines(text) {
		for _, word := range strings.Fields(line) {
			if strings.Contains(word, "/") {
				names = append(names, word)
			}
		}
	}
	return names
}
