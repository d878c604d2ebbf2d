package transport

import "unsafe"

// Kind of memory.
type Kind uint8

// Host is memory of this process.
const Host Kind = 0

// Mem is a buffer, in any kind of memory: what a request moves, from the request down to the device.
type Mem struct {
	Addr   unsafe.Pointer // host memory is reachable through it, as through a slice
	Len    int            // bytes
	Kind   Kind
	Device int16 // of memory that is not the host's: the number of its device
}

// HostMem is the memory of b.
func HostMem(b []byte) Mem { return Mem{Addr: unsafe.Pointer(unsafe.SliceData(b)), Len: len(b)} }

// Bytes returns host memory as a slice.
func (m Mem) Bytes() []byte { return unsafe.Slice((*byte)(m.Addr), m.Len) }

// Part is the n bytes of m from off on. It panics if they are not inside m.
func (m Mem) Part(off, n int64) Mem {
	if off < 0 || n < 0 || off > int64(m.Len)-n {
		panic("transport: part of a buffer beyond its end")
	}
	if n == 0 {
		off = 0 // one past the end may be another object
	}
	return Mem{unsafe.Add(m.Addr, off), int(n), m.Kind, m.Device}
}

// Back is m as the end of a longer buffer, in which it begins at byte off. There is no memory before that: nobody
// touches those bytes. m is off the Go heap.
func (m Mem) Back(off int64) Mem {
	return Mem{unsafe.Add(m.Addr, -off), m.Len + int(off), m.Kind, m.Device}
}

// Number is the address as a number, for the kernel and for devices. It keeps nothing reachable.
func (m Mem) Number() uint64 { return uint64(uintptr(m.Addr)) }
