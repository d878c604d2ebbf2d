package tcp

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// set is an epoll set: all sockets of a device, and a doorbell that goroutines ring for the poller.
type set struct {
	fd, doorbell int
	raw          [maxEvents]unix.EpollEvent
}

const (
	maxEvents    = 16
	doorbellSlot = ^uint32(0)
)

// event is called when the socket of a slot can be read or written.
type event struct {
	slot    uint32
	in, out bool
}

func newSet() (*set, error) {
	s := &set{fd: -1, doorbell: -1}
	var err error
	if s.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if s.doorbell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		s.close()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err = s.add(s.doorbell, doorbellSlot); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *set) add(fd int, slot uint32) error {
	return s.ctl(unix.EPOLL_CTL_ADD, fd, slot, false)
}

// waitRoom says whether the set reports room in the socket too.
func (s *set) waitRoom(fd int, slot uint32, out bool) error {
	return s.ctl(unix.EPOLL_CTL_MOD, fd, slot, out)
}

func (s *set) ctl(op, fd int, slot uint32, out bool) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(slot)}
	if out {
		ev.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(s.fd, op, fd, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

func (s *set) remove(fd int) { unix.EpollCtl(s.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// wait fills events with what is there now.
func (s *set) wait(events *[maxEvents]event) int {
	n := pollSet(s.fd, &s.raw)
	for i := range n {
		ev := &s.raw[i]
		events[i] = event{uint32(ev.Fd), ev.Events&^unix.EPOLLOUT != 0, ev.Events&unix.EPOLLOUT != 0}
	}
	return n
}

// any reports whether there is something. Any goroutine may call it.
func (s *set) any() bool {
	var events [maxEvents]unix.EpollEvent
	return pollSet(s.fd, &events) > 0
}

func (s *set) ring() { ringDoorbell(s.doorbell) }

// clearRing ends the report of ring.
func (s *set) clearRing() { clearDoorbell(s.doorbell) }

func (s *set) close() {
	if s.doorbell >= 0 {
		unix.Close(s.doorbell)
	}
	if s.fd >= 0 {
		unix.Close(s.fd)
	}
}

// unanswered is what the kernel knows of the answers to what it has sent. It goes on sending while this process computes.
func unanswered(fd int) (a answers) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return answers{}
	}
	a = answers{acked: info.Bytes_acked, silent: time.Duration(info.Last_ack_recv) * time.Millisecond,
		heard: time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond, mtu: int(info.Pmtu)}
	if info.Unacked > 0 && info.Snd_wnd > 0 {
		a.waiting = true
		return a
	}
	// A receiver that is slow has closed its window, and drops what was on its way. It answers each probe, which resets
	// Probes. What it has not acknowledged has been sent again (Retransmits, Backoff) if nothing else has been heard.
	a.slow = true
	a.waiting = info.Unacked > 0 && (info.Retransmits > 0 || info.Backoff > 0) || info.Probes > 1
	return a
}

func keepAlive(fd int, idle, interval, count int) {
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, idle)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, interval)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, count)
}

// again reports whether e only says that the call cannot be done now.
func again(e syscall.Errno) bool {
	return e == syscall.EAGAIN || e == syscall.EINTR
}
