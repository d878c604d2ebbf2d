package launcher

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/stdio"
	"golang.org/x/term"
)

// started is what the supervisor hears from startRanks: a rank that runs, or that no more are started.
type started struct {
	rank int
	last bool
	err  error // with last: why a rank could not be started
}

// startError is a rank that could not be started.
type startError struct {
	name string // of the rank
	path string
	err  error
}

func (e *startError) Error() string {
	text := fmt.Sprintf("%s cannot be started: %s: %v", e.name, e.path, e.err)
	switch {
	case errors.Is(e.err, syscall.EMFILE), errors.Is(e.err, syscall.ENFILE):
		text += "; this host has no file descriptors for so many ranks: raise ulimit -n, or start fewer"
	case errors.Is(e.err, syscall.EAGAIN), errors.Is(e.err, syscall.ENOMEM):
		text += "; this host has no room for so many processes: raise ulimit -u and pids.max, or start fewer ranks"
	}
	return text
}
func (e *startError) Unwrap() error { return e.err }

func (j *Job) wrapStart(s *procs.Spec, err error) error {
	if err == nil {
		return nil
	}
	return &startError{j.titled(procs.Exit{Rank: s.Rank}).Name(), s.Path, err}
}

func startCode(err error) int {
	var dir *dirError
	switch {
	case errors.As(err, &dir):
		return CodeUsage
	case errors.Is(err, os.ErrNotExist):
		return CodeNotFound
	}
	return CodeCannotStart
}

// startRanks starts the ranks in turn, until stop is set. It has a goroutine of its own: each start takes a millisecond
// or more, and the executable or a file of --output-dir may be where opening it takes for ever.
func (r *run) startRanks() {
	r.starts <- started{last: true, err: r.openAndStart()}
}

func (r *run) openAndStart() error {
	if r.job.OutputDir != "" {
		if err := os.MkdirAll(r.job.OutputDir, 0o777); err != nil {
			return fmt.Errorf("--output-dir: %v", err) // not wrapped: CodeNotFound is for programs
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	inputs, err := r.openInputs(null)
	if err != nil {
		return err
	}
	defer closeAll(inputs, null, r.job.Stdin)
	for i := range r.plan.Specs {
		if r.stop.Load() {
			return nil
		}
		if err := r.startRank(&r.plan.Specs[i], inputs[i]); err != nil {
			return err
		}
	}
	return nil
}

// startInput feeds the standard input to the ranks that get it through pipes, and to the agents of others, when all of
// them have been started. It runs on the supervisor.
func (r *run) startInput() {
	near, err := r.fleet.openInputs()
	if err == nil {
		err = r.streams.Feed(r.job.Stdin, near)
	}
	if err != nil {
		r.cannotStart(err, CodeCannotStart)
		return
	}
	r.streams.StartInput()
}

func closeAll(files []*os.File, but ...*os.File) {
next:
	for _, f := range files {
		for _, b := range but {
			if f == b {
				continue next
			}
		}
		f.Close()
	}
}

// openInputs returns descriptor 0 of each rank. Pipes are fed from the standard input when all ranks have started.
func (r *run) openInputs(null *os.File) ([]*os.File, error) {
	inputs := make([]*os.File, len(r.plan.Specs))
	var near []*os.File
	for i := range inputs {
		inputs[i] = null
		if r.job.Stdin == nil || !(r.plan.stdins.all || r.plan.stdins.rank == r.plan.Specs[i].Rank) {
			continue
		}
		if !r.plan.stdins.all && !term.IsTerminal(int(r.job.Stdin.Fd())) {
			// Handed over as it is: nothing is read unless the rank reads it.
			if _, err := r.job.Stdin.Stat(); err == nil {
				inputs[i] = r.job.Stdin
			}
			continue
		}
		read, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		inputs[i], near = read, append(near, write)
	}
	return inputs, r.streams.Feed(r.job.Stdin, near)
}

func (r *run) startRank(s *procs.Spec, stdin *os.File) error {
	near, far, err := procs.ControlPair()
	if err != nil {
		return r.job.wrapStart(s, err)
	}
	defer far.Close()
	s.Stdin, s.Control = stdin, far
	s.Env = append(s.Env, pmi.EnvJob+"="+r.server.Name())
	st := r.ranks[s.Rank] // its end may be reported before Start returns
	st.judged = make(chan struct{})
	own, err := r.openOutput(s)
	defer closeAll(own)
	if err != nil || r.stop.Load() {
		near.Close()
		return r.job.wrapStart(s, err)
	}
	st.conn, st.served = near, make(chan struct{})
	if st.pid, err = r.backend.Start(s); err != nil {
		near.Close()
		return r.job.wrapStart(s, err)
	}
	go func() {
		defer close(st.served)
		r.server.ServeConn(s.Rank, near)
	}()
	r.starts <- started{rank: s.Rank}
	return nil
}

// openOutput sets descriptors 1 and 2 of a rank and returns those that must be closed here after the start.
func (r *run) openOutput(s *procs.Spec) (own []*os.File, err error) {
	if r.job.OutputDir != "" {
		if s.Stdout, s.Stderr, err = stdio.Files(r.job.OutputDir, r.job.fileName(s.Rank), r.job.MergeStderr); err != nil {
			return nil, err
		}
		return []*os.File{s.Stdout, s.Stderr}, nil
	}
	if len(r.plan.Specs) == 1 && !r.job.TagOutput && !r.job.Timestamp && r.parent == nil && r.spawned == nil {
		s.Stdout, s.Stderr = r.job.Stdout, r.job.Stderr // there is no other rank's output
		if r.job.MergeStderr {
			s.Stderr = s.Stdout
		}
		return nil, nil
	}
	e := r.job.titled(procs.Exit{Rank: s.Rank})
	from := stdio.Source{Rank: e.Number(), Spawn: e.Spawn, Host: r.hostOf(s.Rank), Tag: r.job.TagOutput,
		Time: r.job.Timestamp, Ended: r.ranks[s.Rank].judged}
	if s.Stdout, err = r.streams.AddStdout(from); err != nil {
		return nil, err
	}
	if r.job.MergeStderr {
		s.Stderr = s.Stdout
		return []*os.File{s.Stdout}, nil
	}
	if s.Stderr, err = r.streams.AddStderr(from); err != nil {
		return []*os.File{s.Stdout}, err
	}
	return []*os.File{s.Stdout, s.Stderr}, nil
}
