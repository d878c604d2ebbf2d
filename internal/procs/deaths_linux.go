package procs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// deathWatch hears of the deaths of processes in their order, without a thread for each process.
type deathWatch struct {
	set  *os.File // an epoll set of pidfds, which the runtime's poller knows
	fd   int      // of set
	conn syscall.RawConn
}

// newDeathWatch returns nil where there is no such thing: in old kernels, and where so many ranks would leave too few
// descriptors for their streams.
func newDeathWatch(ranks int) *deathWatch {
	const perRank, reserve = 4, 256 // our ends of a rank: control socket, two streams, and what we have here
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || uint64(perRank*ranks+reserve) > files.Cur {
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	unix.SetNonblock(fd, true) // NewFile asks and uses the poller then
	d := &deathWatch{set: os.NewFile(uintptr(fd), "deaths"), fd: fd}
	if d.conn, err = d.set.SyscallConn(); err != nil {
		d.set.Close()
		return nil
	}
	return d
}

// add watches a child, and reports whether that is possible. It is not called after close.
func (d *deathWatch) add(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd), Pad: int32(pid)}
	if err := unix.EpollCtl(d.fd, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		unix.Close(fd)
		return false
	}
	return true
}

// all yields the pids of children that have died, until close.
func (d *deathWatch) all(yield func(pid int) bool) {
	var events [64]unix.EpollEvent
	for {
		n := 0
		err := d.conn.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events[:], 0)
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, int(e.Fd), nil) // a child that is just being made may have it too
			unix.Close(int(e.Fd))
			if !yield(int(e.Pad)) {
				return
			}
		}
	}
}

// close ends all. Every child that was added has died and been yielded.
func (d *deathWatch) close() { d.set.Close() }
