package acceltest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"syscall"

	"github.com/gorun-mpi/mpi/accel"
)

const (
	// firstAddr is beyond all addresses that a program can have.
	firstAddr = 0xd00000000000
	firstID   = 927
	alignment = 256
)

// Process is the driver of one process of a Machine.
type Process struct {
	m      *Machine
	number uint64

	spans    []*span
	nextAddr uint64
	nextID   uint64
	free     map[int64][]uint64 // addresses by size, the last freed at the end
	opens    map[openKey]*span

	library, null []*Stream        // by device
	notices       map[*notice]bool // that are due
	streams       map[uint64]*Stream
	events        map[accel.Event]*copying
	lastEvent     accel.Event

	calls map[string]int   // by method
	fails map[string][]int // which calls to come fail, counted from the first ever
	died  chan struct{}
}

var _ accel.Driver = (*Process)(nil)

type openKey struct {
	device int
	of     *store
}

// Fail makes a call to come fail: nth 1 is the next call of that method. CopyEnd is no method: the copy that is started
// by the nth call of Copy ends with an error, and has written the first half of its bytes. No more is MarkEnd: what the
// nth call of Mark has marked ends with an error.
func (p *Process) Fail(method string, nth int) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.fails[method] = append(p.fails[method], p.calls[method]+nth)
}

// Calls returns how often a method has been called.
func (p *Process) Calls(method string) int {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.calls[method]
}

// Die ends the process: its copies do not go on, and its memory lives where another process has it open. Notices that
// are due are given, since a process that dies leaves no descriptor for which a goroutine waits.
func (p *Process) Die() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.isDead() {
		return
	}
	close(p.died)
	for n := range p.notices {
		p.give(n)
	}
	for _, s := range slices.Clone(p.spans) {
		p.drop(s)
	}
}

func (p *Process) isDead() bool {
	select {
	case <-p.died:
		return true
	default:
		return false
	}
}

// enter begins a call. The caller holds the lock.
func (p *Process) enter(method string) error {
	p.calls[method]++
	switch {
	case p.m.options.NoDriver:
		return fmt.Errorf("%w: libcuda.so.1 is not here", accel.ErrNoDriver)
	case p.isDead():
		return failure(method, invalidContext)
	case slices.Contains(p.fails[method], p.calls[method]):
		return &accel.Error{Call: method, Code: 999, Name: "CUDA_ERROR_UNKNOWN"}
	}
	return nil
}

func (p *Process) enterDevice(method string, device int) error {
	err := p.enter(method)
	if err == nil && (device < 0 || device >= p.m.options.Devices) {
		err = failure(method, invalidDevice)
	}
	return err
}

func (p *Process) misuse(format string, args ...any) {
	p.m.misuse = append(p.m.misuse, fmt.Sprintf("process %d: ", p.number)+fmt.Sprintf(format, args...))
}

// find returns the span of n bytes at addr, nil if they do not lie in one.
func (p *Process) find(addr uint64, n int64) *span {
	for _, s := range p.spans {
		if addr >= s.base && addr-s.base < uint64(s.size) && uint64(n) <= uint64(s.size)-(addr-s.base) {
			return s
		}
	}
	return nil
}

// address returns where size bytes lie: where the last span of this size was, if it is gone.
func (p *Process) address(size int64) uint64 {
	if l := p.free[size]; len(l) > 0 {
		p.free[size] = l[:len(l)-1]
		return l[len(l)-1]
	}
	at := p.nextAddr
	p.nextAddr += (uint64(size) + alignment - 1) / alignment * alignment
	return at
}

func (p *Process) add(s *span) *span {
	s.id = p.nextID
	p.nextID++
	p.spans = append(p.spans, s)
	return s
}

// drop takes a span out of the address space.
func (p *Process) drop(s *span) {
	s.gone = true
	p.spans = slices.DeleteFunc(p.spans, func(o *span) bool { return o == s })
	switch {
	case s.of == nil:
		return
	case s.of.owner == p:
		s.of.freed = true
	default:
		delete(p.opens, openKey{s.device, s.of})
		s.of.mappings--
	}
	if s.of.freed && s.of.mappings == 0 {
		p.m.used[s.of.device] -= int64(len(s.of.bytes))
	}
	p.free[s.size] = append(p.free[s.size], s.base)
}

// Name implements accel.Driver.
func (p *Process) Name() string { return "acceltest" }

// Devices implements accel.Driver.
func (p *Process) Devices() ([]accel.Device, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enter("Devices"); err != nil {
		return nil, err
	}
	var all []accel.Device
	for i := range p.m.options.Devices {
		d := accel.Device{Name: "acceltest", PCI: fmt.Sprintf("0000:%02x:00.0", 0x10+i), Memory: p.m.options.Memory,
			DMABuf: p.m.options.Adapters}
		for o := range p.m.options.Devices {
			if o != i {
				d.Peers = append(d.Peers, o)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// Query implements accel.Driver.
func (p *Process) Query(addr uint64) (accel.Memory, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enter("Query"); err != nil {
		return accel.Memory{}, err
	}
	if s := p.find(addr, 1); s != nil {
		return s.memory(), nil
	}
	return accel.Memory{}, nil
}

// Alloc implements accel.Driver.
func (p *Process) Alloc(device int, n int64) (accel.Memory, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enterDevice("Alloc", device); err != nil {
		return accel.Memory{}, err
	}
	g := p.m.options.Granularity
	if n <= 0 || n > 1<<50 {
		return accel.Memory{}, failure("cuMemCreate", invalidValue)
	}
	return p.alloc(device, (n+g-1)/g*g, accel.OnBoard, p.m.options.NotShared)
}

func (p *Process) alloc(device int, n int64, kind accel.Kind, private bool) (accel.Memory, error) {
	if n > p.m.options.Memory-p.m.used[device] {
		return accel.Memory{}, failure("cuMemAlloc_v2", outOfMemory)
	}
	p.m.used[device] += n
	p.m.stores++
	of := &store{serial: p.m.stores, owner: p, device: device, bytes: make([]byte, n), private: private}
	for i := range min(n, 1<<16) { // no program may count on zeros
		of.bytes[i] = 0xa5
	}
	return p.add(&span{base: p.address(n), size: n, kind: kind, device: device, bytes: of.bytes, of: of}).memory(), nil
}

// How memory of a user was made.
type How int

const (
	Ordinary How = iota // by cuMemAlloc
	Pool                // by cuMemAllocAsync: cannot be exported
	Moving              // by cuMemAllocManaged
)

// UserAlloc makes memory as a user's program does, not the library: of just n bytes. It panics if it cannot.
func (p *Process) UserAlloc(device int, n int64, how How) accel.Memory {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	kind := accel.OnBoard
	if how == Moving {
		kind = accel.Managed
	}
	mem, err := p.alloc(device, n, kind, how != Ordinary || p.m.options.NotShared)
	if err != nil {
		panic(err)
	}
	return mem
}

// UserFree frees memory of UserAlloc, or of Alloc, as a user's program may at any time: Left does not name it.
func (p *Process) UserFree(m accel.Memory) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if s := p.find(m.Base, 1); s != nil && s.id == m.ID {
		p.drop(s)
		return
	}
	panic(fmt.Sprintf("acceltest: there is no memory at %#x of the ID %d", m.Base, m.ID))
}

// Free implements accel.Driver.
func (p *Process) Free(m accel.Memory) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enter("Free"); err != nil {
		return err
	}
	s := p.find(m.Base, 1)
	if s == nil || s.base != m.Base || s.of == nil || s.of.owner != p {
		return failure("cuMemFree_v2", invalidValue)
	}
	if s.id != m.ID {
		p.misuse("Free of memory at %#x that was freed before: its ID is %d now, and was %d", m.Base, s.id, m.ID)
	}
	if s.busy > 0 {
		p.misuse("Free of memory at %#x under %d copies", s.base, s.busy)
	}
	if s.of.mappings > 0 {
		p.misuse("Free of memory at %#x that %d others have open", s.base, s.of.mappings)
	}
	p.drop(s)
	return nil
}

var magic = []byte("acceltest handle")

// Export implements accel.Driver.
func (p *Process) Export(m accel.Memory) ([]byte, int64, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enter("Export"); err != nil {
		return nil, 0, err
	}
	s := p.find(m.Base, 1)
	switch {
	case s == nil || s.id != m.ID:
		return nil, 0, failure("cuIpcGetMemHandle", invalidValue)
	case s.of == nil || s.of.private || s.of.owner != p:
		return nil, 0, accel.ErrNotShared
	}
	s.of.exported = true
	h := binary.LittleEndian.AppendUint64(slices.Clone(magic), p.number)
	return binary.LittleEndian.AppendUint64(h, s.of.serial), int64(m.Base - s.base), nil
}

// Open implements accel.Driver.
func (p *Process) Open(device int, handle []byte, size int64) (uint64, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enterDevice("Open", device); err != nil {
		return 0, err
	}
	of := p.m.exported(handle)
	switch {
	case of == nil || int64(len(of.bytes)) != size:
		return 0, failure("cuIpcOpenMemHandle_v2", invalidValue)
	case of.owner == p:
		return 0, failure("cuIpcOpenMemHandle_v2", invalidContext)
	}
	key := openKey{device, of}
	s := p.opens[key]
	if s == nil && (of.freed || of.owner.isDead()) {
		return 0, failure("cuIpcOpenMemHandle_v2", invalidValue)
	}
	if s == nil {
		s = p.add(&span{base: p.address(size), size: size, kind: accel.OnBoard, device: device, bytes: of.bytes, of: of})
		p.opens[key] = s
		of.mappings++
	}
	s.opened++
	return s.base, nil
}

// exported returns the memory of a handle.
func (m *Machine) exported(handle []byte) *store {
	rest, ok := bytes.CutPrefix(handle, magic)
	if !ok || len(rest) != 16 {
		return nil
	}
	owner, serial := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
	for _, p := range m.processes {
		for _, s := range p.spans {
			if s.of != nil && s.of.owner.number == owner && s.of.serial == serial && s.of.exported {
				return s.of
			}
		}
	}
	return nil
}

// Close implements accel.Driver.
func (p *Process) Close(device int, addr uint64) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enterDevice("Close", device); err != nil {
		return err
	}
	s := p.find(addr, 1)
	if s == nil || s.base != addr || s.opened == 0 || s.device != device {
		return failure("cuIpcCloseMemHandle", invalidValue)
	}
	if s.opened--; s.opened > 0 {
		return nil
	}
	if s.busy > 0 {
		p.misuse("Close of memory at %#x under %d copies", s.base, s.busy)
	}
	p.drop(s)
	return nil
}

// Pin implements accel.Driver.
func (p *Process) Pin(b []byte) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enter("Pin"); err != nil {
		return err
	}
	if len(b) == 0 {
		return failure("cuMemHostRegister_v2", invalidValue)
	}
	at := address(b)
	for _, s := range p.spans {
		if at < s.base+uint64(s.size) && s.base < at+uint64(len(b)) {
			return failure("cuMemHostRegister_v2", alreadyPinned)
		}
	}
	p.add(&span{base: at, size: int64(len(b)), kind: accel.Pinned, bytes: b})
	return nil
}

// Unpin implements accel.Driver.
func (p *Process) Unpin(b []byte) error {
	// The copy that runs now ends before the caller may unmap b.
	p.m.moving.Lock()
	defer p.m.moving.Unlock()
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enter("Unpin"); err != nil {
		return err
	}
	if len(b) == 0 {
		return failure("cuMemHostUnregister", invalidValue)
	}
	s := p.find(address(b), 1)
	switch {
	case s == nil || s.kind != accel.Pinned:
		return failure("cuMemHostUnregister", notPinned)
	case s.base != address(b):
		return failure("cuMemHostUnregister", invalidValue)
	}
	if s.busy > 0 {
		p.misuse("Unpin of host memory at %#x under %d copies", s.base, s.busy)
	}
	p.drop(s)
	return nil
}

// DMABuf implements accel.Driver. The descriptor is of no use: a test knows the addresses.
func (p *Process) DMABuf(m accel.Memory, addr uint64, n int64) (int, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enter("DMABuf"); err != nil {
		return -1, err
	}
	const call, page = "cuMemGetHandleForAddressRange", 4096
	if !p.m.options.Adapters {
		return -1, failure(call, notSupported)
	}
	if s := p.find(addr, 1); n <= 0 || addr%page != 0 || n%page != 0 || s == nil || s.id != m.ID || p.find(addr, n) != s {
		return -1, failure(call, invalidValue)
	}
	return syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
}

// Flush implements accel.Driver.
func (p *Process) Flush(device int) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.enterDevice("Flush", device)
}
