package procs

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
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
func (l *Local) reapOrphans() time.Duration {
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
	if l.nextScan.IsZero() || now.Before(l.nextScan) {
		if l.nextScan.IsZero() {
			l.nextScan = now.Add(lookEvery)
		}
		return l.nextScan.Sub(now)
	}
	for _, c := range children() {
		if c.dead && !l.isOurs(c.pid) {
			reap(c.pid)
		}
	}
	l.nextScan = time.Now().Add(max(lookEvery, 20*time.Since(now)))
	return 0
}

// killOrphans kills the children of this process until there are none but others: all that the ranks left behind, in
// any process group or session. If there are others, a child may be what one of them has left behind. That has
// otherMark in its environment, and is left, as is what does not show its environment to us; or, if otherMark is "",
// only those are killed that have the job's mark.
func killOrphans(others map[int]bool, mark, otherMark string) {
	search, clean := newMarkSearch(cmp.Or(otherMark, mark)), 0
	for deadline := time.Now().Add(searching); time.Now().Before(deadline); {
		if _, err := dead(unix.P_ALL, 0); err == unix.ECHILD {
			return // the usual case, without a look at all of /proc
		}
		perhaps := false
		left := slices.DeleteFunc(children(), func(c child) bool {
			if others[c.pid] || c.dead || len(others) == 0 {
				return others[c.pid]
			}
			f := search.look(c.pid)
			perhaps = perhaps || f == unsure
			if otherMark != "" {
				return f != unmarked
			}
			return f != marked
		})
		if clean++; len(left) > 0 || perhaps {
			clean = 0
		}
		if clean == 2 { // a look may miss one
			return
		}
		for _, c := range left {
			unix.Kill(c.pid, unix.SIGKILL)
			reap(c.pid)
		}
		time.Sleep(time.Millisecond)
	}
}

// searching is for how long a search goes on because of what it finds. On a host where processes start all the time
// there is always one that may be about to show the mark. Tests have another.
var searching = 3 * time.Second

// killMarked kills the processes that have a mark in their environment, until there are none. A process may fork while
// all are looked at, so it ends when two looks in a row have found none, and none that may be about to show the mark.
// After searching it ends with the second look all the same: both are made, however long the process was held up.
func killMarked(mark string) {
	search, began := newMarkSearch(mark), time.Now()
	for clean := 0; clean < 2; time.Sleep(2 * time.Millisecond) {
		clean++
		for _, pid := range processes() {
			f := search.look(pid)
			killed := f == marked && pid != os.Getpid() && unix.Kill(pid, unix.SIGKILL) == nil
			if (killed || f == unsure) && time.Since(began) < searching {
				clean = 0
			}
		}
	}
}

// markSearch finds processes with a mark in the environment with which they were started. While a process execs, its
// environment reads as empty, for as long as it is held up there. That of a process that was given none is empty for
// good.
type markSearch struct {
	mark  string
	empty map[int]time.Time // pid: the first of the looks in a row that have found it empty
}

// emptyFor is after what time a process whose environment is empty counts as one that was given none. Tests have
// another.
var emptyFor = 500 * time.Millisecond

func newMarkSearch(mark string) *markSearch {
	return &markSearch{mark: mark, empty: map[int]time.Time{}}
}

// finding is the result of a look at a process.
type finding int

const (
	unmarked finding = iota
	marked
	unsure // another look may find the mark
	hidden // its environment is not shown to us, since it is another user's, or it has written over it
)

// look looks for the mark in the environment of a process.
func (m *markSearch) look(pid int) finding {
	if m.mark == "" {
		return unmarked
	}
	text, err := environ(pid)
	if len(text) == 0 && (err == nil || errors.Is(err, unix.ESRCH)) {
		p := statOf(pid)
		if !p.memory && p.threads > 1 { // the first has ended by itself, since another one execs, or all of them end
			text = environOfThreads(pid)
		}
		if len(text) == 0 && p.memory {
			since, known := m.empty[pid]
			if !known {
				since = time.Now()
				m.empty[pid] = since
			}
			if time.Since(since) < emptyFor {
				return unsure
			}
			return unmarked
		}
	}
	delete(m.empty, pid)
	switch {
	case errors.Is(err, os.ErrPermission), len(text) > 0 && !bytes.Contains(text, []byte("=")): // the latter: a title
		return hidden
	case strings.Contains("\x00"+string(text), "\x00"+m.mark+"\x00"):
		return marked
	}
	return unmarked // without a text it is gone or ends, or it is a thread of the kernel
}

// environ reads the environment with which a process was started. It is ESRCH or empty where the first thread of the
// process has no memory. Tests have another.
var environ = func(pid int) ([]byte, error) { return os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") }

// environOfThreads is environ, as the other threads of a process show it.
func environOfThreads(pid int) []byte {
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/environ")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			return text
		}
	}
	return nil
}

// child is a process whose parent is this one.
type child struct {
	pid  int
	dead bool // a zombie
}

// children lists those of this process. One may be missing while another ends.
func children() (found []child) {
	if _, err := dead(unix.P_ALL, 0); err == syscall.ECHILD {
		return nil
	}
	pids, known := childrenOfThreads()
	if !known {
		pids = processes()
	}
	self := os.Getpid()
	for _, pid := range pids {
		if p := statOf(pid); p.parent == self {
			found = append(found, child{pid, p.state == "Z" && p.threads <= 1})
		}
	}
	return found
}

// childrenOfThreads reads the kernel's lists, and reports whether there are any, so that a look does not cost more the
// more processes there are on the host. Kernels without CONFIG_PROC_CHILDREN have none.
func childrenOfThreads() (pids []int, known bool) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, false
	}
	for _, t := range threads {
		text, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		if err != nil {
			continue // the thread has ended, and another has its children now
		}
		known = true
		for _, f := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, known
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

// stat is what the kernel says of a process, more exactly of its first thread.
type stat struct {
	parent  int
	state   string // "": there is no such process
	threads int    // of the process
	memory  bool   // false: it has none, as a zombie or a thread of the kernel
}

func statOf(pid int) stat {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}
	}
	// pid (name, which may hold anything) state ppid ...
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 21 {
		return stat{}
	}
	parent, _ := strconv.Atoi(f[1])
	threads, _ := strconv.Atoi(f[17])
	return stat{parent, f[0], threads, f[20] != "0"}
}
