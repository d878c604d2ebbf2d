package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stage is where measurements are made: this host, two others that are made for the first one that wants them, and guests.
type stage struct {
	ctx   context.Context
	dir   string // for the programs and the hosts
	local []library

	pair  []library // those between the hosts; nil: not made yet
	hosts *hosts
	none  error // why there can be no hosts

	guest guests
}

// These mean: measurements between hosts, or in a guest, cannot be made here. That is no failure.
var (
	errNoHosts = errors.New("there can be no hosts here")
	errNoGuest = errors.New("there can be no guest here")
)

func leftOut(err error) bool { return errors.Is(err, errNoHosts) || errors.Is(err, errNoGuest) }

// lineup is the libraries of a measurement in the order of the plan.
func (s *stage) lineup(m measurement) (lineup []library, err error) {
	from := s.local
	switch {
	case m.hosts:
		from, err = s.between()
	case m.guest:
		from, err = s.inGuest()
	}
	if err != nil {
		return nil, err
	}
	for _, name := range m.lineup {
		i := slices.IndexFunc(from, func(l library) bool { return l.name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s: nobody is called %q", m.name, name)
		}
		lineup = append(lineup, from[i])
	}
	return lineup, nil
}

// between makes the hosts and the libraries that run on them, once.
func (s *stage) between() ([]library, error) {
	if s.pair != nil || s.none != nil {
		return s.pair, s.none
	}
	h, err := hostsUp(filepath.Join(s.dir, "hosts"))
	if err != nil {
		s.none = err
		return nil, err
	}
	s.hosts = h
	socket := library{name: bareSocket, dir: filepath.Join(s.dir, "socket")}
	if socket.absent = socket.compile(s.ctx, [2]string{"cc", "taskset"}, map[string]bool{"socket": true}); socket.absent == "" {
		socket.absent = socket.broken["socket"]
	}
	s.pair = onHosts(s.local, socket, h.base)
	return s.pair, nil
}

// socketAddress is where the first rank of the bare socket listens: on h1, whose ports nobody else uses.
const socketAddress = "10.77.0.1:7071"

// onHosts are the libraries as they run on the hosts that are up in base.
func onHosts(local []library, socket library, base string) []library {
	hostrun := []string{filepath.Join(local[0].dir, "hostrun"), "-base", base}
	with := func(l library, name string, words ...string) library {
		l.name, l.base = name, base
		l.launch = func(_ int, program string) []string { return slices.Concat(hostrun, words, []string{"--", program}) }
		return l
	}
	socket.base = base
	socket.launch = func(_ int, program string) []string {
		dir, what := filepath.Split(program)
		return slices.Concat(hostrun, []string{"-pin", "--", dir + "socket", what, socketAddress})
	}
	return []library{
		with(local[0], gorun, "-pin"), with(local[1], openMPI, "-mpi", "openmpi"), with(local[2], mpich, "-mpi", "mpich"),
		socket, with(local[0], gorunPlain, "-pin"), with(local[0], gorunTLS, "-pin", "-x", "GORUN_TCP_TLS=1"),
	}
}

// asByHand is a command with hosts of its own in the place of ours, which are gone when somebody reads it.
func (l library) asByHand(command string) string {
	if l.base == "" {
		return command
	}
	return strings.Replace(command, "-base "+l.base, "-hosts 2", 1)
}

func (s *stage) close() {
	if s.hosts == nil {
		return
	}
	if err := s.hosts.close(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
	}
}

// hosts are two hosts. The script that made them removes them when it reads the end of its input, which comes with the
// end of this process at the latest.
type hosts struct {
	base  string
	hold  *exec.Cmd
	input io.Closer
	said  strings.Builder // read after hold has ended

	before map[int]bool // who was there before them
}

const (
	hostsScript   = "scripts/hosts"
	hostsPatience = 30 * time.Second
	// notHere is the exit code of this script and of guestScript where the kernel, a program or the privilege is missing.
	notHere = 77
)

func hostsUp(base string) (*hosts, error) {
	h := &hosts{base: base, before: family(), hold: exec.Command(hostsScript, "up", "-hold", "2", base)}
	h.hold.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us
	h.hold.Stderr = &h.said
	input, err := h.hold.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := h.hold.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.hold.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoHosts, err)
	}
	h.input = input
	if line, _ := bufio.NewReader(output).ReadString('\n'); line == "up\n" {
		settle()
		return h, nil
	}
	input.Close()
	err = h.hold.Wait()
	why := strings.TrimPrefix(firstLine(h.said.String()), "hosts: ")
	if h.hold.ProcessState.ExitCode() == notHere {
		return nil, fmt.Errorf("%w: %s", errNoHosts, why)
	}
	return nil, fmt.Errorf("%s: %w: %s", hostsScript, err, why)
}

// settle waits until the hosts' own processes are all there: what comes later is taken for a run's, and killed.
func settle() {
	before := -1
	for until := time.Now().Add(grace); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		now := len(family())
		if now == before {
			return
		}
		before = now
	}
}

func (h *hosts) close() error {
	h.input.Close()
	ended := make(chan error, 1)
	go func() { ended <- h.hold.Wait() }()
	select {
	case err := <-ended:
		endFamily(h.hold.Process.Pid, h.before) // dead children of it, which are ours now
		if err != nil {
			return fmt.Errorf("removing the hosts in %s: %w: %s", h.base, err, firstLine(h.said.String()))
		}
		return nil
	case <-time.After(hostsPatience):
		return fmt.Errorf("the hosts in %s are not removed after %v; try %s down %s", h.base, hostsPatience, hostsScript, h.base)
	}
}
