//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/transport"
)

// deviceRegions are the registrations of accelerators' memory. Peers have the keys of them for as long as they last.
type deviceRegions struct {
	hca   *hca
	opt   *Options
	facts transport.Devices

	probe  sync.Once
	able   error  // what probe has found
	dmabuf error  // likewise: why the adapter registers no dma-buf
	peer   string // likewise: the module by which it registers addresses; empty: it does not
	noPeer string // likewise: why

	mu     sync.Mutex // held while the kernel registers, so that Close waits for it
	all    map[uint32]region
	closed bool
}

const (
	directOn  = "on"
	directOff = "off"
)

func (r *deviceRegions) init(h *hca, name string, opt *Options) {
	r.hca, r.opt = h, opt
	r.facts = transport.Devices{Name: name, Able: r.ask, Near: r.near, Register: r.register, Deregister: r.deregister}
}

// ask is transport.Devices's Able. A driver that knows dma-bufs looks at the descriptor, and one that does not says so
// before it does. What the driver does with addresses depends on a module of the kernel.
func (r *deviceRegions) ask() error {
	r.probe.Do(func() {
		if r.opt.GPUDirect == directOff {
			r.able = errors.New("verbs: GORUN_GPUDIRECT is off")
			return
		}
		x, err := r.hca.registerDMABuf(-1, 0, 4096, remoteRead)
		switch {
		case err == nil:
			r.hca.deregister(x)
			r.dmabuf = errors.New("verbs: the adapter registers a dma-buf that is none")
		case errors.Is(err, syscall.EBADF):
		case errors.Is(err, syscall.ENOSYS):
			r.dmabuf = errors.New("verbs: libibverbs has no ibv_reg_dmabuf_mr; rdma-core 34 or later has it")
		default:
			r.dmabuf = fmt.Errorf("verbs: the adapter's driver registers no dma-buf: %w", err)
		}
		module, loaded := topology.PeerModule(r.opt.Root, r.facts.Name)
		if loaded {
			r.peer = module
		} else if r.noPeer = module + " is not loaded"; r.dmabuf != nil {
			r.able = fmt.Errorf("%w, and %s", r.dmabuf, r.noPeer)
		}
	})
	return r.able
}

// near is transport.Devices's Near.
func (r *deviceRegions) near(pci string) (where string, far bool) {
	near, _ := topology.Between(r.opt.Root, pci, r.facts.Name)
	where = string(near) + ": " + near.Meaning()
	switch {
	case near == topology.None:
		return "the adapter is software", false
	case near.Far() && r.opt.GPUDirect == directOn:
		return "GORUN_GPUDIRECT is on; " + where, false
	}
	return where, near.Far()
}

// register is transport.Devices's Register. It prefers the dma-buf, which the kernel keeps as long as the registration.
func (r *deviceRegions) register(fd int, addr uint64, n int64) (local, key uint64, by string, err error) {
	if err := r.ask(); err != nil {
		return 0, 0, "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, 0, "", errClosed
	}
	// One region serves both directions. A peer can never write.
	const access = localWrite | remoteRead
	var x region
	if err = r.dmabuf; err == nil && fd < 0 {
		err = errors.New("verbs: there is no dma-buf")
	}
	if err == nil {
		if x, err = r.hca.registerDMABuf(fd, addr, n, access); err != nil {
			err = fmt.Errorf("verbs: registering %d bytes of an accelerator by their dma-buf: %w", n, err)
		}
		by = "dma-buf"
	}
	switch {
	case err == nil:
	case r.peer == "":
		return 0, 0, "", fmt.Errorf("%w, and %s", err, r.noPeer)
	default:
		var failed error
		if x, failed = r.hca.register(addr, int(n), access); failed != nil {
			return 0, 0, "", fmt.Errorf("%w; registering them by %s: %w", err, r.peer, failed)
		}
		by = r.peer
	}
	if r.all == nil {
		r.all = map[uint32]region{}
	}
	r.all[x.rkey] = x
	return uint64(x.lkey), uint64(x.rkey), by, nil
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
