//go:build ucx && cgo

package ucx

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// process says which process of which host a rank is, so that another one on that host can see it end.
type process struct {
	host  string // the kernel that runs, and the namespaces in which numbers of processes and addresses mean something
	pid   int
	start string // when it began, as the kernel counts: numbers are used again
}

func thisProcess() process {
	var host strings.Builder
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	host.Write(bytes.TrimSpace(boot))
	for _, space := range []string{"pid", "net"} {
		to, _ := os.Readlink("/proc/self/ns/" + space)
		host.WriteString(" " + to)
	}
	return process{host.String(), os.Getpid(), startOf(os.Getpid())}
}

// startOf is "" if there is no such process.
func startOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the name before may have spaces
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19])
}

// watch calls ended when p has ended. p is a process of this host. What it returns ends the watch, after a call of
// ended that is under way.
func (p process) watch(ended func()) (stop func(), err error) {
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", p.pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	if startOf(p.pid) != p.start {
		f.Close()
		return nil, fmt.Errorf("process %d: %w", p.pid, unix.ESRCH)
	}
	c, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		if c.Read(hasEnded) == nil {
			ended()
		}
	}()
	return func() {
		f.Close()
		<-over
	}, nil
}

func hasEnded(fd uintptr) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(p[:], 0)
	return n > 0
}
