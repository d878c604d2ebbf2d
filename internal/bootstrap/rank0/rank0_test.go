package rank0

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.VerifyMain(m.Run)) }

// patience is how long a step may take before it is taken for hanging.
const patience = time.Minute

// join makes a job of which only the first ranks come.
func join(t *testing.T, size, come int) []*Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j := Job{Size: size, Name: "test", Launcher: "test", Key: bytes.Repeat([]byte{7}, 32), PeerTimeout: patience,
		Warn: func(string, ...any) {}}
	members := make([]*Member, come)
	if members[0], err = Lead(ctx, ln, j); err != nil {
		t.Fatal(err)
	}
	for rank := 1; rank < come; rank++ {
		j.Rank = rank
		if members[rank], err = Follow(ctx, ln.Addr().String(), j); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, m := range members {
			m.Close()
		}
	})
	return members
}

// each calls f for all at once.
func each(members []*Member, f func(m *Member) error) error {
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestJob(t *testing.T) {
	members := join(t, 5, 5)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	key := func(rank int) string { return fmt.Sprintf("k-%d", rank) }
	err := each(members, func(m *Member) error {
		if _, err := m.Mapping(ctx); !errors.Is(err, pmi.ErrNoKey) {
			return fmt.Errorf("a mapping, or %w", err)
		}
		if m.Launcher() != "test" || m.Name() != "test" || m.Secret() == nil || m.Size() != 5 {
			return fmt.Errorf("launcher %q, name %q, %d ranks", m.Launcher(), m.Name(), m.Size())
		}
		err := errors.Join(m.Put(ctx, key(m.Rank()), []byte{byte(m.Rank())}), m.FenceAhead(ctx, key(m.Rank())))
		for rank := range m.Size() {
			b, e := m.Get(ctx, rank, key(rank))
			if err = errors.Join(err, e); !bytes.Equal(b, []byte{byte(rank)}) {
				err = errors.Join(err, fmt.Errorf("rank %d sees %v of %d", m.Rank(), b, rank))
			}
		}
		return errors.Join(err, m.Fence(ctx))
	})
	if err != nil {
		t.Fatal(err)
	}
	// Rank 0 serves until all have finalized, however late.
	done := make(chan error, 1)
	go func() { done <- members[0].Finalize(ctx) }()
	for rank := 1; rank < 5; rank++ {
		select {
		case err := <-done:
			t.Fatalf("rank 0 has left before rank %d: %v", rank, err)
		default:
		}
		if err := members[rank].Finalize(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// When a rank ends without Finalize, or aborts, all others learn that the job is lost.
func TestFailure(t *testing.T) {
	for name, end := range map[string]func(m *Member){
		"closed":  func(m *Member) { m.Close() },
		"aborted": func(m *Member) { m.Abort(3, "the test wants it") },
	} {
		for _, victim := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s %d", name, victim), func(t *testing.T) {
				members := join(t, 4, 4)
				end(members[victim])
				for rank, m := range members {
					if rank == victim && name == "closed" {
						continue
					}
					select {
					case <-m.Lost():
					case <-time.After(patience):
						t.Errorf("rank %d does not learn it", rank)
					}
				}
			})
		}
	}
}

// The error of a fence that is given up names the ranks that have not come.
func TestMissing(t *testing.T) {
	members := join(t, 6, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := members[0].Fence(ctx)
	if err == nil || !strings.Contains(err.Error(), "4 of 6 ranks have not joined (2-5)") {
		t.Errorf("%v, want one that names ranks 2-5", err)
	}
}

// In a job that survives failures the others are told of a rank that fails, and go on without it.
func TestSurvive(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j := Job{Size: 3, Name: "test", Launcher: "test", Key: bytes.Repeat([]byte{7}, 32), PeerTimeout: patience,
		Survive: true, Warn: func(msg string, args ...any) { t.Error(msg, args) }}
	members := make([]*Member, 3)
	if members[0], err = Lead(ctx, ln, j); err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for rank := 1; rank < 3; rank++ {
		j.Rank = rank
		if members[rank], err = FollowAny(ctx, []string{closed.Addr().String(), ln.Addr().String()}, j); err != nil {
			t.Fatal(err)
		}
		defer members[rank].Close()
	}
	defer members[0].Close()
	members[1].Close()
	for _, rank := range []int{0, 2} {
		select {
		case <-members[rank].Notices():
			if gone := members[rank].Gone(); len(gone) != 1 || gone[0] != 1 {
				t.Errorf("rank %d hears of %v", rank, gone)
			}
		case <-ctx.Done():
			t.Fatalf("rank %d hears nothing", rank)
		}
	}
	living := []*Member{members[0], members[2]}
	if err := each(living, func(m *Member) error { return m.Fence(ctx) }); err != nil {
		t.Error(err)
	}
	if err := each(living, func(m *Member) error { return m.Finalize(ctx) }); err != nil {
		t.Error(err)
	}
}

// crowded is a listener that turns the first connections away, as one does that has too many.
type crowded struct {
	net.Listener
	left int
}

func (c *crowded) Accept() (net.Conn, error) {
	for ; c.left > 0; c.left-- {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn.Close()
	}
	return c.Listener.Accept()
}

// A rank that is turned away tries again.
func TestFollowCrowded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j := Job{Size: 2, Name: "test", Launcher: "test", Key: bytes.Repeat([]byte{7}, 32), PeerTimeout: patience,
		Survive: true, Warn: func(msg string, args ...any) { t.Error(msg, args) }}
	first, err := Lead(ctx, &crowded{ln, 2}, j)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	j.Rank = 1
	second, err := FollowAny(ctx, []string{ln.Addr().String()}, j)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

// The error of a rank that reaches rank 0 by no address says so.
func TestFollowNoOne(t *testing.T) {
	j := Job{Size: 2, Rank: 1, Name: "test", Key: make([]byte, 32), PeerTimeout: patience}
	for _, addrs := range [][]string{nil, {"127.0.0.1:1"}} {
		m, err := FollowAny(t.Context(), addrs, j)
		if m != nil || err == nil || !strings.Contains(err.Error(), "rank 1 does not reach rank 0: no address") ||
			!strings.Contains(err.Error(), strings.Join(addrs, "")) {
			t.Errorf("%v: %v, %v", addrs, m, err)
		}
	}
}
