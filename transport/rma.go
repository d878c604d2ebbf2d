package transport

// RMA reaches the memory of a link's peer without the peer's help (RDMA READ and WRITE, process_vm_readv). The caller
// of its functions holds the engine's lock.
type RMA struct {
	// Register lets the peer do to mem what access says, until Deregister. ok=false: the device cannot; use a stream.
	Register func(mem Mem, access Access) (addr, key uint64, ok bool)
	// Deregister ends what Register has granted. When it has returned, no peer writes by the key; a peer that breaks the
	// rules may read by it for a while. Only memory of Memory.Alloc and Memory.Import may keep its key.
	Deregister func(addr, key uint64)
	// Revoke is Deregister for a caller who can do without the engine's lock: where the end takes long, the caller gives
	// the lock up and calls end, if that is not nil. When end has returned, no peer writes by the key. nil: Deregister
	// never takes long.
	Revoke func(addr, key uint64) (end func())
	// Prepare begins what Register does, where that takes long and Register has therefore refused mem. True: it has
	// begun. A packet RMADone with its cookie ends it: if Err is nil, the caller calls Register of the same mem and
	// access once, which grants it. Until then mem belongs to the link. False: it is not for this mem. nil: Register
	// never takes long.
	Prepare func(mem Mem, access Access, cookie uint64) bool
	// Get reads dst.Len bytes at the peer's addr. dst belongs to the link until the operation has ended.
	Get func(dst Mem, addr, key, cookie uint64) (State, error)
	// GetSome is Get of several, in the order given, where that costs less than as many calls; nil: it does not. It
	// returns how many of them have ended well, from the first one on. The others have no effect that counts: Get of
	// the next one says why, or does it.
	GetSome func(reads []Read) (done int)
	// Put writes src to the peer's addr; likewise. nil: the device only reads.
	Put func(src Mem, addr, key, cookie uint64) (State, error)
	// PutNote is Put (src may be empty). When all of src is there, the peer's Poll reports Noted with note.
	// This and what follows is for one-sided operations; nil: the device has none.
	PutNote func(src Mem, addr, key uint64, note uint32, cookie uint64) (State, error)
	// FetchAdd adds to the integer of eight bytes, in the peer's byte order, at the peer's addr, a multiple of 8. It
	// never returns Done; the packet's Value is the integer as it was before. It is atomic with respect to operations
	// of this kind; with respect to the peer's own CPU only where the device can do that.
	FetchAdd func(add, addr, key, cookie uint64) (State, error)
	// CompareSwap likewise sets the integer to swap if it equals compare.
	CompareSwap func(compare, swap, addr, key, cookie uint64) (State, error)
	// Coherent: what peers do by FetchAdd and CompareSwap to memory that is registered here is atomic with respect to
	// this rank's CPU too.
	Coherent bool
	// Max is how many bytes one Get or Put should move; 0: the engine's choice. It is larger where a long operation
	// does not occupy the caller.
	Max int
	// Devices lets an adapter reach the memory of accelerators; nil: it reaches memory of the host only. All links of a
	// transport.Device have the same one.
	Devices *Devices
	// GetDevice is Get into n bytes at dst of memory that Devices.Register has returned local for. It is there with
	// Devices. The bytes are in the accelerator's memory when the operation has ended; its driver says when a kernel
	// sees them.
	GetDevice func(dst uint64, n int64, local, addr, key, cookie uint64) (State, error)
}

// Devices is how an adapter gets to know the memory of accelerators. Any goroutine may call its functions. They take
// long, so the caller does not hold the engine's lock.
type Devices struct {
	// Name is the adapter's, for people: mlx5_0.
	Name string
	// Able returns nil, or why the adapter reaches no memory of accelerators.
	Able func() error
	// Near says for people where the adapter and the accelerator with a PCI address are in the machine. far: messages
	// are to go through memory of the host.
	Near func(pci string) (where string, far bool)
	// Register lets the peers of all links read n bytes at the accelerator's address addr, and GetDevice write there,
	// until Deregister or Close of the transport.Device. The descriptor fd is a dma-buf of these bytes, which the caller
	// closes afterwards; negative: there is none, and the kernel is to find the memory by its address. Both addr and n
	// are multiples of 4 KiB. A peer reads the byte at addr+i with Get of addr+i and key. RMA.Deregister of such a key
	// does nothing. by says for people how the adapter reaches the memory.
	Register func(fd int, addr uint64, n int64) (local, key uint64, by string, err error)
	// Deregister ends Register. No operation of this rank uses the memory, and no peer is to read it.
	Deregister func(key uint64)
}

// Read is one of the operations of RMA.GetSome: Dst.Len bytes, at least 1, of the peer's Addr.
type Read struct {
	Dst       Mem
	Addr, Key uint64
}

// MaxReads is how many GetSome is given at most.
const MaxReads = 16

// Access is what a peer may do to registered memory.
type Access uint8

const (
	Readable Access = 1 << iota
	Writable        // also by atomics
	// Lasting: the peer may do it at any time until Deregister, more than once, and so may peers of other links. A
	// device does not refuse memory for being short, and may register memory once for several links.
	Lasting
)

// State is what became of an operation.
type State uint8

const (
	Done    State = iota // it has ended
	Started              // a packet with its cookie will say so
	Full                 // nothing was started, there is no room; Poll reports Room as after a refusal of TrySend
)
