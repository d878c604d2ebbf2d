package shm

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/ring"
	"github.com/gorun-mpi/mpi/transport"
)

// How ranks meet whose processes can open each other's descriptors: all is made once per rank, in New, and a pair costs
// one mapping. A rank opens its peer's inbox by /proc/PID/fd, which the kernel allows the processes of one user only,
// claims one of the rings behind it, commits that ring's memory and maps it. The peer, whose memory it is, is told by a
// mark in its inbox, and has nothing to do.

// hostID is the same for the ranks of a job that see each other's processes by the same numbers: on one boot of a
// kernel, in one network namespace, which is what a host is to this package, and in one namespace of processes. The
// zero hostID is none.
type hostID [16]byte

// thisHost is none where a peer could not open this process's descriptors, or look into /proc.
func thisHost(job string) (id hostID) {
	if ok, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || ok != 1 {
		return id
	}
	boot, err1 := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, err2 := os.Readlink("/proc/self/ns/net")
	processes, err3 := os.Readlink("/proc/self/ns/pid")
	self, err4 := os.Readlink("/proc/self")
	if errors.Join(err1, err2, err3, err4) != nil || self != strconv.Itoa(os.Getpid()) {
		return id
	}
	sum := sha256.Sum256([]byte(string(boot) + network + processes + job))
	return hostID(sum[:len(id)])
}

// describe makes what peers read of this rank.
func (d *Device) describe() error {
	o := &d.own.box.owner
	rand.Read(o.token[:])
	o.rank, o.rings = uint32(d.opt.Rank), uint32(len(d.own.rings)/d.geo.Size())
	o.geo = [3]uint32{uint32(d.geo.Slots), uint32(d.geo.Small), uint32(d.geo.Bulk)}
	o.probe, o.value = addressOf(d.probe[:]), *d.probe
	for i, fd := range []int{d.own.offered.goroutineFD, d.own.offered.threadFD} {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return fmt.Errorf("shm: a doorbell's number: %w", err)
		}
		o.bells[i] = bell{uint64(fd), st.Ino}
	}
	if o.rings > 0 && !d.opt.bySocket {
		d.host = thisHost(d.opt.Job)
	}
	d.token = o.token
	return nil
}

// claims is how many rings peers can claim here.
func (d *Device) claims() int { return len(d.own.rings) / d.geo.Size() }

// reach is where peers find this rank's inbox.
func (d *Device) reach() reach {
	return reach{pid: uint32(os.Getpid()), fd: uint32(d.own.fd), token: d.token}
}

func (r reach) encode(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.pid)
	b = binary.LittleEndian.AppendUint32(b, r.fd)
	return append(b, r.token[:]...)
}

// decodeAddress takes what stands before the name of the socket. The address is longer.
func decodeAddress(b []byte) (hostID, reach) {
	return hostID(b[8:]), decodeReach(b[24:])
}

func decodeReach(b []byte) reach {
	le := binary.LittleEndian
	return reach{pid: le.Uint32(b), fd: le.Uint32(b[4:]), token: [16]byte(b[8:])}
}

// contact is what a rank has opened of a peer's. It stays until Close.
type contact struct {
	peer      int
	at        reach
	pidFD     int // -1: this kernel has none
	fd        int // of the memory with the inbox and the rings
	peerInbox     // its box is nil where only the peer's end is watched
	geo       ring.Geometry
	rings     int
	ended     bool // guarded by Device.mu
}

// contacts are a device's, and what tells their ends: a doorbell whose owner has ended or closed it is in error.
type contacts struct {
	mu  sync.Mutex // guards all; not held while a contact is made
	all []*contact

	make func(peer int, at reach) (*contact, error) // newContact, but in tests

	set  *os.File // an epoll set of doorbells
	raw  syscall.RawConn
	done sync.WaitGroup
}

func (cs *contacts) open(d *Device) error {
	cs.make = newContact
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("shm: epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // tells NewFile that the netpoller can have it
		unix.Close(fd)
		return fmt.Errorf("shm: O_NONBLOCK for an epoll set: %w", err)
	}
	cs.set = os.NewFile(uintptr(fd), "gorun-peers")
	if cs.raw, err = cs.set.SyscallConn(); err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	cs.done.Go(func() { cs.raw.Read(d.readEnds) })
	return nil
}

// readEnds takes the ends of peers from the set. It reports whether it has what it waits for, which it never has.
func (d *Device) readEnds(set uintptr) bool {
	var events [16]unix.EpollEvent
	for {
		n, err := unix.EpollWait(int(set), events[:], 0)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return false
		}
		for _, e := range events[:n] {
			d.endOf(int(e.Fd))
		}
	}
}

// endOf reports the end of the peer of a contact, by its number.
func (d *Device) endOf(i int) {
	d.contacts.mu.Lock()
	c := d.contacts.all[i]
	d.contacts.mu.Unlock()
	d.mu.Lock()
	c.ended = true
	if l := d.links[c.peer]; l != nil && l.contact == c {
		l.dead.Store(true)
	}
	d.mu.Unlock()
	d.start(func() { d.lostPeer(c.peer, goneError(c.peer, nil)) })
}

// stop ends the goroutine.
func (cs *contacts) stop() {
	if cs.set != nil {
		cs.set.Close()
		cs.done.Wait()
	}
}

func (cs *contacts) close() {
	for _, c := range cs.all {
		c.close()
	}
	cs.all = nil
}

// watch makes the end of c known, by its place in all. mu is held.
func (cs *contacts) watch(c *contact) error {
	e := unix.EpollEvent{Fd: int32(len(cs.all))}
	fd := c.goroutineFD // EPOLLERR is reported without being asked for
	if fd < 0 {
		fd, e.Events = c.pidFD, unix.EPOLLIN
	}
	e.Events |= unix.EPOLLET // once
	var err error
	if e := cs.raw.Control(func(set uintptr) {
		err = unix.EpollCtl(int(set), unix.EPOLL_CTL_ADD, fd, &e)
	}); e != nil {
		return e
	}
	if err == nil {
		cs.all = append(cs.all, c)
	}
	return err
}

// meet returns the contact with a peer, which is made if there is none yet.
func (cs *contacts) meet(peer int, at reach) (*contact, error) {
	if c := cs.find(peer, at); c != nil {
		return c, nil
	}
	c, err := cs.make(peer, at)
	if err != nil {
		return nil, err
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if other := cs.get(peer, at); other != nil { // another goroutine has made it meanwhile
		c.close()
		return other, nil
	}
	if err = cs.watch(c); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// find returns the contact with a peer; nil: there is none yet.
func (cs *contacts) find(peer int, at reach) *contact {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.get(peer, at)
}

// get is find; mu is held.
func (cs *contacts) get(peer int, at reach) *contact {
	for _, c := range cs.all {
		if c.peer == peer && c.at == at && c.box != nil {
			return c
		}
	}
	return nil
}

func newContact(peer int, at reach) (c *contact, err error) {
	c = &contact{peer: peer, at: at, pidFD: -1, fd: -1, peerInbox: noInbox}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	// If the process of this number has not ended when its inbox has been found, it is the peer.
	if c.pidFD, err = unix.PidfdOpen(int(at.pid), 0); err == unix.ESRCH || outOfDescriptors(err) {
		return c, err
	}
	if c.fd, err = openMemory("inbox", int(at.pid), int(at.fd)); err != nil {
		return c, err
	}
	if err = c.mapInbox(); err != nil {
		return c, err
	}
	o := &c.box.owner
	if c.goroutineFD, err = openBell(int(at.pid), &o.bells[0]); err != nil {
		return c, err
	}
	if c.threadFD, err = openBell(int(at.pid), &o.bells[1]); err != nil {
		return c, err
	}
	if o.closed.Load() != 0 { // its doorbells may have been closed before they were opened here
		return c, errNotThere
	}
	return c, nil
}

// errNotThere means that what is at the address of a peer is not of that peer.
var errNotThere = errors.New("shm: the peer is not where it said")

// mapInbox maps the inbox, and takes and checks what its owner says of itself.
func (c *contact) mapInbox() error {
	size, err := sealedSize(c.fd)
	if err != nil || size < inboxSize {
		return errors.Join(err, errNotThere)
	}
	const access, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if c.mem, err = unix.Mmap(c.fd, 0, inboxSize, access, flags); err != nil {
		return fmt.Errorf("shm: mapping the inbox of rank %d: %w", c.peer, err)
	}
	c.box = inboxOf(c.mem)
	o := &c.box.owner
	c.geo = ring.Geometry{Slots: int(o.geo[0]), Small: int(o.geo[1]), Bulk: int(o.geo[2])}
	c.rings = int(o.rings)
	if o.token != c.at.token || int(o.rank) != c.peer {
		return errNotThere
	}
	if err := c.geo.Check(); err != nil {
		return err
	}
	if c.rings > maxClaims || size < int64(inboxSize+c.rings*c.geo.Size()) {
		return fmt.Errorf("shm: rank %d has no room for %d rings in %d bytes", c.peer, c.rings, size)
	}
	return nil
}

func (c *contact) close() {
	for _, fd := range []*int{&c.pidFD, &c.fd} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	c.peerInbox.close()
}

// openMemory opens what newMemory has made, by its descriptor in another process. That process may be a stranger which
// has got the number: of such a one nothing is opened, since that can have effects.
func openMemory(what string, pid, fd int) (int, error) {
	path := pathOf(strconv.Itoa(pid), fd)
	var name [64]byte
	n, err := unix.Readlink(path, name[:])
	if err != nil {
		return -1, err
	}
	if !strings.HasPrefix(string(name[:n]), "/memfd:gorun-"+what) {
		return -1, errNotThere
	}
	return unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

func pathOf(process string, fd int) string { return "/proc/" + process + "/fd/" + strconv.Itoa(fd) }

// openBell opens a doorbell of a process whose inbox has been found. The file is this process's own: no other one can
// make it block.
func openBell(pid int, b *bell) (int, error) {
	fd, err := openPipe(strconv.Itoa(pid), int(b.fd))
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO || st.Ino != b.inode {
		unix.Close(fd)
		return -1, errors.Join(err, errNotThere)
	}
	return fd, nil
}

// connectDirectly makes a link without the help of the peer, or returns no link and no error: that is not possible, for
// a reason that the peer's socket may know.
func (d *Device) connectDirectly(peer int, name string, address []byte) (*link, error) {
	host, at := decodeAddress(address)
	if d.host == (hostID{}) || host != d.host || !d.enter() {
		return nil, nil
	}
	defer d.wg.Done()
	c, err := d.contacts.meet(peer, at)
	if outOfDescriptors(err) {
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	k, ok := c.box.claim(d.opt.Rank, c.rings)
	if !ok {
		return nil, nil
	}
	l, err := d.claimedLink(c, k)
	if err != nil {
		return nil, err
	}
	l.channel.name = name
	l.letter.reach, l.letter.len = d.reach(), uint32(copy(l.letter.card[:], d.card))
	l.p.Arm()
	c.box.claims[k].Store(uint32(d.opt.Rank + 1))
	l.box.mark(l.number) // so that the peer hears of this rank's end, even if no packet comes
	return l, nil
}

// connectNow is transport.Facts'.
func (d *Device) connectNow(peer int, address []byte) transport.Link {
	name, err := d.checkAddress(peer, address)
	if err != nil {
		return nil
	}
	l, err := d.connectDirectly(peer, name, address)
	if l == nil || err != nil {
		return nil
	}
	if !d.addLink(l) {
		l.release()
		return nil
	}
	return l
}

func (d *Device) claimedLink(c *contact, k int) (*link, error) {
	seg := &outSegment{geo: c.geo, fd: c.fd, at: inboxSize + k*c.geo.Size(), claimed: true}
	var err error
	if k != firstRing(c.peer, c.rings) { // to ask the kernel again takes it as long as to commit
		if err = commitRange(seg.fd, "ring", seg.at, c.geo.BulkAt()); err != nil {
			return nil, err
		}
	}
	seg.mem, err = unix.Mmap(seg.fd, int64(seg.at), c.geo.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, noRoom("ring", c.geo.Size(), err) // no address space: ulimit -v
	}
	// All slots in one call; else each page of them is a fault in one of the first messages. Before Linux 5.14 it is.
	unix.Madvise(seg.mem[:c.geo.SmallAt()], unix.MADV_POPULATE_WRITE)
	if seg.p, err = ring.NewProducer(seg.mem, c.geo); err != nil {
		unix.Munmap(seg.mem)
		return nil, err
	}
	l := &link{outSegment: seg, d: d, peer: c.peer, contact: c, number: uint32(k + 1), pid: int(c.at.pid), pidFD: c.pidFD,
		box: c.box, doorbells: c.doorbells, letter: letterOf(seg.mem, c.geo)}
	if l.letter == nil {
		seg.close()
		return nil, fmt.Errorf("shm: rank %d has rings without room for a letter", c.peer)
	}
	l.setCaps()
	l.probeGet(c.box.owner.probe, c.box.owner.value)
	return l, nil
}

// pollClaimed reads a ring that a peer has claimed, and marked for the first time.
func (d *Device) pollClaimed(number int, pkts []transport.Packet) int {
	d.mu.Lock()
	r := d.adoptReady(number)
	d.mu.Unlock()
	if r == nil {
		return 0
	}
	return d.pollArmed(r, pkts)
}

// marked reports whether a mark stands for more than a peer's claim of a ring. Marks that do not are taken away.
func (d *Device) marked() (more bool) {
	box := d.own.box
	for summary := box.summary.Swap(0); summary != 0; summary &= summary - 1 {
		w := bits.TrailingZeros64(summary)
		for word := box.bitmap[w].Swap(0); word != 0; word &= word - 1 {
			i := w*64 + bits.TrailingZeros64(word)
			if d.isClaim(i) {
				continue
			}
			box.mark(uint32(i))
			more = true
		}
	}
	return more
}

// isClaim reports whether the ring of that number has been claimed, and there is nothing to be read in it. It is armed,
// or this rank polls it.
func (d *Device) isClaim(number int) bool {
	if number == 0 || number > d.claims() || len(*d.inUse.Load()) > maxRings { // a mark may be another ring's
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.rings[number]
	if r == nil {
		r = d.adoptReady(number)
	}
	return r == nil || r.ended == nil && r.letter.cut.Load() == 0 && !r.ready()
}

// adoptReady is adopt for a ring that is ready; if it is not yet, it is marked when it is. mu is held.
func (d *Device) adoptReady(number int) *inRing {
	if d.own.box.claims[number-1].Load()&^claimant != 0 {
		return nil
	}
	return d.adopt(number - 1)
}

// adoptAll is adopt for all that have been claimed. mu is held.
func (d *Device) adoptAll() {
	for k := range d.claims() {
		d.adopt(k)
	}
}

// adopt makes the ring that a peer has claimed one of those that polls find. nil: there is none, or that rank has a
// ring already. What the peer has written is hostile. mu is held.
func (d *Device) adopt(k int) *inRing {
	if k < 0 {
		return nil
	}
	claim := d.own.box.claims[k].Load()
	peer := int(claim&claimant) - 1
	if claim&barred != 0 || peer < 0 || peer >= d.opt.Size || peer == d.opt.Rank || d.byPeer[peer] != nil {
		return nil
	}
	mem := d.own.rings[k*d.geo.Size():][:d.geo.Size()]
	c, err := ring.NewConsumer(mem, d.geo)
	if err != nil {
		return nil
	}
	l := letterOf(mem, d.geo)
	at := l.reach
	r := &inRing{c: c, number: uint32(k + 1), peer: int32(peer), letter: l, inUse: true, sender: sender{pid: int(at.pid)}}
	if n := l.len; n <= maxCard {
		r.card = slices.Clone(l.card[:n])
	}
	rings := slices.Clone(d.rings)
	rings[k+1] = r
	d.byPeer[peer] = r
	d.setRings(rings)
	if claim&making == 0 && !d.closed {
		d.wg.Go(func() { d.meetSender(r, at) })
	}
	return r
}

// meetSender sees to it that the end of a ring's sender is heard, and that the sender can be told of room.
func (d *Device) meetSender(r *inRing, at reach) {
	peer := int(r.peer)
	c, err := d.contacts.meet(peer, at)
	for outOfDescriptors(err) && d.pause(descriptorPause) {
		c, err = d.contacts.meet(peer, at)
	}
	if err == nil {
		r.inbox.Store(&c.peerInbox)
		r.letter.met.Store(1)
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		err = d.contacts.watchProcess(peer, at)
	}
	if err != nil {
		d.lostPeer(peer, goneError(peer, nil))
	}
}

// watchProcess watches over a sender whose descriptors this process, for once, cannot open, though the sender could.
func (cs *contacts) watchProcess(peer int, at reach) error {
	fd, err := unix.PidfdOpen(int(at.pid), 0)
	if err != nil {
		return err
	}
	c := &contact{peer: peer, at: at, pidFD: fd, fd: -1, peerInbox: noInbox}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if err := cs.watch(c); err != nil {
		c.close()
		return err
	}
	return nil
}
