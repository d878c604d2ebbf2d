package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	guestScript  = "scripts/guest"
	benchScript  = "scripts/guest-bench"
	guestTimeout = 10 * time.Minute // all short runs of a guest: each ends after a minute at most
)

// makeGuest boots a guest to see that it can be, and makes what runs there.
func (b *testbed) makeGuest() (list []library, err error) {
	if b.kernel, err = guestKernel(b.ctx); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		return nil, fmt.Errorf("%w: gcc%s, and transport/verbs has C", errUnavailable, notInstalled)
	}
	dir := filepath.Join(b.dir, "gorun-verbs")
	packages := []string{"./cmd/gorun"}
	for _, m := range rdmaPlan()[:2] {
		packages = append(packages, "./benchmarks/"+m.program)
	}
	if err := goBuild(b.ctx, dir, "verbs", packages...); err != nil {
		return nil, err
	}
	b.tools = library{name: perftest}
	if _, err := exec.LookPath("ib_send_lat"); err != nil {
		b.tools.absent = perftest + notInstalled
	}
	version, _ := exec.CommandContext(b.ctx, "ib_send_lat", "--version").Output() // and an exit code of 1
	b.tools.version = versionIn(string(version))
	return librariesInGuest(library{name: gorun, dir: dir}, b.local[1], b.tools), nil
}

// guestKernel is the kernel that a guest runs. The first guest of a machine downloads it.
func guestKernel(ctx context.Context) (string, error) {
	fmt.Fprintf(os.Stderr, "compare: booting a guest (%s), which the first time downloads its kernel\n", guestScript)
	cmd := exec.CommandContext(ctx, guestScript, "--", "uname", "-sr")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this process, which passes it on here
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	out, err := cmd.Output()
	why := strings.TrimPrefix(lastLine(stderr.String()), "guest: ")
	switch {
	case err == nil:
		return strings.TrimSpace(string(out)), nil
	case ctx.Err() != nil:
		return "", errors.New("interrupted")
	case cmd.ProcessState == nil: // it did not start
		return "", fmt.Errorf("%w: %w", errUnavailable, err)
	case cmd.ProcessState.ExitCode() == exitUnavailable:
		return "", fmt.Errorf("%w: %s", errUnavailable, why)
	}
	return "", fmt.Errorf("%s: %w: %s", guestScript, err, why)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// librariesInGuest are the libraries as they run in a guest.
func librariesInGuest(ours, peer, tools library) []library {
	bench := func(words ...string) []string {
		return append([]string{guestScript, "--timeout", strconv.Itoa(int(guestTimeout.Seconds())), "--",
			benchScript, strconv.Itoa(shortRuns)}, words...)
	}
	ours.launch = func(_ int, program string) []string { return bench("gorun", program) }
	peer.launch = func(_ int, program string) []string { return bench("openmpi", program) }
	tools.launch = func(int, string) []string { return bench("perftest") }
	tools.read = readPerftest
	return []library{ours, peer, tools}
}

// Fields of latency's lines with -f; perftest's columns are brought into the same order.
const (
	latencyMean    = 1
	latencyTypical = 5
	latencyFields  = 5
)

// The heads of perftest's tables, as far as they are read: more values may follow. Its MB are 2^20 bytes, and later
// versions say so.
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
		switch line := strings.Join(words, " "); {
		case head != "":
			l, err := perftestLine(head, words)
			if err != nil {
				return nil, err
			}
			lines, head = append(lines, l), ""
		case strings.HasPrefix(line, "#bytes"):
			head = line
		}
	}
	if head != "" {
		return nil, fmt.Errorf("perftest ended after %q", head)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("perftest printed no table")
	}
	return lines, nil
}

func perftestLine(head string, words []string) (l line, err error) {
	read, err := parse(strings.Join(words, " "))
	if err != nil {
		return l, fmt.Errorf("perftest, after %q: %w", head, err)
	}
	l = read[0]
	v := l.Values // after the size: iterations, and what the head names
	switch {
	case strings.HasPrefix(head, latHead) && len(v) >= 5:
		l.Values = make([]float64, latencyFields)
		l.Values[latencyMean-1], l.Values[latencyTypical-1] = v[4], v[3]
		l.Values[1], l.Values[2], l.Values[3] = v[1], v[2], v[0]
	case (strings.HasPrefix(head, bwHead) || strings.HasPrefix(head, bwHeadLate)) && len(v) >= 3:
		l.Values = []float64{v[2] * (1 << 20) / 1e6}
	default:
		return l, fmt.Errorf("not a table of perftest that can be read: %q, and after it %q",
			head, strings.Join(words, " "))
	}
	return l, nil
}
