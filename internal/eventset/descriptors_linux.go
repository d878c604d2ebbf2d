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

// addOnce is add for one report, until askAgain.
func (s set) addOnce(fd int) error {
	return s.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN|unix.EPOLLONESHOT)
}

// askAgain also reports what is there already.
func (s set) askAgain(fd int) { s.control(unix.EPOLL_CTL_MOD, fd, unix.EPOLLIN|unix.EPOLLONESHOT) }

func (s set) remove(fd int) { s.control(unix.EPOLL_CTL_DEL, fd, 0) }

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

// bell is an eventfd.
type bell int

const noBell bell = -1

func newBell() (bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return noBell, fmt.Errorf("eventfd: %w", err)
	}
	return bell(fd), nil
}

func (b bell) fd() int  { return int(b) }
func (b bell) ring()    { addOne(int(b)) }
func (b bell) silence() { empty(int(b)) }
func (b bell) close()   { set(b).close() }

// napper has the netpoller watch a set, which an epoll set can be: it is readable when something in it is ready. That
// begins with the first nap, since what nobody looks at would wake the netpoller for nothing.
type napper struct {
	set  set
	look func(uintptr) bool
	file *os.File // a descriptor of its own for the set
	raw  syscall.RawConn
}

// prepare: look says whether what is ready now ends a nap.
func (n *napper) prepare(s set, look func() bool) {
	n.set, n.look = s, func(uintptr) bool { return look() } // made once: a nap allocates nothing
}

func (n *napper) open(s set) error {
	fd, err := unix.FcntlInt(uintptr(s), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("a second descriptor for an epoll set: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // tells NewFile that the netpoller can have it
		unix.Close(fd)
		return fmt.Errorf("O_NONBLOCK for an epoll set: %w", err)
	}
	n.file = os.NewFile(uintptr(fd), "gorun-eventset")
	n.raw, err = n.file.SyscallConn()
	return err
}

// nap sleeps until look, which is called at first and whenever something may be ready, says true.
func (n *napper) nap() {
	if n.raw == nil && n.open(n.set) != nil { // out of descriptors: a thread sleeps, which is only dearer
		for !n.look(0) {
			unix.Poll([]unix.PollFd{{Fd: int32(n.set), Events: unix.POLLIN}}, -1) // epoll_wait would take the report from look
		}
		return
	}
	n.raw.Read(n.look)
}

func (n *napper) close() {
	if n.file != nil {
		n.file.Close()
	}
}
