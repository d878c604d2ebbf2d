//go:build verbs && linux && cgo

package verbs

import (
	"encoding/binary"
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// words are where the device puts what an atomic operation has found. Made by the first one.
type words struct {
	slab slab
	free []int32
}

const wordCount = 512

// take returns what is there, and the word to those that are free.
func (w *words) take(i int32) uint64 {
	w.free = append(w.free, i)
	return binary.NativeEndian.Uint64(w.slab.piece(uint32(i)))
}

// TryFetchAdd is transport.Atomics'.
func (l *link) TryFetchAdd(add uint64, addr, key uint64, cookie uint64) (transport.GetState, error) {
	return l.s.atomic(op{opcode: opAdd, compare: add}, addr, key, cookie)
}

// TryCompareSwap is transport.Atomics'.
func (l *link) TryCompareSwap(compare, swap uint64, addr, key uint64, cookie uint64) (transport.GetState, error) {
	return l.s.atomic(op{opcode: opSwap, compare: compare, swap: swap}, addr, key, cookie)
}

func (s *session) atomic(o op, addr, key uint64, cookie uint64) (transport.GetState, error) {
	d := s.d
	if addr%8 != 0 {
		return 0, fmt.Errorf("verbs: an atomic operation at %#x, which is no multiple of 8", addr)
	}
	if d.words.slab.mem == nil {
		sl, err := d.slab(wordCount, 8)
		if err != nil {
			return 0, fmt.Errorf("verbs: memory for atomic operations: %w", err)
		}
		d.words.slab = sl
		for i := range int32(wordCount) {
			d.words.free = append(d.words.free, i)
		}
	}
	if len(d.words.free) == 0 {
		return transport.GetFull, nil
	}
	g, st, err := s.begin(o.opcode, 0, nil, addr, key, cookie)
	if g == nil {
		return st, err
	}
	last := len(d.words.free) - 1
	g.word = d.words.free[last]
	d.words.free = d.words.free[:last]
	o.qp, o.flags, o.remote, o.rkey = s.qp, signaled, addr, uint32(key)
	o.local, o.length, o.lkey = addressOf(d.words.slab.piece(uint32(g.word))), 8, d.words.slab.reg.lkey
	return g.single(d, o)
}

// single posts all of g as one request.
func (g *get) single(d *Device, o op) (transport.GetState, error) {
	s := g.s
	d.one[0] = o
	if !s.submit(record{buffer: -1, get: g}) {
		if g.word >= 0 {
			d.words.take(g.word)
		}
		d.freeGet(g)
		if s.failed {
			return 0, fmt.Errorf("%w: verbs: rank %d cannot be reached", transport.ErrPeerGone, s.peer)
		}
		return transport.GetFull, nil
	}
	s.quiet = 0
	g.parts++
	return transport.GetStarted, nil
}

// TryPutNote is transport.Atomics'.
func (l *link) TryPutNote(src []byte, addr, key uint64, note uint32, cookie uint64) (transport.GetState, error) {
	s := l.s
	g, st, err := s.begin(opWrite, 0, src, addr, key, cookie)
	if g == nil {
		return st, err
	}
	if len(src) == 0 {
		return g.single(s.d, op{qp: s.qp, opcode: opWriteImm, flags: signaled, imm: note})
	}
	g.noted, g.note = true, note
	g.advance(s.d)
	return transport.GetStarted, nil
}

var _ transport.Atomics = (*link)(nil)
