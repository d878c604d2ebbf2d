package pmi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// tree is servers of some ranks each below one of all, with what an edge does between them.
type tree struct {
	t     *testing.T
	root  *Server
	below []*Server
	mu    sync.Mutex
	in    int // guarded by mu; servers that are in the fence
	asked int // guarded by mu
}

// edge is the way of one server to the root. What goes up is dealt with in order, by a goroutine.
type edge struct {
	tree *tree
	at   int
	up   chan func()
}

func (e edge) Fence(put []Pair) {
	e.up <- func() {
		tr := e.tree
		if err := tr.root.Merge(put); err != nil {
			tr.t.Error(err)
		}
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if tr.in++; tr.in == len(tr.below) {
			tr.in = 0
			for _, s := range tr.below {
				if err := s.Release(); err != nil {
					tr.t.Error(err)
				}
			}
		}
	}
}

func (e edge) Ask(request []byte) {
	e.up <- func() {
		e.tree.mu.Lock()
		e.tree.asked++
		e.tree.mu.Unlock()
		answer, err := e.tree.root.Answer(request)
		if err == nil {
			err = e.tree.below[e.at].Answered(answer)
		}
		if err != nil {
			e.tree.t.Error(err)
		}
	}
}

// treeOf starts servers for the ranks of each host, and joins clients.
func treeOf(t *testing.T, hosts [][]int) (*tree, []*Client) {
	size := 0
	for _, ranks := range hosts {
		size += len(ranks)
	}
	tr := &tree{t: t, root: NewServer(size, Options{})}
	clients := make([]*Client, size)
	for at, ranks := range hosts {
		up := make(chan func(), 100)
		t.Cleanup(func() { close(up) })
		go func() {
			for f := range up {
				f()
			}
		}()
		s := NewServer(size, Options{Name: tr.root.Name(), Secret: make([]byte, 32), Here: len(ranks),
			Above: edge{tr, at, up}})
		tr.below = append(tr.below, s)
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

// Ranks of several servers see what all have put, fence after fence; keys that are known are not asked for again.
func TestServersBelow(t *testing.T) {
	tr, clients := treeOf(t, [][]int{{0, 3, 4}, {1, 2}, {5}})
	ctx := t.Context()
	for round := range 3 {
		var all sync.WaitGroup
		for rank, c := range clients {
			all.Go(func() {
				key := func(r int) string { return fmt.Sprintf("k%d-%d", round, r) }
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
	before := tr.asked
	for r := range clients {
		if _, err := clients[5].Get(ctx, fmt.Sprintf("k2-%d", r)); err != nil {
			t.Error(err)
		}
	}
	if tr.asked != before {
		t.Errorf("%d keys were asked for again", tr.asked-before)
	}
	for _, c := range clients {
		if len(c.Secret()) != 32 {
			t.Error("a rank has no secret")
		}
	}
}

// Names that are published on one host are known on the others.
func TestNamesOfServersBelow(t *testing.T) {
	tr, _ := treeOf(t, [][]int{{0}, {1}})
	for i, rank := range []int{0, 1} { // their clients have other connections: these servers serve hand-driven ones
		tr.below[i].conns[rank] = nil
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
	tr, _ := treeOf(t, [][]int{{0}, {1}})
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
		if _, err := tr.root.Answer([]byte(request)); err == nil {
			t.Errorf("%q was answered", request)
		}
	}
}

// The questions of ranks end with their server.
func TestQuestionWithoutAnswer(t *testing.T) {
	s := NewServer(2, Options{Here: 1, Above: silent{}})
	r := dial(t, s, 0)
	r.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
	r.send("cmd=get kvsname=" + s.Name() + " key=k\n")
	for asked := false; !asked; {
		s.mu.Lock()
		asked = len(s.order) > 0
		s.mu.Unlock()
	}
	s.Close()
	if l := s.ask(newLine("get", "kvsname", s.Name(), "key", "k")); l.rc() == 0 {
		t.Errorf("%v after the end", l)
	}
}

type silent struct{}

func (silent) Fence([]Pair) {}
func (silent) Ask([]byte)   {}
