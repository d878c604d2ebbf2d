package main

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	hostsScript  = "scripts/hosts"
	hostsTimeout = 30 * time.Second // of their removal
	// exitUnavailable is the exit code of hostsScript and guestScript where the kernel, a program or the privilege is
	// missing.
	exitUnavailable = 77
	// socketAddress is where the first rank of the bare socket listens: on h1, where no other program listens.
	socketAddress = "10.77.0.1:7071"
)

// makeHosts makes the hosts and the libraries that run on them.
func (b *testbed) makeHosts() ([]library, error) {
	h, err := hostsUp(filepath.Join(b.dir, "hosts"))
	if err != nil {
		return nil, err
	}
	b.hosts = h
	return librariesOnHosts(b.local, buildBare(b.ctx, bareSocket, b.dir, "socket", "taskset", nil), h.base), nil
}

// librariesOnHosts are the libraries as they run on the hosts that are up in base.
func librariesOnHosts(local []library, socket library, base string) []library {
	hostrun := []string{filepath.Join(local[0].dir, "hostrun"), "-base", base}
	with := func(l library, name string, words ...string) library {
		l.name, l.base = name, base
		l.launch = func(ranks int, program string) []string {
			return slices.Concat(hostrun, onHosts(ranks, words), []string{"--", program})
		}
		return l
	}
	socket.base = base
	socket.launch = func(_ int, program string) []string {
		dir, what := filepath.Split(program)
		return slices.Concat(hostrun, []string{"-pin", "--", dir + "socket", what, socketAddress})
	}
	return []library{
		with(local[0], gorun, "-pin"), with(local[1], openMPI, "-mpi", "openmpi"),
		with(local[2], mpich, "-mpi", "mpich"), socket,
		with(local[0], gorunPlain, "-pin"), with(local[0], gorunTLS, "-pin", "-x", "GORUN_TCP_TLS=1"),
	}
}

// onHosts are the words for so many ranks.
func onHosts(ranks int, words []string) []string {
	if ranks > 2 {
		words = append(slices.Clone(words), "-ppn", strconv.Itoa(ranks/2))
	}
	return words
}

// hosts are two hosts. The script that made them removes them when it reads the end of its input, which comes with the
// end of this process at the latest.
type hosts struct {
	base   string
	script *exec.Cmd
	input  io.Closer
	stderr strings.Builder // of the script; read after it has ended

	before map[int]bool // the processes that were there before them
}

func hostsUp(base string) (*hosts, error) {
	h := &hosts{base: base, before: descendants(), script: exec.Command(hostsScript, "up", "-hold", "2", base)}
	h.script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this process alone
	h.script.Stderr = &h.stderr
	input, err := h.script.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := h.script.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.script.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	h.input = input
	if line, _ := bufio.NewReader(output).ReadString('\n'); line == "up\n" {
		awaitDescendants()
		return h, nil
	}
	input.Close()
	err = h.script.Wait()
	why := strings.TrimPrefix(firstLine(h.stderr.String()), "hosts: ")
	if h.script.ProcessState.ExitCode() == exitUnavailable {
		return nil, fmt.Errorf("%w: %s", errUnavailable, why)
	}
	return nil, fmt.Errorf("%s: %w: %s", hostsScript, err, why)
}

// awaitDescendants waits until the hosts' own processes are all there: what comes later is taken for a run's, and
// killed.
func awaitDescendants() {
	before := -1
	for until := time.Now().Add(grace); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		now := len(descendants())
		if now == before {
			return
		}
		before = now
	}
}

func (h *hosts) close() error {
	h.input.Close()
	ended := make(chan error, 1)
	go func() { ended <- h.script.Wait() }()
	select {
	case err := <-ended:
		killDescendants(h.script.Process.Pid, h.before) // dead children of it, which this process has inherited
		if err != nil {
			return fmt.Errorf("removing the hosts in %s: %w: %s", h.base, err, firstLine(h.stderr.String()))
		}
		return nil
	case <-time.After(hostsTimeout):
		return fmt.Errorf("the hosts in %s are not removed after %v; try %s down %s",
			h.base, hostsTimeout, hostsScript, h.base)
	}
}
