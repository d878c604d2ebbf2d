package eventset

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// set is a kqueue.
type set int

const noSet set = -1

func newSet() (set, error) {
	fd, err := unix.Kqueue()
	if err != nil {
		return noSet, fmt.Errorf("kqueue: %w", err)
	}
	unix.CloseOnExec(fd)
	return set(fd), nil
}

func (s set) change(fd, flags int) error {
	var changes [1]unix.Kevent_t
	unix.SetKevent(&changes[0], fd, unix.EVFILT_READ, flags)
	if _, err := unix.Kevent(int(s), changes[:], nil, nil); err != nil {
		return fmt.Errorf("kevent: %w", err)
	}
	return nil
}

func (s set) add(fd int) error { return s.change(fd, unix.EV_ADD) }

// addOneShot is add for one report; rearm asks for the next.
func (s set) addOneShot(fd int) error { return s.change(fd, unix.EV_ADD|unix.EV_DISPATCH) }

// rearm makes the set report fd once more, also if it is readable already.
func (s set) rearm(fd int) { s.change(fd, unix.EV_ADD|unix.EV_ENABLE|unix.EV_DISPATCH) }

// enable makes the set report fd, or not.
func (s set) enable(fd int, on bool) {
	if on {
		s.change(fd, unix.EV_ENABLE)
	} else {
		s.change(fd, unix.EV_DISABLE)
	}
}

// ready fills fds with what is ready now.
func (s set) ready(fds []int) int {
	var events [8]unix.Kevent_t
	n, _ := unix.Kevent(int(s), nil, events[:min(len(fds), len(events))], &unix.Timespec{})
	n = max(n, 0)
	for i := range events[:n] {
		fds[i] = int(events[i].Ident)
	}
	return n
}

// wait blocks the thread until something is ready. It takes no report: the set is as it was.
func (s set) wait() {
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(s), Events: unix.POLLIN}}, -1); err != unix.EINTR {
			return
		}
	}
}

func (s set) close() {
	if s >= 0 {
		unix.Close(int(s))
	}
}

// doorbell is a pipe.
type doorbell struct{ r, w int }

var noDoorbell = doorbell{-1, -1}

func newDoorbell() (doorbell, error) {
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		return noDoorbell, fmt.Errorf("pipe: %w", err)
	}
	b := doorbell{ends[0], ends[1]}
	for _, fd := range ends {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			b.close()
			return noDoorbell, fmt.Errorf("a pipe that does not block: %w", err)
		}
	}
	return b, nil
}

func (b doorbell) fd() int { return b.r }

func (b doorbell) ring() { unix.Write(b.w, []byte{1}) } // a full pipe rings already

func (b doorbell) clear() {
	var drained [512]byte
	for {
		if n, err := unix.Read(b.r, drained[:]); n < len(drained) && err != unix.EINTR {
			return
		}
	}
}

func (b doorbell) close() {
	set(b.r).close()
	set(b.w).close()
}

// waiter blocks a thread: not every system's netpoller takes a kqueue, and a thread only costs more.
type waiter struct {
	s     set
	check func() bool
}

// prepare sets check, which says whether what is ready now ends wait.
func (w *waiter) prepare(s set, check func() bool) { w.s, w.check = s, check }

// wait sleeps until check, which is called first and whenever something may be ready, returns true.
func (w *waiter) wait() {
	for !w.check() {
		w.s.wait()
	}
}

func (w *waiter) close() {}
