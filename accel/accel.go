package accel

// Driver is the driver of the accelerators of one kind. Any goroutine may call its methods. No method starts a thread
// that runs Go. Only Devices may be called before a buffer exists; the first call of any method starts the driver,
// which takes up to a third of a second.
//
// An address is a number: in the one address space of host and devices, where an accelerator has one. Host memory that
// is passed as a number must be pinned by Pin, and be off the Go heap.
type Driver interface {
	// Name is "cuda".
	Name() string
	// Devices are those that this process may use, by number.
	Devices() ([]Device, error)
	// Query says what lies at addr. Memory that the driver does not know is Host, and no error.
	Query(addr uint64) (Memory, error)
	// Alloc makes n bytes of memory on a device, n > 0, which Export can hand out and an adapter can reach where the
	// device is able to.
	Alloc(device int, n int64) (Memory, error)
	// Free gives memory of Alloc back. No copy of it is under way, and no process has it open.
	Free(m Memory) error

	// Copy starts a copy of n bytes, n > 0, on the library's stream of device, after what was started there before.
	// Neither range is touched when Done has said so. An error means that nothing was started.
	Copy(device int, dst, src uint64, n int64) (Event, error)
	// Mark marks the place on the user's stream where it is now: the event ends when all has ended that was put there
	// before. Nothing of the library waits for it on a stream, so that work of the user that stands still holds up
	// nothing else. Mark blocks while the user's stream is full.
	Mark(device int, stream uint64) (Event, error)
	// Done reports whether the copy, or what was marked, has ended, and how. Once it has, ev is no event any more. It has
	// ended after an error too: then Done may have waited for it.
	Done(device int, ev Event) (bool, error)
	// Drop gives up an event of Mark of which Done has not said that it has ended.
	Drop(device int, ev Event)
	// Notify writes 1 into the eventfd fd when everything that was started on the library's stream of device has ended.
	// It is for a caller that is about to sleep.
	Notify(device int, fd int) error

	// Export returns what Open in another process of this host needs to reach the allocation that m lies in, and where
	// m begins in it. Memory that cannot be handed out is ErrNotShared. The handle is as good as the allocation lives.
	Export(m Memory) (handle []byte, offset int64, err error)
	// Open maps the allocation of a handle for copies of device; its length is size, whatever the handle says about it.
	// A handle of this very process is an error. The allocation may be gone: then what is mapped is an old copy, or Open
	// fails.
	Open(device int, handle []byte, size int64) (addr uint64, err error)
	// Close ends Open.
	Close(device int, addr uint64) error

	// Pin lets devices copy to and from host memory b at full speed, which is off the Go heap and mapped until Unpin.
	Pin(b []byte) error
	Unpin(b []byte) error

	// DMABuf returns a descriptor by which an adapter registers n bytes at addr of m, both multiples of 4 KiB. The
	// caller closes it.
	DMABuf(m Memory, addr uint64, n int64) (fd int, err error)
	// Flush returns when what adapters have written into memory of device can be seen by what is started there later.
	Flush(device int) error
}

// Device is one accelerator.
type Device struct {
	Name   string
	PCI    string // domain:bus:device.function, as in /sys
	Memory int64  // bytes
	DMABuf bool   // adapters can reach its memory by DMABuf
	Peers  []int  // numbers of other devices that copy to and from it directly
}

// Kind of memory.
type Kind uint8

const (
	Host    Kind = iota // which the driver does not know
	Pinned              // of the host, known to the driver
	OnBoard             // of a device
	Managed             // moves between host and device by itself
)

func (k Kind) String() string {
	return [...]string{"memory of the host", "pinned memory of the host", "device memory", "managed memory"}[k&3]
}

// Memory is an allocation, as Query and Alloc tell it.
type Memory struct {
	Kind   Kind
	Device int    // its number, of OnBoard and Managed
	Base   uint64 // where it begins
	Size   int64  // bytes
	// ID is of one allocation alone: memory that is freed and allocated again at the same address has another.
	ID uint64
}

// Buffer is a range of device memory, as a message uses it.
type Buffer struct {
	Driver Driver
	Memory Memory // the allocation that it lies in
	Addr   uint64
	Len    int64 // bytes. Memory.Base <= Addr, Addr+Len <= Memory.Base+Memory.Size
	// Stream is the user's: a copy of the buffer begins when all has ended that was on it at the time of the call.
	// Meaningful if Ordered.
	Stream  uint64
	Ordered bool
}

// Part is the n bytes of b from off on. It panics if they are not inside b.
func (b Buffer) Part(off, n int64) Buffer {
	if off < 0 || n < 0 || off > b.Len-n {
		panic("accel: part of a buffer beyond its end")
	}
	b.Addr, b.Len = b.Addr+uint64(off), n
	return b
}

// Event is the end of one copy, or of the work that a stream had when it was marked. 0: there is no event.
type Event uint64
