package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// segments is the memory of mpi.Alloc: this rank's, which peers may map, and the peers'.
//
// A segment's descriptor is sent over a link's connection before the first RTS that names it. A link that was made
// without a connection makes one for the first segment, and names no segment before. Until the peer's goroutine has
// mapped a segment, the peer uses process_vm_readv. Neither lock is held while anything waits for a peer: the peer may
// be stopped, or wait for this rank.
type segments struct {
	own    atomic.Pointer[[]*segment] // sorted by base; replaced, never edited
	ownMu  sync.Mutex                 // guards changes of mine, and what follows
	nextID uint64

	mu    sync.RWMutex // guards what follows; held for reading while copying
	peers map[segKey]segment
}

type segKey struct {
	peer int
	id   uint64
}

type segment struct {
	id   uint64
	base uint64 // address in its owner
	mem  []byte
	fd   int            // -1: it has been freed. Guarded by mineMu
	sent map[*link]bool // guarded by mineMu
}

// A segment message: id, base, size (u64 each) and the descriptor; size 0: the segment has been freed.
const segmentMsg = 24

func (s *segments) init() {
	s.peers = map[segKey]segment{}
	s.own.Store(new([]*segment))
}

// alloc is transport.Memory's.
func (d *Device) alloc(bytes int) ([]byte, error) {
	if bytes < 0 || bytes > math.MaxInt-4096 {
		return nil, fmt.Errorf("shm: %d bytes were asked for", bytes)
	}
	size := (max(bytes, 1) + 4095) &^ 4095
	if err := checkRoom("alloc", size); err != nil {
		return nil, err
	}
	fd, mem, err := newSegment("alloc", size, size)
	if err != nil {
		return nil, err
	}
	s := &d.segments
	s.ownMu.Lock()
	defer s.ownMu.Unlock()
	s.nextID++
	seg := &segment{id: s.nextID, base: addressOf(mem), mem: mem, fd: fd, sent: map[*link]bool{}}
	all := append(slices.Clone(*s.own.Load()), seg)
	slices.SortFunc(all, func(a, b *segment) int { return int(int64(a.base - b.base)) })
	s.own.Store(&all)
	return mem[:bytes:size], nil
}

// free is transport.Memory's.
func (d *Device) free(mem []byte) error {
	seg := d.segments.remove(addressOf(mem[:cap(mem)]))
	if seg == nil {
		return errors.New("shm: that memory is not from Alloc, or was freed before")
	}
	for l := range seg.sent {
		l.tellFreed(seg.id)
	}
	return unix.Munmap(seg.mem)
}

// remove takes the segment at base off the list and closes it. nil: there is none.
func (s *segments) remove(base uint64) *segment {
	s.ownMu.Lock()
	defer s.ownMu.Unlock()
	all := slices.Clone(*s.own.Load())
	i := slices.IndexFunc(all, func(g *segment) bool { return g.base == base })
	if i < 0 {
		return nil
	}
	seg := all[i]
	all = slices.Delete(all, i, i+1)
	s.own.Store(&all)
	unix.Close(seg.fd)
	seg.fd = -1
	return seg
}

// find returns the segment that holds all of buf.
func (s *segments) find(addr uint64, n int) *segment {
	all := *s.own.Load()
	if len(all) == 0 {
		return nil
	}
	i, found := slices.BinarySearchFunc(all, addr, func(g *segment, a uint64) int { return int(int64(g.base - a)) })
	if !found {
		i--
	}
	if i < 0 || addr+uint64(n) > all[i].base+uint64(len(all[i].mem)) {
		return nil
	}
	return all[i]
}

// share returns the key of the segment that holds buf, after sending its descriptor to the peer. 0: there is none, or
// the peer has not read what it was sent before.
func (s *segments) share(l *link, buf []byte) uint64 {
	seg := s.find(addressOf(buf), len(buf))
	if seg == nil {
		return 0
	}
	s.ownMu.Lock()
	defer s.ownMu.Unlock()
	if seg.fd < 0 {
		return 0 // it is being freed
	}
	if !seg.sent[l] {
		if !l.sendNow(segmentMessage(seg.id, seg.base, len(seg.mem)), seg.fd) {
			return 0
		}
		seg.sent[l] = true
	}
	return seg.id
}

func segmentMessage(id, base uint64, size int) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, segmentMsg), id)
	b = binary.LittleEndian.AppendUint64(b, base)
	return binary.LittleEndian.AppendUint64(b, uint64(size))
}

// sendNow sends a message and a descriptor to the peer. It reports whether it has: there may be no room in the socket
// now, or the connection may have ended. It goes past the lock that net has for writing, which freed.send holds while
// it waits.
func (l *link) sendNow(b []byte, fd int) (sent bool) {
	conn := l.segmentConn()
	if conn == nil {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(to uintptr) {
		sent = unix.Sendmsg(int(to), b, unix.UnixRights(fd), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) == nil
	})
	return sent
}

// channel is the connection over which segments go where the link was made without one.
type channel struct {
	name    string // of the peer's socket
	conn    atomic.Pointer[net.UnixConn]
	dialing atomic.Bool
}

// segmentConn is the connection over which segments go; nil: there is none yet.
func (l *link) segmentConn() *net.UnixConn {
	if l.conn != nil {
		return l.conn
	}
	c := l.channel.conn.Load()
	if c == nil && l.channel.dialing.CompareAndSwap(false, true) {
		l.d.start(l.openChannel)
	}
	return c
}

// openChannel makes the connection. If it cannot be made, the next segment tries again.
func (l *link) openChannel() {
	defer l.channel.dialing.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	c, err := l.d.dialSocket(ctx, l.channel.name, new(bool))
	if err != nil {
		return
	}
	p := &packetConn{UnixConn: c}
	s, err := l.d.auth.Dial(ctx, p, l.peer)
	if err == nil {
		err = s.Confirm(nil)
	}
	if err == nil {
		_, err = s.Finish()
	}
	if p.closeFDs(); err != nil {
		l.d.drop(c)
		return
	}
	l.channel.conn.Store(c)
}

// serveChannel maps what a peer sends over a connection for segments alone, whose end is not the peer's.
func (d *Device) serveChannel(s *auth.Session, p *packetConn) {
	if _, err := p.take(0); err != nil {
		return
	}
	if s.Answer(nil) != nil {
		return
	}
	if _, err := s.Finish(); err != nil {
		return
	}
	d.segments.receive(p.UnixConn, s.Peer)
	d.segments.forget(func(k segKey) bool { return k.peer == s.Peer })
}

// freedSegments are those of which the peer of a link has not been told yet that they are freed.
type freedSegments struct {
	mu      sync.Mutex // guards what follows; not held while anything waits
	ids     []uint64
	sending bool // a goroutine sends them
}

// tellFreed has the peer told that a segment is freed. The peer may be slow to read, and then a goroutine waits for it.
func (l *link) tellFreed(id uint64) {
	l.freed.mu.Lock()
	defer l.freed.mu.Unlock()
	l.freed.ids = append(l.freed.ids, id)
	if !l.freed.sending {
		l.freed.sending = l.d.start(l.sendFreed)
	}
}

func (l *link) sendFreed() {
	for {
		l.freed.mu.Lock()
		ids := l.freed.ids
		l.freed.ids, l.freed.sending = nil, len(ids) > 0
		l.freed.mu.Unlock()
		if len(ids) == 0 {
			return
		}
		for _, id := range ids {
			// an error is the connection's end, after which nothing is mapped
			l.segmentConn().Write(segmentMessage(id, 0, 0))
		}
	}
}

// receive maps what the peer sends, until the connection ends.
func (s *segments) receive(c *net.UnixConn, peer int) error {
	var b [segmentMsg + 1]byte
	for {
		n, fds, err := receiveFDs(c, b[:], 1)
		if errors.Is(err, errNoDescriptors) {
			continue // the peer's memory is read by process_vm_readv
		}
		if err != nil {
			return err
		}
		if n != segmentMsg {
			closeFDs(fds)
			return fmt.Errorf("shm: a message of %d bytes that makes no sense", n)
		}
		le := binary.LittleEndian
		err = s.take(segKey{peer, le.Uint64(b[:])}, le.Uint64(b[8:]), le.Uint64(b[16:]), fds)
		closeFDs(fds)
		if err != nil {
			return err
		}
	}
}

func (s *segments) take(k segKey, base, size uint64, fds []int) error {
	s.forget(func(other segKey) bool { return other == k })
	if size == 0 {
		return nil
	}
	if len(fds) != 1 || size > 1<<46 {
		return io.ErrUnexpectedEOF
	}
	mem, err := mapPeer(fds[0], int(size), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil // no address space: the peer's memory is read by process_vm_readv
	}
	s.mu.Lock()
	s.peers[k] = segment{id: k.id, base: base, mem: mem}
	s.mu.Unlock()
	return nil
}

// copyFrom copies from the peer's memory. It reports whether that memory is mapped here.
func (s *segments) copyFrom(peer int, id uint64, dst []byte, addr uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	mem := s.mapped(peer, id, addr, len(dst))
	copy(dst, mem)
	return mem != nil
}

// copyTo copies to the peer's memory. It reports whether that memory is mapped here.
func (s *segments) copyTo(peer int, id uint64, src []byte, addr uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	mem := s.mapped(peer, id, addr, len(src))
	copy(mem, src)
	return mem != nil
}

// mapped is n bytes at the peer's addr, or nil. mu is held for reading while they are used.
func (s *segments) mapped(peer int, id, addr uint64, n int) []byte {
	g, ok := s.peers[segKey{peer, id}]
	off := addr - g.base
	if !ok || addr < g.base || off > uint64(len(g.mem)) || uint64(n) > uint64(len(g.mem))-off {
		return nil
	}
	return g.mem[off : off+uint64(n)]
}

// forget unmaps those of the peers' segments.
func (s *segments) forget(those func(segKey) bool) {
	var unused [][]byte
	s.mu.Lock()
	for k, g := range s.peers {
		if those(k) {
			delete(s.peers, k)
			unused = append(unused, g.mem)
		}
	}
	s.mu.Unlock()
	for _, mem := range unused { // which takes long for much
		unix.Munmap(mem)
	}
}

// close unmaps the peers' memory and this rank's. mpi.Finalize documents that Alloc's memory ends with it.
func (s *segments) close() {
	s.forget(func(segKey) bool { return true })
	s.ownMu.Lock()
	defer s.ownMu.Unlock()
	for _, g := range *s.own.Load() {
		unix.Close(g.fd)
		g.fd = -1
		unix.Munmap(g.mem)
	}
	s.own.Store(new([]*segment))
}
