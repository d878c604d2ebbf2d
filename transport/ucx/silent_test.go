//go:build ucx && linux && cgo

package ucx

import (
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Only the TCP sockets of UCX's sets are looked at and shut down: not those of the program.
func TestSocketsInASet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var sets, fds []int
	for range 2 {
		set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(set)
		sets = append(sets, set)
	}
	add := func(set, fd int) {
		t.Helper()
		if err := unix.EpollCtl(set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		to := &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
		if err := unix.Connect(fd, to); err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(event)
	add(sets[0], event)
	add(sets[0], sets[1])
	add(sets[0], fds[0])
	add(sets[1], fds[1])
	got := socketsIn(sets[0])
	if slices.Sort(got); !slices.Equal(got, fds[:2]) {
		t.Errorf("sockets %v, and not those of %v that were added: %v", got, fds, fds[:2])
	}
	if got := socketsIn(fds[2]); got != nil {
		t.Errorf("a socket is no set, and has %v", got)
	}
}
