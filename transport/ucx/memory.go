//go:build ucx && linux && cgo

package ucx

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/transport"
)

// mapped is memory off the Go heap that UCX knows from Alloc to Free.
type mapped struct {
	w    *worker
	some atomic.Bool
	mu   sync.Mutex
	all  []mapping // in the order of their addresses
	left []mapping // those that have been freed, and are held
}

type mapping struct {
	mem    []byte
	handle uint64
	held   bool // an operation that has been given up is in it: it stays until Close
}

// find returns the handle of the mapping in which buf lies, or 0.
func (m *mapped) find(buf transport.Mem) uint64 {
	if !m.some.Load() {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.after(buf.Number()) - 1
	if i < 0 {
		return 0
	}
	in := &m.all[i]
	if off := buf.Number() - addressOf(in.mem); off+uint64(buf.Len) > uint64(len(in.mem)) {
		return 0
	}
	return in.handle
}

// after is the index of the first mapping that begins behind an address.
func (m *mapped) after(addr uint64) int {
	return sort.Search(len(m.all), func(i int) bool { return addressOf(m.all[i].mem) > addr })
}

func (m *mapped) alloc(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("ucx: %d bytes were asked for", bytes)
	}
	mem := pages(bytes)
	if mem == nil {
		return nil, fmt.Errorf("ucx: %d bytes were asked for: out of memory", bytes)
	}
	handle, err := m.w.mapMem(mem)
	if err != nil {
		unmap(mem)
		return nil, fmt.Errorf("ucx: %d bytes were asked for: mapping them: %w", bytes, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = slices.Insert(m.all, m.after(addressOf(mem)), mapping{mem: mem, handle: handle})
	m.some.Store(true)
	return mem, nil
}

func (m *mapped) free(mem []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.all, func(x mapping) bool {
		return len(x.mem) == len(mem) && addressOf(x.mem) == addressOf(mem)
	})
	if i < 0 {
		return fmt.Errorf("ucx: %d bytes at %#x are not what Alloc gave", len(mem), addressOf(mem))
	}
	var err error
	if m.all[i].held {
		m.left = append(m.left, m.all[i])
	} else {
		err = m.w.unmapMem(m.all[i].handle)
		unmap(m.all[i].mem)
	}
	m.all = slices.Delete(m.all, i, i+1)
	m.some.Store(len(m.all) > 0)
	return err
}

// hold notes that UCX may still use the memory at that address, if it is of a mapping.
func (m *mapped) hold(addr uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.after(addr) - 1; i >= 0 && addr-addressOf(m.all[i].mem) < uint64(len(m.all[i].mem)) {
		m.all[i].held = true
	}
}

// drop is for Close, before the worker is destroyed.
func (m *mapped) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range append(m.all, m.left...) {
		m.w.unmapMem(x.handle)
		if !x.held {
			unmap(x.mem)
		}
	}
}

// dropHeld is for Close, when the worker is destroyed.
func (m *mapped) dropHeld() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range append(m.all, m.left...) {
		if x.held {
			unmap(x.mem)
		}
	}
	m.all, m.left = nil, nil
}
