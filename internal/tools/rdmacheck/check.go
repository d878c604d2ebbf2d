package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// check is one run.
type check struct {
	dir      string // the folder of the programs
	out      string // the folder of the results
	text     io.Writer
	ctx      context.Context // ends when a signal asks this program to end
	until    time.Time
	each     time.Duration // for which a figure is measured
	failures int           // of which out has a file
	ports    []usedPort
	report   report
}

// forFigures is the time that correctness leaves, at most half of what there is.
const forFigures = 90 * time.Second

func (c *check) all() {
	c.report.Time = time.Now().UTC().Format(time.RFC3339)
	c.report.Facts = map[string]string{}
	c.facts()
	end := c.until
	c.until = end.Add(-min(forFigures, time.Until(end)/2))
	c.correctness()
	c.until = end
	c.figures()
	c.report.Result = c.report.sum()
	c.printf("\n%s\n", c.report.Result)
}

func (c *check) printf(format string, args ...any) { fmt.Fprintf(c.text, format, args...) }

// command is a program of the folder or of PATH, with what it may take.
type command struct {
	limit time.Duration
	env   []string
	args  []string
}

// gorun is the command of a job of two ranks over one port.
func (p *usedPort) gorun(limit time.Duration, words string) command {
	return command{limit: limit, env: append([]string{"GORUN_TRANSPORTS=verbs", "GORUN_LOG=debug"}, p.env()...),
		args: append([]string{"gorun", "-n", "2"}, strings.Fields(words)...)}
}

var errEnded = errors.New("a signal has ended the check")

// start makes the process of a command, which can be ended with all that it starts.
func (c *check) start(ctx context.Context, cmd command) *exec.Cmd {
	args := append([]string{}, cmd.args...)
	for i, a := range args {
		path := filepath.Join(c.dir, a)
		if st, err := os.Stat(path); i < 4 && !strings.HasPrefix(a, "-") && err == nil && st.Mode().IsRegular() {
			args[i] = path
		}
	}
	run := exec.CommandContext(ctx, args[0], args[1:]...)
	run.Env = append(os.Environ(), cmd.env...)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	run.WaitDelay = 5 * time.Second
	return run
}

// output runs a command to its end, or to the end of its time: then everything that it has started is killed. All that
// a failed command has printed goes into a file.
func (c *check) output(cmd command) (string, error) {
	limit := min(cmd.limit, time.Until(c.until))
	switch {
	case c.ctx.Err() != nil:
		return "", errEnded
	case limit <= 0:
		return "", errors.New("no time was left")
	}
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	run := c.start(ctx, cmd)
	var out, wrong bytes.Buffer
	run.Stdout, run.Stderr = &out, &wrong
	err := run.Run()
	switch {
	case c.ctx.Err() != nil:
		err = errEnded
	case ctx.Err() != nil:
		err = fmt.Errorf("it was killed after %v", limit.Round(time.Second))
	}
	if err == nil {
		return out.String(), nil
	}
	return out.String(), fmt.Errorf("%w: %s%s", err, tail(out.String()+wrong.String()),
		c.keep(cmd, fmt.Sprintf("%v\n\n%s\n%s", err, &out, &wrong)))
}

// keep writes all about a failed command into a file, and returns where it is.
func (c *check) keep(cmd command, text string) string {
	c.failures++
	path := filepath.Join(c.out, fmt.Sprintf("rdma-check-failed-%d.txt", c.failures))
	head := fmt.Sprintf("%s\n%s\n", strings.Join(cmd.env, " "), strings.Join(cmd.args, " "))
	if err := os.WriteFile(path, []byte(head+text), 0o666); err != nil {
		return ""
	}
	return "\n(all of it: " + path + ")"
}

// tail is the end of what a failed program has printed.
func tail(text string) string {
	const most = 1200
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = "… " + text[len(text)-most:]
	}
	return text
}

// part runs a command that must succeed, and reports it.
func (c *check) part(name string, cmd command) (out string) {
	start := time.Now()
	out, err := c.output(cmd)
	c.passed(name, time.Since(start), err)
	return out
}

// passed reports a part: it has passed if err is nil.
func (c *check) passed(name string, took time.Duration, err error) {
	p := part{Name: name, Seconds: took.Seconds(), Passed: err == nil}
	verdict := "passed"
	if err != nil {
		p.Why, verdict = err.Error(), "FAILED"
	}
	c.report.Parts = append(c.report.Parts, p)
	c.printf("%-60s %6.1f s  %s\n", name, p.Seconds, verdict)
	if err != nil {
		c.printf("    %s\n", strings.ReplaceAll(p.Why, "\n", "\n    "))
	}
}

// correctness runs what must be right on any adapter, over each port.
func (c *check) correctness() {
	c.printf("\ncorrectness\n")
	c.part("gorun doctor", command{limit: 30 * time.Second, args: []string{"gorun", "doctor"}})
	const few = " -i 3 -x 1 -c"
	for _, p := range c.ports {
		c.part(p.name()+": the conformance suite", command{limit: time.Minute, env: p.env(),
			args: []string{"verbs.test", "-test.short", "-test.run=^TestConformance$"}})
		c.part(p.name()+": messages of 1 B to 4 MiB", p.gorun(30*time.Second, "latency -m 1:4194304"+few))
		c.part(p.name()+": windows of 16 messages", p.gorun(30*time.Second, "bw -m 1:262144 -W 16 -b multiple"+few))
		c.part(p.name()+": puts", p.gorun(30*time.Second, "onesided -w create -s flush -m 1:1048576 -i 3 -x 1 put_latency"))
		c.part(p.name()+": gets", p.gorun(30*time.Second, "onesided -w create -s flush -m 1:1048576 -i 3 -x 1 get_latency"))
	}
}
