package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// machine is what the numbers were measured on, and with.
type machine struct {
	CPU      string   `json:"cpu"`
	CPUs     int      `json:"cpus"`
	Kernel   string   `json:"kernel"`
	Go       string   `json:"go"`
	Versions []string `json:"versions"` // of the peers
	Commit   string   `json:"commit"`
	Date     string   `json:"date"`
	Load     string   `json:"load"` // average of the minute before the start
}

// busyLoad is the load average from which on the numbers are doubtful.
const busyLoad = 0.5

func machineFacts(ctx context.Context, libraries []library) machine {
	cpu, _ := harness.Processors()
	facts := machine{
		CPU: cpu, CPUs: runtime.NumCPU(), Kernel: runtime.GOOS, Go: runtime.Version(),
		Commit: output(ctx, "git", "describe", "--always", "--dirty", "--exclude=*"),
		Date:   time.Now().UTC().Format("2006-01-02 15:04 MST"),
	}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		facts.Kernel = "Linux " + strings.TrimSpace(string(kernel))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		facts.Load, _, _ = strings.Cut(string(load), " ")
	}
	for _, l := range libraries[1:] {
		if l.version != "" {
			facts.Versions = append(facts.Versions, l.name+" "+l.version)
		}
	}
	return facts
}

func (m machine) String() string {
	parts := append([]string{m.CPU, fmt.Sprintf("%d CPUs", m.CPUs), m.Kernel, m.Go}, m.Versions...)
	parts = append(parts, "commit "+cmp.Or(m.Commit, "unknown"), m.Date)
	if m.Load != "" {
		parts = append(parts, "load average at the start "+m.Load)
	}
	return strings.Join(parts, ", ")
}

// brief is what stands below a picture.
func (m machine) brief() string {
	return fmt.Sprintf("%s, %d CPUs, commit %s, %s", m.CPU, m.CPUs, cmp.Or(m.Commit, "unknown"), m.Date)
}

// busy is a warning when other programs use the machine.
func (m machine) busy() string {
	if load, err := strconv.ParseFloat(m.Load, 64); err == nil && load > busyLoad {
		return fmt.Sprintf("the load average is %s: something else is running, and the numbers will show it", m.Load)
	}
	return ""
}

// output is what a command prints, or nothing.
func output(ctx context.Context, args ...string) string {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func firstLine(s string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return first
}
