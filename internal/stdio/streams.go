package stdio

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// Streams are the standard streams of all ranks of a host, and where they lead.
type Streams struct {
	Stdout, Stderr *Outlet      // the same if both are one file
	Broken         <-chan error // an outlet cannot be written

	dedup  *dedup      // shared with each stream
	ending atomic.Bool // of every stream

	mu     sync.Mutex
	all    []*stream // guarded by mu
	feeder *feeder   // guarded by mu; nil: none is needed
}

// New makes the Streams that lead to two files.
func New(stdout, stderr *os.File) *Streams {
	broken := make(chan error, 2)
	s := NewTo(newOutlets(stdout, stderr, func(err error) { broken <- err }))
	s.Broken = broken
	return s
}

// NewTo makes the Streams that lead to two outlets, or to one.
func NewTo(stdout, stderr *Outlet) *Streams {
	return &Streams{Stdout: stdout, Stderr: stderr, dedup: newDedup()}
}

// Outlets returns Stdout and Stderr, or the one that both are.
func (s *Streams) Outlets() []*Outlet {
	if s.Stdout == s.Stderr {
		return []*Outlet{s.Stdout}
	}
	return []*Outlet{s.Stdout, s.Stderr}
}

// Source is the rank that a stream comes from.
type Source struct {
	Rank  int
	Spawn int             // the number of the spawned job whose rank it is; 0: the first job
	Host  string          // as the user should read it
	Tag   bool            // [rank] is before each line
	Time  bool            // the time is before each line, and before the tag
	Ended <-chan struct{} // closed when the supervisor has judged the end of the rank
}

// AddStdout carries the standard output of a rank, and returns the end of the pipe that the rank writes to.
func (s *Streams) AddStdout(from Source) (far *os.File, err error) { return s.add(from, s.Stdout, nil) }

// AddStderr is AddStdout of the standard error. If the job fails, text that several ranks write is shown once.
func (s *Streams) AddStderr(from Source) (far *os.File, err error) {
	return s.add(from, s.Stderr, s.dedup)
}

func (s *Streams) add(from Source, to *Outlet, d *dedup) (*os.File, error) {
	near, far, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	st := &stream{
		from: near, to: to, time: from.Time, done: make(chan struct{}), ending: &s.ending,
		dedup: dedupStream{of: d, rank: from.Rank, ended: from.Ended},
	}
	if from.Tag {
		st.tag = tagOf(from, to.coloured)
	}
	s.mu.Lock()
	s.all = append(s.all, st)
	s.mu.Unlock()
	go st.pump()
	return far, nil
}

// Fail says that the job begins to fail.
func (s *Streams) Fail() { s.dedup.fail() }

// Summary returns lines that name the ranks whose text was left out, since another rank had written it.
func (s *Streams) Summary() []string { return s.dedup.summary() }

// Drain waits until all output of the ranks is in the outlets.
func (s *Streams) Drain() {
	for _, st := range s.started() {
		<-st.done
	}
}

// GiveUp ends the streams of ranks that have ended, once they are silent: another process may hold them open.
func (s *Streams) GiveUp() {
	s.ending.Store(true)
	for _, st := range s.started() {
		st.end()
	}
}

func (s *Streams) started() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Feed adds pipes through which the input from a file goes. It is called before StartInput.
func (s *Streams) Feed(from *os.File, to []*os.File) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(to) == 0:
	case s.feeder == nil:
		s.feeder, err = newFeeder(from, to)
	default:
		s.feeder.to = append(s.feeder.to, to...)
	}
	return err
}

// StartInput begins to feed the input.
func (s *Streams) StartInput() {
	if f := s.input(); f != nil {
		f.start()
	}
}

// StopInput feeds no more and closes the pipes. It may be called again, and without StartInput.
func (s *Streams) StopInput() {
	if f := s.input(); f != nil {
		f.stop()
	}
}

func (s *Streams) input() *feeder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feeder
}

// Files makes the files of --output-dir for one rank, with names that begin so: one file if they are merged.
func Files(dir, name string, merge bool) (stdout, stderr *os.File, err error) {
	base := filepath.Join(dir, name)
	stdout, err = os.Create(base + ".out")
	if err != nil {
		return nil, nil, err
	}
	if merge {
		return stdout, stdout, nil
	}
	stderr, err = os.Create(base + ".err")
	if err != nil {
		stdout.Close()
		return nil, nil, err
	}
	return stdout, stderr, nil
}
