package eventset

import "errors"

// descriptors are a Set's way to sleep where the device has descriptors.
//
//	shared     descriptors that show arrivals for either sleeper, level-triggered
//	thread     {shared, ThreadFD …, threadDoorbell}: a thread blocks here
//	goroutine  {shared once per listen, FD …, goroutineDoorbell}: the netpoller has it, for the goroutine
//
// So an arrival wakes no goroutine while the rank polls or its thread sleeps: after its one report for a listen the
// goroutine's set reports nothing of shared.
type descriptors struct {
	s                                 *Set
	shared, thread, goroutine         set
	threadDoorbell, goroutineDoorbell doorbell
	waiter                            waiter // sleeps until goroutine has something

	// listening: goroutine will report the next arrival in shared, or has it ready to report. Guarded by Set.mu.
	listening bool
}

func newDescriptors(s *Set) *descriptors {
	return &descriptors{s: s, shared: noSet, thread: noSet, goroutine: noSet,
		threadDoorbell: noDoorbell, goroutineDoorbell: noDoorbell}
}

func (d *descriptors) open() error {
	var err error
	if d.goroutine, err = newSet(); err != nil {
		return err
	}
	if d.goroutineDoorbell, err = newDoorbell(); err != nil {
		return err
	}
	d.waiter.prepare(d.goroutine, d.check)
	if err := d.goroutine.add(d.goroutineDoorbell.fd()); err != nil {
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
		if w.OnlyArmed {
			d.shared.enable(w.FD, false)
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
	if d.threadDoorbell, err = newDoorbell(); err != nil {
		return err
	}
	d.listening = true
	return errors.Join(d.thread.add(int(d.shared)), d.thread.add(d.threadDoorbell.fd()),
		d.goroutine.addOneShot(int(d.shared)))
}

func (d *descriptors) add(fd, threadFD int) error {
	switch {
	case fd < 0:
		return nil
	case d.s.word != nil:
		return d.goroutine.add(fd)
	case fd == threadFD:
		return d.shared.add(fd)
	}
	return errors.Join(d.goroutine.add(fd), d.thread.add(threadFD))
}

// listen makes the next arrival in shared, or one that is there already, end the goroutine's Park.
func (d *descriptors) listen() {
	if d.shared == noSet {
		return
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if !d.s.closed && !d.listening { // else the set still listens, and nothing has arrived
		d.listening = true
		d.goroutine.rearm(int(d.shared))
	}
}

func (d *descriptors) wait(thread bool) {
	if thread {
		d.thread.wait()
	} else {
		d.waiter.wait()
	}
}

// check is called by the goroutine of Park, first and after each report of its set. It reports whether the goroutine
// wakes. A Disarm does not end listening, since that would cost a system call: the next arrival makes the goroutine
// check once, see that the device is not armed, and sleep on.
func (d *descriptors) check() bool {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.s.closed {
		return true
	}
	var fds [8]int
	wake := false
	for _, fd := range fds[:d.goroutine.ready(fds[:])] {
		switch fd {
		case int(d.shared):
			d.listening = false // listen runs before the report or after this: mu is held over both
			if d.s.armed.CompareAndSwap(forGoroutine, forNone) {
				wake = true
			}
		case d.goroutineDoorbell.fd():
			d.goroutineDoorbell.clear()
			wake = true
		default:
			wake = true
		}
	}
	return wake
}

func (d *descriptors) ring(thread bool) {
	if thread {
		d.threadDoorbell.ring()
	} else {
		d.goroutineDoorbell.ring()
	}
}

func (d *descriptors) clear() { d.threadDoorbell.clear() }

func (d *descriptors) close() {
	d.waiter.close()
	for _, s := range []set{d.shared, d.thread, d.goroutine} {
		s.close()
	}
	d.threadDoorbell.close()
	d.goroutineDoorbell.close()
}
