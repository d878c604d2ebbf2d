//go:build cuda && linux && cgo

package cuda

import (
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
)

// asPeer makes this test binary another process, which does what its standard input asks for.
const asPeer = "GORUN_TEST_CUDA_PEER"

func TestMain(m *testing.M) {
	if os.Getenv(asPeer) != "" {
		serve()
		return
	}
	os.Exit(cudakit.Main(m))
}

// the is the driver that package accel has been given.
func the(t testing.TB) *driver {
	d, err := accel.InUse()
	if err != nil {
		t.Fatal(err)
	}
	return d.(*driver)
}

// onDevice lets TestConformance and BenchmarkQuery run on a real GPU; the other tests are skipped then.
var onDevice = os.Getenv("GORUN_TEST_GPU") != ""

// softGPU lets this process, and those that it starts, find the software GPU with two devices.
func softGPU(t testing.TB) *driver {
	t.Helper()
	if onDevice {
		t.Skip("the test needs the software GPU, and GORUN_TEST_GPU says to use the device")
	}
	once.Do(func() {
		for _, kv := range [][2]string{{"GORUN_CUDA_LIB", cudakit.Build(t)}, {"SOFTCUDA_DEVICES", "2"},
			{"SOFTCUDA_SEED", "3"}} {
			os.Setenv(kv[0], kv[1])
		}
	})
	d := the(t)
	if _, err := d.Devices(); err != nil {
		t.Fatal(err)
	}
	return d
}

var once sync.Once

// kernels does what a kernel does, by copies through pinned memory.
type kernels struct {
	*driver
	mu     sync.Mutex
	pinned []byte
}

const pinnedSize = 2 << 20

func (k *kernels) Write(addr uint64, b []byte) {
	k.copy(addr, int64(len(b)), func(at uint64, device int) (accel.Event, error) {
		copy(k.pinned, b)
		return k.Copy(device, addr, at, int64(len(b)))
	})
}

func (k *kernels) Read(addr uint64, n int64) []byte {
	b := make([]byte, n)
	k.copy(addr, n, func(at uint64, device int) (accel.Event, error) { return k.Copy(device, at, addr, n) })
	copy(b, k.pinned)
	return b
}

func (k *kernels) copy(addr uint64, n int64, start func(at uint64, device int) (accel.Event, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n > pinnedSize {
		panic("too long for a kernel of this test")
	}
	if k.pinned == nil {
		k.pinned = must(mapped(pinnedSize))
		if err := k.Pin(k.pinned); err != nil {
			panic(err)
		}
	}
	m := must(k.Query(addr))
	if m.Kind != accel.OnBoard {
		panic(fmt.Sprintf("%#x is %v", addr, m.Kind))
	}
	ev := must(start(address(k.pinned), m.Device))
	for !must(k.Done(m.Device, ev)) {
		time.Sleep(10 * time.Microsecond)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func mapped(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// subject is the driver as acceltest.TestDriver takes it.
type subject struct {
	*kernels
	streams map[uint64]int // the device of each
	how     map[uint64]acceltest.How
	out     []byte // where calls of a user put what they make
}

func newSubject(d *driver) *subject {
	return &subject{kernels: &kernels{driver: d}, streams: map[uint64]int{}, how: map[uint64]acceltest.How{},
		out: must(mapped(4096))}
}

// made is the number that the last call put out.
func (s *subject) made() uint64 {
	var n uint64
	for i := range 8 {
		n |= uint64(s.out[i]) << (8 * i)
	}
	return n
}

func (s *subject) User(device int, n int64, how acceltest.How) accel.Memory {
	out := address(s.out)
	var err error
	switch how {
	case acceltest.Ordinary:
		err = userCall(device, "cuMemAlloc_v2", out, uint64(n))
	case acceltest.Pool:
		err = errors.Join(userCall(device, "cuMemAllocAsync", out, uint64(n), 0), userCall(device, "cuStreamSynchronize", 0))
	case acceltest.Moving:
		err = userCall(device, "cuMemAllocManaged", out, uint64(n), 1)
	}
	if err != nil {
		panic(err)
	}
	addr := s.made()
	s.how[addr] = how
	return must(s.Query(addr))
}

func (s *subject) FreeUser(m accel.Memory) {
	call := "cuMemFree_v2"
	if s.how[m.Base] == acceltest.Pool {
		call = "cuMemFreeAsync"
	}
	if err := errors.Join(userCall(m.Device, call, m.Base, 0), userCall(m.Device, "cuStreamSynchronize", 0)); err != nil {
		panic(err)
	}
}

func (s *subject) Stream(device int) uint64 {
	if err := userCall(device, "cuStreamCreate", address(s.out), 1); err != nil {
		panic(err)
	}
	stream := s.made()
	s.streams[stream] = device
	return stream
}

func (s *subject) Hold(stream uint64) func() {
	fd := must(unix.Eventfd(0, unix.EFD_CLOEXEC))
	if err := userCall(s.streams[stream], "cuLaunchHostFunc", stream, reader(), uint64(fd)); err != nil {
		panic(err)
	}
	return func() { unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }
}

func (s *subject) HostMemory(tb testing.TB, n int) ([]byte, uint64) {
	b := must(mapped(n))
	tb.Cleanup(func() { unix.Munmap(b) })
	return b, address(b)
}

// Args are those of one call of a method of accel.Driver; Answers are what it returns.
type (
	Args struct {
		Method      string
		Device      int
		Addr, Other uint64
		N           int64
		Bytes       []byte
		Memory      accel.Memory
	}
	Answers struct {
		Memory accel.Memory
		N      int64
		Addr   uint64
		Yes    bool
		Bytes  []byte
	}
)

// Remote is the driver in another process.
type Remote struct{ k *kernels }

// Call makes one call.
func (r *Remote) Call(a Args, out *Answers) (err error) {
	switch a.Method {
	case "Query":
		out.Memory, err = r.k.Query(a.Addr)
	case "Alloc":
		out.Memory, err = r.k.Alloc(a.Device, a.N)
	case "Free":
		err = r.k.Free(a.Memory)
	case "Export":
		out.Bytes, out.N, err = r.k.Export(a.Memory)
	case "Open":
		out.Addr, err = r.k.Open(a.Device, a.Bytes, a.N)
	case "Close":
		err = r.k.Close(a.Device, a.Addr)
	case "Copy":
		var ev accel.Event
		ev, err = r.k.Copy(a.Device, a.Addr, a.Other, a.N)
		out.Addr = uint64(ev)
	case "Done":
		out.Yes, err = r.k.Done(a.Device, accel.Event(a.Addr))
	case "Devices":
		_, err = r.k.Devices()
	case "Round":
		err = r.k.round(a.Bytes, a.N)
	case "Left":
		out.Bytes = []byte(left())
	case "Signals":
		out.Bytes, err = r.k.signals()
	case "Write":
		r.k.Write(a.Addr, a.Bytes)
	case "Read":
		out.Bytes = r.k.Read(a.Addr, a.N)
	default:
		err = fmt.Errorf("no method %q", a.Method)
	}
	return err
}

type stdio struct {
	io.Reader
	io.Writer
}

func (stdio) Close() error { return nil }

func serve() {
	d, err := accel.InUse()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s := rpc.NewServer()
	if err := s.Register(&Remote{&kernels{driver: d.(*driver)}}); err != nil {
		panic(err)
	}
	s.ServeConn(stdio{os.Stdin, os.Stdout})
}

// peer is the driver of another process, as this one calls it. The methods that are not here panic.
type peer struct {
	accel.Driver
	client *rpc.Client
}

func newPeer(t *testing.T, environ ...string) *peer {
	t.Helper()
	unix.Prctl(unix.PR_SET_PTRACER, unix.PR_SET_PTRACER_ANY, 0, 0, 0) // it opens this process's memory, which Yama may forbid
	cmd := exec.Command(must(os.Executable()))
	cmd.Env = append(append(os.Environ(), asPeer+"=1"), environ...)
	cmd.Stderr = os.Stderr
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &peer{client: rpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{out, in})}
	t.Cleanup(func() {
		p.client.Close() // the end of its standard input
		if err := cmd.Wait(); err != nil {
			t.Error("the other process: ", err)
		}
	})
	return p
}

func (p *peer) call(a Args) (out Answers, err error) {
	err = p.client.Call("Remote.Call", a, &out)
	return out, err
}

func (p *peer) Devices() ([]accel.Device, error) {
	_, err := p.call(Args{Method: "Devices"})
	return nil, err
}

func (p *peer) Query(addr uint64) (accel.Memory, error) {
	out, err := p.call(Args{Method: "Query", Addr: addr})
	return out.Memory, err
}

func (p *peer) Alloc(device int, n int64) (accel.Memory, error) {
	out, err := p.call(Args{Method: "Alloc", Device: device, N: n})
	return out.Memory, err
}

func (p *peer) Free(m accel.Memory) error {
	_, err := p.call(Args{Method: "Free", Memory: m})
	return err
}

func (p *peer) Export(m accel.Memory) ([]byte, int64, error) {
	out, err := p.call(Args{Method: "Export", Memory: m})
	return out.Bytes, out.N, err
}

func (p *peer) Open(device int, handle []byte, size int64) (uint64, error) {
	out, err := p.call(Args{Method: "Open", Device: device, Bytes: handle, N: size})
	return out.Addr, err
}

func (p *peer) Close(device int, addr uint64) error {
	_, err := p.call(Args{Method: "Close", Device: device, Addr: addr})
	return err
}

func (p *peer) Copy(device int, dst, src uint64, n int64) (accel.Event, error) {
	out, err := p.call(Args{Method: "Copy", Device: device, Addr: dst, Other: src, N: n})
	return accel.Event(out.Addr), err
}

func (p *peer) Done(device int, ev accel.Event) (bool, error) {
	out, err := p.call(Args{Method: "Done", Device: device, Addr: uint64(ev)})
	return out.Yes, err
}

func (p *peer) Write(addr uint64, b []byte) {
	must(p.call(Args{Method: "Write", Addr: addr, Bytes: b}))
}

func (p *peer) Read(addr uint64, n int64) []byte {
	return must(p.call(Args{Method: "Read", Addr: addr, N: n})).Bytes
}
