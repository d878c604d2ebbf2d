//go:build verbs && linux && cgo

package verbs

import (
	"encoding/binary"
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// atomicResults are where the device puts what an atomic operation has found. Made by the first one.
type atomicResults struct {
	slab slab
	free []int32
}

const resultCount = 512

// take returns a result, whose place is free then.
func (r *atomicResults) take(i int32) uint64 {
	r.free = append(r.free, i)
	return binary.NativeEndian.Uint64(r.slab.piece(uint32(i)))
}

func (l *link) fetchAdd(add, addr, key, cookie uint64) (transport.State, error) {
	return l.s.atomic(op{opcode: opAdd, compare: add}, addr, key, cookie)
}

func (l *link) compareSwap(compare, swap, addr, key, cookie uint64) (transport.State, error) {
	return l.s.atomic(op{opcode: opSwap, compare: compare, swap: swap}, addr, key, cookie)
}

func (s *session) atomic(o op, addr, key, cookie uint64) (transport.State, error) {
	d := s.d
	r := &d.results
	if addr%8 != 0 {
		return 0, fmt.Errorf("verbs: an atomic operation at %#x, which is no multiple of 8", addr)
	}
	if r.slab.mem == nil {
		sl, err := d.slab(resultCount, 8, localWrite)
		if err != nil {
			return 0, fmt.Errorf("verbs: memory for atomic operations: %w", err)
		}
		r.slab = sl
		for i := range int32(resultCount) {
			r.free = append(r.free, i)
		}
	}
	if len(r.free) == 0 {
		s.refuse()
		return transport.Full, nil
	}
	g, st, err := s.begin(o.opcode, 0, transport.Mem{}, addr, key, cookie)
	if g == nil {
		return st, err
	}
	last := len(r.free) - 1
	g.result = r.free[last]
	r.free = r.free[:last]
	o.qp, o.flags, o.remote, o.rkey = s.qp, signaled, addr, uint32(key)
	o.local, o.length, o.lkey = addressOf(r.slab.piece(uint32(g.result))), 8, r.slab.region.lkey
	return g.single(d, o)
}
