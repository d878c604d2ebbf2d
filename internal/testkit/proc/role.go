package proc

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
// has handed to RunRole. Run and Start set it. A launcher that starts the binary passes it on.
const RoleVar = "GORUN_TEST_ROLE"

// RunRole plays this process's role to its end, if it has one. It is the first thing in TestMain. A role that returns
// an error prints it and ends with status 1.
func RunRole(roles map[string]func() error) {
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

// runHangs is after how long a role that Run waits for is not slow but stuck. It is shorter than the tests' own
// watchdogs, which could not show the role's goroutines.
const runHangs = 90 * time.Second

// Run runs a role of this test binary. env is added to the test's own environment. It returns all that was printed,
// in which the role's goroutines are if it hung.
func Run(t testing.TB, role string, env ...string) (printed string, err error) {
	t.Helper()
	var out Buffer
	cmd := command(role, env)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(runHangs, func() { cmd.Process.Signal(syscall.SIGQUIT) }).Stop()
	err = cmd.Wait()
	return out.String(), err
}

// RerunTest runs the test that calls it once more, alone, in a process of its own. env is added to the environment, by
// which the test knows that it is the child.
func RerunTest(t testing.TB, env ...string) (printed string, err error) {
	name, _, _ := strings.Cut(t.Name(), "/")
	out, err := command("", env, "-test.run=^"+name+"$", "-test.count=1", "-test.v", "-test.timeout=5m").CombinedOutput()
	return string(out), err
}

// command is this test binary once more, as its tests if the role is "". It does not outlive this process, whose
// cleanups a panic leaves out.
func command(role string, env []string, args ...string) *exec.Cmd {
	cmd := Again(args...)
	cmd.Env = append(append(os.Environ(), RoleVar+"="+role), env...)
	cmd.SysProcAttr = endsWithParent()
	cmd.WaitDelay = 10 * time.Second // a grandchild that keeps its output open is no hang
	return cmd
}

// Emulator is the variable that names the program which runs this test binary, where the machine's kernel cannot: the
// binary is for another architecture.
const Emulator = "GORUN_TEST_EMULATOR"

// Again returns a command that runs this test binary once more.
func Again(args ...string) *exec.Cmd {
	if emulator := os.Getenv(Emulator); emulator != "" {
		return exec.Command(emulator, append([]string{os.Args[0]}, args...)...)
	}
	return exec.Command(os.Args[0], args...)
}

// Process is this test binary in a role. The test and the role exchange bytes over its standard streams. It ends with
// the test at the latest.
type Process struct {
	t    testing.TB
	role string
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
}

// Start starts a role of this test binary. env is added to the test's own environment. Its stderr is the test's.
func Start(t testing.TB, role string, env ...string) *Process {
	t.Helper()
	cmd := command(role, env)
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

// Signal sends it a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("the process %s: %v: %v", p.role, s, err)
	}
}

// ReadLine returns the next line that it prints.
func (p *Process) ReadLine() string {
	p.t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("the process %s: %q, %v", p.role, s, err)
	}
	return strings.TrimSpace(s)
}

// Recv returns what the role gives to Send. The role may have printed nothing else before it.
func (p *Process) Recv() []byte {
	p.t.Helper()
	line := p.ReadLine()
	b, err := hex.DecodeString(line)
	if err != nil {
		p.t.Fatalf("the process %s: %q, %v", p.role, line, err)
	}
	return b
}

// Send sends bytes that the role needs, such as an address, to the role's Recv.
func (p *Process) Send(b []byte) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, "%x\n", b); err != nil {
		p.t.Fatalf("the process %s: %v", p.role, err)
	}
}

// Send sends bytes from a role to the test that started it, which gets them from Process.Recv.
func Send(b []byte) { fmt.Printf("%x\n", b) }

var stdin = bufio.NewReader(os.Stdin)

// Recv returns to a role what the test gives to Process.Send.
func Recv() ([]byte, error) {
	s, err := stdin.ReadString('\n')
	if err != nil {
		return nil, err
	}
	return hex.DecodeString(strings.TrimSpace(s))
}
