package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// guests is what is known of guests, once one has been tried.
type guests struct {
	tried     bool
	none      error // why there can be none, or why it failed
	libraries []library
	kernel    string
}

const (
	guestScript  = "scripts/guest"
	benchScript  = "scripts/guest-bench"
	guestTimeout = 10 * time.Minute // all short runs of a guest: each ends after a minute at most
)

// inGuest boots a guest to see that it can be, and makes what runs there, once.
func (s *stage) inGuest() ([]library, error) {
	g := &s.guest
	if g.tried {
		return g.libraries, g.none
	}
	g.tried = true
	if g.kernel, g.none = guestKernel(s.ctx); g.none != nil {
		return nil, g.none
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		g.none = fmt.Errorf("%w: gcc%s, and transport/verbs has C", errNoGuest, notInstalled)
		return nil, g.none
	}
	dir := filepath.Join(s.dir, "gorun-verbs")
	packages := []string{"./cmd/gorun"}
	for _, m := range rdmaPlan()[:2] {
		packages = append(packages, "./benchmarks/"+m.program)
	}
	if g.none = goBuild(s.ctx, dir, "verbs", packages...); g.none != nil {
		return nil, g.none
	}
	tools := library{name: perftest}
	if _, err := exec.LookPath("ib_send_lat"); err != nil {
		tools.absent = perftest + notInstalled
	}
	said, _ := exec.CommandContext(s.ctx, "ib_send_lat", "--version").Output() // it says so and ends with an error
	tools.version = versionIn(string(said))
	g.libraries = onGuest(library{name: gorun, dir: dir}, s.local[1], tools)
	return g.libraries, nil
}

// guestKernel is what a guest says that it runs. The first guest of a machine downloads its kernel.
func guestKernel(ctx context.Context) (string, error) {
	fmt.Fprintf(os.Stderr, "compare: booting a guest (%s), which the first time downloads its kernel\n", guestScript)
	cmd := exec.CommandContext(ctx, guestScript, "--", "uname", "-sr")
	var said strings.Builder
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us; the script is told here
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	out, err := cmd.Output()
	why := strings.TrimPrefix(lastLine(said.String()), "guest: ")
	switch {
	case err == nil:
		return strings.TrimSpace(string(out)), nil
	case ctx.Err() != nil:
		return "", errors.New("interrupted")
	case cmd.ProcessState == nil: // it did not start
		return "", fmt.Errorf("%w: %w", errNoGuest, err)
	case cmd.ProcessState.ExitCode() == notHere:
		return "", fmt.Errorf("%w: %s", errNoGuest, why)
	}
	return "", fmt.Errorf("%s: %w: %s", guestScript, err, why)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// onGuest are the libraries as they run in a guest.
func onGuest(ours, theirs, tools library) []library {
	bench := []string{guestScript, "--timeout", strconv.Itoa(int(guestTimeout.Seconds())), "--", benchScript, strconv.Itoa(shortRuns)}
	ours.launch = func(_ int, program string) []string { return slices.Concat(bench, []string{"gorun", program}) }
	theirs.launch = func(_ int, program string) []string { return slices.Concat(bench, []string{"openmpi", program}) }
	tools.launch = func(int, string) []string { return slices.Concat(bench, []string{"perftest"}) }
	tools.read = readPerftest
	return []library{ours, theirs, tools}
}

// facts are those of the machine, and of the guest where a measurement is made there.
func (s *stage) facts(m measurement, here machine) machine {
	if !m.guest {
		return here
	}
	here.Versions = slices.Clone(here.Versions)
	for _, l := range s.guest.libraries {
		if l.name == perftest && l.version != "" {
			here.Versions = append(here.Versions, perftest+" "+l.version)
		}
	}
	here.Versions = append(here.Versions, "in the guest "+s.guest.kernel)
	return here
}

// Fields of latency's lines with -f; those of perftest are put in the same order.
const (
	latencyMean    = 1
	latencyTypical = 5
	latencyFields  = 5
)

// The heads of perftest's tables, as far as they are read: a value may be behind them that nobody asks for. Its MB are
// 2^20 bytes, and later versions say so.
const (
	latHead    = "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]"
	bwHead     = "#bytes #iterations BW peak[MB/sec] BW average[MB/sec]"
	bwHeadLate = "#bytes #iterations BW peak[MiB/sec] BW average[MiB/sec]"
)

// readPerftest makes lines of the tables of one or more runs of a tool: a head and one line of numbers each.
func readPerftest(out string) (lines []line, err error) {
	head := ""
	for text := range strings.Lines(out) {
		words := strings.Fields(text)
		switch said := strings.Join(words, " "); {
		case head != "":
			l, err := perftestLine(head, words)
			if err != nil {
				return nil, err
			}
			lines, head = append(lines, l), ""
		case strings.HasPrefix(said, "#bytes"):
			head = said
		}
	}
	if head != "" {
		return nil, fmt.Errorf("perftest ended behind %q", head)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("perftest printed no table")
	}
	return lines, nil
}

func perftestLine(head string, words []string) (l line, err error) {
	read, err := parse(strings.Join(words, " "))
	if err != nil {
		return l, fmt.Errorf("perftest, behind %q: %w", head, err)
	}
	l = read[0]
	v := l.Values // behind the size: iterations, and what the head names
	switch {
	case strings.HasPrefix(head, latHead) && len(v) >= 5:
		l.Values = make([]float64, latencyFields)
		l.Values[latencyMean-1], l.Values[latencyTypical-1] = v[4], v[3]
		l.Values[1], l.Values[2], l.Values[3] = v[1], v[2], v[0]
	case (strings.HasPrefix(head, bwHead) || strings.HasPrefix(head, bwHeadLate)) && len(v) >= 3:
		l.Values = []float64{v[2] * (1 << 20) / 1e6}
	default:
		return l, fmt.Errorf("not a table of perftest that can be read: %q, and behind it %q", head, strings.Join(words, " "))
	}
	return l, nil
}
