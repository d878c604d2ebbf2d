//go:build linux && cgo

package cuda

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/accel"
)

func init() { accel.Use(&driver{}) }

// driver is the one driver of this process.
type driver struct {
	once    sync.Once
	failure error // why there is none
	devices []accel.Device
	self    process
	alone   bool // it shares no memory: GORUN_CUDA_SHARE

	// mu guards what follows. It is held while memory is opened and closed, so that the count of an open one is true.
	mu     sync.Mutex
	blocks map[uint64]*allocation // of Alloc, by address
	opens  map[openKey]*opened
	pins   map[uint64]int // the device of each, by address
	synced map[uint64]uint64
}

// allocation is memory of Alloc.
type allocation struct {
	block
	id     uint64
	device int
	shared *shared // once it has been exported
}

// start starts the driver at the first call. It must not be part of a program's start: it takes a third of a second.
func (d *driver) start() error {
	d.once.Do(func() {
		n, err := load(os.Getenv("GORUN_CUDA_LIB"))
		for i := 0; i < n && err == nil; i++ {
			var one accel.Device
			one, err = describe(i)
			d.devices = append(d.devices, one)
		}
		if err == nil {
			d.self, err = thisProcess()
		}
		if share, wrong := strconv.ParseBool(os.Getenv("GORUN_CUDA_SHARE")); wrong == nil {
			d.alone = !share
		}
		if err != nil {
			d.failure = fmt.Errorf("%w: %w", accel.ErrNoDriver, err)
		}
		d.blocks, d.opens = map[uint64]*allocation{}, map[openKey]*opened{}
		d.pins, d.synced = map[uint64]int{}, map[uint64]uint64{}
	})
	return d.failure
}

// Name implements accel.Driver.
func (d *driver) Name() string { return "cuda" }

// Devices implements accel.Driver.
func (d *driver) Devices() ([]accel.Device, error) {
	if err := d.start(); err != nil {
		return nil, err
	}
	return slices.Clone(d.devices), nil
}

// Query implements accel.Driver.
func (d *driver) Query(addr uint64) (accel.Memory, error) {
	if err := d.start(); err != nil {
		return accel.Memory{}, err
	}
	m, ipc, err := query(addr)
	if err == nil && m.Kind == accel.OnBoard && ipc {
		d.sync(m)
	}
	return m, err
}

// sync asks the driver, once an allocation, that its own copies to and from the memory are done when they return.
// Otherwise a short cudaMemcpy may return before the bytes are there, and a message takes the old ones. The driver
// refuses for some kinds of memory, for which it has no other way.
func (d *driver) sync(m accel.Memory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.synced[m.Base] == m.ID {
		return
	}
	if len(d.synced) > 1<<12 { // of memory that is long gone
		clear(d.synced)
	}
	d.synced[m.Base] = m.ID
	_ = syncMemops(m)
}

// Alloc implements accel.Driver.
func (d *driver) Alloc(device int, n int64) (accel.Memory, error) {
	if err := d.start(); err != nil {
		return accel.Memory{}, err
	}
	if n <= 0 {
		return accel.Memory{}, fmt.Errorf("an allocation of %d bytes", n)
	}
	b, err := alloc(device, n)
	if err != nil {
		return accel.Memory{}, err
	}
	m, _, err := query(b.addr)
	if err == nil && (m.Kind != accel.OnBoard || m.Base != b.addr || m.Size != int64(b.size)) {
		err = fmt.Errorf("the driver says of %d bytes of device memory at %#x that they are %d bytes of %v at %#x", b.size,
			b.addr, m.Size, m.Kind, m.Base)
	}
	if err != nil {
		free(device, b)
		return accel.Memory{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocks[b.addr] = &allocation{block: b, id: m.ID, device: device}
	return m, nil
}

// own returns memory of Alloc. The caller holds the lock.
func (d *driver) own(m accel.Memory) *allocation {
	if a := d.blocks[m.Base]; a != nil && a.id == m.ID {
		return a
	}
	return nil
}

// Free implements accel.Driver.
func (d *driver) Free(m accel.Memory) error {
	if err := d.start(); err != nil {
		return err
	}
	d.mu.Lock()
	a := d.own(m)
	if a != nil {
		delete(d.blocks, m.Base)
	}
	d.mu.Unlock()
	if a == nil {
		return fmt.Errorf("memory at %#x is not, or is no longer, of Alloc", m.Base)
	}
	if a.shared != nil {
		a.shared.close()
	}
	return free(a.device, a.block)
}

// Copy implements accel.Driver.
func (d *driver) Copy(device int, dst, src uint64, n int64) (accel.Event, error) {
	if err := d.start(); err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, fmt.Errorf("a copy of %d bytes", n)
	}
	return startCopy(device, dst, src, n)
}

// Mark implements accel.Driver.
func (d *driver) Mark(device int, stream uint64) (accel.Event, error) {
	if err := d.start(); err != nil {
		return 0, err
	}
	return mark(device, stream)
}

// Done implements accel.Driver.
func (d *driver) Done(device int, ev accel.Event) (bool, error) { return done(device, ev) }

// Drop implements accel.Driver.
func (d *driver) Drop(device int, ev accel.Event) { drop(device, ev) }

// Notify implements accel.Driver.
func (d *driver) Notify(device int, fd int) error {
	if err := d.start(); err != nil {
		return err
	}
	return notify(device, fd)
}

// Pin implements accel.Driver.
func (d *driver) Pin(b []byte) error {
	if err := d.start(); err != nil {
		return err
	}
	if len(b) == 0 {
		return fmt.Errorf("no memory to pin")
	}
	device, err := pin(b)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pins[address(b)] = device
	return nil
}

// Unpin implements accel.Driver.
func (d *driver) Unpin(b []byte) error {
	if err := d.start(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	device, ok := d.pins[address(b)]
	if !ok {
		return fmt.Errorf("host memory at %#x is not pinned", address(b))
	}
	err := unpin(device, b)
	if err == nil {
		delete(d.pins, address(b))
	}
	return err
}

// DMABuf implements accel.Driver.
func (d *driver) DMABuf(m accel.Memory, addr uint64, n int64) (int, error) {
	if err := d.start(); err != nil {
		return -1, err
	}
	if addr < m.Base || n <= 0 || n > m.Size || addr-m.Base > uint64(m.Size-n) {
		return -1, fmt.Errorf("%d bytes at %#x are not within %d bytes at %#x", n, addr, m.Size, m.Base)
	}
	return closed(func() (int, error) { return dmabuf(m.Device, addr, n) })
}

// Flush implements accel.Driver.
func (d *driver) Flush(device int) error {
	if err := d.start(); err != nil {
		return err
	}
	return flush(device)
}

// UserCall calls a function of the library by its name, as a program does that has its own door to it, for tests: the
// software GPU has functions that no driver has. The context of device is current; -1: none need be. An argument is a
// number, or the address of memory off the Go heap.
func (d *driver) UserCall(device int, name string, args ...uint64) error {
	if err := d.start(); err != nil {
		return err
	}
	return userCall(device, name, args...)
}

// closed returns the descriptor that open makes, which no program inherits.
func closed(open func() (int, error)) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := open()
	if err != nil {
		return -1, err
	}
	unix.CloseOnExec(fd)
	return fd, nil
}
