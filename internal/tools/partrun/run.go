package partrun

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

// Runner runs the parts of one check.
type Runner struct {
	Name   string // begins the names of all files in Out
	Self   string // this program, in whose folder the others are
	Out    string // the folder of the results
	Text   io.Writer
	Ctx    context.Context // ends when a signal asks this program to end
	Until  time.Time       // nothing runs longer
	Report *Report

	failures int // of which Out has a file
}

// Command is a program of the folder or of PATH, with what it may take.
type Command struct {
	Limit time.Duration
	Env   []string
	Args  []string               // the program, and for a launcher the job's program among the first four
	Check func(log string) error // what is wrong with what it has printed to stderr; nil: nothing is
}

var errEnded = errors.New("a signal has ended the check")

// Printf prints to the text of the check.
func (r *Runner) Printf(format string, args ...any) { fmt.Fprintf(r.Text, format, args...) }

// Path is the path of a file in the folder of this program.
func (r *Runner) Path(name string) string { return filepath.Join(filepath.Dir(r.Self), name) }

// Start starts a command that its Cancel, and the end of ctx, kill with all that it has started. The caller calls Wait.
func (r *Runner) Start(ctx context.Context, cmd Command, stdout, stderr io.Writer) (*exec.Cmd, error) {
	args := append([]string{}, cmd.Args...)
	for i, a := range args {
		if path := r.Path(a); i < 4 && !strings.HasPrefix(a, "-") && isProgram(path) {
			args[i] = path
		}
	}
	run := exec.CommandContext(ctx, args[0], args[1:]...)
	run.Env = append(os.Environ(), cmd.Env...)
	run.Stdout, run.Stderr = stdout, stderr
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	run.WaitDelay = 5 * time.Second
	return run, run.Start()
}

func isProgram(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// Output runs a command to its end, or to the end of its time: then everything that it has started is killed. All that
// a failed command has printed goes into a file, which the error names.
func (r *Runner) Output(cmd Command) (string, error) {
	limit := min(cmd.Limit, time.Until(r.Until))
	switch {
	case r.Ctx.Err() != nil:
		return "", errEnded
	case limit <= 0:
		return "", errors.New("no time was left")
	}
	ctx, cancel := context.WithTimeout(r.Ctx, limit)
	defer cancel()
	var out, log bytes.Buffer
	run, err := r.Start(ctx, cmd, &out, &log)
	if err == nil {
		err = run.Wait()
	}
	switch {
	case r.Ctx.Err() != nil:
		err = errEnded
	case ctx.Err() != nil:
		err = fmt.Errorf("it was killed after %v", limit.Round(time.Second))
	case err == nil && cmd.Check != nil:
		err = cmd.Check(log.String())
	}
	if err == nil {
		return out.String(), nil
	}
	return out.String(), fmt.Errorf("%w: %s%s", err, Tail(out.String()+log.String()),
		r.keep(cmd, fmt.Sprintf("%v\n\n%s\n%s", err, &out, &log)))
}

// keep writes all about a failed command into a file, and returns where it is.
func (r *Runner) keep(cmd Command, text string) string {
	r.failures++
	path := filepath.Join(r.Out, fmt.Sprintf("%s-failed-%d.txt", r.Name, r.failures))
	head := fmt.Sprintf("%s\n%s\n", strings.Join(cmd.Env, " "), strings.Join(cmd.Args, " "))
	if err := os.WriteFile(path, []byte(head+text), 0o666); err != nil {
		return ""
	}
	return "\n(all of it: " + path + ")"
}

// Tail is the end of what a failed program has printed.
func Tail(text string) string {
	const most = 1200
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = "… " + text[len(text)-most:]
	}
	return text
}

// Part runs a command that must succeed, and reports it.
func (r *Runner) Part(name string, cmd Command) (out string) {
	start := time.Now()
	out, err := r.Output(cmd)
	r.Passed(name, time.Since(start), err)
	return out
}

// Passed reports a part: it has passed if err is nil.
func (r *Runner) Passed(name string, took time.Duration, err error) {
	p := Part{Name: name, Seconds: took.Seconds(), Passed: err == nil}
	verdict := "passed"
	if err != nil {
		p.Why, verdict = err.Error(), "FAILED"
	}
	r.Report.Parts = append(r.Report.Parts, p)
	r.Printf("%-60s %6.1f s  %s\n", name, p.Seconds, verdict)
	if err != nil {
		r.Printf("    %s\n", strings.ReplaceAll(p.Why, "\n", "\n    "))
	}
}
