package gpu

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/door"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// A rank copies to and from memory of its own process, and from memory that another process of its host has exported
// and that can be opened here. What another rank says of its memory is hostile until it is checked here. Whether a
// handle is of an allocation of the size that the rank says, only the driver knows.

// allRanks stands for the rank of a call that is about all of them.
const allRanks = -1 << 30

const (
	// copiesMost is how many copies of a window are under way. Each has some pinned memory if its buffer is of the host.
	copiesMost = 64
	// startedMost is how many copies of all windows of this process a device has been asked for and may not have made.
	// A goroutine that waits for a copy may ask for it beyond that. A driver whose queue is full blocks its caller, which
	// may be an engine.
	startedMost = 256
)

// started are the copies of windows that a device has been asked for, until a goroutine has waited for them.
var started struct {
	mu  sync.Mutex
	all map[startedOn]int
}

type startedOn struct {
	driver accel.Driver
	device int
}

// enterDevice counts one more copy. It reports whether there is room for it, as there is if it is waited for.
func enterDevice(d accel.Driver, device int, awaited bool) bool {
	started.mu.Lock()
	defer started.mu.Unlock()
	on := startedOn{d, device}
	if started.all[on] >= startedMost && !awaited {
		return false
	}
	if started.all == nil {
		started.all = map[startedOn]int{}
	}
	started.all[on]++
	return true
}

func leaveDevice(d accel.Driver, device int) {
	started.mu.Lock()
	defer started.mu.Unlock()
	on := startedOn{d, device}
	if started.all[on]--; started.all[on] == 0 {
		delete(started.all, on)
	}
}

// operation is what a call moves.
type operation struct {
	put    bool
	host   []byte       // memory of the host; or
	device accel.Buffer // memory of a device, if that has bytes
	of     *allocation  // of device
}

func (o *operation) size() int64 { return max(int64(len(o.host)), o.device.Len) }

// paths are the ways of a window to the memory of its ranks, and the copies under way.
type paths struct {
	elem     int64 // bytes of an element
	own      *exposure
	released chan struct{} // closed when no message touches this rank's memory any more

	// using is held by operations while they start copies, and by quiesce, which ends them.
	using  sync.RWMutex
	driver accel.Driver // nil: this rank has none, and asks for everything
	ranks  []reachedRank
	closed bool

	mu     sync.Mutex  // guards what follows
	under  []*rankCopy // in the order of the calls
	failed map[int]error
}

// reachedRank is the memory of a rank.
type reachedRank struct {
	told tellRank // with no bytes, if it cannot be reached

	mu   sync.Mutex
	maps []mapping // as many as there are kinds of wants
}

// mapping is how copies of a device reach the memory of a rank.
type mapping struct {
	want   int // the device that must reach it; mpi.Undefined: any
	device int // the one that does, if ok
	ok     bool
	base   uint64 // where the rank's elements begin here, if ok
	opened uint64 // what Open has returned; 0: nothing
	near   *exposure
}

// rankCopy is a copy that is under way, or is started when a stream of the program has come to a mark and the device
// has room. Its owner is paths, then the goroutine that has taken it.
type rankCopy struct {
	copying // its driver is nil before the start
	rank    int
	through stage
	near    *exposure     // which it touches; nil: none
	buffer  *allocation   // of the caller's buffer on a device, which counts the copy; nil: it is of the host
	to      []byte        // where the caller wants what comes to through; nil: nothing comes
	taken   bool          // a goroutine waits for its end
	over    chan struct{} // closed by that

	behind   streamMark
	dst, src uint64
	n        int64
	err      error // why it could not be started
}

// exposure is memory of this process that a window has.
type exposure struct {
	key [16]byte // by which a rank that is told it finds the memory, if it is of the same process
	mem accel.Buffer

	// exposed.mu guards what follows. After the failure of a rank, Free waits for no other rank: some use the window on,
	// and their copies touch the memory of this one.
	copies map[*paths]int // under way, of ranks of this process
	ended  bool           // the window has: no copy begins any more
	over   chan struct{}  // closed when it has ended and no copy is under way
}

// enter notes a copy of p that is about to begin. It reports whether that may begin. nil is memory of another process.
func (e *exposure) enter(p *paths) bool {
	if e == nil {
		return true
	}
	exposed.mu.Lock()
	defer exposed.mu.Unlock()
	if e.ended {
		return false
	}
	if e.copies == nil {
		e.copies = map[*paths]int{}
	}
	e.copies[p]++
	return true
}

// leave notes the end of the copy.
func (e *exposure) leave(p *paths) {
	if e == nil {
		return
	}
	exposed.mu.Lock()
	defer exposed.mu.Unlock()
	if e.copies[p]--; e.copies[p] == 0 {
		delete(e.copies, p)
	}
	e.rest()
}

// rest is called with the lock.
func (e *exposure) rest() {
	if e.ended && len(e.copies) == 0 {
		delete(exposed.all, e.key)
		close(e.over)
	}
}

// exposed are the exposures of the windows of this process.
var exposed struct {
	mu  sync.Mutex
	all map[[16]byte]*exposure
}

// expose notes that a window has b, which is a part of an allocation.
func (p *paths) expose(of *allocation, b accel.Buffer) *mpi.Error {
	p.driver = b.Driver
	if b.Len == 0 {
		if d, err := accel.InUse(); err == nil {
			p.driver = d
		}
		return nil
	}
	own := &exposure{mem: b, over: p.released}
	rand.Read(own.key[:]) // never fails
	exposed.mu.Lock()
	defer exposed.mu.Unlock()
	if of.freed.Load() {
		return mpierr.New("", mpi.ErrBuffer, "the device memory at %#x has been freed", b.Addr)
	}
	if exposed.all == nil {
		exposed.all = map[[16]byte]*exposure{}
	}
	exposed.all[own.key] = own
	p.own = own
	return nil
}

// release ends expose.
func (p *paths) release() {
	exposed.mu.Lock()
	defer exposed.mu.Unlock()
	if p.own == nil {
		close(p.released)
		return
	}
	p.own.ended = true
	p.own.rest()
}

// settleLeft waits for the copies from and to an allocation of windows that have ended here. Their ranks may make no
// call that would end them.
func (of *allocation) settleLeft() {
	for {
		e, all := of.left()
		if e == nil {
			return
		}
		for _, p := range all {
			p.settleSome(func(k *rankCopy) bool { return k.near == e }, math.MaxInt)
		}
		select {
		case <-e.over:
		case <-time.After(nap): // a call has entered, and has not come to began yet, or waits for its copies itself
		}
	}
}

// left returns memory in an allocation that copies touch although the window has ended, and the windows of the copies.
func (of *allocation) left() (*exposure, []*paths) {
	exposed.mu.Lock()
	defer exposed.mu.Unlock()
	for _, e := range exposed.all {
		if e.ended && e.mem.Driver == of.driver && e.mem.Memory.ID == of.memory.ID {
			return e, slices.Collect(maps.Keys(e.copies))
		}
	}
	return nil, nil
}

// endUse ends all use of an allocation by ranks, unless a window, a collective call or a receive has it.
func (of *allocation) endUse() *mpi.Error {
	of.settleLeft()
	exposed.mu.Lock()
	defer exposed.mu.Unlock()
	for _, e := range exposed.all {
		if e.mem.Driver == of.driver && e.mem.Memory.ID == of.memory.ID {
			return mpierr.New("", mpi.ErrBuffer, "a window has the memory, from %#x on; call its Free first", e.mem.Addr)
		}
	}
	if of.results.Load() > 0 {
		return mpierr.New("", mpi.ErrBuffer, "a collective call, a receive or an operation of a window uses the memory; "+
			"complete its request with Wait or Test, or end its epoch, first")
	}
	if of.freed.Swap(true) {
		return mpierr.New("", mpi.ErrNoMemory, "the memory has been freed already")
	}
	return nil
}

// tellRank is what a rank tells the others of its memory.
type tellRank struct {
	key    [16]byte
	bytes  int64 // of its elements
	offset int64 // of the elements in the allocation
	size   int64 // of the allocation
	pci    string
	handle []byte // by which another process opens it; empty: none does
}

// tellSize is the length of a tellRank: three integers, and the two others with their lengths.
const (
	tellSize   = 256
	tellFixed  = 16 + 3*8
	pciMost    = 31
	handleMost = tellSize - tellFixed - 1 - pciMost - 1
)

// tell is what other ranks are told of this one's memory. A handle is made only if another rank is on this host.
func (p *paths) tell(c *mpi.Comm) []byte {
	var t tellRank
	if p.own != nil {
		b := p.own.mem
		t.key, t.bytes = p.own.key, b.Len
		if p.hasNeighbor(c) {
			t.export(b)
		}
	}
	return t.append(make([]byte, 0, tellSize))
}

func (p *paths) hasNeighbor(c *mpi.Comm) bool {
	if c == nil || c.IsInter() {
		return false
	}
	for rank := range c.Size() {
		if rank != c.Rank() && door.Through().Host(c, rank) == door.Through().Host(c, c.Rank()) {
			return true
		}
	}
	return false
}

// export adds how another process reaches b, if that is possible.
func (t *tellRank) export(b accel.Buffer) {
	handle, offset, err := b.Driver.Export(b.Memory)
	all, failed := b.Driver.Devices()
	if err != nil || failed != nil || len(handle) > handleMost {
		return // the ranks ask for everything then
	}
	if i := b.Memory.Device; i < len(all) && len(all[i].PCI) <= pciMost {
		t.pci = all[i].PCI
	}
	t.handle, t.size = handle, offset+b.Memory.Size
	t.offset = offset + int64(b.Addr-b.Memory.Base)
}

func (t *tellRank) append(b []byte) []byte {
	b = append(b, t.key[:]...)
	for _, v := range []int64{t.bytes, t.offset, t.size} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	b = append(append(b, byte(len(t.pci))), t.pci...)
	b = append(append(b, byte(len(t.handle))), t.handle...)
	return append(b, make([]byte, tellSize-len(b))...)
}

// decode reads what a rank has told. The error says what cannot be right.
func (t *tellRank) decode(b []byte) error {
	if len(b) != tellSize {
		return fmt.Errorf("%d bytes about device memory, and not %d", len(b), tellSize)
	}
	le := binary.LittleEndian
	*t = tellRank{key: [16]byte(b), bytes: int64(le.Uint64(b[16:])), offset: int64(le.Uint64(b[24:])),
		size: int64(le.Uint64(b[32:]))}
	b = b[tellFixed:]
	if n := int(b[0]); n > pciMost {
		return fmt.Errorf("an address of %d bytes, and not at most %d", n, pciMost)
	}
	t.pci, b = string(b[1:][:b[0]]), b[1+b[0]:]
	if n := int(b[0]); n > len(b)-1 {
		return fmt.Errorf("a handle of %d bytes, and %d follow", n, len(b)-1)
	}
	t.handle = bytes.Clone(b[1:][:b[0]])
	const most = math.MaxInt64 / 2
	if t.bytes < 0 || t.bytes > most || t.offset < 0 || t.size < 0 || t.size > most ||
		len(t.handle) > 0 && (t.offset > t.size || t.bytes > t.size-t.offset) {
		return fmt.Errorf("%d bytes from byte %d on, of memory of %d bytes", t.bytes, t.offset, t.size)
	}
	return nil
}

// hear takes what the ranks have told. A rank that has told what cannot be is asked for everything.
func (p *paths) hear(c *mpi.Comm, told []byte) {
	p.ranks = make([]reachedRank, c.Size())
	host := door.Through().Host(c, c.Rank())
	for rank := range p.ranks {
		t := &p.ranks[rank].told
		if err := t.decode(told[rank*tellSize:][:tellSize]); err != nil {
			*t = tellRank{}
		} else if p.own != nil && rank != c.Rank() && t.key == p.own.key { // which has not told the truth
			*t = tellRank{}
		} else if door.Through().Host(c, rank) != host {
			t.handle = nil
		}
	}
}

// reach returns how copies of this rank reach the memory of a rank, if they do.
func (p *paths) reach(rank int, o *operation) mapping {
	if rank < 0 || rank >= len(p.ranks) || p.driver == nil || o.device.Len > 0 && o.device.Driver != p.driver ||
		p.ranks[rank].told.bytes == 0 {
		return mapping{}
	}
	want := mpi.Undefined
	if o.device.Len > 0 {
		want = o.device.Memory.Device
	}
	p.using.RLock()
	defer p.using.RUnlock()
	r := &p.ranks[rank]
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.maps {
		if m.want == want {
			return m
		}
	}
	m := p.find(&r.told, want)
	r.maps = append(r.maps, m)
	return m
}

// find finds the memory that a rank has told of, for a device.
func (p *paths) find(t *tellRank, want int) mapping {
	m := mapping{want: want, device: want}
	exposed.mu.Lock()
	near := exposed.all[t.key]
	exposed.mu.Unlock()
	if near != nil && near.mem.Driver == p.driver && near.mem.Len == t.bytes {
		if m.base, m.near, m.ok = near.mem.Addr, near, true; want == mpi.Undefined {
			m.device = near.mem.Memory.Device
		}
		return m
	}
	known := true
	if want == mpi.Undefined {
		m.device, known = p.deviceOf(t.pci)
	}
	if len(t.handle) == 0 || !known || p.closed {
		return m
	}
	if at, err := p.driver.Open(m.device, t.handle, t.size); err == nil { // else the rank is asked
		m.base, m.opened, m.ok = at+uint64(t.offset), at, true
	}
	return m
}

// deviceOf is the number of the device here that another process has named by its address; of this rank's own device if
// it is not here.
func (p *paths) deviceOf(pci string) (int, bool) {
	all, err := p.driver.Devices()
	if err != nil || len(all) == 0 {
		return 0, false
	}
	for i, d := range all {
		if pci != "" && strings.EqualFold(d.PCI, pci) {
			return i, true
		}
	}
	if p.own != nil {
		return p.own.mem.Memory.Device, true
	}
	return 0, true
}

// errFreed is for an operation that another goroutine's Free has overtaken.
var errFreed = mpierr.New("", mpi.ErrComm, "another goroutine has called Free meanwhile; use the window before Free")

// errLeft is for an operation at a rank of this process whose Free has returned without waiting for this rank.
var errLeft = mpierr.New("", mpi.ErrPeerFailed, "the rank has freed the window after the failure of another rank; "+
	"call Free here too")

// make starts the copies of o from or to a rank's elements from element at on. made: it has. Otherwise the rank is to
// be asked, since it has told of less memory than it has.
func (p *paths) make(o *operation, m mapping, rank int, at int64) (made bool, err error) {
	p.using.RLock()
	defer p.using.RUnlock()
	n, off := o.size(), at*p.elem
	switch {
	case p.closed:
		return false, errFreed
	case n == 0:
		return true, nil
	case off > p.ranks[rank].told.bytes-n:
		return false, nil
	case !m.near.enter(p):
		return false, errLeft
	case n > chunk && o.device.Len == 0:
		err = p.copyLong(o, m.device, m.base+uint64(off))
		m.near.leave(p)
		return true, err
	}
	k := &rankCopy{rank: rank, near: m.near}
	if o.device.Len > 0 {
		k.buffer = o.of
		k.buffer.results.Add(1)
		err = p.copyDevice(o, k, m.device, m.base+uint64(off))
	} else {
		err = p.copyShort(o, k, m.device, m.base+uint64(off))
	}
	if err != nil {
		k.leave(p)
	}
	return true, err
}

// leave is called when the copy touches nothing any more.
func (k *rankCopy) leave(p *paths) {
	k.near.leave(p)
	if k.buffer != nil {
		k.buffer.results.Add(-1)
	}
}

// copyDevice copies device memory. If its stream has not come so far, a later call starts the copy.
func (p *paths) copyDevice(o *operation, k *rankCopy, device int, addr uint64) error {
	behind, err := markOf(o.device)
	if err != nil {
		return err
	}
	k.behind, k.dst, k.src, k.n = behind, addr, o.device.Addr, o.device.Len
	if !o.put {
		k.dst, k.src = k.src, k.dst
	}
	return p.begin(k, device)
}

// start starts the copy if the stream has come to the mark, and the device has room or the copy is awaited. It reports
// whether it is not for room that the copy is not started.
func (k *rankCopy) start(d accel.Driver, awaited bool) bool {
	if k.driver != nil || k.err != nil {
		return true
	}
	var passed bool
	if passed, k.err = k.behind.passed(); !passed || k.err != nil {
		return true
	}
	if !enterDevice(d, k.device, awaited) {
		return false
	}
	var c copying
	if c, k.err = startCopy(d, k.device, k.dst, k.src, k.n); k.err == nil {
		k.copying = c
	} else {
		leaveDevice(d, k.device)
	}
	return true
}

// waits reports whether the copy waits for a stream.
func (k *rankCopy) waits() bool { return k.behind.driver != nil }

// finish returns when the copy has ended, which waits for no stream.
func (k *rankCopy) finish(d accel.Driver) error {
	if k.start(d, true); k.err != nil {
		return k.err
	}
	err := k.wait()
	leaveDevice(d, k.device)
	if err == nil {
		copy(k.to, k.through.mem)
	}
	return err
}

// copyLong copies memory of the host in chunks, and waits for them.
func (p *paths) copyLong(o *operation, device int, addr uint64) error {
	b := accel.Buffer{Driver: p.driver, Memory: accel.Memory{Device: device}, Addr: addr, Len: int64(len(o.host))}
	all := pipe{b: b, host: o.host, toDevice: o.put, part: chunk}
	through, bad := take(p.driver, chunk*min(chunks, (b.Len+chunk-1)/chunk))
	if bad != nil {
		return bad
	}
	defer through.giveBack()
	all.through = through
	return all.run()
}

// copyShort copies memory of the host through pinned memory, which is the copy's until settle.
func (p *paths) copyShort(o *operation, k *rankCopy, device int, addr uint64) error {
	through, bad := take(p.driver, int64(len(o.host)))
	if bad != nil {
		return bad
	}
	k.through, k.dst, k.src, k.n = through, addr, addressOf(through.mem), int64(len(o.host))
	if o.put {
		copy(through.mem, o.host)
	} else {
		k.to = o.host
		k.dst, k.src = k.src, k.dst
	}
	err := p.begin(k, device)
	if err != nil {
		through.giveBack()
	}
	return err
}

// begin begins a copy, and starts those whose streams have come to their marks by now. If many are under way, it waits
// for the oldest.
func (p *paths) begin(k *rankCopy, device int) error {
	k.device, k.over = device, make(chan struct{})
	if k.start(p.driver, false); k.err != nil {
		return k.err
	}
	p.mu.Lock()
	p.under = append(p.under, k)
	under := 0
	for _, k := range p.under {
		if k.taken {
			continue
		}
		if k.start(p.driver, false); !k.waits() {
			under++
		}
	}
	p.mu.Unlock()
	if under > copiesMost {
		p.settleSome(func(k *rankCopy) bool { return !k.taken && !k.waits() }, copiesMost/2)
	}
	return nil
}

// settle returns when the copies at a rank that were started before are over. The error is of the first copy that has
// failed there.
func (p *paths) settle(rank int) error {
	of := func(k *rankCopy) bool { return rank == allRanks || k.rank == rank }
	p.settleSome(of, math.MaxInt)
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for at, err := range p.failed {
		if rank == allRanks || at == rank {
			errs = append(errs, err)
			delete(p.failed, at)
		}
	}
	return errors.Join(errs...)
}

// settleSome waits for the oldest copies, at most so many of those that are meant.
func (p *paths) settleSome(meant func(*rankCopy) bool, most int) {
	var all, own []*rankCopy
	p.mu.Lock()
	for _, k := range p.under {
		if len(all) == most || !meant(k) {
			continue
		}
		if all = append(all, k); !k.taken {
			k.taken = true
			own = append(own, k)
		}
	}
	p.mu.Unlock()
	for looks := 0; len(own) > 0; looks++ {
		var behind []*rankCopy // their streams: one of them may wait for another copy
		ahead := 0
		for i, k := range own {
			for ahead = max(ahead, i); ahead < len(own) && own[ahead].start(p.driver, false); ahead++ {
			}
			if k.waits() {
				behind = append(behind, k)
			} else {
				p.end(k)
			}
		}
		if len(behind) == len(own) {
			pause(looks)
		}
		own = behind
	}
	for _, k := range all {
		<-k.over
	}
}

// end waits for the end of a copy that this goroutine has taken.
func (p *paths) end(k *rankCopy) {
	err := k.finish(p.driver)
	k.through.giveBack()
	k.leave(p)
	if err != nil {
		p.fails(k.rank, err)
	}
	p.mu.Lock()
	p.under = slices.DeleteFunc(p.under, func(other *rankCopy) bool { return other == k })
	p.mu.Unlock()
	close(k.over)
}

// fails keeps the first error of the copies at a rank.
func (p *paths) fails(rank int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = map[int]error{}
	}
	if p.failed[rank] == nil {
		p.failed[rank] = err
	}
}

// quiesce ends all copies, and closes what has been opened: no operation comes any more.
func (p *paths) quiesce() error {
	p.using.Lock()
	defer p.using.Unlock()
	p.closed = true
	errs := []error{p.settle(allRanks)}
	for i := range p.ranks {
		r := &p.ranks[i]
		r.mu.Lock()
		for _, m := range r.maps {
			if m.opened != 0 {
				errs = append(errs, p.driver.Close(m.device, m.opened))
			}
		}
		r.maps = nil
		r.mu.Unlock()
	}
	return errors.Join(errs...)
}
