//go:build linux || darwin || freebsd

package doze

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// Place is where a rank sleeps. Arm and Disarm are called by one goroutine at a time; everything else by any, but at
// most one Park with hold and one without are under way at a time.
//
//	arrivals   what Add was given, level-triggered
//	held       {arrivals, AddHeld …, heldBell}: the thread of Park(true) blocks here
//	free       {arrivals once per Arm(false), AddBell …, freeBell}: the netpoller has it, for Park(false)
//
// So an arrival wakes nobody in free while the rank polls or sleeps in held: a set that has given the one report that
// it was asked for passes nothing on.
type Place struct {
	arrivals, held, free set
	heldBell, freeBell   bell
	napper               napper // sleeps until free has something

	// armed is set by Arm under mu, and ended by Disarm and by the Park that it was for.
	armed atomic.Uint32

	mu     sync.Mutex
	listen bool // free will report the next arrival, or has it ready to report
	parked bool // a thread is in held, or about to be: Interrupt rings for it
	rung   bool // heldBell has been, since it was last silenced
	inside int  // Parks that are under way and use descriptors
	closed bool
	left   chan struct{} // made by a Close that waits for these; the last one closes it
}

const (
	forNobody = iota
	forFree
	forHeld
)

// New makes a place without descriptors. The error says what the system refused.
func New() (*Place, error) {
	p := &Place{arrivals: noSet, held: noSet, free: noSet, heldBell: noBell, freeBell: noBell}
	if err := p.open(); err != nil {
		p.Close()
		return nil, fmt.Errorf("doze: making a place to sleep: %w", err)
	}
	return p, nil
}

func (p *Place) open() (err error) {
	for _, s := range []*set{&p.arrivals, &p.held, &p.free} {
		if *s, err = newSet(); err != nil {
			return err
		}
	}
	for _, b := range []*bell{&p.heldBell, &p.freeBell} {
		if *b, err = newBell(); err != nil {
			return err
		}
	}
	p.listen = true
	p.napper.prepare(p.free, p.lookFree)
	return errors.Join(p.held.add(int(p.arrivals)), p.held.add(p.heldBell.fd()), p.free.addOnce(int(p.arrivals)), p.free.add(p.freeBell.fd()))
}

// Add makes fd, when it is readable, end an armed Park.
func (p *Place) Add(fd int) error { return p.add(p.arrivals, fd) }

// AddHeld makes fd, when it is readable, end Park(true) if it is armed, and never Park(false).
func (p *Place) AddHeld(fd int) error { return p.add(p.held, fd) }

// AddBell makes fd, when it is readable, end Park(false) whether armed or not, and never Park(true).
func (p *Place) AddBell(fd int) error { return p.add(p.free, fd) }

func (p *Place) add(s set, fd int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("doze: adding descriptor %d: %w", fd, os.ErrClosed)
	}
	if err := s.add(fd); err != nil {
		return fmt.Errorf("doze: adding descriptor %d: %w", fd, err)
	}
	return nil
}

// Remove takes back an fd that was added, before it is closed. Without having been added it does nothing.
func (p *Place) Remove(fd int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || fd == int(p.arrivals) || fd == p.heldBell.fd() || fd == p.freeBell.fd() {
		return
	}
	p.arrivals.remove(fd)
	p.held.remove(fd)
	p.free.remove(fd)
}

// Ready reports whether a descriptor of Add is readable now.
func (p *Place) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var fds [1]int
	return !p.closed && p.arrivals.ready(fds[:]) != 0
}

// Arm asks that an arrival, also one that is there already, ends Park(hold).
func (p *Place) Arm(hold bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if hold {
		p.armed.Store(forHeld)
		return
	}
	p.armed.Store(forFree)
	if !p.listen { // else the set is still as the last Arm left it, and nothing has arrived
		p.listen = true
		p.free.askAgain(int(p.arrivals))
	}
}

// Disarm ends Arm. What it had asked of the set stays asked, since asking costs a system call: the next arrival makes
// the sleeper of Park(false) look once, see that nobody is armed, and sleep on.
func (p *Place) Disarm() {
	if p.armed.Load() != forNobody {
		p.armed.Store(forNobody)
	}
}

// Park sleeps until an armed arrival or Interrupt: see transport.Device.
func (p *Place) Park(hold bool) {
	if !p.enter(hold) {
		return
	}
	if hold {
		p.held.wait()
	} else {
		p.napper.nap()
	}
	p.leave(hold)
}

func (p *Place) enter(hold bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || hold && p.armed.Load() != forHeld {
		return false
	}
	p.parked = p.parked || hold
	p.inside++
	return true
}

func (p *Place) leave(hold bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if hold {
		p.parked = false
		p.armed.CompareAndSwap(forHeld, forNobody)
		if p.rung {
			p.rung = false
			p.heldBell.silence()
		}
	}
	if p.inside--; p.inside == 0 && p.left != nil {
		close(p.left)
	}
}

// lookFree is called by the sleeper of Park(false), at first and whenever something has happened; true wakes it.
func (p *Place) lookFree() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return true
	}
	var fds [8]int
	wake := false
	for _, fd := range fds[:p.free.ready(fds[:])] {
		switch fd {
		case int(p.arrivals):
			p.listen = false // Arm finds it so, or has been before: mu is held over both the report and this
			if p.armed.CompareAndSwap(forFree, forNobody) {
				wake = true
			}
		case p.freeBell.fd():
			p.freeBell.silence()
			wake = true
		default:
			wake = true
		}
	}
	return wake
}

// Interrupt ends the Parks that are under way, one that is between Arm and Park(true), and the next Park(false).
func (p *Place) Interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.ring()
	}
}

// ring rings both bells, each its own: one sleeper cannot take what was meant for the other. Where no thread is
// concerned the one of held stays silent, or the next Park(true) would end for nothing.
func (p *Place) ring() {
	if p.parked || p.armed.Load() == forHeld {
		p.rung = true
		p.heldBell.ring()
	}
	p.freeBell.ring()
}

// Close ends the Parks and frees everything. What was added is not closed.
func (p *Place) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	if p.inside > 0 {
		p.left = make(chan struct{})
		p.ring()
	}
	p.mu.Unlock()
	if p.left != nil {
		<-p.left
	}
	p.napper.close()
	for _, s := range []set{p.arrivals, p.held, p.free} {
		s.close()
	}
	p.heldBell.close()
	p.freeBell.close()
	return nil
}
