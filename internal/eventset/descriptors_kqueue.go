//go:build darwin || freebsd

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

// addOnce is add for one report, until askAgain.
func (s set) addOnce(fd int) error { return s.change(fd, unix.EV_ADD|unix.EV_DISPATCH) }

// askAgain also reports what is there already.
func (s set) askAgain(fd int) { s.change(fd, unix.EV_ADD|unix.EV_ENABLE|unix.EV_DISPATCH) }

func (s set) remove(fd int) { s.change(fd, unix.EV_DELETE) }

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

// bell is a pipe.
type bell struct{ r, w int }

var noBell = bell{-1, -1}

func newBell() (bell, error) {
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		return noBell, fmt.Errorf("pipe: %w", err)
	}
	b := bell{ends[0], ends[1]}
	for _, fd := range ends {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			b.close()
			return noBell, fmt.Errorf("a pipe that does not block: %w", err)
		}
	}
	return b, nil
}

func (b bell) fd() int { return b.r }

func (b bell) ring() { unix.Write(b.w, []byte{1}) } // full: it rings already

func (b bell) silence() {
	var rung [512]byte
	for {
		if n, err := unix.Read(b.r, rung[:]); n < len(rung) && err != unix.EINTR {
			return
		}
	}
}

func (b bell) close() {
	set(b.r).close()
	set(b.w).close()
}

// napper blocks a thread: not every system's netpoller takes a kqueue, and a thread is only dearer.
type napper struct {
	s    set
	look func() bool
}

// prepare: look says whether what is ready now ends a nap.
func (n *napper) prepare(s set, look func() bool) { n.s, n.look = s, look }

// nap sleeps until look, which is called at first and whenever something may be ready, says true.
func (n *napper) nap() {
	for !n.look() {
		n.s.wait()
	}
}

func (n *napper) close() {}
