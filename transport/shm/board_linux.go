package shm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/board"
	"github.com/gorun-mpi/mpi/transport"
)

// A board is a memory of the rank that makes it. The others open it as they open inboxes, by /proc/PID/fd: the ticket
// says where it is. That it is the one which is meant its token proves, in the first bytes behind what package board
// has. Each member says in its card where its inbox is, so that any other can wake it, and hear of its end: for that it
// needs a contact, which is made when the member sleeps for the first time while this rank raises what it waits for, or
// this rank while it waits for the member.

// ticketSize: host [16], process u32, descriptor u32, token [16].
const ticketSize = 40

// boardTail is for the token.
const boardTail = 16

func boardSize(members []int32, lines, bytes int) (int, error) {
	size := board.Size(len(members), lines, bytes)
	if size == 0 {
		return 0, fmt.Errorf("shm: a board of %d lines and %d bytes for %d ranks", lines, bytes, len(members))
	}
	return size + boardTail, nil
}

// makeBoard is transport.Boards'.
func (d *Device) makeBoard(members []int32, lines, bytes int) (*transport.Board, []byte, error) {
	size, err := boardSize(members, lines, bytes)
	if err != nil {
		return nil, nil, err
	}
	if err := checkRoom("board", size); err != nil {
		return nil, nil, err
	}
	fd, mem, err := newSegment("board", size, size)
	if err != nil {
		return nil, nil, err
	}
	rand.Read(mem[size-boardTail:])
	le := binary.LittleEndian
	ticket := le.AppendUint32(append(make([]byte, 0, ticketSize), d.host[:]...), uint32(os.Getpid()))
	ticket = append(le.AppendUint32(ticket, uint32(fd)), mem[size-boardTail:]...)
	b, err := d.newBoard(mem, fd, members, lines)
	return b, ticket, err
}

// joinBoard is transport.Boards'.
func (d *Device) joinBoard(members []int32, lines, bytes int, ticket []byte) (*transport.Board, error) {
	size, err := boardSize(members, lines, bytes)
	if err != nil {
		return nil, err
	}
	if len(ticket) != ticketSize || hostID(ticket) != d.host {
		return nil, fmt.Errorf("%w: shm: the board is on another host, or %x is no ticket", transport.ErrUnavailable, ticket)
	}
	le := binary.LittleEndian
	fd, err := openMemory("board", int(le.Uint32(ticket[16:])), int(le.Uint32(ticket[20:])))
	if err != nil {
		return nil, fmt.Errorf("shm: opening a board: %w", err)
	}
	defer unix.Close(fd)
	if is, err := sealedSize(fd); err != nil || is != int64(size) {
		return nil, errors.Join(err, errNotThere)
	}
	mem, err := mapPeer(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	if string(mem[size-boardTail:]) != string(ticket[24:]) {
		unix.Munmap(mem)
		return nil, errNotThere
	}
	return d.newBoard(mem, -1, members, lines)
}

// newBoard owns mem and, until all have joined, fd.
func (d *Device) newBoard(mem []byte, fd int, members []int32, lines int) (*transport.Board, error) {
	closeFD := func() {
		if fd >= 0 {
			unix.Close(fd)
			fd = -1
		}
	}
	unmap := func() {
		closeFD()
		unix.Munmap(mem)
	}
	me, err := board.Place(members, d.opt.Rank, d.opt.Size)
	if err != nil {
		unmap()
		return nil, fmt.Errorf("shm: a board: %w", err)
	}
	d.reach().encode(board.Card(mem, me)[:0])
	wake := func(member int) { d.wakeMember(int(members[member]), board.Card(mem, member)) }
	watch := func(member int) { d.withMember(int(members[member]), board.Card(mem, member), func(*contact) {}) }
	body := mem[: len(mem)-boardTail : len(mem)-boardTail]
	return d.boards.New(body, members, me, lines, wake, watch, closeFD, unmap), nil
}

// wakeMember wakes a rank that sleeps, by its card.
func (d *Device) wakeMember(rank int, card []byte) {
	if rank == d.opt.Rank {
		d.own.wake(d.own.box, true)
		return
	}
	d.withMember(rank, card, func(c *contact) { c.wake(c.box, true) })
}

// withMember does f with the contact of a rank, by its card, which is hostile. It does not wait: a contact that is not
// there yet is made by a goroutine. A rank with which there can be none is lost, since it could not be woken, nor its
// end be heard.
func (d *Device) withMember(rank int, card []byte, f func(*contact)) {
	at := decodeReach(card)
	if c := d.contacts.find(rank, at); c != nil {
		f(c)
		return
	}
	d.start(func() {
		c, err := d.contacts.meet(rank, at)
		for outOfDescriptors(err) && d.pause(descriptorPause) {
			c, err = d.contacts.meet(rank, at)
		}
		if err != nil {
			d.lostPeer(rank, goneError(rank, err))
			return
		}
		f(c)
	})
}
