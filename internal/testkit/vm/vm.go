package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// Wanted is the variable without which no test boots guests, for that takes 5 s each. In a guest it is set too: there
// it says that rxe0 must be found.
const Wanted = "GORUN_TEST_GUEST"

// ErrTimeout is what Wait's error wraps when the guests were killed because their time was up.
var ErrTimeout = errors.New("the guests' time is up")

// Exit codes of scripts/guest that are not the command's.
const (
	unavailable = 77
	timedOut    = 124
)

// patience is what is granted beyond a guest's time before the script itself is killed, and then to what it started.
const patience = 30 * time.Second

// Spec says what guests are made and what a command finds there. The zero Spec is one guest.
type Spec struct {
	Hosts   int           // 1 or 2; 0: 1. With two, the command runs in both at the same time
	Timeout time.Duration // of all of it; 0: 5 min
	// Grace is how long the other guest may go on when the command has failed in one; 0: 10 s. A test in which
	// the first guest dies gives the second the time that it needs.
	Grace time.Duration
	Env   []string // beyond this process's; later ones win
	Out   string   // the folder for what is written to $GUEST_OUT, with two guests its h1 and h2; "": that is lost
	More  []string // further options of scripts/guest, for example "--mtu", "1500"
}

// Host is what the command did in one guest.
type Host struct {
	Stdout, Stderr string
	Ended          bool // or else it was killed with its guest
	Code           int  // if Ended: its exit status
}

// Result is what the command did.
type Result struct {
	Code  int    // 0: it ended well everywhere; or else that of the guest where it failed first
	Hosts []Host // of guest 1, guest 2
}

// Running are guests that have been started.
type Running struct {
	hosts  int
	cmd    *exec.Cmd
	input  io.Closer // while it is open the guests may live, so they end with this process
	stderr bytes.Buffer
	folder string // for the output of the command

	done   chan struct{}
	result Result // set before done is closed
	err    error  // set before done is closed
}

// Run runs a command in guests and waits until it has ended in each. The test fails if it could not be run or had no
// more time; what its exit status means is for the test to judge.
func Run(tb testing.TB, spec Spec, argv ...string) Result {
	tb.Helper()
	result, err := Start(tb, spec, argv...).Wait()
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

// Start begins to run a command in guests, which end with the test at the latest. It skips the test with -short, where
// guests are not Wanted, and on a machine that cannot run guests; but it does not skip a test of root where make has
// installed QEMU.
func Start(tb testing.TB, spec Spec, argv ...string) *Running {
	tb.Helper()
	script := need(tb)
	spec.Hosts = max(spec.Hosts, 1)
	if spec.Timeout == 0 {
		spec.Timeout = 5 * time.Minute
	}
	r := &Running{hosts: spec.Hosts, folder: tb.TempDir(), done: make(chan struct{})}
	r.cmd = exec.Command(script, append(r.options(spec), argv...)...)
	r.cmd.Env = append(append(os.Environ(), Wanted+"=1"), spec.Env...)
	r.cmd.Stderr = &r.stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C is for this process
	r.cmd.WaitDelay = patience                              // what is left behind could hold the output open
	input, err := r.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	r.input = input
	tb.Cleanup(func() { r.Stop(); r.Wait() })
	go r.await(spec.Timeout + patience)
	return r
}

func (r *Running) options(spec Spec) []string {
	list := []string{"--hold", "--stdio", r.folder, "--hosts", strconv.Itoa(spec.Hosts),
		"--timeout", seconds(spec.Timeout)}
	if spec.Grace != 0 {
		list = append(list, "--grace", seconds(spec.Grace))
	}
	if spec.Out != "" {
		list = append(list, "--out", spec.Out)
	}
	return append(append(list, spec.More...), "--")
}

func seconds(d time.Duration) string { return strconv.Itoa(max(1, int(d.Seconds()))) }

// await waits for the script, but not for ever: were it killed, the guests would be too.
func (r *Running) await(atMost time.Duration) {
	defer close(r.done)
	kill := time.AfterFunc(atMost, func() { r.cmd.Process.Kill() })
	defer kill.Stop()
	err := r.cmd.Wait()
	r.input.Close()
	r.result.Code = r.cmd.ProcessState.ExitCode()
	for i := range r.hosts {
		r.result.Hosts = append(r.result.Hosts, r.read(i+1))
	}
	if err == nil || r.commandsOwn() {
		return
	}
	text := strings.TrimSpace(r.stderr.String())
	if r.result.Code == timedOut {
		r.err = fmt.Errorf("%w: %s", ErrTimeout, text)
	} else {
		r.err = fmt.Errorf("%s: %w: %s", r.cmd.Path, err, text)
	}
}

// commandsOwn reports whether the code is the command's, of one guest at least.
func (r *Running) commandsOwn() bool {
	for _, h := range r.result.Hosts {
		if h.Ended && h.Code != 0 && h.Code == r.result.Code {
			return true
		}
	}
	return false
}

func (r *Running) read(host int) (h Host) {
	h.Stdout, h.Stderr = r.file(host, "stdout"), r.file(host, "stderr")
	code, err := strconv.Atoi(strings.TrimSpace(r.file(host, "status")))
	if err == nil {
		h.Ended, h.Code = true, code
	}
	return h
}

// file reads what there is; a guest that never came up has written nothing.
func (r *Running) file(host int, what string) string {
	text, err := os.ReadFile(filepath.Join(r.folder, fmt.Sprintf("h%d.%s", host, what)))
	if err != nil {
		return ""
	}
	return string(text)
}

// Stdout is what the command has printed so far in a guest.
func (r *Running) Stdout(host int) string { return r.file(host, "stdout") }

// Stop kills the guests; Wait returns when they are gone.
func (r *Running) Stop() { r.input.Close() }

// Wait waits until the command has ended in each guest. The error says why it was not run to its end; the result is
// then what is known.
func (r *Running) Wait() (Result, error) {
	<-r.done
	return r.result, r.err
}

// prepared makes the guest's kernel ready, once for all tests of this process: it may have to be downloaded, which is
// not to come out of a guest's time.
var prepared = sync.OnceValues(func() (script string, err error) {
	if script, err = proc.CheckoutFile("scripts/guest"); err != nil {
		return "", err
	}
	out, err := exec.Command(script, "--prepare").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --prepare: %w: %s", script, err, bytes.TrimSpace(out))
	}
	return script, nil
})

// need returns the path of the script, or skips the test.
func need(tb testing.TB) (script string) {
	tb.Helper()
	switch {
	case testing.Short():
		tb.Skip("boots guests, which take 5 s each")
	case os.Getenv("GUEST_HOST") != "":
		tb.Skip("runs in a guest, which boots no others")
	case os.Getenv(Wanted) == "":
		tb.Skipf("boots guests, which take 5 s each: make rdma sets %s=1 and runs it", Wanted)
	}
	script, err := prepared()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == unavailable && !required() {
		tb.Skipf("%v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return script
}

// required reports whether guests can be made here once what they need is installed, and the environment promises that
// it is.
func required() bool {
	return runtime.GOOS == "linux" && runtime.GOARCH == "amd64" && os.Getuid() == 0 && proc.Installed("qemu-system-x86")
}
