package testenv

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// RoleVar is the variable that makes a test binary something else than its tests: one of the roles that its TestMain
// has handed to Become. Run and Start set it; a launcher that starts the binary is told to.
const RoleVar = "GORUN_TEST_ROLE"

// Become plays this process's role to its end, if it has one. It is the first thing in TestMain. A role that returns
// an error prints it and ends with status 1.
func Become(roles map[string]func() error) {
	name := os.Getenv(RoleVar)
	if name == "" {
		return
	}
	err := fmt.Errorf("%s=%s: this test binary has no such role", RoleVar, name)
	if role := roles[name]; role != nil {
		err = role()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runHangs is after how long a role that Run waits for is not slow but stuck: before the tests' own watchdogs, which
// could not show its goroutines.
const runHangs = 90 * time.Second

// Run runs a role of this test binary, with env beside the test's own environment. It returns all that was printed,
// in which the role's goroutines are if it hung.
func Run(t testing.TB, role string, env ...string) (printed string, err error) {
	t.Helper()
	var said Buffer
	cmd := again(role, env)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(runHangs, func() { cmd.Process.Signal(syscall.SIGQUIT) }).Stop()
	err = cmd.Wait()
	return said.String(), err
}

// Again runs the test that calls it once more, alone, in a process of its own whose environment has env, by which the
// test knows that it is the child.
func Again(t testing.TB, env ...string) (printed string, err error) {
	name, _, _ := strings.Cut(t.Name(), "/")
	out, err := again("", env, "-test.run=^"+name+"$", "-test.count=1", "-test.v", "-test.timeout=5m").CombinedOutput()
	return string(out), err
}

// again is this test binary once more, as its tests if the role is "". It does not outlive this process, whose cleanups a panic leaves out.
func again(role string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), RoleVar+"="+role), env...)
	cmd.SysProcAttr = endsWithParent()
	cmd.WaitDelay = 10 * time.Second // somebody who keeps its output is no hang
	return cmd
}

// Process is this test binary in a role, which a test talks with by its standard streams. It ends with the test at the
// latest.
type Process struct {
	t    testing.TB
	role string
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
}

// Start starts a role of this test binary, with env beside the test's own environment. Its stderr is the test's.
func Start(t testing.TB, role string, env ...string) *Process {
	t.Helper()
	cmd := again(role, env)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p := &Process{t, role, cmd, in, bufio.NewReader(out)}
	t.Cleanup(p.Kill)
	return p
}

// Kill ends it and waits until it has ended.
func (p *Process) Kill() {
	p.cmd.Process.Kill() // an error: it has ended before
	p.cmd.Wait()
}

// Line is the next that it prints.
func (p *Process) Line() string {
	p.t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("the process %s: %q, %v", p.role, s, err)
	}
	return strings.TrimSpace(s)
}

// Hear is what the role gives to Tell, and nothing else may have been printed before it.
func (p *Process) Hear() []byte {
	p.t.Helper()
	line := p.Line()
	b, err := hex.DecodeString(line)
	if err != nil {
		p.t.Fatalf("the process %s: %q, %v", p.role, line, err)
	}
	return b
}

// Tell is for the role's Hear: bytes that the two need of each other, such as addresses.
func (p *Process) Tell(b []byte) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, "%x\n", b); err != nil {
		p.t.Fatalf("the process %s: %v", p.role, err)
	}
}

// Tell is a role's word to the test that started it.
func Tell(b []byte) { fmt.Printf("%x\n", b) }

var stdin = bufio.NewReader(os.Stdin)

// Hear is what the test tells its role.
func Hear() ([]byte, error) {
	s, err := stdin.ReadString('\n')
	if err != nil {
		return nil, err
	}
	return hex.DecodeString(strings.TrimSpace(s))
}
