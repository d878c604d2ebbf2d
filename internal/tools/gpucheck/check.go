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
	text      io.Writer
	until     time.Time
	each      time.Duration // for which a figure is measured
	report    report
}

func (c *check) all(only string) {
	c.report.Time = time.Now().UTC().Format(time.RFC3339)
	c.report.Facts = map[string]string{}
	c.facts() // which also finds out whether the device is software
	if only == "" || only == "correctness" {
		c.correctness()
	}
	if only == "" || only == "figures" {
		c.figures()
	}
	c.report.Result = c.report.sum()
	c.printf("\n%s\n", c.report.Result)
}

func (c *check) printf(format string, args ...any) { fmt.Fprintf(c.text, format, args...) }

// command is a program of the folder, with what it may take.
type command struct {
	limit time.Duration
	env   []string
	dir   string // where it runs; "": anywhere
	args  []string
}

// gorun is the command of a job.
func gorun(limit time.Duration, env []string, ranks int, words string) command {
	return command{limit: limit, env: env, args: append([]string{"gorun", "-n", fmt.Sprint(ranks)},
		strings.Fields(words)...)}
}

// output runs a command to its end, or to the end of its time: then everything that it has started is killed. Programs
// are found in the folder.
func (c *check) output(cmd command) (string, error) {
	limit := min(cmd.limit, time.Until(c.until))
	if limit <= 0 {
		return "", errors.New("no time was left")
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
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
	run.Dir = cmd.dir
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	run.WaitDelay = 5 * time.Second
	var out, wrong bytes.Buffer
	run.Stdout, run.Stderr = &out, &wrong
	err := run.Run()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("it was killed after %v", limit.Round(time.Second))
	case err == nil:
		return out.String(), nil
	}
	return out.String(), fmt.Errorf("%w: %s", err, tail(out.String()+wrong.String()))
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
