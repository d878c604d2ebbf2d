// Command hostrun runs a program on hosts that it makes for it (scripts/hosts), and removes them: for measurements
// (make compare) and trials by hand.
//
//	hostrun -hosts 2 -ppn 1 [-pin] [-x NAME=VALUE]... [-fault "3s link h2 down; 8s link h2 up"] -- prog args...
//	hostrun -hosts 2 -mpi openmpi|mpich [-ppn 1] -- prog args...
//	hostrun -base DIR ...
//
// With -base it uses the hosts of `scripts/hosts up N DIR`, all of them, and leaves them there.
//
// A program of this module gets its wire-up from here, at the switch; one of another MPI from that MPI's own mpirun. A
// fault is the time after the start and what `scripts/hosts fault` takes. The exit code is the code of the rank that
// failed first.
//
//	Owns:     the hosts that it has made, and the job on them
//	May call: internal/testkit/netns, the mpirun of other MPIs
//	Never:    leave hosts behind that it has made; be imported
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/netns"
)

type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

type fault struct {
	after time.Duration
	args  []string
}

func parseFaults(text string) (faults []fault, err error) {
	for _, part := range strings.Split(text, ";") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		after, err := time.ParseDuration(words[0])
		if err != nil || after < 0 || len(words) < 3 {
			return nil, fmt.Errorf("-fault: %q is no time and fault; use for example \"3s link h2 down\"",
				strings.TrimSpace(part))
		}
		faults = append(faults, fault{after, words[1:]})
	}
	return faults, nil
}

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostrun:", err)
		code = max(code, 1)
	}
	if errors.Is(err, netns.ErrUnavailable) {
		code = 77
	}
	os.Exit(code)
}

func run() (int, error) {
	var env list
	n := flag.Int("hosts", 2, "how many hosts")
	base := flag.String("base", "", "use the hosts that are up in this `folder`, and leave them")
	ppn := flag.Int("ppn", 1, "ranks on each host")
	pin := flag.Bool("pin", false, "each rank runs on a core of its own, or on its host's part of too few cores")
	mpi := flag.String("mpi", "",
		"start a C program by the mpirun of openmpi or mpich, pinned as by -pin")
	script := flag.String("fault", "", "faults: `TIME VERB ARGS; ...`")
	flag.Var(&env, "x", "`NAME=VALUE` for the ranks; may be given again")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		return 2, errors.New("which program?")
	}
	faults, err := parseFaults(*script)
	if err != nil {
		return 2, err
	}
	prog, err := exec.LookPath(flag.Arg(0))
	if err != nil {
		return 127, err
	}
	h, err := hostsFor(*base, *n)
	if err != nil {
		return 1, err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	for _, f := range faults {
		time.AfterFunc(f.after, func() {
			if err := h.Fault(f.args...); err != nil {
				fmt.Fprintln(os.Stderr, "hostrun:", err)
			}
		})
	}
	var code int
	if *mpi != "" {
		code, err = runPeer(h, *mpi, *ppn, env, append([]string{prog}, flag.Args()[1:]...), stop)
	} else {
		code, err = runOurs(h, netns.Job{PPN: *ppn, Program: prog, Args: flag.Args()[1:], Env: env, Pin: *pin,
			Stdout: os.Stdout, Stderr: os.Stderr}, stop)
	}
	return code, errors.Join(err, h.Close())
}

func hostsFor(base string, n int) (*netns.Hosts, error) {
	if base != "" {
		return netns.Use(base)
	}
	return netns.Start(n)
}

func runOurs(h *netns.Hosts, job netns.Job, stop <-chan os.Signal) (int, error) {
	r, err := h.Run(job)
	if err != nil {
		return 1, err
	}
	go func() { <-stop; r.Stop() }()
	for i, code := range r.Wait() {
		if code != 0 {
			fmt.Fprintf(os.Stderr, "hostrun: rank %d on h%d has ended with code %d\n", i, r.Host(i), code)
		}
	}
	return r.Code(), nil
}

func runPeer(h *netns.Hosts, mpi string, ppn int, env, prog []string, stop <-chan os.Signal) (int, error) {
	cmd, err := h.Mpirun(mpi, ppn, prog...)
	if err != nil {
		return 2, err
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() { <-stop; netns.KillGroup(cmd) }()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}
