package rank0

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// Job is what all of its ranks know.
type Job struct {
	Rank, Size  int
	Local       int    // ranks on this host; 0: not known
	Name        string // of the job
	Launcher    string // for messages
	Key         []byte // which all ranks have; 32 bytes
	PeerTimeout time.Duration
	With        io.Closer // at rank 0, what is closed with the server; nil: nothing
	// Survive: the other ranks are told of one that fails, and go on. Else its end is the end of the job.
	Survive bool
	Warn    func(msg string, args ...any)
}

// Member is a rank's client, and at rank 0 the server too.
type Member struct {
	*pmi.Client
	job    Job
	server *pmi.Server // nil: another rank has it
	once   sync.Once
	quit   chan struct{} // closed by Close
	done   chan struct{} // closed when all ranks have finalized, or the job has failed
	failed error         // why it has; written before done is closed
}

// Lead joins as rank 0 and serves the others, which dial ln. It owns ln.
func Lead(ctx context.Context, ln net.Listener, j Job) (*Member, error) {
	s := pmi.NewServer(j.Size, pmi.Options{Name: j.Name, Mapping: pmi.NoMapping, Key: j.Key, PeerTimeout: j.PeerTimeout,
		Survive: j.Survive, Log: j.Warn})
	s.Listen(ln)
	m := &Member{job: j, server: s, quit: make(chan struct{}), done: make(chan struct{})}
	go m.watch()
	c, err := s.Join(ctx, 0, j.Launcher)
	if err != nil {
		close(m.quit)
		s.Close()
		return nil, err
	}
	m.Client = c
	return m, nil
}

// Follow joins as another rank.
func Follow(ctx context.Context, addr string, j Job) (*Member, error) {
	c, err := pmi.Dial(ctx, pmi.Address{Addr: addr, Rank: j.Rank, Key: j.Key, Job: j.Name, Launcher: j.Launcher,
		PeerTimeout: j.PeerTimeout})
	if err != nil {
		return nil, err
	}
	return &Member{Client: c, job: j}, nil
}

// turnedAwayFor is how long an address is tried again that closes the connection: too many may be open there.
const turnedAwayFor = 5 * time.Second

// FollowAny is Follow where rank 0 may be at any of some addresses, the most promising first.
func FollowAny(ctx context.Context, addrs []string, j Job) (*Member, error) {
	m, won, errs := auth.Race(ctx, len(addrs), func(trying context.Context, i int) (m *Member, err error) {
		err = auth.Retry(trying, turnedAwayFor, func() error {
			m, err = Follow(trying, addrs[i], j)
			return err
		})
		return m, err
	}, func(m *Member) { m.Close() })
	if won {
		return m, nil
	}
	err := errors.New("no address of it can be reached from this host")
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	for _, e := range errs {
		err = fmt.Errorf("%w; %w", err, e)
	}
	return nil, fmt.Errorf("rank %d does not reach rank 0: %w", j.Rank, err)
}

// watch ends the job when a rank fails. The ranks notice the end of their connections.
func (m *Member) watch() {
	defer close(m.done)
	for left := m.job.Size; left > 0; {
		var e pmi.Event
		select {
		case e = <-m.server.Events():
		case <-m.quit:
			return
		}
		switch {
		case e.Kind == pmi.EventAbort:
			m.failed = fmt.Errorf("rank %d has aborted the job", e.Rank)
		case e.Kind != pmi.EventClosed:
			continue
		case m.server.State(e.Rank).Finalized:
			left--
			continue
		case m.job.Survive:
			left--
			m.server.Gone(e.Rank)
			continue
		default:
			m.failed = fmt.Errorf("rank %d has ended without Finalize", e.Rank)
		}
		m.job.Warn("the job ends", "rank", e.Rank, "since", m.failed)
		m.server.Close()
		return
	}
}

// LocalSize is the number of ranks on this host; 0: not known.
func (m *Member) LocalSize() int { return m.job.Local }

// Get returns what a rank has put under key; the keys of a job are different for all ranks.
func (m *Member) Get(ctx context.Context, _ int, key string) ([]byte, error) {
	return m.Client.Get(ctx, key)
}

// Fence names the ranks that are missing, if this is rank 0.
func (m *Member) Fence(ctx context.Context) error { return m.missing(m.Client.Fence(ctx)) }

// FenceAhead is like Fence.
func (m *Member) FenceAhead(ctx context.Context, key string) error {
	return m.missing(m.Client.FenceAhead(ctx, key))
}

// missing adds to an error which ranks have not come.
func (m *Member) missing(err error) error {
	if err == nil || m.server == nil {
		return err
	}
	var absent []int
	for rank := range m.job.Size {
		if !m.server.State(rank).Joined {
			absent = append(absent, rank)
		}
	}
	if len(absent) == 0 {
		return err
	}
	list := cpuset.FormatList(absent)
	if len(list) > 200 {
		list = list[:strings.LastIndexByte(list[:200], ',')] + ",..."
	}
	return fmt.Errorf("%d of %d ranks have not joined (%s): %w", len(absent), m.job.Size, list, err)
}

// Finalize finalizes the client. Rank 0 serves until all ranks have finalized.
func (m *Member) Finalize(ctx context.Context) error {
	err := m.Client.Finalize(ctx)
	if m.server == nil || err != nil {
		return err
	}
	select {
	case <-m.done:
		return m.failed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close closes the connection, and at rank 0 the connections of all ranks.
func (m *Member) Close() error {
	err := m.Client.Close()
	if m.server != nil {
		m.once.Do(func() { close(m.quit) })
		<-m.done
		m.server.Close()
		if m.job.With != nil {
			m.job.With.Close()
		}
	}
	return err
}
