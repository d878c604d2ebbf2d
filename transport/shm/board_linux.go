package shm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/board"
	"github.com/gorun-mpi/mpi/transport"
)

// A board is a memory of the rank that makes it. The others open it as they open inboxes, by /proc/PID/fd: the ticket
// says where it is. That it is the one which is meant its token proves, in the first bytes behind what package board
// has. Each member says in its card where its inbox is, so that any other can wake it, and hear of its end: for that it
// needs a contact, which is made when the member sleeps for the first time while this rank raises what it waits for, or
// this rank while it waits for the member. Behind that the card has the address of the member's probe and what
// stands there, for those that read its memory.

// ticketSize is the size of host [16], process u32, descriptor u32, token [16].
const ticketSize = 40

// reachSize is how long an encoded reach is, which a card begins with.
const reachSize = 24

// boardTail is for what the ticket says behind the host. So it is the number of the process, and not of a thread of it,
// by which the same descriptors are found.
const boardTail = ticketSize - 16

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
	le := binary.LittleEndian
	ticket := le.AppendUint32(append(make([]byte, 0, ticketSize), d.host[:]...), uint32(os.Getpid()))
	ticket = le.AppendUint32(ticket, uint32(fd))[:ticketSize]
	rand.Read(ticket[24:])
	copy(mem[size-boardTail:], ticket[16:])
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
	if sealed, err := sealedSize(fd); err != nil || sealed != int64(size) {
		return nil, errors.Join(err, errNotThere)
	}
	mem, err := mapPeer(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	if string(mem[size-boardTail:]) != string(ticket[16:]) {
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
	card := d.reach().encode(board.Card(mem, me)[:0])
	if !d.opt.NoGet {
		card = binary.LittleEndian.AppendUint64(card, addressOf(d.probe[:]))
		_ = append(card, d.probe[:]...)
	}
	wake := func(member int) { d.wakeMember(int(members[member]), board.Card(mem, member)) }
	watch := func(member int) { d.withMember(int(members[member]), board.Card(mem, member), func(*contact) {}) }
	body := mem[: len(mem)-boardTail : len(mem)-boardTail]
	b := d.boards.New(body, members, me, lines, wake, watch, closeFD, unmap)
	if !d.opt.NoGet {
		l := &lending{me: me, members: make([]probed, len(members)), body: body, readTwo: readTwo,
			now: func() time.Duration { return time.Since(opened) }}
		b.Lending = &transport.Lending{Try: l.try, Lend: l.lend, Return: l.giveBack, Read: l.read, Write: l.write}
	}
	return b, nil
}

// lending is transport.Lending's, by process_vm_readv and process_vm_writev. What is lent is named by its address:
// members can read and write all memory of each other.
type lending struct {
	me      int
	members []probed
	body    []byte // of the board
	got     [8]byte
	readTwo func(pid int, first []byte, at uint64, second []byte, addr uint64) (n int, err error)
	now     func() time.Duration // since opened
}

// probed is where a member is. A process of that number which has these bytes at that address is the member.
type probed struct {
	pid  int
	at   uint64
	want [8]byte
	seen time.Duration // before the last read that found them there; 0: none has
}

// try reads the probes of all others, which is the only way to know whether this process may. The kernel asks the same
// of a process that writes, but a filter (seccomp) may forbid one of the two calls alone.
func (l *lending) try() error {
	if err := mayWrite(); err != nil {
		return fmt.Errorf("%w: shm: process_vm_writev: %v (seccomp?)", transport.ErrUnavailable, err)
	}
	le := binary.LittleEndian
	for i := range l.members {
		p, card := &l.members[i], board.Card(l.body, i)[reachSize:]
		p.pid, p.at = int(decodeReach(board.Card(l.body, i)).pid), le.Uint64(card)
		if copy(p.want[:], card[8:]); i == l.me {
			continue
		}
		if p.at == 0 {
			return errors.New("shm: the memory of another member is not to be read (GORUN_SHM_CMA)")
		}
		if err := l.readProbed(p, nil, 0); err != nil {
			return err
		}
	}
	return nil
}

func (l *lending) lend(mem []byte) transport.Loan { return transport.Loan{Addr: addressOf(mem)} }

func (l *lending) read(i int, dst []byte, loan transport.Loan, from int) error {
	for {
		n := min(len(dst), getPiece)
		if err := l.readProbed(&l.members[i], dst[:n], loan.Addr+uint64(from)); err != nil || n == len(dst) {
			return err
		}
		dst, from = dst[n:], from+n
	}
}

// write likewise, but what is written into another process cannot be taken back, so the probe is looked at before, as
// link.put looks at the peer. A member that has failed has its memory back: a write says on the board that it begins
// before it looks for that.
func (l *lending) write(i int, src []byte, loan transport.Loan, from int) error {
	p := &l.members[i]
	if !p.proved(l.now()) {
		if err := l.readProbed(p, nil, 0); err != nil {
			return err
		}
	}
	if !board.BeginWrite(l.body, l.me, i) {
		return fmt.Errorf("shm: a member has failed: %d bytes for process %d are not written", len(src), p.pid)
	}
	err := writePeer(p.pid, src, loan.Addr+uint64(from))
	board.EndWrite(l.body, l.me)
	switch {
	case errors.Is(err, unix.ESRCH):
		return goneProcess(p.pid)
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("%w: shm: %v", transport.ErrNoMemory, err)
	}
	return err
}

// giveBack waits for a member that writes here, or for the end of its process.
func (l *lending) giveBack(transport.Loan) {
	whileAccessed(func() bool {
		i := board.Writer(l.body, len(l.members), l.me)
		return i >= 0 && !(&sender{pid: l.members[i].pid}).ended()
	})
}

func goneProcess(pid int) error {
	return transport.Gone("its process, %d, has ended", pid)
}

// proved reports whether the number cannot have been given away since the probe was there.
func (p *probed) proved(now time.Duration) bool { return p.seen != 0 && now-p.seen < reuse }

// probeFrom is from which length on the probe is read each time: then it costs little, and to read again much.
const probeFrom = 128 << 10

// readProbed fills dst from a member's memory, and compares its probe in the same call, which reads all of one process:
// its number may be another one's by now. That process need not have anything at the probe's address. All else says
// nothing of the member: the kernel has no memory for the call, or does not allow it.
//
// The probe is another page to find, 0.2 µs. A short read goes without it if the number cannot have been given away
// since the probe was there, as link.gone has it. If it may have been before that read was over, or the read fails, all
// of it is read again.
func (l *lending) readProbed(p *probed, dst []byte, addr uint64) error {
	now := l.now()
	if len(dst) > 0 && len(dst) < probeFrom && p.proved(now) {
		if n, err := l.readTwo(p.pid, nil, 0, dst, addr); err == nil && n == len(dst) && p.proved(l.now()) {
			return nil
		}
	}
	n, err := l.readTwo(p.pid, l.got[:], p.at, dst, addr)
	switch read := n >= len(l.got); {
	case read && l.got == p.want && n == len(l.got)+len(dst):
		p.seen = now
		return nil
	case read && l.got == p.want:
		return fmt.Errorf("shm: process_vm_readv of %d bytes at %#x, process %d: %d are there", len(dst), addr, p.pid,
			n-len(l.got))
	case read, err == nil, err == unix.ESRCH, err == unix.EFAULT:
		return goneProcess(p.pid)
	case err == unix.ENOMEM, err == unix.EAGAIN:
		return fmt.Errorf("%w: shm: process_vm_readv of process %d: %v", transport.ErrNoMemory, p.pid, err)
	default:
		return fmt.Errorf("%w: shm: process_vm_readv of process %d: %v (Yama, seccomp or another user?)",
			transport.ErrUnavailable, p.pid, err)
	}
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
// there yet is made by a goroutine, as soon as there are descriptors and memory for it. A rank with which there can be
// none is lost, since it could not be woken, nor its end be heard: one that has ended, and one that does not allow it
// (EACCES), as a process does that has become another user's.
func (d *Device) withMember(rank int, card []byte, f func(*contact)) {
	at := decodeReach(card)
	if c := d.contacts.find(rank, at); c != nil {
		f(c)
		return
	}
	d.start(func() {
		c, err := d.contacts.meet(rank, at)
		for (outOfDescriptors(err) || errors.Is(err, unix.ENOMEM)) && d.pause(descriptorPause) {
			c, err = d.contacts.meet(rank, at)
		}
		if err != nil {
			d.lostPeer(rank, goneError(rank, err))
			return
		}
		f(c)
	})
}
