package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes every process whose launcher ends before it a child of this process, so that killDescendants
// finds it. Ranks are in process groups and sessions of their own: a signal to the launcher's group does not reach
// them.
func becomeSubreaper() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without it, only the group is killed
}

// killDescendants kills what is left of a run: the launcher's group, and every descendant of this process that was not
// there before. It is called when no other child starts processes.
func killDescendants(group int, before map[int]bool) {
	_ = unix.Kill(-group, unix.SIGKILL)
	for until := time.Now().Add(grace); time.Now().Before(until); {
		left := slices.DeleteFunc(descendantsOf(os.Getpid()), func(pid int) bool { return before[pid] })
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // of those that are our children by now
		}
		time.Sleep(time.Millisecond)
	}
}

// descendants are the processes below this one: those of the hosts, while there are any.
func descendants() map[int]bool {
	all := make(map[int]bool)
	for _, pid := range descendantsOf(os.Getpid()) {
		all[pid] = true
	}
	return all
}

// descendantsOf lists the processes below one, in no order.
func descendantsOf(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state parent …": the name may have anything in it, the last parenthesis ends it.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	var all []int
	for queue := children[pid]; len(queue) > 0; queue = queue[1:] {
		all = append(all, queue[0])
		queue = append(queue, children[queue[0]]...)
	}
	return all
}
