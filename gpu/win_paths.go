package gpu

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/door"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// A rank copies to and from memory of its own process, and from memory that another process of its host has exported and
// that can be opened here. What another rank says of its memory is hostile until it is checked here. Whether a handle
// is of an allocation of the size that the rank says, only the driver knows.

// allRanks stands for the rank of a call that is about all of them.
const allRanks = -1 << 30

// copiesMost is how many copies of a window are under way. Each has some pinned memory if its buffer is of the host.
const copiesMost = 64

// operation is what a call moves.
type operation struct {
	put    bool
	host   []byte       // memory of the host; or
	device accel.Buffer // memory of a device, if that has bytes
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

	settling sync.Mutex // held by the goroutine that waits for copies
	mu       sync.Mutex // guards what follows
	under    []rankCopy // in the order in which they were started
	failed   map[int]error
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
}

// rankCopy is a copy that is under way.
type rankCopy struct {
	copying
	rank    int
	through stage
	to      []byte // where the caller wants what comes to through; nil: nothing comes
}

// exposure is memory of this process that a window has.
type exposure struct {
	key [16]byte // by which a rank that is told it finds the memory, if it is of the same process
	mem accel.Buffer
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
	own := &exposure{mem: b}
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
	if p.own != nil {
		delete(exposed.all, p.own.key)
	}
	close(p.released)
}

// endUse ends all use of an allocation by ranks, unless a window, a collective call or a receive has it.
func (of *allocation) endUse() *mpi.Error {
	exposed.mu.Lock()
	defer exposed.mu.Unlock()
	for _, e := range exposed.all {
		if e.mem.Driver == of.driver && e.mem.Memory.ID == of.memory.ID {
			return mpierr.New("", mpi.ErrBuffer, "a window has the memory, from %#x on; call its Free first", e.mem.Addr)
		}
	}
	if of.results.Load() > 0 {
		return mpierr.New("", mpi.ErrBuffer, "a collective call or a receive uses the memory; complete its request "+
			"with Wait or Test first")
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
		if m.base, m.ok = near.mem.Addr, true; want == mpi.Undefined {
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
	case o.device.Len > 0:
		err = p.copyDevice(o, m.device, rank, m.base+uint64(off))
	case n > chunk:
		err = p.copyLong(o, m.device, m.base+uint64(off))
	default:
		err = p.copyShort(o, m.device, rank, m.base+uint64(off))
	}
	return true, err
}

// copyDevice copies device memory.
func (p *paths) copyDevice(o *operation, device, rank int, addr uint64) error {
	if err := after(o.device); err != nil {
		return err
	}
	dst, src := addr, o.device.Addr
	if !o.put {
		dst, src = src, dst
	}
	c, err := startCopy(p.driver, device, dst, src, o.device.Len)
	if err != nil {
		return err
	}
	p.began(rankCopy{copying: c, rank: rank})
	return before(o.device)
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
func (p *paths) copyShort(o *operation, device, rank int, addr uint64) error {
	through, bad := take(p.driver, int64(len(o.host)))
	if bad != nil {
		return bad
	}
	k := rankCopy{rank: rank, through: through}
	dst, src := addr, addressOf(through.mem)
	if o.put {
		copy(through.mem, o.host)
	} else {
		k.to = o.host
		dst, src = src, dst
	}
	var err error
	if k.copying, err = startCopy(p.driver, device, dst, src, int64(len(o.host))); err != nil {
		through.giveBack()
		return err
	}
	p.began(k)
	return nil
}

// began notes a copy. If there are many, it waits for the oldest.
func (p *paths) began(k rankCopy) {
	p.mu.Lock()
	p.under = append(p.under, k)
	full := len(p.under) > copiesMost
	p.mu.Unlock()
	if full {
		p.settleSome(func(rankCopy) bool { return true }, copiesMost/2)
	}
}

// settle returns when the copies at a rank that were started before are over. The error is of the first copy that has
// failed there.
func (p *paths) settle(rank int) error {
	of := func(k rankCopy) bool { return rank == allRanks || k.rank == rank }
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
func (p *paths) settleSome(meant func(rankCopy) bool, most int) {
	p.settling.Lock()
	defer p.settling.Unlock()
	var due []rankCopy
	p.mu.Lock()
	left := p.under[:0]
	for _, k := range p.under {
		if len(due) < most && meant(k) {
			due = append(due, k)
		} else {
			left = append(left, k)
		}
	}
	clear(p.under[len(left):])
	p.under = left
	p.mu.Unlock()
	for _, k := range due {
		err := k.wait()
		if err == nil {
			copy(k.to, k.through.mem)
		}
		k.through.giveBack()
		if err != nil {
			p.fails(k.rank, err)
		}
	}
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
