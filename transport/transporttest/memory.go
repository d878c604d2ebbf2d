package transporttest

import (
	"bytes"

	"github.com/gorun-mpi/mpi/transport"
)

// memory is zeroed, as long as was asked for, reachable, and given back once.
func memory(f *fixture) {
	a, b := f.linked()
	m := a.dev.Facts().Memory
	for _, n := range []int{1, 4096, 100_001} {
		mem, err := m.Alloc(n)
		f.must(err)
		if len(mem) != n || !bytes.Equal(mem, make([]byte, n)) {
			f.Fatalf("Alloc(%d): %d bytes, not all zero", n, len(mem))
		}
		fill(mem, 9)
		f.reachable(a, b, mem)
		f.must(m.Free(mem))
	}
	for _, n := range []int{-1, 1 << 60} {
		if mem, err := m.Alloc(n); err == nil || err.Error() == "" {
			f.Errorf("Alloc(%d) gave %d bytes and error %v", n, len(mem), err)
		}
	}
	if err := m.Free(make([]byte, 10)); err == nil {
		f.Error("Free took memory that Alloc did not give")
	}
	if mem, err := m.Alloc(0); err == nil {
		f.must(m.Free(mem))
	}
}

// reachable checks that b can read memory of a, if links can read: the first time may go another way than later ones.
func (f *fixture) reachable(a, b *end, mem []byte) {
	f.Helper()
	if f.has&Get == 0 {
		return
	}
	addr, key := f.register(a, mem, transport.Readable)
	for range 3 {
		near := make([]byte, len(mem))
		if f.do(b, get.between(b, near, addr, key)); !bytes.Equal(near, mem) {
			f.Fatalf("reading %d bytes of that memory: wrong contents", len(mem))
		}
	}
	deregister(a, addr, key)
}

// memoryImport checks that what another device has allocated is reachable, as long as it is imported and afterwards.
func memoryImport(f *fixture) {
	a, b := f.linked()
	m, other := a.dev.Facts().Memory, b.dev.Facts().Memory
	for _, n := range []int{1, 4096, 100_001} {
		mem, err := other.Alloc(n)
		f.must(err)
		m.Forget(mem)
		for i := range uint64(2) {
			f.must(m.Import(mem))
			fill(mem, i)
			f.reachable(a, b, mem)
			m.Forget(mem)
			m.Forget(mem)
			fill(mem, i+2)
			f.reachable(a, b, mem)
		}
		f.must(other.Free(mem))
	}
}
