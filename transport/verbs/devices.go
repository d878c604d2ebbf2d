//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/gorun-mpi/mpi/transport"
)

// deviceRegions are the registrations of accelerators' memory. Peers have the keys of them for as long as they last.
type deviceRegions struct {
	hca   *hca
	facts transport.Devices

	probe sync.Once
	able  error // what probe has found

	mu     sync.Mutex // held while the kernel registers, so that Close waits for it
	all    map[uint32]region
	closed bool
}

func (r *deviceRegions) init(h *hca) {
	r.hca = h
	r.facts = transport.Devices{Able: r.ask, Register: r.register, Deregister: r.deregister}
}

// ask is transport.Devices's Able. A driver that knows dma-bufs looks at the descriptor, and one that does not says so
// before it does.
func (r *deviceRegions) ask() error {
	r.probe.Do(func() {
		x, err := r.hca.registerDMABuf(-1, 0, 4096, remoteRead)
		switch {
		case err == nil:
			r.hca.deregister(x)
			r.able = errors.New("verbs: the adapter registers a dma-buf that is none")
		case errors.Is(err, syscall.EBADF):
		case errors.Is(err, syscall.ENOSYS):
			r.able = errors.New("verbs: libibverbs has no ibv_reg_dmabuf_mr; rdma-core 34 or later has it")
		default:
			r.able = fmt.Errorf("verbs: the adapter's driver registers no dma-buf: %w", err)
		}
	})
	return r.able
}

func (r *deviceRegions) register(fd int, addr uint64, n int64) (local, key uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, 0, errClosed
	}
	// One region serves both directions. A peer can never write.
	x, err := r.hca.registerDMABuf(fd, addr, n, localWrite|remoteRead)
	if err != nil {
		return 0, 0, fmt.Errorf("verbs: registering %d bytes of an accelerator by their dma-buf: %w", n, err)
	}
	if r.all == nil {
		r.all = map[uint32]region{}
	}
	r.all[x.rkey] = x
	return uint64(x.lkey), uint64(x.rkey), nil
}

func (r *deviceRegions) deregister(key uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x, ok := r.all[uint32(key)]; ok {
		delete(r.all, x.rkey)
		r.hca.deregister(x)
	}
}

// drop is for Close: the queue pairs are destroyed.
func (r *deviceRegions) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, x := range r.all {
		r.hca.deregister(x)
	}
	r.all = nil
}

// getDevice is transport.RMA's.
func (l *link) getDevice(dst uint64, n int64, local, addr, key, cookie uint64) (transport.State, error) {
	s := l.s
	d := s.d
	switch {
	case s.failed || d.closed.Load():
		return 0, s.unreachable()
	case key>>32 != 0:
		return 0, fmt.Errorf("verbs: %#x is no registration key: it has 32 bits", key)
	case !s.room(1):
		s.refuse()
		return transport.Full, nil
	}
	d.armAgain()
	g := d.newRMA()
	*g = rmaOp{s: s, cookie: cookie, opcode: opRead, result: -1, buffer: -1, local: dst, remote: addr,
		left: int(n), lkey: uint32(local), rkey: uint32(key)}
	g.advance(d)
	return transport.Started, nil
}
