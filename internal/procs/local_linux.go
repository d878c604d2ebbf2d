package procs

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CanBind is whether this system can bind a process to CPUs.
const CanBind = true

func rankAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// bindThread changes the affinity of the calling thread, which must be locked, until restore.
func bindThread(ids []int) (restore func(), err error) {
	if ids == nil {
		return func() {}, nil
	}
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return nil, fmt.Errorf("reading the CPU affinity: %w", err)
	}
	for _, id := range ids {
		set.Set(id)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("binding to CPUs %v: %w", ids, err)
	}
	return func() { unix.SchedSetaffinity(0, &old) }, nil
}

// CanBeLazy is whether this system has the timer slack that Spec.Lazy asks for.
const CanBeLazy = true

// lazySlack is how much later than it wants a thread of a lazy rank may be woken. Linux gives threads 50 µs.
const lazySlack = time.Millisecond

// slackenThread has what the calling thread starts be lazy, until restore.
func slackenThread() (restore func()) {
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(lazySlack), 0, 0, 0) != nil {
		return func() {}
	}
	return func() { unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) } // what the thread had at its start
}

// peek reports whether a child has ended, and how, and leaves it unreaped.
func peek(pid int) (e Exit, ended bool) {
	info, err := dead(unix.P_PID, pid)
	if err != nil {
		return Exit{Err: fmt.Errorf("waitid: %w", err)}, true
	}
	if info == nil {
		return Exit{}, false
	}
	status := childStatus(info)
	const cldExited, cldDumped = 1, 3
	if info.Code == cldExited {
		return Exit{Code: status}, true
	}
	return Exit{Signal: syscall.Signal(status), Core: info.Code == cldDumped}, true
}

// dead returns a child that has ended and is unreaped; nil: none.
func dead(which, pid int) (*unix.Siginfo, error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(which, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || info.Signo == 0:
			return nil, err
		}
		return &info, nil
	}
}

// reap takes the status of a child that has ended. It waits for no other.
func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != unix.EINTR {
			return
		}
	}
}
