package loop

import (
	"encoding/binary"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/board"
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
	return d.boards.New(p.mem, p.members, me, p.lines, wake, watch, joined, joined), nil
}

// wakeUp ends a sleep, since a board says so.
func (q *queue) wakeUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.show(true)
}
