package launcher

import (
	"sync"
	"sync/atomic"
)

// streams are the standard streams of all ranks and where they lead. What is set by init stays.
type streams struct {
	stdout, stderr *outlet     // the same if both are one file
	broken         chan error  // one of them cannot be written
	alike          *alike      // shared with each stream
	hold, ending   atomic.Bool // of every stream

	mu     sync.Mutex
	all    []*stream // guarded by mu
	feeder *feeder   // guarded by mu; nil: none is needed
}

func (s *streams) init(j *Job) {
	s.broken = make(chan error, 2)
	s.initTo(newOutlets(j.Stdout, j.Stderr, func(err error) { s.broken <- err }))
}

func (s *streams) initTo(stdout, stderr *outlet) {
	s.alike = newAlike()
	s.stdout, s.stderr = stdout, stderr
}

// outlets are stdout and stderr, or the one that both are.
func (s *streams) outlets() []*outlet {
	if s.stdout == s.stderr {
		return []*outlet{s.stdout}
	}
	return []*outlet{s.stdout, s.stderr}
}

func (s *streams) add(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, st)
}

func (s *streams) feed(f *feeder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeder = f
}

// made returns the streams and the feeder that there are.
func (s *streams) made() ([]*stream, *feeder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all, s.feeder
}
