package pmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// tree is servers of some ranks each below one of all, or below each other, with what an edge does between them.
type tree struct {
	t      *testing.T
	root   *Server
	below  []*Server
	edges  []*edge
	fences atomic.Int32 // that came to the root
	asked  atomic.Int32
}

// edge is the way of one server to the one above. What goes up or down is dealt with in order, by a goroutine each.
type edge struct {
	tree     *tree
	s        *Server
	top      bool // leads to the root
	below    *Below
	up, down chan func() error
}

func (e *edge) Fence(put []Pair) {
	if e.top {
		e.tree.fences.Add(1)
	}
	e.up <- func() error { return errors.Join(e.below.Put(put), e.below.Fence()) }
}

func (e *edge) Ask(request []byte) {
	if e.top {
		e.tree.asked.Add(1)
	}
	e.up <- func() error { return e.below.Ask(request) }
}

func (e *edge) Release()           { e.down <- func() error { return e.s.Release() } }
func (e *edge) Call(to, from int)  { e.down <- func() error { e.s.Called(to, from); return nil } }
func (e *edge) Answer(text []byte) { e.down <- func() error { return e.s.Answered(text) } }

// treeOf starts servers for the ranks of each host, and joins clients. The server of host i is below that of host
// above[i], or of the root if that is negative; nil: all are.
func treeOf(t *testing.T, hosts [][]int, above []int) (*tree, []*Client) {
	size := 0
	for _, ranks := range hosts {
		size += len(ranks)
	}
	tr := &tree{t: t, root: NewServer(size, Options{Tree: true})}
	clients := make([]*Client, size)
	for at, ranks := range hosts {
		e := &edge{tree: tr, up: make(chan func() error, 1000), down: make(chan func() error, 1000)}
		parent := tr.root
		if e.top = above == nil || above[at] < 0; !e.top {
			parent = tr.below[above[at]]
		}
		e.s = NewServer(size, Options{Name: tr.root.Name(), Secret: make([]byte, 32), Tree: true, Here: len(ranks),
			Above: e})
		e.below = parent.NewBelow(size, e)
		tr.below, tr.edges = append(tr.below, e.s), append(tr.edges, e)
		for _, way := range []chan func() error{e.up, e.down} {
			done := make(chan struct{})
			t.Cleanup(func() { close(way); <-done })
			go func() {
				defer close(done)
				for f := range way {
					if err := f(); err != nil {
						t.Error(err)
					}
				}
			}()
		}
	}
	for at, ranks := range hosts {
		s := tr.below[at]
		var served sync.WaitGroup
		t.Cleanup(func() { s.Close(); served.Wait() })
		for _, rank := range ranks {
			a, b := sockets(t)
			served.Go(func() { s.ServeConn(rank, a) })
			c, err := join(context.Background(), from(rankEnv(t, b, rank, size, s.Name())))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			clients[rank] = c
		}
	}
	return tr, clients
}

// Ranks of several servers see what all have put, fence after fence; keys that are known are not asked for again. In a
// tree the root hears of each subtree once in a fence.
func TestServersBelow(t *testing.T) {
	for _, c := range []struct {
		name  string
		hosts [][]int
		above []int
		top   int
	}{
		{"flat", [][]int{{0, 3, 4}, {1, 2}, {5}}, nil, 3},
		{"a chain", [][]int{{0}, {1, 2}, {3, 5}, {4}}, []int{-1, 0, 1, 2}, 1},
		{"width 2", [][]int{{0, 7}, {1}, {2, 8}, {3}, {4}, {5}, {6, 9}}, []int{-1, -1, 0, 0, 1, 1, 2}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, clients := treeOf(t, c.hosts, c.above)
			for round := range 3 {
				exchange(t, clients, round)
			}
			if n := int(tr.fences.Load()); n != 3*c.top {
				t.Errorf("%d fences came to the root, want %d", n, 3*c.top)
			}
			before := tr.asked.Load()
			ctx := t.Context()
			for r := range clients {
				if _, err := clients[len(clients)-1].Get(ctx, fmt.Sprintf("k2-%d", r)); err != nil {
					t.Error(err)
				}
			}
			if n := tr.asked.Load() - before; n != 0 {
				t.Errorf("%d keys were asked for again", n)
			}
			for _, c := range clients {
				if len(c.Secret()) != 32 {
					t.Error("a rank has no secret")
				}
			}
		})
	}
}

// exchange has all ranks put a key, and get those of all.
func exchange(t *testing.T, clients []*Client, round int) {
	ctx := t.Context()
	key := func(r int) string { return fmt.Sprintf("k%d-%d", round, r) }
	var all sync.WaitGroup
	for rank, c := range clients {
		all.Go(func() {
			if err := c.Put(ctx, key(rank), []byte(strings.Repeat("x", 100*rank+round))); err != nil {
				t.Error(err)
			}
			if err := c.Fence(ctx); err != nil {
				t.Error(err)
			}
			for r := range clients {
				if v, err := c.Get(ctx, key(r)); err != nil || len(v) != 100*r+round {
					t.Errorf("round %d: rank %d has %d bytes of rank %d: %v", round, rank, len(v), r, err)
				}
			}
			if _, err := c.Get(ctx, "nothing"); err == nil {
				t.Error("a key that was not put has a value")
			}
		})
	}
	all.Wait()
}

// A server below that others wait for keeps none from the end of the barrier, whether it leaves before or after they
// have entered.
func TestLeave(t *testing.T) {
	for _, first := range []bool{true, false} {
		tr, clients := treeOf(t, [][]int{{0}, {1}}, []int{-1, 0})
		extra := tr.below[0].NewBelow(1, tr.edges[1])
		if first {
			extra.Leave()
		}
		done := make(chan error, 2)
		for _, c := range clients {
			go func() { done <- c.Fence(t.Context()) }()
		}
		if !first {
			s := tr.below[0]
			for in := 0; in < 2; {
				s.mu.Lock()
				in = s.entered + s.in
				s.mu.Unlock()
			}
			if n := tr.fences.Load(); n != 0 {
				t.Errorf("%d fences came to the root before all were in", n)
			}
			extra.Leave()
		}
		extra.Leave()
		for range clients {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if extra.Fence() == nil {
			t.Error("what has left is in the barrier")
		}
	}
}

// The first barriers wait in vain for a rank that has ended, or a server with all of its ranks, also in a job that goes
// on without ranks: the launcher decides then. Later barriers do not wait.
func TestEndBeforeTheFirstBarrier(t *testing.T) {
	for joins := range 2 {
		tr, clients := treeOf(t, [][]int{{0, 1}, {2}}, nil)
		for _, s := range append(slices.Clone(tr.below), tr.root) {
			s.mu.Lock()
			s.opts.Survive, s.joins = true, joins
			s.mu.Unlock()
		}
		done := make(chan error, 2)
		go func() { done <- clients[0].Fence(t.Context()) }()
		clients[1].Close()
		wantEvent(t, tr.below[0], EventClosed, 1)
		go func() { done <- clients[2].Fence(t.Context()) }()
		if joins == 0 {
			for range 2 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			continue
		}
		first, root := tr.below[0], tr.root
		for entered := 0; entered < 1 && t.Context().Err() == nil; {
			first.mu.Lock()
			entered = first.entered
			first.mu.Unlock()
		}
		for in := 0; in < 1 && t.Context().Err() == nil; { // of the other server
			root.mu.Lock()
			in = root.in
			root.mu.Unlock()
		}
		tr.edges[0].below.End()
		root.mu.Lock()
		if root.joins != 1 || root.in != 1 {
			t.Errorf("%d barriers are to come, and %d servers are in: the barrier is over without a rank", root.joins, root.in)
		}
		root.mu.Unlock()
	}
}

// The answers to a server below come in the order of its questions, although some are known at once.
func TestOrderOfAnswers(t *testing.T) {
	way := &recorder{}
	s := NewServer(9, Options{Tree: true, Here: 1, Above: way})
	b := s.NewBelow(3, way)
	if err := s.Merge([]Pair{{"known", "1"}}); err != nil {
		t.Fatal(err)
	}
	get := "cmd=get kvsname=" + s.Name() + " key="
	for _, key := range []string{"far", "known", "far"} {
		if err := b.Ask([]byte(get + key + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if b.Ask([]byte(get+"known")) == nil {
		t.Error("a fourth question of three ranks was taken")
	}
	if len(way.asked) != 1 || len(way.answers) != 0 {
		t.Fatalf("%d questions went up, and %q down", len(way.asked), way.answers)
	}
	if err := s.Answered([]byte("cmd=get_result rc=0 value=2")); err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, text := range way.answers {
		l, err := parseLine([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		v, _ := l.get("value")
		values = append(values, v)
	}
	if !slices.Equal(values, []string{"2", "1", "2"}) {
		t.Errorf("%q", way.answers)
	}
}

// recorder notes what goes up and down.
type recorder struct{ asked, answers []string }

func (r *recorder) Fence([]Pair)       {}
func (r *recorder) Release()           {}
func (r *recorder) Call(int, int)      {}
func (r *recorder) Ask(request []byte) { r.asked = append(r.asked, string(request)) }
func (r *recorder) Answer(text []byte) { r.answers = append(r.answers, string(text)) }

// Names that are published on one host are known on the others.
func TestNamesOfServersBelow(t *testing.T) {
	tr, _ := treeOf(t, [][]int{{0}, {1}}, nil)
	for i, rank := range []int{0, 1} { // their clients have other connections: these servers serve hand-driven ones
		delete(tr.below[i].conns, rank)
	}
	a, b := dial(t, tr.below[0], 0), dial(t, tr.below[1], 1)
	for _, r := range []*raw{a, b} {
		r.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
	}
	a.ask("cmd=publish_name service=s port=p", "cmd=publish_result info=ok rc=0 msg=success")
	b.ask("cmd=publish_name service=s port=q", "cmd=publish_result rc=1 info=fail msg=duplicate_service")
	b.ask("cmd=lookup_name service=s", "cmd=lookup_result port=p info=ok rc=0 msg=success")
	b.ask("cmd=get kvsname="+tr.root.Name()+" key=none",
		"cmd=get_result rc=-1 msg=key_not_found value=unknown")
}

// What a hostile server above or below sends is refused.
func TestHostileServers(t *testing.T) {
	tr, _ := treeOf(t, [][]int{{0}, {1}}, nil)
	s := tr.below[0]
	if s.Release() == nil {
		t.Error("a barrier ended in which no rank was")
	}
	if s.Answered([]byte("cmd=get_result rc=0 value=x")) == nil || s.Answered([]byte("\x00")) == nil {
		t.Error("an answer without a question was taken")
	}
	long := strings.Repeat("x", valMax+1)
	for _, p := range []Pair{{"", "x"}, {long, "x"}, {"k", long}, {"k", "a\nb"}} {
		if tr.root.Merge([]Pair{p}) == nil {
			t.Errorf("%.20q was merged", p)
		}
	}
	for _, request := range []string{"", "cmd=finalize", "cmd=put key=a value=b", "x", "cmd=abort exitcode=1"} {
		if tr.edges[0].below.Ask([]byte(request)) == nil {
			t.Errorf("%q was answered", request)
		}
	}
	if b := tr.edges[0].below; b.Fence() != nil || b.Fence() == nil {
		t.Error("a server was in the barrier twice")
	}
}

// The questions of ranks end with their server.
func TestQuestionWithoutAnswer(t *testing.T) {
	s := NewServer(2, Options{Tree: true, Here: 1, Above: &recorder{}})
	r := dial(t, s, 0)
	r.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
	r.send("cmd=get kvsname=" + s.Name() + " key=k\n")
	for asked := false; !asked; {
		s.mu.Lock()
		asked = len(s.order) > 0
		s.mu.Unlock()
	}
	s.Close()
	if l := s.askAndWait(newLine("get", "kvsname", s.Name(), "key", "k")); l.rc() == 0 {
		t.Errorf("%v after the end", l)
	}
}
