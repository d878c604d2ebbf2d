package acceltest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/accel"
)

// Stream is a queue of work for a device. Its goroutine runs while there is some.
type Stream struct {
	p       *Process
	device  int
	random  *rand.Rand
	queue   []func()
	working bool
	held    []chan struct{} // by Hold, in order
	handle  uint64
}

func (m *Machine) newStream(p *Process, device int) *Stream {
	return &Stream{p: p, device: device, random: rand.New(rand.NewPCG(m.options.Seed, m.random.Uint64()))}
}

// Stream makes a stream as a user's program does.
func (p *Process) Stream(device int) *Stream {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	s := p.m.newStream(p, device)
	s.handle = 0x57000 + uint64(len(p.streams))
	p.streams[s.handle] = s
	return s
}

// Copies is the library's stream of a device: a test that holds it holds up the copies that are started afterwards.
func (p *Process) Copies(device int) *Stream { return p.library[device] }

// NullStream is the stream that a device has from the beginning, of number 0.
func (p *Process) NullStream(device int) *Stream { return p.null[device] }

// Handle is the number by which a driver knows the stream.
func (s *Stream) Handle() uint64 { return s.handle }

// Launch puts f on the stream: a kernel, which runs after all that was put there before.
func (s *Stream) Launch(f func()) {
	s.p.m.mu.Lock()
	defer s.p.m.mu.Unlock()
	s.push(f)
}

// Hold puts a kernel on the stream that runs until Release.
func (s *Stream) Hold() {
	c := make(chan struct{})
	s.p.m.mu.Lock()
	defer s.p.m.mu.Unlock()
	s.held = append(s.held, c)
	s.push(func() { s.p.await(c) })
}

// Release ends the kernels of all calls of Hold so far.
func (s *Stream) Release() {
	s.p.m.mu.Lock()
	defer s.p.m.mu.Unlock()
	for _, c := range s.held {
		close(c)
	}
	s.held = nil
}

// Sync returns when all that was put on the stream has run.
func (s *Stream) Sync() {
	s.p.m.mu.Lock()
	c := s.mark()
	s.p.m.mu.Unlock()
	s.p.await(c)
}

// await waits for c, or for the end of the process.
func (p *Process) await(c chan struct{}) {
	select {
	case <-c:
	case <-p.died:
	}
}

// push puts f on the stream. The caller holds the lock.
func (s *Stream) push(f func()) {
	s.queue = append(s.queue, f)
	if !s.working {
		s.working = true
		go s.work()
	}
}

func (s *Stream) work() {
	for {
		s.p.m.mu.Lock()
		if len(s.queue) == 0 || s.p.isDead() {
			s.working = false
			s.p.m.mu.Unlock()
			return
		}
		f := s.queue[0]
		s.queue = s.queue[1:]
		s.p.m.mu.Unlock()
		f()
	}
}

// mark returns a channel that is closed when all that is on the stream has run. The caller holds the lock.
func (s *Stream) mark() chan struct{} {
	c := make(chan struct{})
	s.push(func() { close(c) })
	return c
}

// copying is one copy, or a mark on a user's stream: then it has no ranges.
type copying struct {
	device   int
	dst, src *span
	to, from []byte
	fails    bool
	ended    bool
	err      error
}

// Copy implements accel.Driver.
func (p *Process) Copy(device int, dst, src uint64, n int64) (accel.Event, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.calls["CopyEnd"]++
	if err := p.enterDevice("Copy", device); err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, failure("cuMemcpyAsync", invalidValue)
	}
	to, from := p.find(dst, n), p.find(src, n)
	if to == nil || from == nil {
		return 0, failure("cuMemcpyAsync", invalidValue)
	}
	c := &copying{device: device, dst: to, src: from, to: to.bytes[dst-to.base:][:n], from: from.bytes[src-from.base:][:n]}
	for _, nth := range p.fails["CopyEnd"] {
		c.fails = c.fails || nth == p.calls["CopyEnd"]
	}
	to.busy++
	from.busy++
	p.lastEvent++
	p.events[p.lastEvent] = c
	s := p.library[device]
	var delay time.Duration
	if limit := p.m.options.Delay; limit > 0 && s.random.IntN(3) > 0 { // some copies are fast
		delay = time.Duration(s.random.Int64N(int64(limit)))
	}
	s.push(func() { p.run(c, delay) })
	return p.lastEvent, nil
}

// run makes a copy. Memory that is gone is not touched, since a page of it may be unmapped: it was given back against
// the rules, and Left says so.
func (p *Process) run(c *copying, delay time.Duration) {
	if delay > 0 {
		time.Sleep(delay)
	}
	p.m.moving.Lock()
	p.m.mu.Lock()
	live := !c.dst.gone && !c.src.gone
	p.m.mu.Unlock()
	switch {
	case !live:
	case c.fails:
		copy(c.to[:len(c.to)/2], c.from)
	default:
		copy(c.to, c.from)
	}
	p.m.moving.Unlock()
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	c.ended = true
	if c.fails {
		c.err = failure("cuEventQuery", launchFailed)
	}
}

// Mark implements accel.Driver.
func (p *Process) Mark(device int, stream uint64) (accel.Event, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enterDevice("Mark", device); err != nil {
		return 0, err
	}
	s, err := p.userStream("cuEventRecord", device, stream)
	if err != nil {
		return 0, err
	}
	c := &copying{device: device}
	p.calls["MarkEnd"]++
	fails := slices.Contains(p.fails["MarkEnd"], p.calls["MarkEnd"])
	p.lastEvent++
	p.events[p.lastEvent] = c
	s.push(func() {
		p.m.mu.Lock()
		defer p.m.mu.Unlock()
		if c.ended = true; fails {
			c.err = failure("cuEventQuery", launchFailed)
		}
	})
	return p.lastEvent, nil
}

// Drop implements accel.Driver.
func (p *Process) Drop(device int, ev accel.Event) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.enterDevice("Drop", device) != nil {
		return
	}
	if c := p.events[ev]; c == nil || c.device != device || c.dst != nil {
		p.misuse("Drop of the event %d of device %d, which is no mark", ev, device)
		return
	}
	delete(p.events, ev)
}

// Done implements accel.Driver.
func (p *Process) Done(device int, ev accel.Event) (bool, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enterDevice("Done", device); err != nil {
		return false, err
	}
	c := p.events[ev]
	if c == nil || c.device != device {
		p.misuse("Done of the event %d of device %d, which is no event", ev, device)
		return false, failure("cuEventQuery", invalidHandle)
	}
	if !c.ended {
		return false, nil
	}
	delete(p.events, ev)
	if c.dst != nil {
		c.dst.busy--
		c.src.busy--
	}
	return true, c.err
}

// Notify implements accel.Driver.
func (p *Process) Notify(device int, fd int) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if err := p.enterDevice("Notify", device); err != nil {
		return err
	}
	n := &notice{fd}
	p.notices[n] = true
	p.library[device].push(func() {
		p.m.mu.Lock()
		defer p.m.mu.Unlock()
		p.give(n)
	})
	return nil
}

// notice is one that Notify has been asked for.
type notice struct{ fd int }

// give gives a notice, once. The caller holds the lock.
func (p *Process) give(n *notice) {
	if p.notices[n] {
		delete(p.notices, n)
		syscall.Write(n.fd, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// userStream returns a stream by its handle; 0 is the one that each device has.
func (p *Process) userStream(call string, device int, handle uint64) (*Stream, error) {
	if handle == 0 {
		return p.null[device], nil
	}
	if s := p.streams[handle]; s != nil {
		return s, nil
	}
	return nil, failure(call, invalidHandle)
}

// Write writes b into device memory, as a kernel does. It panics if b is not within one allocation.
func (p *Process) Write(addr uint64, b []byte) {
	p.touch(addr, int64(len(b)), func(mem []byte) { copy(mem, b) })
}

// Read returns n bytes of device memory, as a kernel sees them. It panics if they are not within one allocation.
func (p *Process) Read(addr uint64, n int64) (b []byte) {
	p.touch(addr, n, func(mem []byte) { b = append([]byte{}, mem...) })
	return b
}

func (p *Process) touch(addr uint64, n int64, f func([]byte)) {
	if n == 0 {
		return
	}
	p.m.mu.Lock()
	s := p.find(addr, n)
	p.m.mu.Unlock()
	if s == nil || s.of == nil {
		panic(fmt.Sprintf("acceltest: a kernel of process %d touches %d bytes at %#x, which are no device memory", p.number,
			n, addr))
	}
	p.m.moving.Lock()
	defer p.m.moving.Unlock()
	f(s.bytes[addr-s.base:][:n])
}
