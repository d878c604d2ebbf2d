package launcher

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes this process, instead of init, the parent of processes whose own parent ends, so that none is
// lost.
func becomeSubreaper() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// lookEvery is how often all processes are looked at for orphans that have ended, if at all.
const lookEvery = time.Second

// reapOrphans reaps orphans that have ended. It returns when it wants to be called again; 0: after the next SIGCHLD.
func (l *local) reapOrphans() time.Duration {
	if !l.births.TryLock() {
		return 10 * time.Millisecond
	}
	defer l.births.Unlock()
	for {
		info, err := dead(unix.P_ALL, 0)
		if err != nil || info == nil {
			return 0
		}
		pid := childPid(info)
		if l.isOurs(pid) {
			break // the kernel would name it again
		}
		reap(pid)
	}
	now := time.Now()
	if l.look.IsZero() || now.Before(l.look) {
		if l.look.IsZero() {
			l.look = now.Add(lookEvery)
		}
		return l.look.Sub(now)
	}
	for _, c := range children() {
		if c.dead && !l.isOurs(c.pid) {
			reap(c.pid)
		}
	}
	l.look = time.Now().Add(max(lookEvery, 20*time.Since(now)))
	return 0
}

// killOrphans kills the children of this process until there are none but others: all that the ranks left behind, in
// any process group or session. If there are others, a child may be what one of them has left behind: then only those
// are killed that have the job's mark.
func killOrphans(others map[int]bool, mark string) {
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		if _, err := dead(unix.P_ALL, 0); err == unix.ECHILD {
			return // the usual case, without a look at all of /proc
		}
		left := slices.DeleteFunc(children(), func(c child) bool {
			return others[c.pid] || !c.dead && len(others) > 0 && !isMarked(c.pid, mark)
		})
		if len(left) == 0 {
			return
		}
		for _, c := range left {
			unix.Kill(c.pid, unix.SIGKILL)
			reap(c.pid)
		}
		time.Sleep(time.Millisecond)
	}
}

// killMarked kills the processes that have a mark in their environment, until there are none.
func killMarked(mark string) {
	for range 100 {
		found := false
		for _, pid := range processes() {
			if pid != os.Getpid() && isMarked(pid, mark) && unix.Kill(pid, unix.SIGKILL) == nil {
				found = true
			}
		}
		if !found {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// isMarked reads the environment with which a process was started. A zombie has none.
func isMarked(pid int, mark string) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && mark != "" && strings.Contains("\x00"+string(text), "\x00"+mark+"\x00")
}

// child is a process whose parent is this one.
type child struct {
	pid  int
	dead bool // a zombie
}

func children() (found []child) {
	if _, err := dead(unix.P_ALL, 0); err == syscall.ECHILD {
		return nil
	}
	self := os.Getpid()
	for _, pid := range processes() {
		if parent, state := statOf(pid); parent == self {
			found = append(found, child{pid, state == "Z"})
		}
	}
	return found
}

// processes lists the pids of all processes.
func processes() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func statOf(pid int) (parent int, state string) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, ""
	}
	// pid (name, which may hold anything) state ppid ...
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 2 {
		return 0, ""
	}
	parent, _ = strconv.Atoi(f[1])
	return parent, f[0]
}
