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
	dir, self string // the folder of the programs, and this program
	out       string // the folder of the results
	text      io.Writer
	ctx       context.Context // ends when a signal asks this program to end
	until     time.Time
	each      time.Duration // for which a figure is measured
	failures  int           // of which out has a file
	report    report
}

// forFigures is the time that correctness leaves, at most half of what there is: parts that hang may take all the rest.
const forFigures = 100 * time.Second

func (c *check) all(only string) {
	c.report.Time = time.Now().UTC().Format(time.RFC3339)
	c.report.Facts = map[string]string{}
	c.facts() // which also finds out whether the device is software
	end := c.until
	if only == "" {
		c.until = end.Add(-min(forFigures, time.Until(end)/2))
	}
	if only == "" || only == "correctness" {
		c.correctness()
	}
	c.until = end
	if only == "" || only == "figures" {
		c.figures()
	}
	c.report.Result = c.report.sum()
	c.printf("\n%s\n", c.report.Result)
}

func (c *check) printf(format string, args ...any) { fmt.Fprintf(c.text, format, args...) }

// command is a program of the folder, with what it may take.
type command struct {
	limit  time.Duration
	env    []string
	args   []string
	mapped mapping
}

// mapping is what the log of a job must say of messages between devices of one host.
type mapping int

const (
	whatever  mapping = iota
	oneCopy           // no rank says that memory is not mapped
	notMapped         // some rank says it
)

// notMappedText is what a rank logs when it does not map another one's memory (pml/sharing.go).
const notMappedText = "messages between devices of this host go through pinned memory"

// gorun is the command of a job. Its ranks log what they choose, which costs nothing for each message.
func gorun(limit time.Duration, env []string, ranks int, words string) command {
	return command{limit: limit, env: append([]string{"GORUN_LOG=debug"}, env...),
		args: append([]string{"gorun", "-n", fmt.Sprint(ranks)}, strings.Fields(words)...)}
}

// as is cmd whose log must say that.
func (cmd command) as(m mapping) command {
	cmd.mapped = m
	return cmd
}

// check compares the log with what it must say.
func (m mapping) check(log string) error {
	at := strings.Index(log, notMappedText)
	switch {
	case m == oneCopy && at >= 0:
		line, _, _ := strings.Cut(log[at:], "\n")
		return fmt.Errorf("it has not measured one copy: %s", line)
	case m == notMapped && at < 0:
		return errors.New("its messages did not go through pinned memory")
	}
	return nil
}

var errEnded = errors.New("a signal has ended the check")

// output runs a command to its end, or to the end of its time: then everything that it has started is killed. Programs
// are found in the folder. All that a failed command has printed goes into a file.
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
	args := append([]string{}, cmd.args...)
	for i, a := range args {
		if path := filepath.Join(c.dir, a); i < 4 && !strings.ContainsAny(a, "/.-") && isProgram(path) ||
			strings.HasSuffix(a, ".test") {
			args[i] = path
		}
	}
	run := exec.CommandContext(ctx, args[0], args[1:]...)
	run.Env = append(os.Environ(), cmd.env...)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	run.WaitDelay = 5 * time.Second
	var out, wrong bytes.Buffer
	run.Stdout, run.Stderr = &out, &wrong
	err := run.Run()
	switch {
	case c.ctx.Err() != nil:
		err = errEnded
	case ctx.Err() != nil:
		err = fmt.Errorf("it was killed after %v", limit.Round(time.Second))
	case err == nil:
		err = cmd.mapped.check(wrong.String())
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
	path := filepath.Join(c.out, fmt.Sprintf("gpu-check-failed-%d.txt", c.failures))
	head := fmt.Sprintf("%s\n%s\n", strings.Join(cmd.env, " "), strings.Join(cmd.args, " "))
	if err := os.WriteFile(path, []byte(head+text), 0o666); err != nil {
		return ""
	}
	return "\n(all of it: " + path + ")"
}

// visible is the environment in which a process has the first n of the devices that this one has.
func visible(n int) string {
	all := []string{"0", "1"}
	if set, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		all = strings.Split(set, ",")
	}
	return "CUDA_VISIBLE_DEVICES=" + strings.Join(all[:min(n, len(all))], ",")
}

func isProgram(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
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
	p := part{Name: name, Seconds: time.Since(start).Seconds(), Passed: err == nil}
	verdict := "passed"
	if err != nil {
		p.Why, verdict = err.Error(), "FAILED"
	}
	c.report.Parts = append(c.report.Parts, p)
	c.printf("%-60s %6.1f s  %s\n", name, p.Seconds, verdict)
	if err != nil {
		c.printf("    %s\n", strings.ReplaceAll(p.Why, "\n", "\n    "))
	}
	return out
}
