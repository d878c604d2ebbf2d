//go:build verbs && linux && cgo

package verbs

// The only file that says import "C". What it exports to the package are Go types and plain records, which have the
// layout of those in shim.h: layout_test.go holds them to it.

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#cgo noescape vb_turn
#cgo nocallback vb_turn
#cgo noescape vb_post
#cgo nocallback vb_post
#cgo noescape vb_register
#cgo nocallback vb_register
#cgo noescape vb_register_dmabuf
#cgo nocallback vb_register_dmabuf
#cgo noescape vb_tm_add
#cgo nocallback vb_tm_add
#cgo noescape vb_notify
#cgo nocallback vb_notify
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"
)

// hca is an open device. Its methods may be called from any goroutine, but for turn, post and notify, which belong to
// the caller of Poll, and close.
type hca struct {
	ctx        *C.struct_vb_ctx
	calls      uint64 // of turn, post and notify
	name, root string // of the device, and where sys is that describes it
	rights     int    // that queue pairs give to the peer
}

// queuePair is the C layer's handle.
type queuePair uintptr

// region is memory that the device may use.
type region struct {
	handle     unsafe.Pointer
	lkey, rkey uint32
	rights     int
	bytes      int64
}

// op is struct vb_op.
type op struct {
	qp            queuePair
	id            uint64
	local, remote uint64
	compare, swap uint64
	length        uint32
	lkey, rkey    uint32
	imm           uint32
	opcode, flags uint16
	_             uint32
}

const (
	opSend     = C.VB_SEND
	opWrite    = C.VB_WRITE
	opWriteImm = C.VB_WRITE_IMM
	opRead     = C.VB_READ
	opAdd      = C.VB_ADD
	opSwap     = C.VB_SWAP

	signaled  = C.VB_SIGNALED
	solicited = C.VB_SOLICITED
	inlined   = C.VB_INLINE
	fenced    = C.VB_FENCE

	localWrite   = C.VB_LOCAL_WRITE
	remoteWrite  = C.VB_REMOTE_WRITE
	remoteRead   = C.VB_REMOTE_READ
	remoteAtomic = C.VB_REMOTE_ATOMIC
	relaxed      = C.VB_RELAXED
)

// completion is struct vb_wc.
type completion struct {
	id             uint64
	status, opcode uint32
	length, qpn    uint32
	imm, vendor    uint32
	tag            uint64
	priv, flags    uint32
}

const (
	wcRecv    = C.VB_WC_RECV
	wcRecvImm = C.VB_WC_RECV_IMM
	wcTagAdd  = C.VB_WC_TM_ADD
	wcTagDel  = C.VB_WC_TM_DEL
	wcTagSync = C.VB_WC_TM_SYNC
	wcTagged  = C.VB_WC_TM_RECV
	wcNoTag   = C.VB_WC_TM_NO_TAG

	matched    = C.VB_MATCH
	dataValid  = C.VB_VALID
	syncWanted = C.VB_SYNC_WANTED

	transportIB    = C.VB_TRANSPORT_IB
	transportIWARP = C.VB_TRANSPORT_IWARP

	statusTagError   = C.VB_TM_ERR
	statusIncomplete = C.VB_TM_INCOMPLETE
)

// capabilities, portState and gidEntry are struct vb_caps, vb_port and vb_gid.
type (
	capabilities = C.struct_vb_caps
	portState    = C.struct_vb_port
	gidEntry     = C.struct_vb_gid
)

type errorText [C.VB_ERR]C.char

func (t *errorText) error() error { return errors.New(C.GoString(&t[0])) }

// load opens the library; path "": that of the system.
func load(path string) error {
	var text errorText
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	if C.vb_load(p, &text[0]) != 0 {
		return text.error()
	}
	return nil
}

// libraryPath is where it was found.
func libraryPath() string { return C.GoString(C.vb_path()) }

const maxDevices = 64

// deviceNames lists what the library finds; none is no error.
func deviceNames() ([]string, error) {
	var text errorText
	var b [maxDevices][64]C.char
	n := C.vb_names(&b[0][0], maxDevices, &text[0])
	if n < 0 {
		return nil, text.error()
	}
	var names []string
	for i := range int(n) {
		names = append(names, C.GoString(&b[i][0]))
	}
	return names, nil
}

func open(name, root string) (*hca, error) {
	var text errorText
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	ctx := C.vb_open(n, &text[0])
	if ctx == nil {
		return nil, text.error()
	}
	return &hca{ctx: ctx, name: name, root: root, rights: localWrite | remoteWrite | remoteRead}, nil
}

func (h *hca) close() { C.vb_close(h.ctx) }

func (h *hca) query() (c capabilities, err error) {
	var text errorText
	if C.vb_query(h.ctx, &c, &text[0]) != 0 {
		return c, text.error()
	}
	if c.atomic != 0 { // drivers of functions without atomics refuse the right
		h.rights |= remoteAtomic
	}
	return c, nil
}

func (h *hca) port(number int) (p portState, err error) {
	var text errorText
	if C.vb_query_port(h.ctx, C.int(number), &p, &text[0]) != 0 {
		return p, text.error()
	}
	return p, nil
}

func (h *hca) gid(port, index int) (g gidEntry, ok bool) {
	ok = C.vb_query_gid(h.ctx, C.int(port), C.int(index), &g) == 0
	return g, ok
}

func (h *hca) pkey(port, index int) (uint16, bool) {
	k := C.vb_query_pkey(h.ctx, C.int(port), C.int(index))
	return uint16(k), k >= 0
}

// make makes the queues, and returns what sizes they have got.
// tags: how many tagged buffers and how many operations of their list; 0: an ordinary receive queue.
func (h *hca) make(entries, receives, slot uint32, tags, ops int) (cqe, srq uint32, err error) {
	var text errorText
	z := C.struct_vb_sizes{cqe: C.uint32_t(entries), srq_wr: C.uint32_t(receives), slot: C.uint32_t(slot),
		tags: C.uint32_t(tags), ops: C.uint32_t(ops)}
	if C.vb_make(h.ctx, &z, &text[0]) != 0 {
		return 0, 0, text.error()
	}
	return uint32(z.cqe), uint32(z.srq_wr), nil
}

// unmake ends what make has made.
func (h *hca) unmake() { C.vb_unmake(h.ctx) }

// receiveFrom says where the receive buffers are; receivePart, by which key the device reaches them from a number on.
func (h *hca) receiveFrom(addr uint64) { C.vb_srq(h.ctx, C.uint64_t(addr)) }

func (h *hca) receivePart(first int, lkey uint32) error {
	if no := C.vb_srq_part(h.ctx, C.uint32_t(first), C.uint32_t(lkey)); no != 0 {
		return syscall.Errno(no)
	}
	return nil
}

// limitReceives asks for an event when fewer than n receive buffers are left, once.
func (h *hca) limitReceives(n int) error {
	h.calls++
	if no := C.vb_srq_limit(h.ctx, C.uint32_t(n)); no != 0 {
		return syscall.Errno(no)
	}
	return nil
}

// pages maps memory off the Go heap.
func pages(bytes int) []byte {
	p := C.vb_pages(C.size_t(bytes))
	if p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(p), bytes)
}

func unmap(mem []byte) {
	C.vb_unpages(unsafe.Pointer(unsafe.SliceData(mem)), C.size_t(len(mem)))
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// register has the device know mem, which stays where it is until deregister: it is off the Go heap, or pinned.
func (h *hca) register(addr uint64, bytes int, access int) (region, error) {
	var lkey, rkey C.uint32_t
	var no C.int
	p := C.vb_register(h.ctx, C.uint64_t(addr), C.uint64_t(bytes), C.int(access), &lkey, &rkey, &no)
	if p == nil {
		return region{}, syscall.Errno(no)
	}
	return region{p, uint32(lkey), uint32(rkey), access, int64(bytes)}, nil
}

// registerDMABuf is register of the memory of an accelerator that the dma-buf fd has, and that has the address addr.
func (h *hca) registerDMABuf(fd int, addr uint64, bytes int64, access int) (region, error) {
	var lkey, rkey C.uint32_t
	var no C.int
	p := C.vb_register_dmabuf(h.ctx, C.int(fd), C.uint64_t(addr), C.uint64_t(bytes), C.int(access), &lkey, &rkey, &no)
	if p == nil {
		return region{}, syscall.Errno(no)
	}
	return region{p, uint32(lkey), uint32(rkey), access, bytes}, nil
}

func (h *hca) deregister(r region) error {
	if no := C.vb_deregister(r.handle); no != 0 {
		return syscall.Errno(no)
	}
	return nil
}

func (h *hca) makeQP(port, pkey, owner, depth, inline int) (qp queuePair, qpn uint32, gotDepth, gotInline int, err error) {
	var text errorText
	d, in := C.uint32_t(depth), C.uint32_t(inline)
	var n C.uint32_t
	p := C.vb_qp_make(h.ctx, C.int(port), C.int(pkey), C.int(h.rights), C.uint32_t(owner), &d, &in, &n, &text[0])
	if p == nil {
		return 0, 0, 0, 0, text.error()
	}
	return queuePair(unsafe.Pointer(p)), uint32(n), int(d), int(in), nil
}

// serveQP makes the queue pair by which the device itself reads for its list of tagged buffers.
func (h *hca) serveQP(port, pkey, owner int) (qp queuePair, qpn uint32, err error) {
	var text errorText
	var n C.uint32_t
	p := C.vb_qp_serve(h.ctx, C.int(port), C.int(pkey), C.int(h.rights), C.uint32_t(owner), &n, &text[0])
	if p == nil {
		return 0, 0, text.error()
	}
	return queuePair(unsafe.Pointer(p)), uint32(n), nil
}

// makeProver makes a completion queue and a channel of the probes of prove.go, which have a request each.
func (h *hca) makeProver(entries int) error {
	var text errorText
	if C.vb_prover_make(h.ctx, C.uint32_t(entries), &text[0]) != 0 {
		return text.error()
	}
	return nil
}

// proverQP makes a probe. The peer may write.
func (h *hca) proverQP(port, pkey int) (qp queuePair, qpn uint32, err error) {
	var text errorText
	var n C.uint32_t
	p := C.vb_prover_qp(h.ctx, C.int(port), C.int(pkey), &n, &text[0])
	if p == nil {
		return 0, 0, text.error()
	}
	return queuePair(unsafe.Pointer(p)), uint32(n), nil
}

func (h *hca) proverChannel() int { return int(C.vb_prover_channel(h.ctx)) }

// proverPoll polls the probes' queue and has the channel become readable at the next completion.
func (h *hca) proverPoll(out []completion) (int, error) {
	var no C.int
	n := C.vb_prover_poll(h.ctx, (*C.struct_vb_wc)(unsafe.Pointer(unsafe.SliceData(out))), C.int(len(out)), &no)
	if n < 0 {
		return 0, syscall.Errno(no)
	}
	return int(n), nil
}

// postProof posts the request of a probe. Unlike post it is not counted, and belongs to no goroutine.
func (h *hca) postProof(o *op) error {
	var no C.int
	if C.vb_post((*C.struct_vb_op)(unsafe.Pointer(o)), 1, &no) < 1 {
		return syscall.Errno(no)
	}
	return nil
}

// addTag appends a tagged buffer to the list; ENOMEM: it or its queue is full.
func (h *hca) addTag(id, receiveID, tag, mask, addr uint64, bytes int, lkey uint32,
	seen uint16) (handle uint32, err error) {
	h.calls++
	var out C.uint32_t
	no := C.vb_tm_add(h.ctx, C.uint64_t(id), C.uint64_t(receiveID), C.uint64_t(tag), C.uint64_t(mask),
		C.uint64_t(addr), C.uint32_t(bytes), C.uint32_t(lkey), C.uint16_t(seen), &out)
	if no != 0 {
		return 0, syscall.Errno(no)
	}
	return uint32(out), nil
}

// dropTag takes one back, if no message was faster.
func (h *hca) dropTag(id uint64, handle uint32, seen uint16) error {
	h.calls++
	if no := C.vb_tm_del(h.ctx, C.uint64_t(id), C.uint32_t(handle), C.uint16_t(seen)); no != 0 {
		return syscall.Errno(no)
	}
	return nil
}

// syncTags tells how many messages without an entry have been dealt with.
func (h *hca) syncTags(id uint64, seen uint16) error {
	h.calls++
	if no := C.vb_tm_sync(h.ctx, C.uint64_t(id), C.uint16_t(seen)); no != 0 {
		return syscall.Errno(no)
	}
	return nil
}

func (q queuePair) c() *C.struct_vb_qp {
	return *(**C.struct_vb_qp)(unsafe.Pointer(&q)) // of C's heap: the collector knows nothing of it
}

// remote is where the other end of a queue pair is, and how to talk to it.
type remote struct {
	gid             [16]byte
	qpn, psn        uint32
	lid             uint16
	mtu             uint8
	rdAtom, rdServe uint8
	timeout         uint8
	retries         uint8
	level, class    uint8
}

func (h *hca) connectQP(q queuePair, port, gidIndex int, global bool, r *remote, psn uint32) error {
	var text errorText
	o := C.struct_vb_remote{qpn: C.uint32_t(r.qpn), psn: C.uint32_t(r.psn), lid: C.uint16_t(r.lid), mtu: C.uint8_t(r.mtu),
		rd_atom: C.uint8_t(r.rdAtom), rd_serve: C.uint8_t(r.rdServe), timeout: C.uint8_t(r.timeout),
		retries:     C.uint8_t(r.retries),
		rnr_retries: 7, rnr_timer: 12, sl: C.uint8_t(r.level), traffic_class: C.uint8_t(r.class), hops: 64}
	for i, b := range r.gid {
		o.gid[i] = C.uint8_t(b)
	}
	g := C.int(0)
	if global {
		g = 1
	}
	if C.vb_qp_connect(h.ctx, q.c(), C.int(port), C.int(gidIndex), g, &o, C.uint32_t(psn), &text[0]) != 0 {
		return text.error()
	}
	return nil
}

func (q queuePair) fail() { C.vb_qp_fail(q.c()) }

func (q queuePair) destroy() error {
	if no := C.vb_qp_destroy(q.c()); no != 0 {
		return syscall.Errno(no)
	}
	return nil
}

// turn gives receive buffers back and polls. It returns how many of out are filled, and how many of buffers the device
// has taken, after an error too.
func (h *hca) turn(buffers []uint32, out []completion) (filled, taken int, err error) {
	h.calls++
	var no C.int
	give := C.int(len(buffers))
	n := C.vb_turn(h.ctx, (*C.uint32_t)(unsafe.SliceData(buffers)), &give,
		(*C.struct_vb_wc)(unsafe.Pointer(unsafe.SliceData(out))), C.int(len(out)), &no)
	if n < 0 {
		return 0, int(give), syscall.Errno(no)
	}
	return int(n), int(give), nil
}

// post posts ops, and returns how many were taken, and if not all, why.
func (h *hca) post(ops []op) (int, error) {
	h.calls++
	var no C.int
	n := C.vb_post((*C.struct_vb_op)(unsafe.Pointer(unsafe.SliceData(ops))), C.int(len(ops)), &no)
	if int(n) < len(ops) {
		return int(n), syscall.Errno(no)
	}
	return int(n), nil
}

func (h *hca) channel() int { return int(C.vb_channel(h.ctx)) }
func (h *hca) async() int   { return int(C.vb_async(h.ctx)) }

// notify makes the channel readable at the next completion, and not before.
func (h *hca) notify(onlySolicited bool) error {
	h.calls++
	s := C.int(0)
	if onlySolicited {
		s = 1
	}
	if no := C.vb_notify(h.ctx, s); no != 0 {
		return syscall.Errno(no)
	}
	return nil
}

// event returns what the device has to say apart from completions, and the owner of the queue pair or the number of the
// port that it is about.
func (h *hca) event() (kind, of uint32, ok bool) {
	var e C.struct_vb_event
	ok = C.vb_event(h.ctx, &e) != 0
	return uint32(e._type), uint32(e.of), ok
}

func statusText(status uint32) string { return C.GoString(C.vb_status_text(C.uint32_t(status))) }
func eventText(kind uint32) string    { return C.GoString(C.vb_event_text(C.uint32_t(kind))) }

// layouts are the sizes of the records that both sides share.
func layouts() [2][2]uintptr {
	return [2][2]uintptr{
		{unsafe.Sizeof(op{}), unsafe.Sizeof(C.struct_vb_op{})},
		{unsafe.Sizeof(completion{}), unsafe.Sizeof(C.struct_vb_wc{})},
	}
}

// counter is one of the software HCA's.
func (h *hca) counter(name string) (uint64, error) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	v := uint64(C.vb_counter(h.ctx, n))
	if v == ^uint64(0) {
		return 0, fmt.Errorf("verbs: no counter %q: not the software HCA, or it does not know it", name)
	}
	return v, nil
}

// inject has the software HCA do what is asked.
func (h *hca) inject(what string) error {
	w := C.CString(what)
	defer C.free(unsafe.Pointer(w))
	if no := C.vb_inject(h.ctx, w); no != 0 {
		return fmt.Errorf("verbs: injecting %q: %w", what, syscall.Errno(no))
	}
	return nil
}

func goString(b []C.char) string { return C.GoString(&b[0]) }
