package loop

import (
	"encoding/binary"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/board"
	"github.com/gorun-mpi/mpi/internal/meminfo"
	"github.com/gorun-mpi/mpi/transport"
)

// posted is the memory of a board, until all members have joined.
type posted struct {
	members []int32
	lines   int
	mem     []byte
}

func (d *Device) makeBoard(members []int32, lines, bytes int) (*transport.Board, []byte, error) {
	size := board.Size(len(members), lines, bytes)
	if size == 0 {
		return nil, nil, fmt.Errorf("loop: a board of %d lines and %d bytes for %d ranks", lines, bytes, len(members))
	}
	if err := meminfo.Check(size); err != nil {
		return nil, nil, fmt.Errorf("%w: loop: a board of %d bytes: %w", transport.ErrNoMemory, size, err)
	}
	p := &posted{members, lines, board.Heap(size)}
	f := d.fabric
	f.mu.Lock()
	f.lastKey++
	key := f.lastKey
	f.boards[key] = p
	f.mu.Unlock()
	b, err := d.newBoard(p, func() {
		f.mu.Lock()
		delete(f.boards, key)
		f.mu.Unlock()
	})
	return b, binary.LittleEndian.AppendUint64(nil, key), err
}

func (d *Device) joinBoard(members []int32, lines, bytes int, ticket []byte) (*transport.Board, error) {
	var p *posted
	if len(ticket) == 8 {
		d.fabric.mu.RLock()
		p = d.fabric.boards[binary.LittleEndian.Uint64(ticket)]
		d.fabric.mu.RUnlock()
	}
	if p == nil || len(p.mem) != board.Size(len(members), lines, bytes) || lines != p.lines {
		return nil, fmt.Errorf("loop: %x is no ticket of a board of %d lines and %d bytes for %d ranks", ticket, lines, bytes,
			len(members))
	}
	return d.newBoard(&posted{members, lines, p.mem}, func() {})
}

func (d *Device) newBoard(p *posted, joined func()) (*transport.Board, error) {
	me, err := board.Place(p.members, d.rank, len(d.fabric.devices))
	if err != nil {
		return nil, fmt.Errorf("loop: a board: %w", err)
	}
	wake := func(member int) { d.fabric.devices[p.members[member]].wakeUp() }
	watch := func(member int) { d.watchOver(d.fabric.devices[p.members[member]]) }
	b := d.boards.New(p.mem, p.members, me, p.lines, wake, watch, joined, joined)
	if d.fabric.get {
		l := &lending{d: d, members: p.members, board: &p.mem[0]}
		b.Lending = &transport.Lending{Try: func() error { return nil }, Lend: l.lend, Return: l.give,
			Read: l.read, Write: l.write}
	}
	return b, nil
}

// lending is transport.Lending's. What is lent is in the fabric's table, for the members of a board.
type lending struct {
	d       *Device
	members []int32
	board   *byte // its memory begins here
}

func (l *lending) lend(mem []byte) transport.Loan {
	f := l.d.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.d.closed {
		return transport.Loan{}
	}
	f.lastKey++
	f.regions[f.lastKey] = region{mem: mem, owner: l.d, board: l.board}
	return transport.Loan{Addr: f.lastKey << 12, Key: f.lastKey}
}

func (l *lending) give(loan transport.Loan) {
	l.d.fabric.mu.Lock()
	defer l.d.fabric.mu.Unlock()
	delete(l.d.fabric.regions, loan.Key)
}

func (l *lending) read(i int, dst []byte, loan transport.Loan, from int) error {
	return l.move(i, len(dst), loan, from, func(lent []byte) { copy(dst, lent) })
}

func (l *lending) write(i int, src []byte, loan transport.Loan, from int) error {
	return l.move(i, len(src), loan, from, func(lent []byte) { copy(lent, src) })
}

// move does by with n bytes that member i has lent, which stay lent while it lasts.
func (l *lending) move(i, n int, loan transport.Loan, from int, by func(lent []byte)) error {
	f := l.d.fabric
	f.mu.RLock()
	defer f.mu.RUnlock()
	r := f.regions[loan.Key]
	off, size := loan.Addr-loan.Key<<12+uint64(from), uint64(len(r.mem))
	switch owner := f.devices[l.members[i]]; {
	case owner.closed:
		return fmt.Errorf("%w: loop: rank %d has closed its device", transport.ErrPeerGone, owner.rank)
	case r.owner != owner || r.board != l.board || off > size || uint64(n) > size-off:
		return fmt.Errorf("loop: rank %d moves %d bytes at %#x of %d, which has not lent them", l.d.rank, n,
			loan.Addr+uint64(from), owner.rank)
	}
	by(r.mem[off:][:n])
	return nil
}

// wakeUp ends a sleep, since a board says so.
func (q *queue) wakeUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.show(true)
}
