package eventset

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/transport"
)

// Set is where the rank of a device sleeps. The caller of Arm and Disarm holds what guards the device. Any goroutine
// may call the other methods, but at most one Park of a thread and one of a goroutine are under way at a time.
type Set struct {
	dev    transport.Device
	wakes  []transport.Wake
	word   *atomic.Uint32 // a thread sleeps while it equals asleep; nil: it sleeps on descriptors or a channel
	asleep uint32
	fds    *descriptors // nil: the device has none

	// tokens, if fds is nil, end the Park of the goroutine and of the thread: at most one each, for this Park or the
	// next.
	tokens [2]chan struct{}

	shown bool // the sets report the descriptors of Wake.OnlyArmed; of the caller of Arm and Disarm

	// armed is set by Arm. Disarm clears it, and so does the Park that it was for.
	armed atomic.Uint32

	mu      sync.Mutex
	parked  bool // a thread sleeps, or is about to: Interrupt rings for it
	ringing bool // the thread's doorbell has been rung since it was last cleared
	parks   int  // under way
	closed  bool
	drained chan struct{} // made by a Close that waits for the parks; the last one closes it
}

const (
	forNone = iota
	forGoroutine
	forThread
)

// New makes a set for dev, which the caller closes after it. The error says what the system refused.
func New(dev transport.Device) (*Set, error) {
	s := &Set{dev: dev, wakes: dev.Facts().Wake}
	if len(s.wakes) == 1 {
		s.word, s.asleep = s.wakes[0].Word, s.wakes[0].Asleep
	}
	for _, w := range s.wakes {
		if w.FD >= 0 && s.fds == nil {
			s.fds = newDescriptors(s)
		}
	}
	if s.fds == nil {
		s.tokens = [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	} else if err := s.fds.open(); err != nil {
		s.fds.close()
		return nil, fmt.Errorf("eventset: making a set for %s: %w", dev.Name(), err)
	}
	for _, w := range s.wakes {
		if w.Notify != nil {
			w.Notify(s.notify)
		}
	}
	return s, nil
}

// Through makes Arm and Disarm call dev, which is what the set was made for and more. What is more ends a sleep by
// Interrupt: dev arms what the set was made for before it has anything call Interrupt, which may come too early for a
// thread that sleeps on a word. The caller holds what guards the device.
func (s *Set) Through(dev transport.Device) { s.dev = dev }

// Arm makes an arrival end the Park of the thread, or, if level asks for it, of the goroutine. It reports whether the
// set is armed: it is not if there is something to poll.
func (s *Set) Arm(level transport.Level, thread bool) bool {
	sleeper := uint32(forGoroutine)
	if thread {
		sleeper, level = forThread, transport.Thread
		if s.word != nil {
			level = transport.Futex
		}
	}
	s.armed.Store(sleeper) // before the device is armed, which may notify at once
	if !s.dev.Arm(level) {
		s.armed.Store(forNone)
		return false
	}
	s.show(true)
	if !thread && s.fds != nil {
		s.fds.listen()
	}
	return true
}

// Disarm ends Arm, because the caller polls.
func (s *Set) Disarm() {
	if s.armed.Load() != forNone {
		s.armed.Store(forNone)
	}
	s.dev.Disarm()
	s.show(false)
}

// show has the sets report the descriptors of Wake.OnlyArmed, also what has come to them before, or no more.
func (s *Set) show(armed bool) {
	if s.shown == armed {
		return
	}
	s.shown = armed
	for i := range s.wakes {
		if w := &s.wakes[i]; w.OnlyArmed {
			s.fds.shared.enable(w.FD, armed)
		}
	}
}

// Park sleeps until an armed arrival or Interrupt; it may return early. Park of a thread returns at once if the device
// is not armed for it. Park of a goroutine sleeps until the device is armed for it and something arrives.
func (s *Set) Park(thread bool) {
	if !s.beginPark(thread) {
		return
	}
	switch {
	case thread && s.word != nil:
		if s.word.Load() == s.asleep {
			sleepWhile(s.word, s.asleep)
		}
	case s.fds != nil:
		s.fds.wait(thread)
	default:
		<-s.tokens[indexOf(thread)]
	}
	if s.word == nil || !thread {
		for i := range s.wakes {
			if w := &s.wakes[i]; w.Clear != nil {
				w.Clear(thread)
			}
		}
	}
	s.endPark(thread)
}

func indexOf(thread bool) int {
	if thread {
		return 1
	}
	return 0
}

func (s *Set) beginPark(thread bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || thread && s.armed.Load() != forThread {
		return false
	}
	s.parked = s.parked || thread
	s.parks++
	return true
}

func (s *Set) endPark(thread bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if thread {
		s.parked = false
		s.armed.CompareAndSwap(forThread, forNone)
		if s.ringing {
			s.ringing = false
			s.clear()
		}
	} else if s.fds == nil {
		s.armed.CompareAndSwap(forGoroutine, forNone)
	}
	if s.parks--; s.parks == 0 && s.drained != nil {
		close(s.drained)
	}
}

// Interrupt ends the Parks that are under way, the Park of a thread that is between Arm and Park, and the next Park of
// a goroutine.
func (s *Set) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.ring(true)
		s.ring(false)
	}
}

// notify is the device's Interrupt, for one of the two sleepers.
func (s *Set) notify(thread bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.ring(thread)
	}
}

// ring wakes one sleeper. Each has a doorbell of its own, so that one cannot take the other's. It does not ring for a
// thread that neither sleeps nor is about to: the next Park would end for nothing. mu is held.
func (s *Set) ring(thread bool) {
	if thread && !s.parked && s.armed.Load() != forThread {
		return
	}
	switch {
	case thread && s.word != nil:
		s.word.CompareAndSwap(s.asleep, 0)
		wakeSleepers(s.word) // also one that slept before a Disarm
	case s.fds != nil:
		s.ringing = s.ringing || thread
		s.fds.ring(thread)
	default:
		s.ringing = s.ringing || thread
		select {
		case s.tokens[indexOf(thread)] <- struct{}{}:
		default: // the sleeper has not taken the last token yet
		}
	}
}

// clear clears the doorbell of the thread, which is awake. mu is held.
func (s *Set) clear() {
	if s.fds != nil {
		s.fds.clear()
		return
	}
	select {
	case <-s.tokens[indexOf(true)]:
	default:
	}
}

// Close ends the Parks and frees everything but the device.
func (s *Set) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	if s.parks > 0 {
		s.drained = make(chan struct{})
		s.ring(true)
		s.ring(false)
	}
	s.mu.Unlock()
	if s.drained != nil {
		<-s.drained
	}
	if s.fds != nil {
		s.fds.close()
	}
}
