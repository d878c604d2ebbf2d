//go:build verbs && cuda && linux && cgo

package pml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/accel"
	_ "github.com/gorun-mpi/mpi/accel/cuda"
	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/internal/topology/topologytest"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
	"github.com/gorun-mpi/mpi/transport/loop"
	"github.com/gorun-mpi/mpi/transport/tcp"
	"github.com/gorun-mpi/mpi/transport/verbs"
)

// gpuRanks are two ranks of this process over software HCAs, with a software GPU where what an adapter writes is seen
// after a flush only.
type gpuRanks struct {
	t      testing.TB
	d      accel.Driver
	e      []*Engine
	pinned transport.Mem
	rng    *rand.Rand
	kept   []accel.Memory

	mu   sync.Mutex
	said []string
}

var softwareDevices = sync.OnceFunc(func() {
	os.Setenv("SOFTCUDA_ORDERING", "0")
	os.Setenv("SOFTCUDA_DEVICES", "2")
	os.Setenv("SOFTCUDA_SEED", "3")
})

// newGPURanks: tags says whether the adapters match tags. over wraps each device; nil: as it is.
func newGPURanks(t testing.TB, seed uint64, tags string, over func(rank int, d transport.Device) transport.Device,
	change ...func(*verbs.Options)) *gpuRanks {
	t.Helper()
	watchdog(t)
	softwareDevices()
	os.Setenv("GORUN_CUDA_LIB", cudakit.Build(t))
	d, err := accel.InUse()
	if err != nil {
		t.Fatal(err)
	}
	g := &gpuRanks{t: t, d: d, rng: rand.New(rand.NewPCG(seed, 11))}
	mem, err := unix.Mmap(-1, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil {
		err = d.Pin(mem)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.pinned = transport.HostMem(mem)
	library := hcakit.Build(t)
	t.Setenv("SOFTHCA_DIR", t.TempDir())
	for rank := range 2 {
		opt := verbs.Options{Rank: rank, Size: 2, Library: library, RegisterFrom: 1, Tags: tags,
			Control: tcp.Options{Job: "test", PeerTimeout: hangs,
				Secret: func() ([]byte, error) { return []byte("the secret of this test, 32 bytes"), nil }}}
		for _, f := range change {
			f(&opt)
		}
		net, err := verbs.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		if over != nil {
			net = over(rank, net)
		}
		e := newEngine(Config{Rank: rank, Size: 2, Net: net, Self: loop.New(1)[0], UnexpectedMax: 1 << 20,
			ConnectTimeout: hangs,
			Lookup:         func(_ context.Context, peer int) ([]byte, error) { return g.e[peer].Address(), nil },
			Info: func(msg string, args ...any) {
				g.mu.Lock()
				defer g.mu.Unlock()
				if msg == wayOfDevice {
					g.said = append(g.said, fmt.Sprint(rank, args))
				}
			}})
		g.e = append(g.e, e)
	}
	t.Cleanup(func() {
		g.close()
		if err := d.Unpin(mem); err != nil {
			t.Error(err)
		}
		unix.Munmap(mem)
	})
	return g
}

func (g *gpuRanks) close() {
	for _, e := range g.e {
		if err := e.Close(errOver); err != nil {
			g.t.Error(err)
		}
	}
}

func (g *gpuRanks) copied(device int, dst, src uint64, n int64) {
	g.t.Helper()
	ev, err := g.d.Copy(device, dst, src, n)
	for done := false; !done && err == nil; {
		done, err = g.d.Done(device, ev)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *gpuRanks) write(b accel.Buffer, data []byte) {
	g.t.Helper()
	if copy(g.pinned.Bytes(), data); len(data) > 0 {
		g.copied(b.Memory.Device, b.Addr, g.pinned.Number(), int64(len(data)))
	}
}

func (g *gpuRanks) read(b accel.Buffer) []byte {
	g.t.Helper()
	if b.Len > 0 {
		g.copied(b.Memory.Device, g.pinned.Number(), b.Addr, b.Len)
	}
	return bytes.Clone(g.pinned.Bytes()[:b.Len])
}

func (g *gpuRanks) bytes(n int64) []byte {
	b := make([]byte, n)
	for i := 0; i < len(b); i++ {
		b[i] = byte(g.rng.Uint32())
	}
	return b
}

func (g *gpuRanks) alloc(device int, n int64) accel.Memory {
	g.t.Helper()
	m, err := g.d.Alloc(device, n)
	if err != nil {
		g.t.Fatal(err)
	}
	g.kept = append(g.kept, m)
	return m
}

// part is n bytes of m at off, with random bytes.
func (g *gpuRanks) part(m accel.Memory, off, n int64) (accel.Buffer, []byte) {
	g.t.Helper()
	b := accel.Buffer{Driver: g.d, Memory: m, Addr: m.Base + uint64(off), Len: n}
	data := g.bytes(n)
	g.write(b, data)
	return b, data
}

func (g *gpuRanks) wait(what string, r *Request) (Status, error) {
	g.t.Helper()
	select {
	case <-r.Done():
	case <-time.After(hangs / 4):
		g.t.Fatal(what, " does not end")
	}
	return r.Wait()
}

// free frees all memory, as a program does: the engines forget it before.
func (g *gpuRanks) free() {
	g.t.Helper()
	for _, m := range g.kept {
		for _, e := range g.e {
			if err := e.ForgetDevice(m); err != nil {
				g.t.Error(err)
			}
		}
		if err := g.d.Free(m); err != nil {
			g.t.Error(err)
		}
	}
	g.kept = nil
}

const readOfVerbs = 4 << 20 // what one request of package verbs moves

// Every message arrives as it was sent, from and to memory of each kind, at every size and place in its allocation,
// through adapters that misbehave too.
func TestGPUOverVerbs(t *testing.T) {
	for _, c := range []struct {
		name string
		tags string
		plan *faulty.Plan
		peer bool // by peer memory, not by dma-buf
	}{{"well", "off", nil, false}, {"tags", "on", nil, false}, {"peer memory", "off", nil, true},
		{"full and late", "off", &faulty.Plan{FullRMA: 0.4, LateRMA: 0.5, LateFor: 20}, false},
		{"failing", "off", &faulty.Plan{FailRMA: 0.4, RefuseRegister: 0.3}, false}} {
		t.Run(c.name, func(t *testing.T) {
			var change []func(*verbs.Options)
			by := "READ by dma-buf"
			if c.peer {
				change, by = append(change, withPeerMemory(t)), "READ by nvidia_peermem"
			}
			over := func(rank int, d transport.Device) transport.Device { return faulty.Wrap(d, int64(rank), *c.plan) }
			if c.plan == nil {
				over = nil
			}
			g := newGPURanks(t, 1, c.tags, over, change...)
			sizes := []int64{0, 1, 8191, 8193, 65537, readOfVerbs - 1, readOfVerbs, readOfVerbs + 1}
			if c.plan != nil {
				sizes = []int64{1, 513, 8193, 200_001, 600_000}
			}
			from, to := g.alloc(0, 2*readOfVerbs), g.alloc(1, 2*readOfVerbs)
			for i, size := range sizes {
				for kinds := range 4 {
					for first := range 2 {
						what := fmt.Sprintf("%d bytes, kinds %d, order %d", size, kinds, first)
						a, want := g.part(from, 12345+int64(kinds), size)
						beside, old := g.part(to, 1000, size+200)
						b := beside.Part(100, size)
						host := make([]byte, size)
						var s, r *Request
						start := []func(){func() {
							if kinds&1 == 0 {
								s = g.e[0].IsendDevice(nil, 0, 1, int32(i), a, Standard)
							} else {
								s = g.e[0].Isend(nil, 0, 1, int32(i), want, Standard)
							}
						}, func() {
							if kinds&2 == 0 {
								r = g.e[1].IrecvDevice(nil, 0, 0, int32(i), b)
							} else {
								r = g.e[1].Irecv(nil, 0, 0, int32(i), host)
							}
						}}
						start[first]()
						start[1-first]()
						st, err := g.wait(what, r)
						if err != nil || st.Bytes != size {
							t.Fatalf("%s: %+v, %v", what, st, err)
						}
						if _, err := g.wait(what, s); err != nil {
							t.Fatalf("%s: the send: %v", what, err)
						}
						if kinds&2 != 0 {
							if !bytes.Equal(host, want) {
								t.Fatalf("%s: other bytes", what)
							}
							continue
						}
						copy(old[100:], want)
						if !bytes.Equal(g.read(beside), old) {
							t.Fatalf("%s: other bytes, or some beside the buffer", what)
						}
					}
				}
			}
			if n := g.e[1].Stats().Gets; n < 10 {
				t.Errorf("%d READs: the adapters have not moved the messages", n)
			}
			g.free()
			g.close()
			for _, s := range g.said {
				if !strings.Contains(s, by) || !strings.Contains(s, "the adapter is software") {
					t.Errorf("said: %q", s)
				}
			}
			if len(g.said) != 2 {
				t.Errorf("said: %q", g.said)
			}
		})
	}
}

// Memory that is freed and allocated again at the same address is registered anew.
func TestGPUOverVerbsFreed(t *testing.T) {
	g := newGPURanks(t, 2, "off", nil)
	to := g.alloc(1, 1<<20)
	var base uint64
	for i := range 6 {
		m, err := g.d.Alloc(0, 2<<20)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && m.Base != base {
			t.Fatalf("%#x, and then %#x", base, m.Base)
		}
		base = m.Base
		for range 2 {
			a, want := g.part(m, 101, 100_001)
			b, _ := g.part(to, 3, 100_001)
			s, r := g.e[0].IsendDevice(nil, 0, 1, 3, a, Standard), g.e[1].IrecvDevice(nil, 0, 0, 3, b)
			for _, q := range []*Request{r, s} {
				if _, err := g.wait("a message", q); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(g.read(b), want) {
				t.Fatalf("allocation %d: other bytes", i)
			}
		}
		if i&1 == 0 { // else without a word
			if err := g.e[0].ForgetDevice(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.d.Free(m); err != nil {
			t.Fatal(err)
		}
	}
	g.free()
}

// sends sends 300,000 bytes of from, of rank 0, to a part of to, of rank 1.
func (g *gpuRanks) sends(t *testing.T, from, to accel.Memory) {
	t.Helper()
	a, want := g.part(from, 5, 300_000)
	b, _ := g.part(to, 7, 300_000)
	s, r := g.e[0].IsendDevice(nil, 0, 1, 3, a, Standard), g.e[1].IrecvDevice(nil, 0, 0, 3, b)
	for _, q := range []*Request{r, s} {
		if _, err := g.wait("a message", q); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(g.read(b), want) {
		t.Fatal("other bytes")
	}
}

// Where the adapter's driver registers no dma-buf, messages go through pinned memory, and each rank says once why.
func TestGPUOverVerbsRefused(t *testing.T) {
	t.Setenv("SOFTHCA_DMABUF", "0")
	g := newGPURanks(t, 3, "on", nil)
	from, to := g.alloc(0, 1<<20), g.alloc(1, 1<<20)
	for range 3 {
		g.sends(t, from, to)
	}
	g.free()
	g.close()
	if len(g.said) != 2 || !strings.Contains(g.said[0], "registers no dma-buf") {
		t.Errorf("said: %q", g.said)
	}
	if n := g.e[1].Stats().Gets; n != 0 {
		t.Errorf("%d READs", n)
	}
}

// withPeerMemory has adapters that take addresses of the software GPU and no dma-bufs, on a machine that has
// nvidia_peermem.
func withPeerMemory(t testing.TB) func(*verbs.Options) {
	t.Helper()
	t.Setenv("SOFTHCA_DMABUF", "0")
	t.Setenv("SOFTHCA_PEERMEM", cudakit.Build(t))
	root := topologytest.Plant(t, []topologytest.Entry{{Path: "sys/module/nvidia_peermem/refcnt", Text: "0\n"}})
	return func(o *verbs.Options) { o.Root = root }
}

// Between an adapter and a GPU at different sockets no message is READ, unless the setting says so. GPU 0 is at the
// adapter's host bridge.
func TestGPUOverVerbsFar(t *testing.T) {
	const sys = "sys/devices/"
	root := topologytest.Plant(t, []topologytest.Entry{
		{Path: sys + "system/node/online", Text: "0-1\n"},
		{Path: "sys/class/infiniband/softhca0", Target: "../../devices/pci0000:00/0000:00:01.0/infiniband/softhca0"},
		{Path: sys + "pci0000:00/0000:00:01.0/infiniband/softhca0/device", Target: "../../../0000:00:01.0"},
		{Path: sys + "pci0000:00/0000:00:01.0/numa_node", Text: "0\n"},
		{Path: "sys/bus/pci/devices/0000:10:00.0", Target: "../../../devices/pci0000:00/0000:10:00.0"},
		{Path: sys + "pci0000:00/0000:10:00.0/numa_node", Text: "0\n"},
		{Path: "sys/bus/pci/devices/0000:11:00.0", Target: "../../../devices/pci0000:11/0000:11:00.0"},
		{Path: sys + "pci0000:11/0000:11:00.0/numa_node", Text: "1\n"},
	})
	for setting, want := range map[string]struct {
		gets uint64
		said []string
	}{
		"auto": {2, []string{"0000:10:00.0 adapter softhca0 way READ by dma-buf because PHB: through one host bridge",
			"0000:11:00.0 adapter softhca0 way through pinned memory because SYS: through the link between CPU"}},
		"on": {4, []string{"0000:10:00.0 adapter softhca0 way READ by dma-buf because PHB",
			"0000:11:00.0 adapter softhca0 way READ by dma-buf because GORUN_GPUDIRECT is on; SYS"}},
		"off": {0, []string{
			"0000:10:00.0 adapter softhca0 way through pinned memory because verbs: GORUN_GPUDIRECT is off"}},
	} {
		t.Run(setting, func(t *testing.T) {
			g := newGPURanks(t, 4, "off", nil, func(o *verbs.Options) { o.Root, o.GPUDirect = root, setting })
			for _, device := range []int{0, 1} {
				from, to := g.alloc(device, 1<<20), g.alloc(0, 1<<20)
				for range 2 {
					g.sends(t, from, to)
				}
			}
			g.free()
			if n := g.e[1].Stats().Gets; n != want.gets {
				t.Errorf("%d READs, want %d", n, want.gets)
			}
			g.close()
			for _, w := range want.said {
				if n := strings.Count(strings.Join(g.said, "\n"), w); n == 0 {
					t.Errorf("no %q in %q", w, g.said)
				}
			}
			if most := len(want.said) + 1; len(g.said) != most { // of both ranks, GPU 0
				t.Errorf("said: %q", g.said)
			}
		})
	}
}

// Where a rank ends while its memory is read, the other's requests end, and its memory can be freed.
func TestGPUOverVerbsDeath(t *testing.T) {
	for i := range inShort(12, 4) {
		g := newGPURanks(t, uint64(10+i), []string{"off", "on"}[i>>1&1], nil)
		from, to := g.alloc(0, 32<<20), g.alloc(1, 32<<20)
		var all [2][]*Request
		for k := range int32(8) {
			a := accel.Buffer{Driver: g.d, Memory: from, Addr: from.Base + uint64(k)<<22, Len: 4 << 20}
			b := accel.Buffer{Driver: g.d, Memory: to, Addr: to.Base + uint64(k)<<22, Len: 4 << 20}
			all[0] = append(all[0], g.e[0].IsendDevice(nil, 0, 1, k, a, Standard))
			all[1] = append(all[1], g.e[1].IrecvDevice(nil, 0, 0, k, b))
		}
		if _, err := g.wait("the first", all[1][0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(g.rng.IntN(3000)) * time.Microsecond)
		dies := i & 1
		g.e[dies].Close(errOver)
		for k, r := range all[1-dies] {
			if dies == 0 && k == 0 {
				continue
			}
			if _, err := g.wait("a request", r); err != nil && !errors.Is(err, transport.ErrPeerGone) {
				t.Errorf("%v", err)
			}
		}
		g.free()
		g.close()
	}
}
