package eventset

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/transport"
)

// Set is where the rank of a device sleeps. Arm and Disarm are called by one goroutine at a time, with what guards the
// device; everything else by any, but at most one Park of a thread and one of a goroutine are under way at a time.
type Set struct {
	dev    transport.Device
	wakes  []transport.Wake
	word   *atomic.Uint32 // a thread sleeps on it while it is asleep; nil: it sleeps on descriptors or a channel
	asleep uint32
	fds    *descriptors     // nil: the device has none
	tokens [2]chan struct{} // if fds is nil: for the goroutine and for the thread; at most one each, for this Park or the next

	// armed is set by Arm, and ended by Disarm and by the Park that it was for.
	armed atomic.Uint32

	mu     sync.Mutex
	parked bool // a thread sleeps, or is about to: Interrupt rings for it
	rung   bool // the thread's bell has been, since it was last silenced
	inside int  // Parks that are under way
	closed bool
	left   chan struct{} // made by a Close that waits for these; the last one closes it
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

// Arm asks that an arrival ends the Park of a thread, or of a goroutine by level. False: there is something to poll.
func (s *Set) Arm(level transport.Level, thread bool) bool {
	who := uint32(forGoroutine)
	if thread {
		who, level = forThread, transport.Thread
		if s.word != nil {
			level = transport.Futex
		}
	}
	s.armed.Store(who) // before the device is, which may notify at once
	if !s.dev.Arm(level) {
		s.armed.Store(forNone)
		return false
	}
	if !thread && s.fds != nil {
		s.fds.listen()
	}
	return true
}

// Disarm ends Arm: the caller polls.
func (s *Set) Disarm() {
	if s.armed.Load() != forNone {
		s.armed.Store(forNone)
	}
	s.dev.Disarm()
}

// Park sleeps until an armed arrival or Interrupt; it may end early for no reason. That of a thread returns at once if
// the device is not armed for it; that of a goroutine sleeps until it is armed and something arrives.
func (s *Set) Park(thread bool) {
	if !s.enter(thread) {
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
		<-s.tokens[bed(thread)]
	}
	if s.word == nil || !thread {
		for i := range s.wakes {
			if w := &s.wakes[i]; w.Clear != nil {
				w.Clear(thread)
			}
		}
	}
	s.leave(thread)
}

func bed(thread bool) int {
	if thread {
		return 1
	}
	return 0
}

func (s *Set) enter(thread bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || thread && s.armed.Load() != forThread {
		return false
	}
	s.parked = s.parked || thread
	s.inside++
	return true
}

func (s *Set) leave(thread bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if thread {
		s.parked = false
		s.armed.CompareAndSwap(forThread, forNone)
		if s.rung {
			s.rung = false
			s.silence()
		}
	} else if s.fds == nil {
		s.armed.CompareAndSwap(forGoroutine, forNone)
	}
	if s.inside--; s.inside == 0 && s.left != nil {
		close(s.left)
	}
}

// Interrupt ends the Parks that are under way, that of a thread which is between Arm and Park, and the next one of a
// goroutine.
func (s *Set) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.ring(true)
		s.ring(false)
	}
}

// notify is Interrupt for one of the two, by the device.
func (s *Set) notify(thread bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.ring(thread)
	}
}

// ring wakes one sleeper, each by a bell of its own: one cannot take what was meant for the other. Where no thread
// sleeps or will its bell stays silent, or the next Park would end for nothing. mu is held.
func (s *Set) ring(thread bool) {
	if thread && !s.parked && s.armed.Load() != forThread {
		return
	}
	switch {
	case thread && s.word != nil:
		s.word.CompareAndSwap(s.asleep, 0)
		wakeSleepers(s.word) // also one that slept before a Disarm
	case s.fds != nil:
		s.rung = s.rung || thread
		s.fds.ring(thread)
	default:
		s.rung = s.rung || thread
		select {
		case s.tokens[bed(thread)] <- struct{}{}:
		default: // a token is there already and has not been taken
		}
	}
}

// silence takes back what has been rung for a thread that is awake. mu is held.
func (s *Set) silence() {
	if s.fds != nil {
		s.fds.silence()
		return
	}
	select {
	case <-s.tokens[bed(true)]:
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
	if s.inside > 0 {
		s.left = make(chan struct{})
		s.ring(true)
		s.ring(false)
	}
	s.mu.Unlock()
	if s.left != nil {
		<-s.left
	}
	if s.fds != nil {
		s.fds.close()
	}
}
