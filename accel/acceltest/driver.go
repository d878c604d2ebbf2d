package acceltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
)

// Peer is a driver as one process has it, and what a kernel of that process does with device memory.
type Peer interface {
	accel.Driver
	Write(addr uint64, b []byte)
	Read(addr uint64, n int64) []byte
}

// Subject is what TestDriver checks.
type Subject interface {
	Peer
	// User makes memory of n bytes on a device, as a user's program does.
	User(device int, n int64, how How) accel.Memory
	// FreeUser frees it, also while copies or other processes use it.
	FreeUser(accel.Memory)
	// Stream makes a stream as a user's program does.
	Stream(device int) uint64
	// Hold puts a kernel on the stream that runs until release is called. No two of them are on their streams at once.
	Hold(stream uint64) (release func())
	// HostMemory returns n bytes off the Go heap, which live until the test ends, and where they are.
	HostMemory(tb testing.TB, n int) (b []byte, addr uint64)
}

// TestDriver checks that a driver keeps the rules of accel.Driver. start returns a driver with one or two
// devices, and the driver of another process of the same host.
func TestDriver(t *testing.T, start func(*testing.T) (Subject, Peer)) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Subject, Peer)
	}{
		{"devices", testDevices}, {"memory", testMemory}, {"query", testQuery}, {"address reuse", testReuse},
		{"copies", testCopies}, {"two devices", testTwoDevices}, {"pins", testPins}, {"streams", testStreams},
		{"notify", testNotify}, {"sharing", testSharing}, {"freed under a mapping", testFreedUnderMapping},
		{"stale handle", testStaleHandle}, {"not shared", testNotShared}, {"flush", testFlush},
		{"hostile handles", testHostileHandles},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			d, peer := start(t)
			c.test(t, d, peer)
		})
	}
}

// last is the second device, or the only one.
func last(t *testing.T, d accel.Driver) int {
	t.Helper()
	all, err := d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	return len(all) - 1
}

// patience is far beyond what any copy takes.
const patience = time.Minute

// ends waits for a copy.
func ends(t *testing.T, d accel.Driver, device int, ev accel.Event) {
	t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(20 * time.Microsecond) {
		done, err := d.Done(device, ev)
		switch {
		case err != nil:
			t.Fatal("Done: ", err)
		case done:
			return
		case time.Now().After(limit):
			t.Fatal("a copy does not end")
		}
	}
}

func copies(t *testing.T, d accel.Driver, device int, dst, src uint64, n int64) {
	t.Helper()
	ev, err := d.Copy(device, dst, src, n)
	if err != nil {
		t.Fatalf("Copy of %d bytes: %v", n, err)
	}
	ends(t, d, device, ev)
}

func allocate(t *testing.T, d accel.Driver, device int, n int64) accel.Memory {
	t.Helper()
	m, err := d.Alloc(device, n)
	if err != nil {
		t.Fatalf("Alloc of %d bytes: %v", n, err)
	}
	return m
}

func frees(t *testing.T, d accel.Driver, all ...accel.Memory) {
	t.Helper()
	for _, m := range all {
		if err := d.Free(m); err != nil {
			t.Errorf("Free: %v", err)
		}
	}
}

func kindAt(t *testing.T, d accel.Driver, addr uint64) accel.Memory {
	t.Helper()
	m, err := d.Query(addr)
	if err != nil {
		t.Fatalf("Query of %#x: %v", addr, err)
	}
	return m
}

func pattern(n int64, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i*7) + byte(i>>8)
	}
	return b
}

func reads(t *testing.T, d Peer, addr uint64, want []byte) {
	t.Helper()
	got := d.Read(addr, int64(len(want)))
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("at %#x, byte %d of %d is %#x, and should be %#x", addr, i, len(want), got[i], want[i])
			return
		}
	}
}

func testDevices(t *testing.T, d Subject, _ Peer) {
	all, err := d.Devices()
	if err != nil || len(all) < 1 || len(all) > 2 {
		t.Fatalf("%d devices, %v", len(all), err)
	}
	for i, dev := range all {
		if dev.Name == "" || dev.Memory <= 0 || slices.Contains(dev.Peers, i) {
			t.Errorf("device %d: %+v", i, dev)
		}
		var domain, bus, slot, function int
		n, err := fmt.Sscanf(dev.PCI, "%04x:%02x:%02x.%1x", &domain, &bus, &slot, &function)
		if n != 4 || len(dev.PCI) != len("0000:00:00.0") {
			t.Errorf("device %d is at %q: %v", i, dev.PCI, err)
		}
	}
	if len(all) == 2 && all[0].PCI == all[1].PCI {
		t.Error("both devices are at", all[0].PCI)
	}
	if d.Name() == "" {
		t.Error("the driver has no name")
	}
	for _, device := range []int{-1, 2, 1 << 20} {
		if _, err := d.Alloc(device, 100); err == nil {
			t.Errorf("memory of device %d", device)
		}
		if _, err := d.Mark(device, 0); d.Flush(device) == nil || err == nil || d.Notify(device, 0) == nil {
			t.Errorf("calls for device %d succeed", device)
		}
	}
}

func testMemory(t *testing.T, d Subject, _ Peer) {
	for device := range last(t, d) + 1 {
		m := allocate(t, d, device, 5000)
		if m.Kind != accel.OnBoard || m.Device != device || m.Size < 5000 || m.Base == 0 || m.ID == 0 {
			t.Errorf("allocated %+v", m)
		}
		if q := kindAt(t, d, m.Base); q != m {
			t.Errorf("Query says %+v of %+v", q, m)
		}
		frees(t, d, m)
		if d.Free(m) == nil {
			t.Error("memory is freed twice")
		}
	}
	for _, n := range []int64{0, -1, 1 << 60} {
		if m, err := d.Alloc(0, n); err == nil {
			t.Errorf("%d bytes were allocated: %+v", n, m)
		}
	}
	var e *accel.Error
	if _, err := d.Alloc(0, 1<<48); !errors.As(err, &e) || e.Name != "CUDA_ERROR_OUT_OF_MEMORY" {
		t.Errorf("too much memory: %v", err)
	}
}

func testQuery(t *testing.T, d Subject, _ Peer) {
	host, addr := d.HostMemory(t, 1<<16)
	for what, at := range map[string]uint64{"0": 0, "host memory": addr, "an address of nothing": 0x123456} {
		if m := kindAt(t, d, at); m != (accel.Memory{}) {
			t.Errorf("%s is %+v", what, m)
		}
	}
	if err := d.Pin(host); err != nil {
		t.Fatal(err)
	}
	if m := kindAt(t, d, addr+5000); m.Kind != accel.Pinned || m.Base != addr || m.Size != 1<<16 {
		t.Errorf("pinned memory is %+v", m)
	}
	if err := d.Unpin(host); err != nil {
		t.Fatal(err)
	}
	if m := kindAt(t, d, addr); m.Kind != accel.Host {
		t.Errorf("memory that was unpinned is %+v", m)
	}
	for how, kind := range map[How]accel.Kind{Ordinary: accel.OnBoard, Pool: accel.OnBoard, Moving: accel.Managed} {
		m := d.User(last(t, d), 3000, how)
		for _, off := range []uint64{0, 1, 2999} {
			if q := kindAt(t, d, m.Base+off); q != m || q.Kind != kind || q.Device != last(t, d) && kind == accel.OnBoard {
				t.Errorf("byte %d of memory of kind %d is %+v", off, how, q)
			}
		}
		if q := kindAt(t, d, m.Base+uint64(m.Size)); q.ID == m.ID && q.Kind != accel.Host {
			t.Errorf("past the end there is %+v", q)
		}
		d.FreeUser(m)
		if q := kindAt(t, d, m.Base); q.ID == m.ID && q.Kind != accel.Host {
			t.Errorf("freed memory is %+v", q)
		}
	}
}

// Memory at the address of what was freed has another ID.
func testReuse(t *testing.T, d Subject, _ Peer) {
	seen := map[uint64]bool{}
	for range 4 {
		m, u := allocate(t, d, 0, 100), d.User(0, 100, Ordinary)
		for _, id := range []uint64{m.ID, u.ID} {
			if seen[id] {
				t.Errorf("the ID %d for the second time", id)
			}
			seen[id] = true
		}
		frees(t, d, m)
		d.FreeUser(u)
	}
}

func testCopies(t *testing.T, d Subject, _ Peer) {
	const size = 1 << 20
	host, addr := d.HostMemory(t, 2*size)
	if err := d.Pin(host); err != nil {
		t.Fatal(err)
	}
	a, b := allocate(t, d, 0, size), allocate(t, d, 0, size)
	for _, n := range []int64{1, 2, 4095, 4096, 65537, size} {
		want := pattern(n, byte(n))
		copy(host, want)
		copies(t, d, 0, a.Base+uint64(size-n), addr, n) // to the device, to its end
		copies(t, d, 0, b.Base, a.Base+uint64(size-n), n)
		copies(t, d, 0, addr+size, b.Base, n)
		if got := host[size:][:n]; !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back changed", n)
		}
	}
	// In the order in which they were started, with many under way.
	var all []accel.Event
	for i := range 200 {
		from, to := a.Base, b.Base
		if i%2 == 1 {
			from, to = to, from
		}
		if i == 0 {
			d.Write(a.Base, pattern(300, 1))
		}
		ev, err := d.Copy(0, to+uint64(i+1), from+uint64(i), 300)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ev)
	}
	for i := range all {
		ends(t, d, 0, all[len(all)-1-i])
	}
	reads(t, d, a.Base+200, pattern(300, 1))
	for _, c := range [][3]int64{{0, 0, 0}, {0, 0, -1}, {0, 0, 1 << 40}} {
		if _, err := d.Copy(0, a.Base+uint64(c[0]), b.Base+uint64(c[1]), c[2]); err == nil {
			t.Errorf("a copy of %d bytes was started", c[2])
		}
	}
	if err := d.Unpin(host); err != nil {
		t.Error(err)
	}
	frees(t, d, a, b)
}

func testTwoDevices(t *testing.T, d Subject, _ Peer) {
	second := last(t, d)
	a, b := allocate(t, d, 0, 70000), allocate(t, d, second, 70000)
	u := d.User(0, 70000, Ordinary)
	d.Write(a.Base, pattern(70000, 3))
	copies(t, d, 0, b.Base, a.Base, 70000)
	reads(t, d, b.Base, pattern(70000, 3))
	copies(t, d, second, u.Base, b.Base, 70000)
	reads(t, d, u.Base, pattern(70000, 3))
	frees(t, d, a, b)
	d.FreeUser(u)
}

func testPins(t *testing.T, d Subject, _ Peer) {
	host, _ := d.HostMemory(t, 3<<12)
	if d.Pin(nil) == nil || d.Unpin(nil) == nil {
		t.Error("no memory is pinned")
	}
	if d.Unpin(host) == nil {
		t.Error("what is not pinned is unpinned")
	}
	if err := errors.Join(d.Pin(host[:1<<12]), d.Pin(host[1<<12:])); err != nil {
		t.Fatal("two neighbours: ", err)
	}
	if d.Pin(host) == nil {
		t.Error("memory is pinned twice")
	}
	if err := errors.Join(d.Unpin(host[1<<12:]), d.Unpin(host[:1<<12])); err != nil {
		t.Error(err)
	}
	if d.Unpin(host[:1<<12]) == nil {
		t.Error("memory is unpinned twice")
	}
	if err := errors.Join(d.Pin(host), d.Unpin(host)); err != nil {
		t.Error("pinned again: ", err)
	}
}

func testStreams(t *testing.T, d Subject, _ Peer) {
	a, b := allocate(t, d, 0, 4096), allocate(t, d, 0, 4096)
	stream, second := d.Stream(0), d.Stream(0)
	early := marks(t, d, stream)
	release := sync.OnceFunc(d.Hold(stream))
	defer release()
	ends(t, d, 0, early) // it is before the kernel
	held, dropped := marks(t, d, stream), marks(t, d, stream)
	for range 50 {
		copies(t, d, 0, b.Base, a.Base, 10) // which nothing holds up
		if done, err := d.Done(0, held); done || err != nil {
			t.Fatal("the mark does not wait for the kernel before it: ", err)
		}
		time.Sleep(100 * time.Microsecond)
	}
	// What is dropped may be used again at once, for another stream.
	d.Drop(0, dropped)
	ends(t, d, 0, marks(t, d, second))
	if done, err := d.Done(0, held); done || err != nil {
		t.Error("the mark of one stream has ended with the mark of another: ", err)
	}
	release()
	ends(t, d, 0, held)
	ends(t, d, 0, marks(t, d, 0))
	d.Drop(0, marks(t, d, second))
	frees(t, d, a, b)
}

func marks(t *testing.T, d accel.Driver, stream uint64) accel.Event {
	t.Helper()
	ev, err := d.Mark(0, stream)
	if err != nil || ev == 0 {
		t.Fatalf("Mark: %d, %v", ev, err)
	}
	return ev
}

func testNotify(t *testing.T, d Subject, _ Peer) {
	m := allocate(t, d, 0, 1<<20)
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	for range 3 {
		ev, err := d.Copy(0, m.Base, m.Base+1<<19, 1<<19)
		if err == nil {
			err = d.Notify(0, fds[1])
		}
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := syscall.Read(fds[0], b)
		if n != 8 || err != nil || binary.NativeEndian.Uint64(b) != 1 {
			t.Errorf("read %d bytes %v, %v", n, b[:8], err)
		}
		if done, err := d.Done(0, ev); !done || err != nil {
			t.Error("notified before the copy had ended: ", err)
		}
	}
	frees(t, d, m)
}

func opens(t *testing.T, d accel.Driver, device int, handle []byte, size int64) uint64 {
	t.Helper()
	addr, err := d.Open(device, handle, size)
	if err != nil {
		t.Fatal("Open: ", err)
	}
	return addr
}

func exports(t *testing.T, d accel.Driver, m accel.Memory) []byte {
	t.Helper()
	handle, offset, err := d.Export(m)
	if err != nil || offset != 0 || len(handle) > 256 {
		t.Fatalf("Export: a handle of %d bytes, offset %d, %v", len(handle), offset, err)
	}
	return handle
}

// testSharing shares memory that Alloc has made, and a user's.
func testSharing(t *testing.T, d Subject, peer Peer) {
	second := last(t, d)
	for _, how := range []string{"Alloc", "user"} {
		m := accel.Memory{}
		if how == "Alloc" {
			m = allocate(t, d, 0, 3000)
		} else {
			m = d.User(0, 3000, Ordinary)
		}
		d.Write(m.Base, pattern(3000, 5))
		handle := exports(t, d, m)
		if !bytes.Equal(handle, exports(t, d, m)) {
			t.Errorf("%s: the second handle is another", how)
		}
		if _, err := d.Open(0, handle, m.Size); err == nil {
			t.Errorf("%s: a process opens its own memory", how)
		}
		addr := opens(t, peer, 0, handle, m.Size)
		if again := opens(t, peer, 0, handle, m.Size); again != addr {
			t.Errorf("%s: opened at %#x and at %#x", how, addr, again)
		}
		q := kindAt(t, peer, addr+2999)
		if q.Kind != accel.OnBoard || q.Base != addr || q.Size != m.Size || q.Device != 0 {
			t.Errorf("%s: what is open is %+v", how, q)
		}
		reads(t, peer, addr, pattern(3000, 5))
		own := allocate(t, peer, second, 3000)
		copies(t, peer, second, own.Base, addr, 3000)
		reads(t, peer, own.Base, pattern(3000, 5))
		peer.Write(own.Base, pattern(100, 9))
		copies(t, peer, 0, addr+700, own.Base, 100)
		reads(t, d, m.Base+700, pattern(100, 9))
		other := opens(t, peer, second, handle, m.Size)
		reads(t, peer, other+700, pattern(100, 9))
		if err := errors.Join(peer.Close(0, addr), peer.Close(second, other)); err != nil {
			t.Error(how, err)
		}
		reads(t, peer, addr+700, pattern(100, 9))
		if err := peer.Close(0, addr); err != nil {
			t.Error(how, err)
		}
		if peer.Close(0, addr) == nil || peer.Close(second, other) == nil {
			t.Errorf("%s: closed too often", how)
		}
		if q := kindAt(t, peer, addr); q.Kind == accel.OnBoard && q.ID != own.ID {
			t.Errorf("%s: what is closed is %+v", how, q)
		}
		addr = opens(t, peer, 0, handle, m.Size)
		reads(t, peer, addr+700, pattern(100, 9))
		if err := peer.Close(0, addr); err != nil {
			t.Error(how, err)
		}
		frees(t, peer, own)
		if how == "Alloc" {
			frees(t, d, m)
		} else {
			d.FreeUser(m)
		}
	}
}

// What is freed under an open mapping is an old copy there, and memory of another ID here.
func testFreedUnderMapping(t *testing.T, d Subject, peer Peer) {
	old := d.User(0, 5000, Ordinary)
	d.Write(old.Base, []byte("old"))
	addr := opens(t, peer, 0, exports(t, d, old), old.Size)
	d.FreeUser(old)
	fresh := d.User(0, 5000, Ordinary)
	d.Write(fresh.Base, []byte("new"))
	reads(t, peer, addr, []byte("old"))
	if _, _, err := d.Export(old); err == nil {
		t.Error("freed memory was exported")
	}
	if err := peer.Close(0, addr); err != nil {
		t.Error(err)
	}
	d.FreeUser(fresh)
}

// A handle of freed memory opens nothing else, also where other memory has the address and the numbers behind the handle
// now.
func testStaleHandle(t *testing.T, d Subject, peer Peer) {
	for _, how := range []string{"Alloc", "user"} {
		make1 := func() accel.Memory {
			if how == "Alloc" {
				return allocate(t, d, 0, 5000)
			}
			return d.User(0, 5000, Ordinary)
		}
		old := make1()
		stale := exports(t, d, old)
		if how == "Alloc" {
			frees(t, d, old)
		} else {
			d.FreeUser(old)
		}
		fresh := make1()
		d.Write(fresh.Base, []byte("fresh"))
		good := exports(t, d, fresh)
		if bytes.Equal(stale, good) {
			t.Errorf("%s: other memory has the handle of freed memory", how)
		}
		if addr, err := peer.Open(0, stale, old.Size); err == nil {
			if bytes.Equal(peer.Read(addr, 5), []byte("fresh")) {
				t.Errorf("%s: a handle of freed memory has opened other memory", how)
			}
			peer.Close(0, addr)
		}
		if how == "Alloc" {
			frees(t, d, fresh)
		} else {
			d.FreeUser(fresh)
		}
	}
}

func testHostileHandles(t *testing.T, d Subject, peer Peer) {
	m, u := allocate(t, d, 0, 5000), d.User(0, 5000, Ordinary)
	for _, handle := range [][]byte{exports(t, d, m), exports(t, d, u)} {
		size := m.Size
		if bytes.Equal(handle, exports(t, d, u)) {
			size = u.Size
		}
		for i := range handle {
			bad := slices.Clone(handle)
			bad[i] ^= 0x81
			tries(t, peer, bad, size)
			tries(t, peer, handle[:i], size)
		}
		tries(t, peer, append(slices.Clone(handle), 0), size)
		for _, wrong := range []int64{0, -1, size + 1, size + 2<<20, 1 << 40, -1 << 63, 1<<63 - 1} {
			if addr, err := peer.Open(0, handle, wrong); err == nil {
				t.Errorf("opened at %#x with a size of %d", addr, wrong)
			}
		}
		if addr, err := peer.Open(7, handle, size); err == nil {
			t.Errorf("opened at %#x for a device that is not there", addr)
		}
	}
	if peer.Close(0, m.Base) == nil || peer.Close(0, 0) == nil {
		t.Error("closed what is not open")
	}
	frees(t, d, m)
	d.FreeUser(u)
}

// tries opens a handle that is changed: an error, or a mapping that can be closed.
func tries(t *testing.T, peer Peer, handle []byte, size int64) {
	t.Helper()
	if addr, err := peer.Open(0, handle, size); err == nil {
		if err := peer.Close(0, addr); err != nil {
			t.Errorf("opened at %#x, and then: %v", addr, err)
		}
	}
}

func testNotShared(t *testing.T, d Subject, _ Peer) {
	host, addr := d.HostMemory(t, 1<<12)
	if err := d.Pin(host); err != nil {
		t.Fatal(err)
	}
	for _, m := range []accel.Memory{d.User(0, 100, Pool), d.User(0, 100, Moving), kindAt(t, d, addr)} {
		if _, _, err := d.Export(m); !errors.Is(err, accel.ErrNotShared) {
			t.Errorf("Export of %v: %v", m.Kind, err)
		}
		if m.Kind != accel.Pinned {
			d.FreeUser(m)
		}
	}
	if err := d.Unpin(host); err != nil {
		t.Error(err)
	}
}

func testFlush(t *testing.T, d Subject, _ Peer) {
	if err := d.Flush(0); err != nil {
		t.Error(err)
	}
	m := allocate(t, d, 0, 5000)
	fd, err := d.DMABuf(m, m.Base, 4096)
	all, _ := d.Devices()
	if can := all[0].DMABuf; can != (err == nil) {
		t.Errorf("DMABuf of a device that can (%v): %v", can, err)
	}
	if err == nil {
		syscall.Close(fd)
	}
	for _, c := range []struct {
		addr uint64
		n    int64
	}{{m.Base + 1, 4096}, {m.Base, 100}, {m.Base, m.Size + 4096}, {m.Base - 4096, 4096}, {m.Base, -4096}} {
		if _, err := d.DMABuf(m, c.addr, c.n); err == nil {
			t.Errorf("a descriptor of %d bytes at %#x of %+v", c.n, c.addr, m)
		}
	}
	frees(t, d, m)
}
