package tcp

import (
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// set is a kqueue: all sockets of a device, and a doorbell that goroutines ring for the poller.
type set struct {
	fd    int
	raw   [maxEvents]unix.Kevent_t
	mu    sync.Mutex
	slots map[int]uint32 // guarded by mu; by descriptor, which is all that a kqueue gives back
}

const (
	maxEvents     = 16
	doorbellSlot  = ^uint32(0)
	doorbellIdent = 1
)

// event is called when the socket of a slot can be read or written.
type event struct {
	slot    uint32
	in, out bool
}

func newSet() (*set, error) {
	fd, err := unix.Kqueue()
	if err != nil {
		return nil, fmt.Errorf("kqueue: %w", err)
	}
	unix.CloseOnExec(fd)
	s := &set{fd: fd, slots: map[int]uint32{}}
	doorbell := unix.Kevent_t{Ident: doorbellIdent, Filter: unix.EVFILT_USER, Flags: unix.EV_ADD | unix.EV_CLEAR}
	if _, err := unix.Kevent(fd, []unix.Kevent_t{doorbell}, nil, nil); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("kevent: %w", err)
	}
	return s, nil
}

func (s *set) change(fd int, filter int16, flags uint16) error {
	var ev unix.Kevent_t
	unix.SetKevent(&ev, fd, int(filter), int(flags))
	if _, err := unix.Kevent(s.fd, []unix.Kevent_t{ev}, nil, nil); err != nil {
		return fmt.Errorf("kevent: %w", err)
	}
	return nil
}

func (s *set) add(fd int, slot uint32) error {
	s.mu.Lock()
	s.slots[fd] = slot
	s.mu.Unlock()
	return s.change(fd, unix.EVFILT_READ, unix.EV_ADD)
}

// waitRoom says whether the set reports room in the socket too.
func (s *set) waitRoom(fd int, _ uint32, out bool) error {
	if out {
		return s.change(fd, unix.EVFILT_WRITE, unix.EV_ADD)
	}
	return s.change(fd, unix.EVFILT_WRITE, unix.EV_DELETE)
}

// remove has nothing to do: a descriptor that is closed leaves the kqueue.
func (s *set) remove(int) {}

// wait fills events with what is there now.
func (s *set) wait(events *[maxEvents]event) int {
	n, err := unix.Kevent(s.fd, nil, s.raw[:], new(unix.Timespec))
	if err != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		ev := &s.raw[i]
		if ev.Filter == unix.EVFILT_USER {
			events[i] = event{slot: doorbellSlot}
			continue
		}
		events[i] = event{s.slots[int(ev.Ident)], ev.Filter == unix.EVFILT_READ, ev.Filter == unix.EVFILT_WRITE}
	}
	return n
}

// readable reports whether there is something to read, or the end.
func readable(fd int) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n == 1
}

// any reports whether there is something. Any goroutine may call it. It does not clear the doorbell.
func (s *set) any() bool {
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(fds, 0)
	return n > 0
}

func (s *set) ring() {
	trigger := unix.Kevent_t{Ident: doorbellIdent, Filter: unix.EVFILT_USER, Fflags: unix.NOTE_TRIGGER}
	unix.Kevent(s.fd, []unix.Kevent_t{trigger}, nil, nil)
}

// clearRing has nothing to do: the doorbell's event is cleared when it is reported.
func (s *set) clearRing() {}

func (s *set) close() { unix.Close(s.fd) }

// unanswered says nothing, as this kernel. Keep-alive alone finds a peer that is gone.
func unanswered(int) answers { return answers{} }

func keepAlive(fd int, idle, interval, count int) {
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1)
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPALIVE, idle)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, interval)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, count)
}

// again reports whether e only says that the call cannot be done now.
func again(e syscall.Errno) bool {
	return e == syscall.EAGAIN || e == syscall.EINTR
}

func asErrno(n int, err error) (int, syscall.Errno) {
	if err == nil {
		return n, 0
	}
	if e, ok := err.(syscall.Errno); ok {
		return 0, e
	}
	return 0, syscall.EIO
}

// recv reads what is there into b, which is not empty. 0 and no error: the peer has closed.
func recv(fd int, b []byte) (int, syscall.Errno) { return asErrno(unix.Read(fd, b)) }

// send writes as much of b, which is not empty, as there is room for.
func send(fd int, b []byte) (int, syscall.Errno) { return asErrno(unix.Write(fd, b)) }

// sendMore is send of bytes that more will follow; this kernel makes no difference.
func sendMore(fd int, b []byte) (int, syscall.Errno) { return send(fd, b) }

// sendBoth writes as much of a and then b as there is room for. Neither is empty.
func sendBoth(fd int, a, b []byte) (int, syscall.Errno) {
	return asErrno(unix.SendmsgBuffers(fd, [][]byte{a, b}, nil, nil, 0))
}
