package eventset

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// set is an epoll set.
type set int

const noSet set = -1

func newSet() (set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return noSet, fmt.Errorf("epoll_create1: %w", err)
	}
	return set(fd), nil
}

func (s set) control(op, fd int, events uint32) error {
	if err := unix.EpollCtl(int(s), op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

func (s set) add(fd int) error { return s.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN) }

// addOneShot is add for one report; rearm asks for the next.
func (s set) addOneShot(fd int) error {
	return s.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN|unix.EPOLLONESHOT)
}

// rearm makes the set report fd once more, also if it is readable already.
func (s set) rearm(fd int) { s.control(unix.EPOLL_CTL_MOD, fd, unix.EPOLLIN|unix.EPOLLONESHOT) }

// enable makes the set report fd, or not.
func (s set) enable(fd int, on bool) {
	var events uint32
	if on {
		events = unix.EPOLLIN
	}
	s.control(unix.EPOLL_CTL_MOD, fd, events)
}

// ready fills fds with what is ready now.
func (s set) ready(fds []int) int {
	var events [8]unix.EpollEvent
	n := readyIn(int(s), events[:min(len(fds), len(events))])
	for i, e := range events[:n] {
		fds[i] = int(e.Fd)
	}
	return n
}

// wait blocks the thread until something is ready.
func (s set) wait() {
	var events [1]unix.EpollEvent
	for {
		if _, err := unix.EpollWait(int(s), events[:], -1); err != unix.EINTR {
			return
		}
	}
}

func (s set) close() {
	if s >= 0 {
		unix.Close(int(s))
	}
}

// doorbell is an eventfd.
type doorbell int

const noDoorbell doorbell = -1

func newDoorbell() (doorbell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return noDoorbell, fmt.Errorf("eventfd: %w", err)
	}
	return doorbell(fd), nil
}

func (b doorbell) fd() int { return int(b) }
func (b doorbell) ring()   { addOne(int(b)) }
func (b doorbell) clear()  { empty(int(b)) }
func (b doorbell) close()  { set(b).close() }

// waiter has the netpoller watch a set, which an epoll set can be: it is readable when something in it is ready. That
// begins with the first wait, since a set in which no goroutine waits would wake the netpoller for nothing.
type waiter struct {
	set   set
	check func(uintptr) bool
	file  *os.File // a descriptor of its own for the set
	raw   syscall.RawConn
}

// prepare sets check, which says whether what is ready now ends wait.
func (w *waiter) prepare(s set, check func() bool) {
	w.set, w.check = s, func(uintptr) bool { return check() } // made once: wait allocates nothing
}

func (w *waiter) open(s set) error {
	fd, err := unix.FcntlInt(uintptr(s), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("a second descriptor for an epoll set: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // tells NewFile that the netpoller can have it
		unix.Close(fd)
		return fmt.Errorf("O_NONBLOCK for an epoll set: %w", err)
	}
	w.file = os.NewFile(uintptr(fd), "gorun-eventset")
	w.raw, err = w.file.SyscallConn()
	return err
}

// wait sleeps until check, which is called first and whenever something may be ready, returns true.
func (w *waiter) wait() {
	if w.raw == nil && w.open(w.set) != nil { // out of descriptors: a thread sleeps, which only costs more
		for !w.check(0) {
			// epoll_wait would take the report from check
			unix.Poll([]unix.PollFd{{Fd: int32(w.set), Events: unix.POLLIN}}, -1)
		}
		return
	}
	w.raw.Read(w.check)
	wakeMonitor()
}

func (w *waiter) close() {
	if w.file != nil {
		w.file.Close()
	}
}
