//go:build linux || darwin || freebsd

package eventset

import "errors"

// descriptors are a Set's way to sleep where the device has descriptors.
//
//	shared     descriptors that show arrivals for either sleeper, level-triggered
//	thread     {shared, ThreadFD …, threadBell}: a thread blocks here
//	free       {shared once per listen, FD …, freeBell}: the netpoller has it, for the goroutine
//
// So an arrival wakes no goroutine while the rank polls or its thread sleeps: a set that has given the one report that
// it was asked for passes nothing on.
type descriptors struct {
	s                    *Set
	shared, thread, free set
	threadBell, freeBell bell
	napper               napper // sleeps until free has something

	// listening: free will report the next arrival in shared, or has it ready to report. Guarded by Set.mu.
	listening bool
}

func newDescriptors(s *Set) *descriptors {
	return &descriptors{s: s, shared: noSet, thread: noSet, free: noSet, threadBell: noBell, freeBell: noBell}
}

func (d *descriptors) open() error {
	var err error
	if d.free, err = newSet(); err != nil {
		return err
	}
	if d.freeBell, err = newBell(); err != nil {
		return err
	}
	d.napper.prepare(d.free, d.look)
	if err := d.free.add(d.freeBell.fd()); err != nil {
		return err
	}
	if d.s.word == nil {
		if err := d.openThread(); err != nil {
			return err
		}
	}
	for _, w := range d.s.wakes {
		if err := d.add(w.FD, w.ThreadFD); err != nil {
			return err
		}
	}
	return nil
}

func (d *descriptors) openThread() (err error) {
	for _, s := range []*set{&d.shared, &d.thread} {
		if *s, err = newSet(); err != nil {
			return err
		}
	}
	if d.threadBell, err = newBell(); err != nil {
		return err
	}
	d.listening = true
	return errors.Join(d.thread.add(int(d.shared)), d.thread.add(d.threadBell.fd()), d.free.addOnce(int(d.shared)))
}

func (d *descriptors) add(fd, threadFD int) error {
	switch {
	case fd < 0:
		return nil
	case d.s.word != nil:
		return d.free.add(fd)
	case fd == threadFD:
		return d.shared.add(fd)
	}
	return errors.Join(d.free.add(fd), d.thread.add(threadFD))
}

// listen makes the next arrival in shared, also one that is there already, end the goroutine's Park.
func (d *descriptors) listen() {
	if d.shared == noSet {
		return
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if !d.s.closed && !d.listening { // else the set is still as the last listen left it, and nothing has arrived
		d.listening = true
		d.free.askAgain(int(d.shared))
	}
}

func (d *descriptors) wait(thread bool) {
	if thread {
		d.thread.wait()
	} else {
		d.napper.nap()
	}
}

// look is called by the goroutine of Park, at first and whenever something has happened; true wakes it. What was asked
// of the set before a Disarm stays asked, since asking costs a system call: the next arrival makes the goroutine look
// once, see that the device is not armed, and sleep on.
func (d *descriptors) look() bool {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.s.closed {
		return true
	}
	var fds [8]int
	wake := false
	for _, fd := range fds[:d.free.ready(fds[:])] {
		switch fd {
		case int(d.shared):
			d.listening = false // listen finds it so, or has been before: mu is held over both the report and this
			if d.s.armed.CompareAndSwap(forGoroutine, forNone) {
				wake = true
			}
		case d.freeBell.fd():
			d.freeBell.silence()
			wake = true
		default:
			wake = true
		}
	}
	return wake
}

func (d *descriptors) ring(thread bool) {
	if thread {
		d.threadBell.ring()
	} else {
		d.freeBell.ring()
	}
}

func (d *descriptors) silence() { d.threadBell.silence() }

func (d *descriptors) close() {
	d.napper.close()
	for _, s := range []set{d.shared, d.thread, d.free} {
		s.close()
	}
	d.threadBell.close()
	d.freeBell.close()
}
