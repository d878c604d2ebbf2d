package launcher

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const canBind = true

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// becomeSubreaper makes this process, instead of init, the parent of processes whose own parent ends, so that none is
// lost.
func becomeSubreaper() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

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

// waitExit waits for the end of a child and leaves it unreaped.
func waitExit(pid int) Exit {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Exit{Err: fmt.Errorf("waitid: %w", err)}
		}
		break
	}
	status := childStatus(&info)
	const cldExited, cldDumped = 1, 3
	if info.Code == cldExited {
		return Exit{Code: status}
	}
	return Exit{Signal: syscall.Signal(status), Core: info.Code == cldDumped}
}

// reap takes the status of a child that has ended.
func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

// killOrphans kills the children of this process until there are none: all that the ranks left behind, in any process
// group or session.
func killOrphans() {
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err == unix.ECHILD {
			return // the usual case, without a look at all of /proc
		}
		pids := children()
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		for _, pid := range pids {
			reap(pid)
		}
	}
}

// children lists the processes whose parent is this one.
func children() []int {
	self := os.Getpid()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && parentOf(pid) == self {
			pids = append(pids, pid)
		}
	}
	return pids
}

func parentOf(pid int) int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// pid (name, which may hold anything) state ppid ...
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	f := strings.Fields(rest)
	if len(f) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(f[1])
	return ppid
}
