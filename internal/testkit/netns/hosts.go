package netns

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// Switch stands for the switch where a host's number is expected. Only Address, Address6 and Do take it.
const Switch = 0

// ErrUnavailable is wrapped in errors that mean: the kernel, a program or the privilege is missing.
var ErrUnavailable = errors.New("hosts cannot be made here")

// unavailable is the exit code of scripts/hosts for that.
const unavailable = 77

// patience bounds what the kernel and small programs are given; it is no claim about their speed.
const patience = 30 * time.Second

// Hosts is a set of hosts on one switch. Its methods may be called from any goroutine.
type Hosts struct {
	n      int
	script string
	base   string // the folder of scripts/hosts

	// hold is the script, which removes the hosts when its standard input ends, however this process does. nil: the
	// hosts were up before (Use).
	hold   *exec.Cmd
	input  io.Closer
	stderr *bytes.Buffer // read after hold has ended

	procs []proc.Info // the first process of each host; 0: the switch's. Not changed after Start

	mu     sync.Mutex
	jobs   []*Running // guarded by mu; Close ends them
	closed bool       // guarded by mu
}

// Package is the Debian package without which there are no hosts. Where make has installed it, their absence is a
// failure.
const Package = "iproute2"

// Up makes n hosts for a test and removes them at its end. The test is skipped where they cannot be made, but not for
// root where make has installed what they need.
func Up(tb testing.TB, n int) *Hosts {
	tb.Helper()
	h, err := Start(n)
	if errors.Is(err, ErrUnavailable) && (os.Getuid() != 0 || !proc.Installed(Package)) {
		tb.Skipf("%v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := h.Close(); err != nil {
			tb.Error(err)
		}
	})
	return h
}

// Start makes n hosts. Close removes them; so does the end of this process, in any way.
func Start(n int) (*Hosts, error) {
	script, err := proc.CheckoutFile("scripts/hosts")
	if err != nil {
		return nil, err
	}
	base, err := os.MkdirTemp("", "hosts-")
	if err != nil {
		return nil, err
	}
	h := &Hosts{n: n, script: script, base: base, stderr: new(bytes.Buffer)}
	if err := h.up(); err != nil {
		os.RemoveAll(base)
		return nil, err
	}
	if err := h.readProcesses(); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

func (h *Hosts) up() error {
	h.hold = exec.Command(h.script, "up", "-hold", strconv.Itoa(h.n), h.base)
	h.hold.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C is for this process, which ends it in good order
	h.hold.Stderr = h.stderr
	input, err := h.hold.StdinPipe()
	if err != nil {
		return err
	}
	output, err := h.hold.StdoutPipe()
	if err != nil {
		return err
	}
	if err := h.hold.Start(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	h.input = input
	if line, _ := bufio.NewReader(output).ReadString('\n'); line == "up\n" {
		return nil
	}
	input.Close()
	err = h.hold.Wait()
	text := strings.TrimSpace(h.stderr.String())
	if h.hold.ProcessState.ExitCode() == unavailable {
		return fmt.Errorf("%w: %s", ErrUnavailable, text)
	}
	return fmt.Errorf("%s up %d: %w: %s", h.script, h.n, err, text)
}

// readProcesses reads what the script wrote: a line "pid start name" for each process.
func (h *Hosts) readProcesses() error {
	text, err := os.ReadFile(filepath.Join(h.base, "pids"))
	if err != nil {
		return err
	}
	h.procs = make([]proc.Info, h.n+1)
	for line := range strings.Lines(string(text)) {
		var p proc.Info
		var name string
		if _, err := fmt.Sscan(line, &p.PID, &p.Start, &name); err != nil {
			return fmt.Errorf("%s/pids: %q: %w", h.base, line, err)
		}
		if i, err := strconv.Atoi(strings.TrimPrefix(name, "h")); err == nil && i >= 1 && i <= h.n {
			h.procs[i] = p
		} else if name == "switch" {
			h.procs[Switch] = p
		}
	}
	return nil
}

// Close ends what runs on the hosts and removes them, if they are its own. Calls after the first do nothing.
func (h *Hosts) Close() error {
	h.mu.Lock()
	jobs, again := h.jobs, h.closed
	h.closed = true
	h.mu.Unlock()
	if again {
		return nil
	}
	for _, r := range jobs {
		r.Stop()
		r.Wait()
	}
	if h.hold == nil {
		return nil
	}
	h.input.Close()
	ended := make(chan error, 1)
	go func() { ended <- h.hold.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("removing the hosts in %s: %w: %s", h.base, err, strings.TrimSpace(h.stderr.String()))
		}
	case <-time.After(patience):
		return fmt.Errorf("the hosts in %s are not removed after %v; try %s down %s", h.base, patience, h.script, h.base)
	}
	return os.RemoveAll(h.base)
}

// Count is how many hosts there are.
func (h *Hosts) Count() int { return h.n }

// Address is a host's IPv4 address.
func (h *Hosts) Address(host int) netip.Addr {
	if host == Switch {
		host = 254
	}
	return netip.AddrFrom4([4]byte{10, 77, 0, byte(host)})
}

// Address6 is a host's IPv6 address. No host has it where the kernel has no IPv6.
func (h *Hosts) Address6(host int) netip.Addr {
	if host == Switch {
		host = 254
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(host)})
}

// Command is a program that will run on a host, in this folder, with this process's environment unless Env is set. It
// is in a process group of its own with the nsenter that is its parent: KillGroup ends both. Processes that it leaves
// behind end with the host.
func (h *Hosts) Command(host int, name string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append(h.entering(host), append([]string{name}, args...)...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = patience // a child that is left behind may hold the output open
	if !h.procs[host].Alive() {
		cmd.Err = fmt.Errorf("host h%d has crashed or is switched off", host)
	}
	return cmd
}

func (h *Hosts) entering(host int) []string {
	pid := strconv.Itoa(h.procs[host].PID)
	if host == Switch {
		return []string{"-t", pid, "-n", "-m", "--wd=" + workingFolder(), "--"}
	}
	return []string{"-t", pid, "-n", "-u", "-i", "-p", "-m", "--wd=" + workingFolder(), "--"}
}

func workingFolder() string {
	dir, err := os.Getwd()
	if err != nil {
		return "/"
	}
	return dir
}

// KillGroup ends a command of Command that has been started, with all in its process group.
func KillGroup(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// Listen makes a TCP listener at the switch, on its IPv4 address.
func (h *Hosts) Listen() (net.Listener, error) { return h.listen(h.Address(Switch)) }

// Listen6 is Listen on the IPv6 address.
func (h *Hosts) Listen6() (net.Listener, error) { return h.listen(h.Address6(Switch)) }

func (h *Hosts) listen(at netip.Addr) (ln net.Listener, err error) {
	err = h.Do(Switch, func() error {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
		return err
	})
	return ln, err
}
