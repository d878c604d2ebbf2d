package acceltest

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
)

// hostMemory returns n bytes off the Go heap.
func hostMemory(t testing.TB, n int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	return b
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func wait(t *testing.T, d accel.Driver, device int, ev accel.Event) error {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Microsecond) {
		if done, err := d.Done(device, ev); done || err != nil {
			return err
		}
		if time.Now().After(limit) {
			t.Fatal("the copy does not end")
		}
	}
}

func nothingLeft(t testing.TB, m *Machine) {
	t.Helper()
	if left := m.Left(); left != "" {
		t.Error("left:\n" + left)
	}
}

// Two processes share an allocation; both have it at the same address, and so another one of their own.
func TestProcessesShare(t *testing.T) {
	m := New(Options{Devices: 2, Seed: 1, Delay: time.Millisecond})
	a, b := m.Process(), m.Process()
	ma, mb := must(a.Alloc(0, 5000)), must(b.Alloc(1, 5000))
	if ma.Base != mb.Base || ma.ID != mb.ID || ma.Size != 8192 {
		t.Errorf("%+v and %+v: want the same address and ID in both, and 8192 bytes", ma, mb)
	}
	a.Write(ma.Base, []byte("of a"))
	b.Write(mb.Base, []byte("of b"))
	handle, offset, err := a.Export(ma)
	if err != nil || offset != 0 {
		t.Fatal(offset, err)
	}
	if _, err := a.Open(0, handle, ma.Size); err == nil {
		t.Error("a process opens its own memory")
	}
	if _, err := b.Open(1, handle, ma.Size*2); err == nil {
		t.Error("Open believes a wrong size")
	}
	first, second := must(b.Open(1, handle, ma.Size)), must(b.Open(1, handle, ma.Size))
	if first != second {
		t.Errorf("opened twice: at %#x and %#x", first, second)
	}
	if err := wait(t, b, 1, must(b.Copy(1, mb.Base, first, 4))); err != nil {
		t.Fatal(err)
	}
	if got := b.Read(mb.Base, 4); string(got) != "of a" {
		t.Errorf("copied %q", got)
	}
	for range 2 {
		if err := b.Close(1, first); err != nil {
			t.Error(err)
		}
	}
	if b.Close(1, first) == nil {
		t.Error("closed three times, opened twice")
	}
	if err := errors.Join(a.Free(ma), b.Free(mb)); err != nil {
		t.Error(err)
	}
	nothingLeft(t, m)
}

// Freed memory that is open elsewhere still reads, its address has other memory of another ID, and Left names it.
func TestFreedUnderMapping(t *testing.T) {
	m := New(Options{})
	a, b := m.Process(), m.Process()
	old := a.UserAlloc(0, 1000, Ordinary)
	a.Write(old.Base, []byte("old"))
	handle, _, _ := a.Export(old)
	at := must(b.Open(0, handle, old.Size))
	a.UserFree(old)
	if q := must(a.Query(old.Base)); q.Kind != accel.Host {
		t.Errorf("freed memory is %v", q.Kind)
	}
	fresh := a.UserAlloc(0, 1000, Ordinary)
	if fresh.Base != old.Base || fresh.ID == old.ID {
		t.Errorf("%+v after %+v: want the address, and another ID", fresh, old)
	}
	a.Write(fresh.Base, []byte("new"))
	if got := b.Read(at, 3); string(got) != "old" {
		t.Errorf("the mapping has %q", got)
	}
	if _, _, err := a.Export(old); err == nil {
		t.Error("what is freed is exported")
	}
	if m.Left() != "process 0: 1000 bytes of device memory at 0xd00000000000 are not freed\n"+
		"process 1: 1000 bytes at 0xd00000000000 are open, 1 times" {
		t.Errorf("left: %s", m.Left())
	}
	handle, _, _ = a.Export(fresh)
	must(b.Open(0, handle, fresh.Size))
	if a.Free(fresh); !strings.Contains(m.Left(), "Free of memory at 0xd00000000000 that 1 others have open") {
		t.Errorf("left: %s", m.Left())
	}
}

func TestHostMemoryMustBePinned(t *testing.T) {
	m := New(Options{})
	a, b := m.Process(), m.Process()
	mem, host := must(a.Alloc(0, 8192)), hostMemory(t, 16384)
	if _, err := a.Copy(0, mem.Base, address(host), 10); err == nil {
		t.Error("a copy from memory that is not pinned")
	}
	if err := errors.Join(b.Pin(host), a.Pin(host[:8192]), a.Pin(host[8192:])); err != nil {
		t.Fatal(err)
	}
	if a.Pin(host[4096:8192]) == nil {
		t.Error("pinned twice")
	}
	if _, err := a.Copy(0, mem.Base, address(host[8000:]), 1000); err == nil {
		t.Error("a copy across two pinned ranges")
	}
	if q := must(a.Query(address(host[8192:]) + 1)); q.Kind != accel.Pinned || q.Base != address(host[8192:]) {
		t.Errorf("%+v", q)
	}
	copy(host, "hello")
	ev := must(a.Copy(0, mem.Base, address(host), 5))
	if wait(t, a, 0, ev) != nil || string(a.Read(mem.Base, 5)) != "hello" {
		t.Errorf("copied %q", a.Read(mem.Base, 5))
	}
	if a.Unpin(host[1:8192]) == nil {
		t.Error("unpinned in the middle")
	}
	if err := errors.Join(a.Unpin(host[:8192]), a.Unpin(host[8192:]), b.Unpin(host), a.Free(mem)); err != nil {
		t.Error(err)
	}
	if a.Unpin(host) == nil {
		t.Error("unpinned twice")
	}
	nothingLeft(t, m)
}

// A copy reads its source when it runs, in the order of the streams.
func TestStreams(t *testing.T) {
	m := New(Options{})
	p := m.Process()
	x, y := must(p.Alloc(0, 4096)), must(p.Alloc(0, 4096))
	s := p.Stream(0)
	s.Hold()
	s.Launch(func() { p.Write(x.Base, []byte("kernel")) })
	mark := must(p.Mark(0, s.Handle()))
	p.Write(x.Base, []byte("before"))
	p.Copies(0).Hold()
	ev := must(p.Copy(0, y.Base, x.Base, 6))
	var seen []byte
	if done, err := p.Done(0, mark); done || err != nil {
		t.Fatal("a mark is ahead of its stream", err)
	}
	s.Release()
	wait(t, p, 0, mark)
	if done, err := p.Done(0, ev); done || err != nil {
		t.Fatal("a copy is ahead of its stream", err)
	}
	p.Copies(0).Release()
	if err := wait(t, p, 0, ev); err != nil {
		t.Error(err)
	}
	s.Launch(func() { seen = p.Read(y.Base, 6) })
	s.Sync()
	if string(seen) != "kernel" {
		t.Errorf("the kernel after the copy sees %q", seen)
	}
	if err := errors.Join(p.Free(x), p.Free(y)); err != nil {
		t.Error(err)
	}
	nothingLeft(t, m)
}

func TestNotify(t *testing.T) {
	m := New(Options{Delay: 5 * time.Millisecond, Seed: 3})
	p := m.Process()
	mem := must(p.Alloc(0, 4096))
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	ev := must(p.Copy(0, mem.Base, mem.Base+2048, 100))
	if err := p.Notify(0, fds[1]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := syscall.Read(fds[0], b); n != 8 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if done, err := p.Done(0, ev); !done || err != nil {
		t.Error("notified before the copy had ended", err)
	}
}

func TestFailures(t *testing.T) {
	m := New(Options{Memory: 1 << 20})
	p, other := m.Process(), m.Process()
	mem := must(p.Alloc(0, 4096))
	p.Fail("Query", 2)
	if _, err := p.Query(0); err != nil {
		t.Error(err)
	}
	if _, err := p.Query(0); err == nil {
		t.Error("the second call does not fail")
	}
	p.Fail("CopyEnd", 1)
	ev := must(p.Copy(0, mem.Base, mem.Base+2048, 2))
	if wait(t, p, 0, ev) == nil {
		t.Error("the copy does not fail")
	}
	if p.Calls("Query") != 2 || other.Calls("Query") != 0 {
		t.Errorf("%d calls", p.Calls("Query"))
	}
	if _, err := other.Alloc(0, 1<<20); err == nil {
		t.Error("more memory than there is")
	}
	if _, _, err := p.Export(p.UserAlloc(0, 10, Pool)); !errors.Is(err, accel.ErrNotShared) {
		t.Error("memory of a pool is exported:", err)
	}
	if q := must(p.Query(p.UserAlloc(0, 10, Moving).Base + 9)); q.Kind != accel.Managed {
		t.Error(q)
	}
	if _, err := New(Options{NoDriver: true}).Process().Devices(); !errors.Is(err, accel.ErrNoDriver) {
		t.Error(err)
	}
	if _, err := p.Alloc(1, 10); err == nil {
		t.Error("memory of a device that is not there")
	}
	handle, _, _ := p.Export(mem)
	at := must(other.Open(0, handle, mem.Size))
	p.Write(mem.Base, []byte("dead"))
	p.Die()
	if got := other.Read(at, 4); !bytes.Equal(got, []byte("dead")) {
		t.Errorf("after the owner's death the mapping has %q", got)
	}
	if _, err := p.Query(0); err == nil {
		t.Error("a dead process calls")
	}
}

// What is given back too early is named.
func TestMisuse(t *testing.T) {
	m := New(Options{})
	p, host := m.Process(), hostMemory(t, 4096)
	mem := must(p.Alloc(0, 4096))
	if err := p.Pin(host); err != nil {
		t.Fatal(err)
	}
	s := p.Copies(0)
	s.Hold()
	ev := must(p.Copy(0, mem.Base, address(host), 100))
	if want := "1 copies were started"; !strings.Contains(m.Left(), want) {
		t.Errorf("left %q, want %q", m.Left(), want)
	}
	p.Unpin(host)
	p.Free(mem)
	mark := must(p.Mark(0, 0))
	if want := "1 streams were marked"; !strings.Contains(m.Left(), want) {
		t.Errorf("left %q, want %q", m.Left(), want)
	}
	p.Drop(0, ev)
	p.Drop(0, mark)
	s.Release()
	wait(t, p, 0, ev)
	for _, want := range []string{"Unpin of host memory at ", "Drop of the event 1 of device 0, which is no mark",
		"Free of memory at 0xd00000000000 under 1 copies"} {
		if !strings.Contains(m.Left(), want) {
			t.Errorf("left %q, want %q", m.Left(), want)
		}
	}
}
