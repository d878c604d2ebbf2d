package multi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/eventset"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/shm"
)

// patience is the limit of a wait, after which a test fails.
const patience = time.Minute

// TestMain makes sure that no test leaves a goroutine or a descriptor.
func TestMain(m *testing.M) { os.Exit(leak.VerifyMain(m.Run)) }

// named is shared memory by another name, so that there can be two.
type named struct {
	*shm.Device
	name string
}

func (n *named) Name() string { return n.name }

func newShm(rank int, name string) transport.Device {
	d, err := shm.New(shm.Options{Rank: rank, Size: 3, Local: 2,
		Secret: func() ([]byte, error) { return make([]byte, 32), nil }})
	if err != nil {
		panic(err)
	}
	if name == "" {
		return d
	}
	return &named{d, name}
}

// fake is a device for which a test decides what arrives, and what becomes of Connect.
type fake struct {
	shorts     bool // there is Facts.Short
	name       string
	address    string
	connect    func(peer int, address []byte) (transport.Link, error)
	connectNow func(peer int, address []byte) transport.Link // Facts.ConnectNow
	closeErr   error                                         // of Close
	refused    uint64
	card       []byte
	introduced []byte            // by Introduce
	wake       func(thread bool) // by Notify
	memory     *transport.Memory

	mu       sync.Mutex
	r, w     int // a pipe
	pkts     []transport.Packet
	armed    bool
	disarmed int
	polls    int
	cleared  atomic.Int64
	closed   bool
}

func newFake(t testing.TB, name string) *fake {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	f := &fake{name: name, address: name + "'s address", r: ends[0], w: ends[1]}
	t.Cleanup(func() { f.Close() })
	return f
}

func (f *fake) Name() string    { return f.name }
func (f *fake) Address() []byte { return []byte(f.address) }

func (f *fake) Connect(_ context.Context, peer int, address []byte) (transport.Link, error) {
	if f.connect == nil {
		return nil, fmt.Errorf("%w: %s leads nowhere", transport.ErrUnavailable, f.name)
	}
	return f.connect(peer, address)
}

func (f *fake) arrive(pkts ...transport.Packet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pkts = append(f.pkts, pkts...)
	if f.armed {
		f.armed = false
		unix.Write(f.w, []byte{1})
	}
}

func (f *fake) Poll(pkts []transport.Packet) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.polls++
	n := copy(pkts, f.pkts)
	f.pkts = f.pkts[n:]
	return n
}

// short is Facts's, where the test says so.
func (f *fake) short() (m transport.Short, payload []byte, found transport.Found) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pkts) == 0 {
		return m, nil, transport.FoundNothing
	}
	m.Source = f.pkts[0].Peer
	f.pkts = f.pkts[1:]
	return m, nil, transport.FoundShort
}

func (f *fake) Arm(transport.Level) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = len(f.pkts) == 0
	return f.armed
}

func (f *fake) Disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
	f.disarmed++
}

func (f *fake) Facts() *transport.Facts {
	var short func() (transport.Short, []byte, transport.Found)
	if f.shorts {
		short = f.short
	}
	return &transport.Facts{
		Short: short,
		Wake: []transport.Wake{{FD: f.r, ThreadFD: f.r, Clear: f.clear,
			Notify: func(wake func(bool)) { f.wake = wake }}},
		Introducer: &transport.Introducer{
			Introduce: func(card []byte) { f.introduced = card },
			Card:      func(int) []byte { return f.card },
		},
		Memory:     f.memory,
		Refused:    func() uint64 { return f.refused },
		ConnectNow: f.connectNow,
	}
}

func (f *fake) clear(bool) {
	f.cleared.Add(1)
	var b [64]byte
	unix.Read(f.r, b[:])
}

func (f *fake) Close() error {
	if !f.closed {
		f.closed = true
		unix.Close(f.r)
		unix.Close(f.w)
	}
	return f.closeErr
}

// count returns the polls since the last count.
func (f *fake) count() int {
	n := f.polls
	f.polls = 0
	return n
}

var errNoMemory = errors.New("none left")

type link struct{ transport.Link }

// sleeper is a device of several with the set in which its rank sleeps.
type sleeper struct {
	*Device
	set *eventset.Set
}

func (s *sleeper) Arm(level transport.Level, thread bool) bool { return s.set.Arm(level, thread) }
func (s *sleeper) Disarm()                                     { s.set.Disarm() }
func (s *sleeper) Park(thread bool)                            { s.set.Park(thread) }
func (s *sleeper) Interrupt()                                  { s.set.Interrupt() }

func joined(t testing.TB, devs ...transport.Device) *sleeper {
	t.Helper()
	d, err := New(nil, devs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	set, err := eventset.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	return &sleeper{d, set}
}

func packet(peer int32, tag int32) transport.Packet {
	return transport.Packet{Peer: peer, Header: wire.Header{Kind: wire.Eager, Tag: tag}}
}

func packets(n int) (pkts []transport.Packet) {
	for i := range n {
		pkts = append(pkts, packet(1, int32(i)))
	}
	return pkts
}
