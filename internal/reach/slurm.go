package reach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Slurm is the way to the hosts of an allocation: one srun starts all agents. It mixes what they print, so they dial.
// Their call goes through srun's standard input, which reaches all of them, and ends with gorun.
type Slurm struct {
	opt      SlurmOptions
	begin    func() error // starts srun, once
	acceptor *Acceptor    // set by begin
	srun     *process     // set by begin; nil: it has not been started
	closed   atomic.Bool  // begin starts nothing any more
}

// SlurmOptions of a Slurm.
type SlurmOptions struct {
	Self    *Self
	Hosts   []string      // of the job, as Slurm names them
	Environ []string      // gorun's
	Limit   time.Duration // for all agents to come
	Survive bool          // an agent or a host that is lost does not end the others
	// Say gets each error that srun prints, and what Slurm and agents print by way of it, such as why a step ends.
	Say func(line string)
	Log func(msg string, args ...any) // gets whole sentences about the port
}

// NewSlurm starts nothing before the first Open.
func NewSlurm(o SlurmOptions) *Slurm {
	s := &Slurm{opt: o}
	s.begin = sync.OnceValue(s.start)
	return s
}

// Open is Reach's.
func (s *Slurm) Open(ctx context.Context, host string) (*Edge, error) {
	if err := s.begin(); err != nil {
		return nil, &Error{Err: err, Final: true}
	}
	e, err := s.acceptor.Open(ctx, host)
	if err == nil {
		e.why = func() string { return "the connection has ended" + colon(s.srun.why()) }
	}
	return e, err
}

func (s *Slurm) start() error {
	if s.closed.Load() {
		return errors.New("the job ends")
	}
	path, err := exec.LookPath("srun")
	if err != nil {
		return fmt.Errorf("this is a Slurm allocation, and srun is not found, which starts agents there: %w; "+
			"put it into PATH, or name a remote shell with --launch-agent ssh", err)
	}
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	ln, err := config.Listen(context.Background(), "tcp", ":0")
	if err != nil {
		return fmt.Errorf("the port that agents dial: %w", err)
	}
	call := NewCall("slurm", s.opt.Self.Build, ownAddresses(ln))
	s.acceptor = Listen(ln, AcceptorOptions{Call: call, Hosts: s.opt.Hosts, Limit: s.opt.Limit, Log: s.opt.Log})
	n := strconv.Itoa(len(s.opt.Hosts))
	words := []string{"-N", n, "-n", n, "--ntasks-per-node=1", "-w", strings.Join(s.opt.Hosts, ","), "--overlap",
		"--mpi=none", "--cpu-bind=none", "--export=NONE", "--chdir=/", "--quiet"}
	if s.opt.Survive {
		words = append(words, "--kill-on-bad-exit=0", "--no-kill")
	} else {
		words = append(words, "--kill-on-bad-exit=1")
	}
	words = append(append(words, s.opt.Self.Path), s.opt.Self.words(Dialling)...)
	p := &process{ended: make(chan struct{}), cmd: exec.Command(path, words...)}
	p.cmd.Env = srunEnviron(s.opt.Environ)
	p.cmd.Stderr = &liner{say: func(line string) {
		if strings.HasPrefix(line, "srun: ") && !strings.Contains(line, "error") {
			return // that a cluster cannot bind, for example
		}
		io.WriteString(&p.words, line+"\n")
		s.opt.Say(line)
	}}
	if err := p.start(syscall.SIGTERM); err != nil { // srun ends the step then
		s.acceptor.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	s.srun = p
	go io.Copy(&p.words, p.lines)
	go p.in.Write(call.encode()) // a pipe takes it
	go func() {
		<-p.ended
		s.acceptor.Fail(s.endError())
	}()
	return nil
}

// endError says why srun has ended.
func (s *Slurm) endError() error {
	hint := ""
	switch text := s.srun.words.String(); {
	case s.srun.cmd.ProcessState.ExitCode() == otherBuild:
		hint = "gorun at " + s.opt.Self.Path + " is another build on some host: it must be the same on all. "
	case strings.Contains(text, "execve()"):
		hint = "gorun must be at the same path on all hosts of the allocation. "
	}
	return errors.New(hint + "srun: " + s.srun.why())
}

// Close ends the step if it has not ended, also one that is just being started.
func (s *Slurm) Close() {
	s.closed.Store(true)
	begun := make(chan struct{})
	go func() {
		s.begin()
		close(begun)
	}()
	select {
	case <-begun:
	case <-time.After(ending): // its file system does not answer, for example; srun ends with gorun
		return
	}
	p := s.srun
	if p == nil {
		return
	}
	s.acceptor.Close()
	p.in.Close()
	for _, sig := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGKILL} {
		if sig != 0 {
			syscall.Kill(-p.cmd.Process.Pid, sig)
		}
		select {
		case <-p.ended:
			p.out.Close()
			return
		case <-time.After(ending):
		}
	}
}

// ending is how long srun may take for a step of its end. Tests have another.
var ending = 2 * time.Second

// guidance is the variables that tell Slurm's commands where the cluster and the allocation are. The others are
// options of srun's: those of the job are for its ranks, and not for one agent on each host.
var guidance = []string{"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTERS",
	"SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER", "SLURM_NODE_ALIASES", "SLURM_JWT"}

func srunEnviron(gorun []string) []string {
	return slices.DeleteFunc(slices.Clone(gorun), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		option := strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "SRUN_")
		return option && !slices.Contains(guidance, name)
	})
}

// ownAddresses is what this host may be reached by at the port of a listener; loopback where there is nothing else.
func ownAddresses(ln net.Listener) []string {
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		panic(err) // of TCP
	}
	var out []string
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && len(out) < maxAddrs-2 {
			out = append(out, net.JoinHostPort(n.IP.String(), port))
		}
	}
	return append(out, net.JoinHostPort("127.0.0.1", port))
}
