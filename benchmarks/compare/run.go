package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// estimate is how long the whole comparison takes.
type estimate struct {
	start  time.Time
	ahead  float64 // seconds, of the measurements that have not begun
	rounds int     // of each
	spare  float64 // seconds left for turns that are repeated
}

// spareShare is what part of the planned time turns that are repeated may take.
const spareShare = 0.1

func newEstimate(chosen []measurement, rounds int) *estimate {
	e := &estimate{start: time.Now(), rounds: rounds}
	for _, m := range chosen {
		e.ahead += m.seconds * float64(rounds)
	}
	e.spare = e.ahead * spareShare
	return e
}

// remove takes a measurement out: it begins, or will not be done.
func (e *estimate) remove(m measurement) { e.ahead -= m.seconds * float64(e.rounds) }

// total is the time that everything will have taken, when `left` seconds of the present measurement are to come.
func (e *estimate) total(left float64) time.Duration {
	return time.Since(e.start) + time.Duration((left+e.ahead)*float64(time.Second))
}

// repeat takes a turn of so many seconds from what is spare. It reports whether that was enough.
func (e *estimate) repeat(seconds float64) bool {
	if seconds > e.spare {
		return false
	}
	e.spare -= seconds
	return true
}

// session is one comparison: what all its measurements share.
type session struct {
	*estimate
	gauge func() float64 // nil: there is none
	seen  []float64      // all gauges so far, µs
}

// newSession takes the gauge for the first time.
func newSession(chosen []measurement, rounds int) *session {
	s := &session{estimate: newEstimate(chosen, rounds)}
	gauge, err := newGauge()
	if err != nil {
		fmt.Fprintf(os.Stderr, "compare: there is no gauge of the machine, and all turns count: %v\n", err)
		return s
	}
	s.gauge = func() float64 {
		g := gauge()
		s.seen = append(s.seen, g)
		fmt.Fprintf(os.Stderr, "gauge %s ns\n", nanoseconds(g))
		return g
	}
	s.gauge()
	return s
}

// measure runs one measurement in rounds, the libraries by turns. A library that fails a run is not tried with it
// again.
func (r *result) measure(ctx context.Context, m *measurement, libraries []library, in *session) {
	perRound := m.seconds
	in.remove(*m)
	begin := time.Now()
	for round := range r.Rounds {
		for i, a := range m.runs {
			s := &r.Runs[i]
			play := func(library int) ([]line, bool) {
				if s.Failed[library] != "" || ctx.Err() != nil {
					return nil, false
				}
				fmt.Fprintf(os.Stderr, "[%s of about %s] %s, round %d of %d, %d ranks: %s\n",
					clockText(time.Since(in.start)), clockText(in.total(perRound*float64(r.Rounds-round))),
					m.name, round+1, r.Rounds, a.ranks, libraries[library].name)
				return s.play(ctx, library, *m, a, libraries[library], r.limit)
			}
			u := turns{play: play, gauge: in.gauge, repeat: in.repeats(m, len(libraries))}
			if !m.gauged() {
				u.gauge = nil
			}
			s.add(u.round(turnOrder(len(libraries), round)))
		}
		perRound = time.Since(begin).Seconds() / float64(round+1)
	}
	if r.gauged() {
		r.Near = quietState(in.seen)
	}
}

// repeats counts those of one round: each library's turn may be repeated twice, as long as there is time to spare.
func (s *session) repeats(m *measurement, libraries int) func() bool {
	left, each := 2*libraries, m.seconds/float64(libraries*max(1, len(m.runs)))
	return func() bool {
		left--
		return left >= 0 && s.repeat(each)
	}
}

func clockText(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// play is one library's turn: its lines, or false and why it has none. An interrupted run is neither.
func (s *samples) play(ctx context.Context, lib int, m measurement, a arguments, l library, limit time.Duration,
) (all []line, ok bool) {
	for range max(1, a.times) {
		lines, err := runOnce(ctx, m, a, l, lib == 0, limit)
		switch {
		case ctx.Err() != nil:
			return nil, false
		case err != nil:
			s.Failed[lib] = err.Error()
			fmt.Fprintf(os.Stderr, "compare: %s: %v\n", l.name, err)
			return nil, false
		}
		all = append(all, lines...)
	}
	return all, true
}

// grace is what a launcher has to end its ranks when it is asked to, before all of them are killed.
const grace = 3 * time.Second

// runOnce starts one program under its launcher and returns the lines that it printed. Nothing of it is left
// running, however it ends: not on the hosts either, which are there before and stay.
func runOnce(ctx context.Context, m measurement, a arguments, l library, ours bool, limit time.Duration,
) ([]line, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append(l.launch(a.ranks, filepath.Join(l.dir, m.program)), l.words(a, ours)...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this process, which passes it on below
	// A launcher that is asked to end takes its ranks along; one that is killed may leave them.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	before := descendants()
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if cmd.Process != nil {
		killDescendants(cmd.Process.Pid, before)
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("did not end within %v", limit)
	case err != nil:
		return nil, fmt.Errorf("%s%s: %v: %s", crash(err), filepath.Base(args[0]), err, firstLine(stderr.String()))
	}
	if m.guest { // it names the short runs that failed; the others count
		os.Stderr.Write(stderr.Bytes())
	}
	lines, err := readLines(m, a, l, stdout.String(), took)
	if err == nil && a.key != 0 {
		for i := range lines {
			lines[i].Key = a.key
		}
	}
	return lines, err
}

// crashed is how the reason begins where a program ended by a signal.
const crashed = "crashed"

// crash is the beginning of such a reason, with the signal, or "" where a program failed otherwise. A launcher passes
// on the signal that ended a rank in its exit code, as a shell does.
func crash(err error) string {
	const bySignal, most = 128, 64
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return ""
	}
	signal := exit.ExitCode() - bySignal
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		signal = int(status.Signal())
	}
	if signal < 1 || signal > most {
		return ""
	}
	return fmt.Sprintf("%s (%v): ", crashed, syscall.Signal(signal))
}

func readLines(m measurement, a arguments, l library, out string, took time.Duration) ([]line, error) {
	switch {
	case l.read != nil:
		return l.read(out)
	case m.read != nil:
		return m.read(a, out, took)
	}
	return parse(out)
}

var peakLine = regexp.MustCompile(`(?m)^# Max RSS\(KiB\) of a rank (\d+)$`)

// readInit is for init, whose output is osu_init's: compare measures the wall time, init prints the resident size.
func readInit(a arguments, out string, took time.Duration) ([]line, error) {
	found := peakLine.FindStringSubmatch(out)
	if found == nil {
		return nil, fmt.Errorf("printed no line with the resident size: %q", firstLine(out))
	}
	peak, err := strconv.ParseFloat(found[1], 64)
	return []line{{Key: int64(a.ranks), Values: []float64{float64(took) / 1e6, peak}}}, err
}
