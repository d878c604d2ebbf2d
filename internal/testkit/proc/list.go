package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Info is a living process as /proc shows it. PID and Start together name it for good: a pid is given again.
type Info struct {
	PID, Parent, Group int
	State              string // "T": stopped
	Start              string // when it was started, in ticks since the boot
}

// List returns the living processes that keep selects; none where there is no /proc. A zombie does not live.
func List(keep func(Info) bool) (found []Info) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, _ := strconv.Atoi(filepath.Base(folder))
		if p, ok := Lookup(pid); ok && keep(p) {
			found = append(found, p)
		}
	}
	return found
}

// Lookup returns a process if it lives.
func Lookup(pid int) (p Info, alive bool) {
	text, err := os.ReadFile(path(pid, "stat"))
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name before it may hold anything
	if err != nil || len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return Info{}, false
	}
	p = Info{PID: pid, State: f[0], Start: f[19]}
	p.Parent, _ = strconv.Atoi(f[1])
	p.Group, _ = strconv.Atoi(f[2])
	return p, true
}

// Alive reports whether this very process lives.
func (p Info) Alive() bool {
	now, alive := Lookup(p.PID)
	return alive && now.Start == p.Start
}

// Env is the environment that it was started with, Args its program and arguments; nil: it has ended or is another
// user's.
func (p Info) Env() []string { return p.list("environ") }

// Args returns the program and the arguments, as Env returns the environment.
func (p Info) Args() []string { return p.list("cmdline") }

// Exe is the path of its program.
func (p Info) Exe() string { return p.link("exe") }

// Namespace names one of its namespaces, for example "pid".
func (p Info) Namespace(kind string) string { return p.link("ns/" + kind) }

// Memory is a field of its status in bytes: "VmRSS", "VmHWM" or "VmSize"; 0: it has ended.
func (p Info) Memory(field string) (n int64) {
	text, _ := os.ReadFile(path(p.PID, "status"))
	_, after, _ := strings.Cut(string(text), "\n"+field+":")
	fmt.Sscan(after, &n)
	return n << 10
}

// Self is this process.
func Self() Info {
	p, _ := Lookup(os.Getpid())
	return p
}

func (p Info) String() string { return strconv.Itoa(p.PID) + " " + strings.Join(p.Args(), " ") }

func (p Info) list(what string) []string {
	text, err := os.ReadFile(path(p.PID, what))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

func (p Info) link(what string) string {
	to, _ := os.Readlink(path(p.PID, what))
	return to
}

func path(pid int, what string) string { return filepath.Join("/proc", strconv.Itoa(pid), what) }
