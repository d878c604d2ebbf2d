package pml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// nicFabric are the adapters of ranks on different hosts. They READ device memory in their own time: at the end, so
// that memory that is used too early shows.
type nicFabric struct {
	mu     sync.Mutex
	unable error  // what Able says
	refuse bool   // Register refuses
	wrong  bool   // READs into device memory fail, half way
	far    string // the PCI address of a device that is far from all adapters
	looks  int    // how often Near was called
	asked  int    // how often receivers have asked for keys
	keys   map[uint64]nicRegion
	last   uint64
	reads  int // how many there were
	most   int // regions that were registered at a time
}

type nicRegion struct {
	owner *nic
	addr  uint64
	n     int64
}

// nic is such a rank's device, over loop.
type nic struct {
	transport.Device
	f       *nicFabric
	e       *Engine
	proc    *acceltest.Process
	facts   transport.Facts
	devices transport.Devices
	rng     *rand.Rand
	under   []nicRead
	room    map[int]bool // peers that are to hear of room
}

type nicRead struct {
	polls int // until it ends
	end   func() transport.Packet
}

func (f *nicFabric) over(d transport.Device, proc *acceltest.Process) *nic {
	n := &nic{Device: d, f: f, proc: proc, facts: *d.Facts(), rng: rand.New(rand.NewPCG(uint64(len(f.keys)), 8)),
		room: map[int]bool{}}
	n.facts.Short = nil // the end of a READ is found by Poll alone
	n.devices = transport.Devices{Name: "nic", Able: func() error { return f.unable }, Near: n.near,
		Register: n.register, Deregister: n.deregister}
	return n
}

func (n *nic) Facts() *transport.Facts { return &n.facts }

func (n *nic) Arm(level transport.Level) bool {
	return len(n.under) == 0 && len(n.room) == 0 && n.Device.Arm(level)
}

func (n *nic) Poll(p []transport.Packet) int {
	k := 0
	for peer := range n.room {
		if k < len(p) {
			p[k] = transport.Packet{Event: transport.Room, Peer: int32(peer)}
			k++
			delete(n.room, peer)
		}
	}
	for k < len(p) && len(n.under) > 0 {
		if n.under[0].polls--; n.under[0].polls > 0 {
			break
		}
		p[k] = n.under[0].end()
		k++
		n.under = n.under[1:]
	}
	if k == len(p) {
		return k
	}
	return k + n.Device.Poll(p[k:])
}

func (n *nic) Close() error {
	n.f.mu.Lock()
	for key, r := range n.f.keys {
		if r.owner == n {
			delete(n.f.keys, key)
		}
	}
	n.f.mu.Unlock()
	return n.Device.Close()
}

// near is by PCI addresses.
func (n *nic) near(pci string) (where string, far bool) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	n.f.looks++
	return "this test says so", n.f.far == pci
}

func (n *nic) register(fd int, addr uint64, size int64) (local, key uint64, by string, err error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return 0, 0, "", err
	}
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if n.f.refuse {
		return 0, 0, "", errors.New("this test refuses it")
	}
	if addr%4096 != 0 || size%4096 != 0 || size <= 0 {
		return 0, 0, "", fmt.Errorf("%d bytes at %#x", size, addr)
	}
	n.f.last++
	if n.f.keys == nil {
		n.f.keys = map[uint64]nicRegion{}
	}
	n.f.keys[n.f.last<<8] = nicRegion{n, addr, size}
	n.f.most = max(n.f.most, len(n.f.keys))
	return n.f.last, n.f.last << 8, "this test", nil
}

func (n *nic) deregister(key uint64) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	delete(n.f.keys, key)
}

func (n *nic) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := n.Device.Connect(ctx, peer, address)
	if err != nil {
		return nil, err
	}
	out := &nicLink{Link: l, f: n.f, caps: *l.Caps()}
	in := l.Caps().RMA
	rma := *in
	rma.Devices = &n.devices
	rma.Get = func(dst transport.Mem, addr, key, cookie uint64) (transport.State, error) {
		if b := n.find(addr, int64(dst.Len), key); b != nil {
			return transport.Done, copyTo(dst, b)
		}
		return in.Get(dst, addr, key, cookie)
	}
	rma.GetDevice = func(dst uint64, size int64, local, addr, key, cookie uint64) (transport.State, error) {
		// Who sleeps in the device is to poll it.
		n.e.wait.isNot()
		n.e.wakeLeader()
		switch n.rng.IntN(4) {
		case 0:
			n.room[peer] = true
			return transport.Full, nil
		case 1:
			if err := n.move(in, dst, size, local, addr, key); err != nil {
				return transport.Done, err
			}
			return transport.Done, nil
		}
		n.under = append(n.under, nicRead{1 + n.rng.IntN(20), func() transport.Packet {
			return transport.Packet{Event: transport.RMADone, Peer: int32(peer), Cookie: cookie,
				Err: n.move(in, dst, size, local, addr, key)}
		}})
		return transport.Started, nil
	}
	out.caps.RMA, out.caps.SameHost = &rma, false
	return out, nil
}

// count is how many READs of device memory, or into it, there were.
func (f *nicFabric) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func copyTo(dst transport.Mem, b []byte) error {
	copy(dst.Bytes(), b)
	return nil
}

// find returns what a key reaches of device memory; nil: nothing.
func (n *nic) find(addr uint64, size int64, key uint64) []byte {
	n.f.mu.Lock()
	r, ok := n.f.keys[key]
	n.f.mu.Unlock()
	if !ok || addr < r.addr || addr-r.addr > uint64(r.n-size) {
		return nil
	}
	n.f.mu.Lock()
	n.f.reads++
	n.f.mu.Unlock()
	return r.owner.proc.Read(addr, size)
}

// move is a READ into device memory.
func (n *nic) move(in *transport.RMA, dst uint64, size int64, local, addr, key uint64) error {
	n.f.mu.Lock()
	r, ok := n.f.keys[local<<8]
	n.f.mu.Unlock()
	if !ok || r.owner != n || dst < r.addr || size > r.n || dst-r.addr > uint64(r.n-size) {
		return fmt.Errorf("%d bytes at %#x are not registered", size, dst)
	}
	b := n.find(addr, size, key)
	if b == nil {
		b = make([]byte, size)
		if _, err := in.Get(transport.HostMem(b), addr, key, 0); err != nil {
			return err
		}
		n.f.mu.Lock()
		n.f.reads++
		n.f.mu.Unlock()
	}
	n.f.mu.Lock()
	wrong := n.f.wrong
	n.f.mu.Unlock()
	if wrong {
		n.proc.Write(dst, b[:len(b)/2])
		return errors.New("this test says so")
	}
	n.proc.Write(dst, b)
	return nil
}

type nicLink struct {
	transport.Link
	f    *nicFabric
	caps transport.Caps
}

func (l *nicLink) Caps() *transport.Caps { return &l.caps }

func (l *nicLink) TrySend(h *wire.Header, payload []byte) bool {
	taken := l.Link.TrySend(h, payload)
	if taken && h.Kind == wire.HandleReq {
		l.f.mu.Lock()
		l.f.asked++
		l.f.mu.Unlock()
	}
	return taken
}

// Once an allocation has been used by a message, adapters move its messages, from and to memory of each kind, and
// neither end copies. The receiver's flush comes before its request is done.
func TestAdapterReads(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{Adapters: true})
	m, err := d.procs[0].Alloc(0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	to, _ := d.buffer(1, 0, 60_000)
	host := make([]byte, 60_000)
	for i := range int64(8) {
		from := accel.Buffer{Driver: d.procs[0], Memory: m, Addr: m.Base + uint64(i*777), Len: 50_001}
		want := d.bytes(from.Len)
		d.procs[0].Write(from.Addr, want)
		copies := d.procs[0].Calls("Copy") + d.procs[1].Calls("Copy")
		flushes, reads := d.procs[1].Calls("Flush"), d.nics.count()
		var s, r *Request
		if i < 6 {
			r = d.e[1].IrecvDevice(nil, 0, 0, 3, to.Part(i, 55_000))
		} else {
			r = d.e[1].Irecv(nil, 0, 0, 3, host)
		}
		if i&1 == 0 {
			s = d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
		} else {
			s = d.e[0].Isend(nil, 0, 1, 3, want, Standard)
		}
		d.waitAll(r, s)
		got := host
		if i < 6 {
			got = d.read(1, to)[i:]
		}
		if !bytes.Equal(got[:from.Len], want) {
			t.Fatalf("message %d: other bytes", i)
		}
		if n := d.procs[0].Calls("Copy") + d.procs[1].Calls("Copy") - copies; n != 0 {
			t.Errorf("message %d took %d copies", i, n)
		}
		if i < 6 && d.procs[1].Calls("Flush") != flushes+1 {
			t.Errorf("message %d: %d flushes", i, d.procs[1].Calls("Flush")-flushes)
		}
		if i < 7 && d.nics.count() == reads {
			t.Errorf("message %d: no READ", i)
		}
	}
	if n := d.procs[0].Calls("DMABuf"); n != 1 {
		t.Errorf("%d descriptors for one allocation", n)
	}
	d.kept = append(d.kept, allocated{0, m})
	d.left()
}

// Where the adapter reaches no device memory, or does not register an allocation, its messages go through pinned
// memory, and the log says why, once.
func TestAdapterRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*deviceRanks)
	}{
		{"unable", func(d *deviceRanks) { d.nics.unable = errors.New("this test is unable") }},
		{"refused", func(d *deviceRanks) { d.nics.refuse = true }},
		{"no dma-buf", func(d *deviceRanks) {
			for i := range 50 {
				d.procs[0].Fail("DMABuf", i+1)
				d.procs[1].Fail("DMABuf", i+1)
			}
		}},
	} {
		d := newDeviceRanks(t, 2, acceltest.Options{Adapters: true})
		c.make(d)
		said := d.sayWays()
		for i := range 4 {
			from, want := d.buffer(0, 0, 40_000)
			to, _ := d.buffer(1, i&1, 40_000)
			s, r := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard), d.e[1].IrecvDevice(nil, 0, 0, 3, to)
			for _, q := range []*Request{s, r} {
				if _, err := d.wait(q); err != nil {
					t.Fatal(c.name, err)
				}
			}
			if !bytes.Equal(d.read(1, to), want) {
				t.Fatal(c.name, ": other bytes")
			}
		}
		if n := d.nics.count(); n != 0 {
			t.Errorf("%s: %d READs", c.name, n)
		}
		d.left()
		// Each rank of each of its devices; rank 1 has buffers on two. One that has no use of adapters asks no more.
		if s := said(); len(s) < 2 || len(s) > 3 || !strings.Contains(s[0], throughPinned) {
			t.Errorf("%s: the two ranks have said %q", c.name, s)
		}
	}
}

// sayWays has the engines say which way messages of devices go. It returns what they have said.
func (d *deviceRanks) sayWays() func() []string {
	var mu sync.Mutex
	var said []string
	for _, e := range d.e {
		e.cfg.Info = func(msg string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			if msg == wayOfDevice {
				said = append(said, fmt.Sprint(e.cfg.Rank, args))
			}
		}
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(said)
		return slices.Clone(said)
	}
}

// An adapter does not READ into the memory of a device that is too far from it, nor do other adapters READ from there
// through it. It moves the messages of devices that are near. The log says so of each device once, however many
// allocations there are; of that device nothing asks the driver or
// the adapter again.
func TestAdapterFar(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{Adapters: true, Devices: 2})
	devices, err := d.procs[0].Devices()
	if err != nil {
		t.Fatal(err)
	}
	d.nics.far = devices[1].PCI
	said := d.sayWays()
	for i := range 12 {
		from, want := d.buffer(0, i&1, 40_000)
		to, _ := d.buffer(1, i>>1&1, 40_000)
		reads := d.nics.count()
		for range 2 { // the second one's RTS has the key
			s, r := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard), d.e[1].IrecvDevice(nil, 0, 0, 3, to)
			d.waitAll(s, r)
			if !bytes.Equal(d.read(1, to), want) {
				t.Fatal("other bytes")
			}
		}
		near := i&1 == 0 && i>>1&1 == 0
		if n := d.nics.count() - reads; near && n != 2 || !near && n != 0 {
			t.Errorf("from device %d to device %d: %d READs", i&1, i>>1&1, n)
		}
	}
	for rank, want := range []int{6, 4} { // of the near device; a receiver's if the message may be READ
		if n := d.procs[rank].Calls("DMABuf"); n != want {
			t.Errorf("rank %d: %d descriptors, want %d", rank, n, want)
		}
	}
	d.left()
	got := said()
	for i, want := range []string{"READ by this test", throughPinned, "READ by this test", throughPinned} {
		if len(got) != 4 || !strings.Contains(got[i], want) || !strings.Contains(got[i], "this test says so") {
			t.Fatalf("said: %q", got)
		}
	}
	// For the key of each new allocation of the near device, and once before the sender knew how far the other one is.
	if d.nics.asked != 4 {
		t.Errorf("the receiver has asked %d times", d.nics.asked)
	}
	if d.nics.looks > 8 { // a rank may look twice at once
		t.Errorf("%d looks at four pairs", d.nics.looks)
	}
}

// Memory that is freed without a word and allocated again at the same address is registered anew. An adapter knows no
// more than regionsMost allocations.
func TestAdapterForgets(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{Adapters: true})
	to, _ := d.buffer(1, 0, 50_000)
	send := func(m accel.Memory) {
		t.Helper()
		from := accel.Buffer{Driver: d.procs[0], Memory: m, Addr: m.Base, Len: 50_000}
		want := d.bytes(from.Len)
		d.procs[0].Write(from.Addr, want)
		s, r := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard), d.e[1].IrecvDevice(nil, 0, 0, 3, to)
		d.waitAll(s, r)
		if !bytes.Equal(d.read(1, to), want) {
			t.Fatal("other bytes")
		}
	}
	m := d.procs[0].UserAlloc(0, 64<<10, acceltest.Ordinary)
	send(m)
	d.procs[0].UserFree(m)
	again := d.procs[0].UserAlloc(0, 64<<10, acceltest.Ordinary)
	if again.Base != m.Base || again.ID == m.ID {
		t.Fatalf("%+v, and then %+v", m, again)
	}
	send(again)
	send(again)
	if n := d.procs[0].Calls("DMABuf"); n != 2 {
		t.Errorf("%d descriptors", n)
	}
	for range regionsMost + 5 {
		b, _ := d.buffer(0, 0, 60_000)
		send(b.Memory)
	}
	if d.nics.most > regionsMost+1 { // and one at the receiver
		t.Errorf("%d regions at a time", d.nics.most)
	}
	if err := d.e[0].ForgetDevice(again); err != nil {
		t.Fatal(err)
	}
	d.nics.mu.Lock()
	for _, r := range d.nics.keys {
		if r.owner.proc == d.procs[0] && r.addr == again.Base {
			t.Error("the adapter knows memory that is about to be freed")
		}
	}
	d.nics.mu.Unlock()
	d.procs[0].UserFree(again)
	d.left()
}

// A message whose READ fails comes through pinned memory.
func TestAdapterFails(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{Adapters: true})
	for i := range 6 {
		from, want := d.buffer(0, 0, 40_000)
		to, _ := d.buffer(1, 0, 40_000)
		d.nics.mu.Lock()
		d.nics.wrong = i&1 == 0
		d.nics.mu.Unlock()
		s, r := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard), d.e[1].IrecvDevice(nil, 0, 0, 3, to)
		d.waitAll(s, r)
		if !bytes.Equal(d.read(1, to), want) {
			t.Fatal("other bytes")
		}
	}
	d.procs[1].Fail("Flush", 1)
	from, _ := d.buffer(0, 0, 40_000)
	to, _ := d.buffer(1, 0, 40_000)
	s, r := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard), d.e[1].IrecvDevice(nil, 0, 0, 3, to)
	if _, err := d.wait(r); !errors.Is(err, ErrDevice) {
		t.Errorf("a flush that fails: %v", err)
	}
	if _, err := d.wait(s); err != nil {
		t.Error(err)
	}
	d.left()
}

// ForgetDevice waits for a message that an adapter may still read, and for no other.
func TestAdapterForgetWaits(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{Adapters: true})
	m, err := d.procs[0].Alloc(0, 60_000)
	if err != nil {
		t.Fatal(err)
	}
	from := accel.Buffer{Driver: d.procs[0], Memory: m, Addr: m.Base, Len: 50_000}
	to, _ := d.buffer(1, 0, 50_000)
	s, r := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard), d.e[1].IrecvDevice(nil, 0, 0, 3, to)
	d.wait(r)
	d.wait(s)
	s = d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard) // its RTS has the key
	over := make(chan error)
	go func() { over <- d.e[0].ForgetDevice(m) }()
	select {
	case <-over:
		t.Fatal("it has not waited")
	case <-time.After(20 * time.Millisecond): // in which too much could happen
	}
	r = d.e[1].IrecvDevice(nil, 0, 0, 3, to)
	d.waitAll(s, r)
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if err := d.procs[0].Free(m); err != nil {
		t.Fatal(err)
	}
	d.left()
}
