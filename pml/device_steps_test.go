package pml

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// stepWay is where a message goes that is made step by step.
type stepWay struct {
	name                 string
	fromDevice, toDevice bool
	shared               bool // the receiver maps the sender's memory
	apart                bool // the ranks are of two hosts
}

var stepWays = []stepWay{
	{name: "device to device", fromDevice: true, toDevice: true},
	{name: "host to device", toDevice: true},
	{name: "device to host", fromDevice: true},
	{name: "mapped", fromDevice: true, toDevice: true, shared: true},
	{name: "two hosts", fromDevice: true, toDevice: true, apart: true},
}

// deviceSteps are messages between ranks of a testNet, each of a process of its own. A step is what can happen at one
// time: a packet of each peer arrives at a rank, or the copies that a rank has started are made. Which of them happens
// follows from the seed.
type deviceSteps struct {
	t       *testing.T
	what    string
	way     stepWay
	net     *testNet
	machine *acceltest.Machine
	procs   []*acceltest.Process
	rng     *rand.Rand
	all     []*stepEnd
	memory  []allocated
	dead    int // no packet arrives there; -1: no rank is dead
	frozen  int // likewise, and its copies are not made; -1: none
}

// stepEnd is one end of a message. Its buffer is overwritten at once when it is the program's again.
type stepEnd struct {
	s      *deviceSteps
	rank   int
	r      *Request
	send   bool
	host   []byte // the buffer, or
	m      accel.Memory
	n      int64
	want   []byte // of a receive
	whole  []byte // what the allocation is to have at the end
	over   bool
	st     Status
	err    error
	killed bool // its peer is dead
}

const stepBefore = 40 // bytes before a buffer in its allocation

func newDeviceSteps(t *testing.T, w stepWay, seed uint64) *deviceSteps {
	s := &deviceSteps{t: t, way: w, what: fmt.Sprintf("%s, seed %d", w.name, seed), rng: rand.New(rand.NewPCG(seed, 17)),
		machine: acceltest.New(acceltest.Options{NotShared: !w.shared}), dead: -1, frozen: -1}
	s.net = newTestNet(netOptions{ranks: 3, eagerMax: 8 << 10, fragMax: 4 << 10, unexpectedMax: 1 << 20})
	for _, d := range s.net.devices {
		d.caps.SameHost = !w.apart
	}
	for range 3 {
		s.procs = append(s.procs, s.machine.Process())
	}
	s.net.linkAll()
	for rank, p := range s.procs {
		if err := s.net.engines[rank].UseDevice(p); err != nil {
			t.Fatal(err)
		}
		p.Copies(0).Hold()
	}
	return s
}

func (s *deviceSteps) fails(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s: "+format, append([]any{s.what}, args...)...)
}

func (s *deviceSteps) bytes(n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.rng.Uint32())
	}
	return b
}

// message starts both ends of a message, in any order.
func (s *deviceSteps) message(from, to int, n int64) (out, in *stepEnd) {
	data := s.bytes(n)
	out = s.end(from, data, s.way.fromDevice)
	in = s.end(to, s.bytes(n), s.way.toDevice)
	out.send, in.want = true, data
	for _, e := range []*stepEnd{out, in}[s.rng.IntN(2):] {
		e.start(from, to)
	}
	out.start(from, to)
	return out, in
}

func (s *deviceSteps) end(rank int, data []byte, device bool) *stepEnd {
	e := &stepEnd{s: s, rank: rank, n: int64(len(data))}
	s.all = append(s.all, e)
	if !device {
		e.host = bytes.Clone(data)
		return e
	}
	m, err := s.procs[rank].Alloc(0, e.n+2*stepBefore)
	if err != nil {
		s.t.Fatal(err)
	}
	s.memory = append(s.memory, allocated{rank, m})
	e.m, e.whole = m, s.bytes(e.n+2*stepBefore)
	copy(e.whole[stepBefore:], data)
	s.procs[rank].Write(m.Base, e.whole)
	return e
}

func (e *stepEnd) start(from, to int) {
	if e.r != nil {
		return
	}
	const tag = 3
	engine := e.s.net.engines[e.rank]
	b := accel.Buffer{Driver: e.s.procs[e.rank], Memory: e.m, Addr: e.m.Base + stepBefore, Len: e.n}
	switch {
	case e.send && e.host != nil:
		e.r = engine.Isend(nil, 0, to, tag, e.host, Standard)
	case e.send:
		e.r = engine.IsendDevice(nil, 0, to, tag, b, Standard)
	case e.host != nil:
		e.r = engine.Irecv(nil, 0, from, tag, e.host)
	default:
		e.r = engine.IrecvDevice(nil, 0, from, tag, b)
	}
}

// look finds out whether the end is over. Then it checks what has come, and overwrites the buffer.
func (e *stepEnd) look() {
	if e.over {
		return
	}
	if e.over, e.st, e.err = e.r.Test(); !e.over {
		return
	}
	var peer *PeerError
	if e.err != nil && !(e.killed && errors.As(e.err, &peer)) {
		e.s.fails("rank %d: %v", e.rank, e.err)
	}
	if !e.send && e.err == nil && !e.st.Cancelled && !bytes.Equal(e.now(), e.want) {
		e.s.fails("rank %d has received other bytes", e.rank)
	}
	junk := e.s.bytes(e.n)
	if e.host != nil {
		copy(e.host, junk)
		e.whole = junk
		return
	}
	copy(e.whole[stepBefore:], junk)
	e.s.procs[e.rank].Write(e.m.Base+stepBefore, junk)
}

// now is what the buffer has.
func (e *stepEnd) now() []byte {
	if e.host != nil {
		return e.host
	}
	return e.s.procs[e.rank].Read(e.m.Base+stepBefore, e.n)
}

// copying reports whether copies of a rank are under way.
func (s *deviceSteps) copying(rank int) bool {
	e := s.net.engines[rank]
	e.lock()
	defer e.unlock()
	a := e.links.transfers.accel
	return a != nil && len(a.under) > 0
}

// arriving reports whether something is on its way to a rank.
func (s *deviceSteps) arriving(rank int) bool {
	n := s.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for from := range n.devices {
		if len(n.wires[[2]int{from, rank}]) > 0 {
			return true
		}
	}
	return len(n.devices[rank].inbox) > 0
}

// rest waits for what goes on apart from the engines.
func (s *deviceSteps) rest() {
	for _, e := range s.net.engines {
		for aside := 1; aside > 0; {
			e.lock()
			aside = e.links.transfers.accel.aside
			e.unlock()
			if aside > 0 {
				time.Sleep(10 * time.Microsecond)
			}
		}
	}
}

// copies has a rank's device make the copies that have been started. A rank that is dead does not hear of that.
func (s *deviceSteps) copies(rank int) {
	stream := s.procs[rank].Copies(0)
	stream.Release()
	stream.Sync()
	stream.Hold()
	if rank != s.dead {
		s.net.work(rank)
	}
}

// step makes one step. It reports whether there was one to be made.
func (s *deviceSteps) step() bool {
	var possible []func()
	for rank := range s.procs {
		if rank == s.frozen {
			continue
		}
		if rank != s.dead && s.arriving(rank) {
			possible = append(possible, func() { s.net.deliver(rank, 1) })
		}
		if rank != s.dead && s.copying(rank) {
			possible = append(possible, func() { s.copies(rank) })
		}
	}
	if len(possible) == 0 {
		return false
	}
	possible[s.rng.IntN(len(possible))]()
	s.rest()
	for _, e := range s.all {
		if e.rank != s.dead && e.rank != s.frozen {
			e.look()
		}
	}
	return true
}

// steps makes up to k steps, and returns how many there were.
func (s *deviceSteps) steps(k int) (n int) {
	s.rest()
	for n < k && s.step() {
		n++
	}
	return n
}

// all steps that there are, of a message; far more than there can be.
const stepsMost = 2000

// check is called at the end: each end of a rank that lives is over, and nothing has touched a buffer after that.
func (s *deviceSteps) check() {
	for i, e := range s.all {
		if e.rank == s.dead {
			continue
		}
		if e.look(); !e.over {
			s.fails("end %d of the messages, at rank %d, is not over", i, e.rank)
		}
		got := e.host
		if got == nil {
			got = s.procs[e.rank].Read(e.m.Base, int64(len(e.whole)))
		}
		if !bytes.Equal(got, e.whole) {
			s.fails("the buffer of end %d, at rank %d, has been touched after its end, or next to it", i, e.rank)
		}
	}
	for _, p := range s.procs {
		p.Copies(0).Release()
	}
	s.net.close()
	if n := len(s.net.misuse); n > 0 {
		s.fails("%q", s.net.misuse)
	}
	for _, k := range s.memory {
		if k.rank != s.dead {
			if err := s.procs[k.rank].Free(k.m); err != nil {
				s.fails("%v", err)
			}
		}
	}
	if s.dead >= 0 {
		s.procs[s.dead].Die()
	}
	if left := s.machine.Left(); left != "" {
		s.fails("%s", left)
	}
}

const stepSize = 40_000

// eachStep runs a test after each number of steps of a message.
func eachStep(t *testing.T, test func(s *deviceSteps, out, in *stepEnd, k int)) {
	watchdog(t)
	for _, w := range stepWays {
		t.Run(w.name, func(t *testing.T) {
			shrinkStaging(t)
			for seed := range inShort(uint64(6), 1) {
				s := newDeviceSteps(t, w, seed)
				s.message(0, 1, stepSize)
				total := s.steps(stepsMost)
				s.check()
				if total < 5 {
					t.Fatalf("a message takes %d steps", total)
				}
				for k := 0; k <= total; k += inShort(1, 2) {
					s := newDeviceSteps(t, w, seed)
					out, in := s.message(0, 1, stepSize)
					s.what += fmt.Sprintf(", after step %d of %d", s.steps(k), total)
					test(s, out, in, k)
					s.check()
				}
			}
		})
	}
}

// A rank dies after each step of a message. The other end is over when its rank has heard of that and its own copies
// have been made, and no copy touches its buffer then. Copies that the dead rank had started are made later, and change
// no other message: the pinned memory into which they go is not used again.
func TestDeviceDiesAtEachStep(t *testing.T) {
	for dead := range 2 {
		t.Run(fmt.Sprintf("rank %d", dead), func(t *testing.T) {
			eachStep(t, func(s *deviceSteps, out, in *stepEnd, k int) {
				s.dead = dead
				lives := 1 - dead
				out.killed, in.killed = true, true
				if k%2 == 0 { // what it has sent arrives, or not
					s.net.deliver(lives, 1<<20)
				}
				s.net.mu.Lock()
				for other := range s.procs {
					delete(s.net.wires, [2]int{dead, other})
					delete(s.net.wires, [2]int{other, dead})
				}
				s.net.mu.Unlock()
				for _, other := range []int{lives, 2} {
					s.net.sayDown(other, dead)
				}
				s.rest()
				for _, e := range s.all {
					if e.rank == lives {
						e.look()
					}
				}
				from, to := 2, lives
				if lives == 0 { // which sent
					from, to = lives, 2
				}
				s.message(from, to, stepSize)
				for !s.copying(lives) && s.step() { // until something lies in the pinned memory of the rank, if it receives
				}
				s.copies(dead)
				s.steps(stepsMost)
			})
		})
	}
}

// A rank stops after each step of a message, as a process does that is not scheduled for seconds. The other one does
// not fail, and has no byte before it is there; the message goes on when the rank does.
func TestDeviceStopsAtEachStep(t *testing.T) {
	for stopped := range 2 {
		t.Run(fmt.Sprintf("rank %d", stopped), func(t *testing.T) {
			eachStep(t, func(s *deviceSteps, out, in *stepEnd, k int) {
				s.frozen = stopped
				s.steps(stepsMost)
				s.frozen = -1
				s.steps(stepsMost)
				if out.st.Cancelled || in.st.Cancelled {
					s.fails("the message is cancelled")
				}
			})
		})
	}
}

// An end is cancelled after each step of a message: either nothing has touched the buffers, or the message arrives.
func TestDeviceCancelsAtEachStep(t *testing.T) {
	for end := range 2 {
		t.Run([]string{"send", "receive"}[end], func(t *testing.T) {
			eachStep(t, func(s *deviceSteps, out, in *stepEnd, k int) {
				e, other := out, in
				if end == 1 {
					e, other = in, out
				}
				if !e.over {
					if err := e.r.Cancel(); err != nil {
						s.fails("%v", err)
					}
				}
				s.steps(stepsMost)
				if e.look(); !e.over {
					s.fails("what is cancelled does not end")
				}
				if e.st.Cancelled {
					if other.over {
						s.fails("one end is cancelled and the other is over: %+v", other.st)
					}
					if err := other.r.Cancel(); err != nil {
						s.fails("%v", err)
					}
					s.steps(stepsMost)
				}
				if other.look(); !other.over || other.st.Cancelled != e.st.Cancelled {
					s.fails("one end is %+v and the other %+v", e.st, other.st)
				}
			})
		})
	}
}
