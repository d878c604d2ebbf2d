//go:build verbs && cuda && linux && cgo

package verbs

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/accel"
	_ "github.com/gorun-mpi/mpi/accel/cuda"
	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
	"github.com/gorun-mpi/mpi/internal/topology/topologytest"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// gpu is the software GPU, where what an adapter writes is seen after a flush only. What a kernel would read and write
// goes through pinned memory.
type gpu struct {
	accel.Driver
	t      testing.TB
	pinned []byte
	by     string // how adapters reach it; empty: by dma-buf
}

var gpuReady sync.Once

func init() { roles["gpu"] = gpuPeer }

// gpuPeer is rank 1, has device memory that can be read, and polls until it is killed.
func gpuPeer() error {
	d, l, err := roleDevice()
	if err != nil {
		return err
	}
	driver, err := accel.InUse()
	if err != nil {
		return err
	}
	m, err := driver.Alloc(0, readableBytes)
	if err != nil {
		return err
	}
	fd, err := driver.DMABuf(m, m.Base, m.Size)
	if err != nil {
		return err
	}
	_, key, _, err := l.caps.RMA.Devices.Register(fd, m.Base, m.Size)
	if err != nil {
		return err
	}
	unix.Close(fd)
	l.TrySend(&wire.Header{Kind: wire.RTS, Addr: m.Base, Key: key}, nil)
	for pkts := make([]transport.Packet, 8); ; time.Sleep(time.Millisecond) {
		d.Poll(pkts)
	}
}

func newGPU(t testing.TB) *gpu {
	t.Helper()
	needSoft(t)
	gpuReady.Do(func() {
		os.Setenv("GORUN_CUDA_LIB", cudakit.Build(t))
		os.Setenv("SOFTCUDA_ORDERING", "0")
	})
	d, err := accel.InUse()
	if err != nil {
		t.Fatal(err)
	}
	g := &gpu{Driver: d, t: t}
	g.pinned, err = unix.Mmap(-1, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil {
		err = d.Pin(g.pinned)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Unpin(g.pinned); err != nil {
			t.Error(err)
		}
		unix.Munmap(g.pinned)
	})
	return g
}

// alloc is device memory that lives as long as the test, and whose contents are of that seed.
func (g *gpu) alloc(n int64, seed uint64) accel.Memory {
	g.t.Helper()
	m, err := g.Alloc(0, n)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if err := g.Free(m); err != nil {
			g.t.Error(err)
		}
	})
	g.write(m.Base, pattern(int(m.Size), seed))
	return m
}

func (g *gpu) copied(dst, src uint64, n int64) {
	g.t.Helper()
	ev, err := g.Copy(0, dst, src, n)
	for done := false; !done && err == nil; {
		done, err = g.Done(0, ev)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *gpu) write(at uint64, b []byte) {
	g.t.Helper()
	copy(g.pinned, b)
	g.copied(at, addressOf(g.pinned), int64(len(b)))
}

func (g *gpu) read(at uint64, n int64) []byte {
	g.t.Helper()
	g.copied(addressOf(g.pinned), at, n)
	return bytes.Clone(g.pinned[:n])
}

// known registers the whole of m for links of e.
func (g *gpu) known(l *link, m accel.Memory) (local, key uint64) {
	g.t.Helper()
	fd, err := g.DMABuf(m, m.Base, m.Size)
	if err != nil {
		g.t.Fatal(err)
	}
	defer unix.Close(fd)
	local, key, by := g.registered(l, fd, m)
	if want := cmp.Or(g.by, "dma-buf"); by != want {
		g.t.Fatalf("registered by %s, not by %s", by, want)
	}
	return local, key
}

func (g *gpu) registered(l *link, fd int, m accel.Memory) (local, key uint64, by string) {
	g.t.Helper()
	devices := l.caps.RMA.Devices
	err := devices.Able()
	if err == nil {
		local, key, by, err = devices.Register(fd, m.Base, m.Size)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return local, key, by
}

// withPeerMemory lets the software HCA register addresses of the GPU, on a machine that has nvidia_peermem. dmabuf: it
// takes dma-bufs too.
func withPeerMemory(t testing.TB, dmabuf bool) func(*Options) {
	t.Helper()
	t.Setenv("SOFTHCA_PEERMEM", cudakit.Build(t))
	if !dmabuf {
		t.Setenv("SOFTHCA_DMABUF", "0")
	}
	return peerModuleLoaded(t)
}

// peerModuleLoaded is a machine that has the module, whatever its adapters do.
func peerModuleLoaded(t testing.TB) func(*Options) {
	t.Helper()
	root := topologytest.Plant(t, []topologytest.Entry{{Path: "sys/module/nvidia_peermem/refcnt", Text: "0\n"}})
	return func(o *Options) { o.Root = root }
}

// done waits for the end of a READ of e.
func (e *end) done(st transport.State, err error, peer *end) error {
	e.t.Helper()
	if err != nil {
		return err
	}
	if st != transport.Started {
		e.t.Fatalf("state %d", st)
	}
	e.until("the end of a READ", func() bool { return len(e.in) > 0 }, peer)
	p := e.in[0]
	e.in = e.in[1:]
	if p.Event != transport.RMADone || p.Cookie != 99 {
		e.t.Fatalf("event %d, cookie %d", p.Event, p.Cookie)
	}
	return p.Err
}

// An adapter READs any part of an accelerator's memory into any other, and no byte beside it; from and to memory of
// the host likewise. A kernel sees it when the driver has flushed.
func TestDeviceMemory(t *testing.T) {
	watchdog(t)
	t.Run("dma-buf", func(t *testing.T) { readsDeviceMemory(t, newGPU(t)) })
	t.Run("peer memory", func(t *testing.T) {
		g := newGPU(t)
		g.by = "nvidia_peermem"
		readsDeviceMemory(t, g, withPeerMemory(t, false))
	})
}

func readsDeviceMemory(t *testing.T, g *gpu, change ...func(*Options)) {
	a, b, ab, ba := two(t, change...)
	before := [2]uint64{a.counted("mrs"), b.counted("mrs")}
	from, to := g.alloc(pieceMax+3<<20, 1), g.alloc(pieceMax+3<<20, 2)
	_, key := g.known(ab, from)
	local, _ := g.known(ba, to)
	src, want := pattern(int(from.Size), 1), pattern(int(to.Size), 2)
	for _, c := range []struct{ from, to, n int64 }{{0, 0, 1}, {4096, 4096, 4096}, {12345, 54321, 1}, {4097, 8191, 65537},
		{1, 3, pieceMax - 1}, {4095, 1, pieceMax}, {7, 4096, pieceMax + 1}, {0, to.Size - 5, 5}, {from.Size - 9, 0, 9}} {
		st, err := ba.getDevice(to.Base+uint64(c.to), c.n, local, from.Base+uint64(c.from), key, 99)
		if err := b.done(st, err, a); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if c.n > 100 && bytes.Equal(g.read(to.Base+uint64(c.to), c.n), src[c.from:][:c.n]) {
			t.Errorf("%+v: seen without a flush: this test proves less than it says", c)
		}
		if err := g.Flush(0); err != nil {
			t.Fatal(err)
		}
		copy(want[c.to:], src[c.from:][:c.n])
		if !bytes.Equal(g.read(to.Base, to.Size), want) {
			t.Fatalf("%+v: other bytes", c)
		}
	}
	// Into memory of the host, and from there.
	dst := make([]byte, 70_001)
	st, err := ba.get(transport.HostMem(dst), from.Base+777, key, 99)
	if err := b.done(st, err, a); err != nil || !bytes.Equal(dst, src[777:][:len(dst)]) {
		t.Fatal("device to host: ", err)
	}
	addr, hostKey, ok := ab.register(transport.HostMem(dst), transport.Readable)
	if !ok {
		t.Fatal("not registered")
	}
	st, err = ba.getDevice(to.Base+333, 70_000, local, addr+1, hostKey, 99)
	if err := b.done(st, err, a); err != nil {
		t.Fatal("host to device: ", err)
	}
	if err := g.Flush(0); err != nil {
		t.Fatal(err)
	}
	copy(want[333:], dst[1:])
	if !bytes.Equal(g.read(to.Base, to.Size), want) {
		t.Fatal("host to device: other bytes")
	}
	ab.deregister(addr, key) // the key of device memory: nothing
	ab.deregister(addr, hostKey)
	ab.caps.RMA.Devices.Deregister(key)
	ba.caps.RMA.Devices.Deregister(local)
	ba.caps.RMA.Devices.Deregister(local) // nothing
	if now := [2]uint64{a.counted("mrs"), b.counted("mrs")}; now != before {
		t.Errorf("%d registrations, then %d", before, now)
	}
	if st, err := ba.getDevice(to.Base, 100, local, from.Base, key, 99); b.done(st, err, a) == nil {
		t.Error("a READ by a key that has ended succeeds")
	}
}

// What a peer has the key of it can read and not write, and nothing outside.
func TestDeviceMemoryRights(t *testing.T) {
	watchdog(t)
	g := newGPU(t)
	m := g.alloc(1<<20, 1)
	for what, try := range map[string]func(l *link, key uint64) (transport.State, error){
		"a WRITE": func(l *link, key uint64) (transport.State, error) {
			return l.put(transport.HostMem(make([]byte, 100)), m.Base, key, 99)
		},
		"a READ before it": func(l *link, key uint64) (transport.State, error) {
			return l.get(transport.HostMem(make([]byte, 100)), m.Base-1, key, 99)
		},
		"a READ behind it": func(l *link, key uint64) (transport.State, error) {
			return l.get(transport.HostMem(make([]byte, 100)), m.Base+uint64(m.Size)-99, key, 99)
		},
	} {
		a, b, ab, ba := two(t)
		_, key := g.known(ab, m)
		st, err := try(ba, key)
		if b.done(st, err, a) == nil {
			t.Errorf("%s succeeds", what)
		}
	}
	if !bytes.Equal(g.read(m.Base, m.Size), pattern(int(m.Size), 1)) {
		t.Error("it was written to")
	}
}

// An adapter that does not know dma-bufs says so, and so does one that is closed. What was registered ends with it.
func TestDeviceMemoryRefused(t *testing.T) {
	watchdog(t)
	g := newGPU(t)
	m := g.alloc(1<<20, 1)
	a, b, ab, _ := two(t)
	devices := ab.caps.RMA.Devices
	if _, _, _, err := devices.Register(-1, m.Base, m.Size); err == nil ||
		!strings.Contains(err.Error(), "there is no dma-buf, and nvidia_peermem is not loaded") {
		t.Errorf("no descriptor: %v", err)
	}
	g.known(ab, m)
	fd, err := g.DMABuf(m, m.Base, m.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	a.Close()
	if _, _, _, err := devices.Register(fd, m.Base, m.Size); err == nil {
		t.Error("a closed device registers memory")
	}
	devices.Deregister(1 << 8)
	b.Close()

	t.Setenv("SOFTHCA_DMABUF", "0")
	_, _, ab, _ = two(t)
	for range 2 { // also when it is asked again
		err := ab.caps.RMA.Devices.Able()
		if err == nil || !strings.Contains(err.Error(), "registers no dma-buf") ||
			!strings.Contains(err.Error(), "nvidia_peermem is not loaded") {
			t.Errorf("a device that cannot: %v", err)
		}
	}
}

// Where the GPU's driver has no dma-buf, or the adapter refuses the one that there is, the adapter registers the
// address if a module for peer memory is loaded. If the module refuses too, the error says both.
func TestDeviceMemoryByAddress(t *testing.T) {
	watchdog(t)
	g := newGPU(t)
	m := g.alloc(1<<20, 1)
	_, _, ab, _ := two(t, withPeerMemory(t, true))
	other, err := unix.MemfdCreate("no dma-buf", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	for what, fd := range map[string]int{"none": -1, "refused": other} {
		_, key, by := g.registered(ab, fd, m)
		if by != "nvidia_peermem" {
			t.Errorf("%s: registered by %s", what, by)
		}
		ab.caps.RMA.Devices.Deregister(key)
	}
	g.known(ab, m) // the dma-buf where there is one
	t.Setenv("SOFTHCA_PEERMEM", "")
	_, _, ab, _ = two(t, peerModuleLoaded(t))
	_, _, _, err = ab.caps.RMA.Devices.Register(other, m.Base, m.Size)
	if !errors.Is(err, syscall.EFAULT) || !errors.Is(err, syscall.EINVAL) ||
		!strings.Contains(err.Error(), "nvidia_peermem") {
		t.Errorf("refused by both: %v", err)
	}
}

// The setting decides over distance, and turns all of it off.
func TestDeviceMemoryNear(t *testing.T) {
	watchdog(t)
	g := newGPU(t)
	m := g.alloc(1<<20, 1)
	for _, c := range []struct {
		setting, gpu, want string
		far                bool
	}{
		{"", "0000:10:00.0", "PHB: ", false}, {"auto", "0000:20:00.0", "NODE: ", true},
		{"auto", "0000:30:00.0", "SYS: ", true}, {"auto", "0000:00:10.0", "?: ", false}, {"on", "0000:30:00.0", "GORUN_GPUDIRECT is on; SYS: ", false},
		{"on", "0000:10:00.0", "PHB: ", false},
	} {
		root := topologytest.Plant(t, twoSockets)
		_, _, ab, _ := two(t, func(o *Options) { o.Root, o.GPUDirect = root, c.setting })
		devices := ab.caps.RMA.Devices
		where, far := devices.Near(c.gpu)
		if far != c.far || !strings.HasPrefix(where, c.want) || devices.Name != "softhca0" {
			t.Errorf("%q, %s: %s is %q, %v", c.setting, c.gpu, devices.Name, where, far)
		}
		g.known(ab, m)
	}
	_, _, ab, _ := two(t, func(o *Options) { o.GPUDirect = "off" })
	devices := ab.caps.RMA.Devices
	if where, far := devices.Near("0000:10:00.0"); far || where != "the adapter is software" {
		t.Errorf("softhca0 is at %q, %v", where, far)
	}
	_, _, _, err := devices.Register(-1, m.Base, m.Size)
	for _, err := range []error{err, devices.Able()} {
		if err == nil || !strings.Contains(err.Error(), "GORUN_GPUDIRECT is off") {
			t.Errorf("off: %v", err)
		}
	}
}

// twoSockets has softhca0 at the first of three host bridges, and a GPU at each.
var twoSockets = []topologytest.Entry{
	{Path: "sys/devices/system/node/online", Text: "0-1\n"},
	{Path: "sys/class/infiniband/softhca0", Target: "../../devices/pci0000:00/0000:00:01.0/infiniband/softhca0"},
	{Path: "sys/devices/pci0000:00/0000:00:01.0/infiniband/softhca0/device", Target: "../../../0000:00:01.0"},
	{Path: "sys/devices/pci0000:00/0000:00:01.0/numa_node", Text: "0\n"},
	{Path: "sys/bus/pci/devices/0000:10:00.0", Target: "../../../devices/pci0000:00/0000:10:00.0"},
	{Path: "sys/devices/pci0000:00/0000:10:00.0/numa_node", Text: "0\n"},
	{Path: "sys/bus/pci/devices/0000:20:00.0", Target: "../../../devices/pci0000:20/0000:20:00.0"},
	{Path: "sys/devices/pci0000:20/0000:20:00.0/numa_node", Text: "0\n"},
	{Path: "sys/bus/pci/devices/0000:30:00.0", Target: "../../../devices/pci0000:30/0000:30:00.0"},
	{Path: "sys/devices/pci0000:30/0000:30:00.0/numa_node", Text: "1\n"},
}

// A READ into device memory that is under way when its peer dies ends, and its memory is touched no more.
func TestDeviceMemoryDeath(t *testing.T) {
	watchdog(t)
	g := newGPU(t)
	a, b, ab, ba := two(t)
	from, to := g.alloc(8<<20, 1), g.alloc(8<<20, 2)
	_, key := g.known(ab, from)
	local, _ := g.known(ba, to)
	for i := range 10 {
		st, err := ba.getDevice(to.Base, 8<<20, local, from.Base, key, 99)
		if err != nil || st != transport.Started {
			t.Fatal(i, st, err)
		}
	}
	a.Close()
	ends := 0
	b.until("the ends of the READs and Down", func() bool {
		for _, p := range b.in {
			if p.Event == transport.RMADone {
				ends++
			}
		}
		down := len(b.in) > 0 && b.in[len(b.in)-1].Event == transport.Down
		b.in = nil
		return down && ends == 10
	})
	ba.caps.RMA.Devices.Deregister(local)
	g.write(to.Base, pattern(int(to.Size), 3))
	time.Sleep(time.Millisecond) // in which too much could happen
	if err := g.Flush(0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g.read(to.Base, to.Size), pattern(int(to.Size), 3)) {
		t.Error("the adapter writes after Down")
	}
}

// A peer is killed while its device memory is read into that of this rank: each READ ends, Down follows, and from then on
// nothing is written.
func TestDeviceMemoryKilled(t *testing.T) {
	watchdog(t)
	g := newGPU(t)
	b := newEnd(t, 0, 2)
	o, l := opposite(t, b, "gpu")
	rts := b.take(transport.Arrived)
	to := g.alloc(readableBytes, 2)
	local, _ := g.known(l, to)
	under, done, killed, down := 0, 0, false, false
	read := func() {
		st, err := l.getDevice(to.Base, readableBytes, local, rts.Header.Addr, rts.Header.Key, 99)
		if err == nil && st == transport.Started {
			under++
		} else if !errors.Is(err, transport.ErrPeerGone) {
			t.Fatal(st, err)
		}
	}
	for range 3 {
		read()
	}
	b.until("Down", func() bool {
		for _, p := range b.in {
			switch {
			case p.Event == transport.Down:
				down = true
			case p.Event != transport.RMADone || down:
				t.Fatalf("event %d, Down %v", p.Event, down)
			case p.Err == nil:
				done++
				under--
				read()
			default:
				under--
			}
		}
		b.in = nil
		if done >= 3 && !killed {
			killed = true
			o.Kill()
		}
		return down
	})
	if under != 0 {
		t.Errorf("%d READs have not ended", under)
	}
	l.caps.RMA.Devices.Deregister(local)
	g.write(to.Base, pattern(int(to.Size), 3))
	for until := time.Now().Add(50 * time.Millisecond); time.Now().Before(until); {
		b.noPackets()
	}
	if err := g.Flush(0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g.read(to.Base, to.Size), pattern(int(to.Size), 3)) {
		t.Error("memory was written after Down")
	}
}
