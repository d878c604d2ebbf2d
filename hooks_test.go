package mpi

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// notSeen are the exported calls with a communicator, request, message or window that no hook sees, and why.
var notSeen = map[string]string{
	"Comm.Rank": "local", "Comm.Size": "local", "Comm.Name": "local", "Comm.SetName": "local", "Comm.Attr": "local",
	"Comm.SetAttr": "local", "Comm.WithContext": "local", "Comm.Stats": "local", "Comm.Transport": "local",
	"Comm.String": "local", "Comm.IsInter": "local", "Comm.Compare": "local", "Comm.Group": "local",
	"Comm.Failed":     "local",
	"Comm.RemoteSize": "local", "Comm.RemoteGroup": "local", "Comm.CartDims": "local", "Comm.CartRank": "local",
	"Comm.Coords": "local", "Comm.Shift": "local", "Comm.GraphNeighbors": "local", "Comm.Neighbors": "local",
	"Comm.NeighborWeights": "local", "Request.String": "local", "Message.String": "local", "Set.Add": "local",
	"Set.Len": "local", "Win.WithContext": "local", "Win.Local": "local", "Win.Of": "local", "Win.Group": "local",
	"Win.Name": "local", "Win.SetName": "local", "Win.Attach": "local",
	"Self": "local, makes nothing", "Request.Done": "does not wait, and completes nothing: Wait does",
}

// exportedCalls are the exported functions and methods of this package that have one of the library's objects.
func exportedCalls(t *testing.T) (calls []string) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is || !fn.Name.IsExported() {
				continue
			}
			if fn.Recv != nil {
				if o := objectOf(fn.Recv.List[0].Type); o != "" {
					calls = append(calls, o+"."+fn.Name.Name)
				}
			} else if slices.ContainsFunc(fn.Type.Params.List, func(p *ast.Field) bool { return objectOf(p.Type) != "" }) {
				calls = append(calls, fn.Name.Name)
			}
		}
	}
	return calls
}

// objectOf is the name of the library's object that a pointer, or a list of pointers, points to.
func objectOf(e ast.Expr) string {
	if l, is := e.(*ast.Ellipsis); is {
		e = l.Elt
	}
	p, is := e.(*ast.StarExpr)
	if !is {
		return ""
	}
	e = p.X
	if g, is := e.(*ast.IndexExpr); is {
		e = g.X
	}
	if id, is := e.(*ast.Ident); is && slices.Contains([]string{"Comm", "Request", "Message", "Win", "Set"}, id.Name) {
		return id.Name
	}
	return ""
}

// tour makes calls, and notes which of them a hook has seen.
type tour struct {
	w    *Comm
	calm int // calls that hooks have seen
	deep int
	seen map[string]bool
}

func (t *tour) call(name string, f func()) {
	was := t.calm
	f()
	check(t.calm > was, "no hook has seen %s", name)
	check(t.deep == 0, "after %s a Before has no After", name)
	t.seen[name] = true
}

func (t *tour) hooks(rank int) (before, after func(*Call)) {
	before = func(k *Call) {
		check(k.Data == nil && k.Err == nil && len(k.Done) == 0, "a Call has something of another one: %+v", k)
		check(k.Comm != nil && k.Comm.hook() == nil && k.Op != "", "%+v", k)
		k.Data = k.Op
		t.deep++
	}
	after = func(k *Call) {
		check(k.Data == k.Op && t.deep == 1, "After %s has the data %v", k.Op, k.Data)
		t.deep--
		t.calm++
	}
	return before, after
}

// Each exported call that communicates is seen by hooks, or it is in notSeen with the reason: a new one fails here.
func TestHooksSeeEveryCall(t *testing.T) {
	tours := []*tour{{seen: map[string]bool{}}, {seen: map[string]bool{}}}
	hooks := Hooks{
		Before: func(k *Call) { b, _ := tours[k.Rank].hooks(k.Rank); b(k) },
		After:  func(k *Call) { _, a := tours[k.Rank].hooks(k.Rank); a(k) },
	}
	overLoop(t)(2, func(w *Comm) {
		t := tours[w.Rank()]
		t.w = w
		t.messages()
		t.requests()
		t.collectives()
		t.layouts()
		t.communicators()
		t.windows()
		t.locks()
	}, WithHooks(hooks))
	if t.Failed() {
		return
	}
	known := exportedCalls(t)
	for _, name := range known {
		_, listed := notSeen[name]
		if seen := tours[0].seen[name]; seen == listed {
			t.Errorf("%s: a hook sees it: %v; in notSeen: %v", name, seen, listed)
		}
	}
	for name := range tours[0].seen {
		if !slices.Contains(known, name) {
			t.Errorf("%s is no exported call", name)
		}
	}
}

func (t *tour) messages() {
	w, peer := t.w, 1-t.w.Rank()
	out, in := []int{1, 2}, make([]int, 2)
	recv := func() { ok(Recv(w, in, peer, 7)) }
	t.call("Send", func() { must(Send(w, out, peer, 7)) })
	t.call("Recv", recv)
	r := ok(Irecv(w, in, peer, 7))
	must(Barrier(w))
	t.call("Ssend", func() { must(Ssend(w, out, peer, 7)) })
	ok(r.Wait())
	t.call("Rsend", func() { must(Rsend(w, out, peer, 7)) })
	recv()
	t.call("Bsend", func() { must(Bsend(w, out, peer, 7)) })
	recv()
	t.call("SendValue", func() { must(SendValue(w, 5, peer, 7)) })
	t.call("RecvValue", func() { v, _, err := RecvValue[int](w, peer, 7); must(err); same(v, 5) })
	t.call("SendObject", func() { must(SendObject(w, "text", peer, 7)) })
	t.call("RecvObject", func() { v, _, err := RecvObject[string](w, peer, 7); must(err); same(v, "text") })
	must(Send(w, out, peer, 7))
	t.call("RecvAlloc", func() { v, _, err := RecvAlloc[int](w, peer, 7); must(err); same(len(v), 2) })
	t.call("Sendrecv", func() { ok(Sendrecv(w, out, peer, 7, in, peer, 7)) })
	t.call("SendrecvReplace", func() { ok(SendrecvReplace(w, in, peer, 7, peer, 7)) })
	ok(Sendrecv(w, out, ProcNull, 7, in, ProcNull, 7))
	must(Send(w, out, peer, 7))
	t.call("Probe", func() { same(ok(Probe(w, peer, 7)).Bytes, 16) })
	t.call("Iprobe", func() { _, found, err := Iprobe(w, peer, 7); must(err); check(found, "no message") })
	var m *Message
	t.call("Mprobe", func() {
		got, st, err := Mprobe(w, AnySource, AnyTag)
		must(err)
		m = got
		same(st.Source, peer)
	})
	check(strings.Contains(m.String(), "16 bytes"), "%v", m)
	t.call("Mrecv", func() { same(ok(Mrecv(m, in)).Bytes, 16) })
	must(Send(w, out, peer, 7))
	ok(Probe(w, peer, 7))
	t.call("Improbe", func() {
		got, _, found, err := Improbe(w, peer, 7)
		must(err)
		check(found, "no message")
		m = got
	})
	t.call("Imrecv", func() { r = ok(Imrecv(m, in)) })
	same(ok(r.Wait()).Bytes, 16)
	_, err := Mrecv(m, in)
	is(err, ErrRequest)
	is(Send(w, out, 9, 7), ErrRank)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Recv(w.WithContext(ended), in, peer, 7)
	is(err, context.Canceled)
}

func (t *tour) requests() {
	w, peer := t.w, 1-t.w.Rank()
	out, in := []int{1, 2}, make([]int, 2)
	irecv := func() *Request { return ok(Irecv(w, in, peer, 7)) }
	start := func(name string, f func() (*Request, error)) {
		r := irecv()
		must(Barrier(w))
		var s *Request
		t.call(name, func() { s = ok(f()) })
		ok(s.Wait())
		ok(r.Wait())
	}
	start("Isend", func() (*Request, error) { return Isend(w, out, peer, 7) })
	start("Issend", func() (*Request, error) { return Issend(w, out, peer, 7) })
	start("Irsend", func() (*Request, error) { return Irsend(w, out, peer, 7) })
	start("Ibsend", func() (*Request, error) { return Ibsend(w, out, peer, 7) })
	start("Isendrecv", func() (*Request, error) { return Isendrecv(w, out, peer, 7, in, ProcNull, 7) })
	ready := func() *Request { // a receive whose message is here
		r := irecv()
		must(Barrier(w))
		must(Send(w, out, peer, 7))
		must(Barrier(w))
		return r
	}
	r := ready()
	check(strings.HasPrefix(r.String(), "Irecv from"), "%v", r)
	<-r.Done()
	t.call("Request.Wait", func() { same(ok(r.Wait()).Bytes, 16) })
	_, err := r.Wait()
	is(err, ErrRequest)
	r = ready()
	t.call("Request.Test", func() { done, _, err := r.Test(); must(err); check(done, "not done") })
	t.call("Irecv", func() { r = irecv() })
	t.call("Request.Cancel", func() { must(r.Cancel()) })
	check(ok(r.Wait()).Cancelled, "not cancelled")
	t.call("WaitAll", func() { must(WaitAll(nil, ready())) })
	is(WaitAll(r, irecvOfNone()), ErrRequest)
	t.call("WaitAllStatus", func() { same(ok(WaitAllStatus(ready()))[0].Bytes, 16) })
	t.call("WaitAny", func() { i, _, err := WaitAny(nil, ready()); must(err); same(i, 1) })
	t.call("WaitSome", func() { i, _, err := WaitSome(ready()); must(err); same(len(i), 1) })
	t.call("AppendSome", func() { same(len(ok(AppendSome(nil, ready()))), 1) })
	t.call("TestAll", func() { check(ok(TestAll(ready())), "not done") })
	t.call("TestAny", func() { _, done, _, err := TestAny(ready()); must(err); check(done, "not done") })
	t.call("TestSome", func() { i, _, err := TestSome(ready()); must(err); same(len(i), 1) })
	var s Set
	s.Add(ready(), nil)
	t.call("Set.Wait", func() { must(s.Wait()) })
	s.Add(ready(), nil)
	t.call("Set.Test", func() { check(ok(s.Test()), "not done") })

	kept := func(name string, f func() (*Request, error)) {
		var p *Request
		t.call(name, func() { p = ok(f()) })
		for range 2 {
			r := irecv()
			must(Barrier(w))
			t.call("Request.Start", func() { must(p.Start()) })
			ok(p.Wait())
			ok(r.Wait())
		}
		ok(p.Wait()) // which is not started
		t.call("Request.Free", func() { must(p.Free()) })
		is(p.Start(), ErrRequest)
	}
	kept("SendInit", func() (*Request, error) { return SendInit(w, out, peer, 7) })
	kept("SsendInit", func() (*Request, error) { return SsendInit(w, out, peer, 7) })
	kept("RsendInit", func() (*Request, error) { return RsendInit(w, out, peer, 7) })
	kept("BsendInit", func() (*Request, error) { return BsendInit(w, out, peer, 7) })
	var p *Request
	t.call("RecvInit", func() { p = ok(RecvInit(w, in, peer, 7)) })
	t.call("StartAll", func() { must(StartAll(p)) })
	must(Send(w, out, peer, 7))
	same(ok(p.Wait()).Bytes, 16)
	must(p.Free())
}

// irecvOfNone is a request that no call has returned.
func irecvOfNone() *Request { return new(Request) }

// each makes a call in its three ways.
func (t *tour) each(name, init string, block func() error, start, keep func() (*Request, error)) {
	if block != nil {
		t.call(name, func() { must(block()) })
	}
	started := "I" + strings.ToLower(name[:1]) + name[1:]
	t.call(started, func() { ok(ok(start()).Wait()) })
	t.call(init, func() {
		r := ok(keep())
		must(r.Start())
		ok(r.Wait())
		must(r.Free())
	})
}

func (t *tour) collectives() {
	w := t.w
	type request = *Request
	one, two, three := []int{1}, []int{1, 2}, make([]int, 2)
	blocks, more := [][]int{{1}, {2}}, [][]int{{0}, {0}}
	each := func(name string, block func() error, start, keep func() (request, error)) {
		t.each(name, name+"Init", block, start, keep)
	}
	each("Barrier", func() error { return Barrier(w) }, func() (request, error) { return Ibarrier(w) },
		func() (request, error) { return BarrierInit(w) })
	each("Bcast", func() error { return Bcast(w, one, 0) }, func() (request, error) { return Ibcast(w, one, 0) },
		func() (request, error) { return BcastInit(w, one, 0) })
	each("Gather", func() error { return Gather(w, one, three, 0) },
		func() (request, error) { return Igather(w, one, three, 0) },
		func() (request, error) { return GatherInit(w, one, three, 0) })
	each("Gatherv", func() error { return Gatherv(w, one, more, 0) },
		func() (request, error) { return Igatherv(w, one, more, 0) },
		func() (request, error) { return GathervInit(w, one, more, 0) })
	each("Scatter", func() error { return Scatter(w, two, one, 0) },
		func() (request, error) { return Iscatter(w, two, one, 0) },
		func() (request, error) { return ScatterInit(w, two, one, 0) })
	each("Scatterv", func() error { return Scatterv(w, blocks, one, 0) },
		func() (request, error) { return Iscatterv(w, blocks, one, 0) },
		func() (request, error) { return ScattervInit(w, blocks, one, 0) })
	each("Allgather", func() error { return Allgather(w, one, three) },
		func() (request, error) { return Iallgather(w, one, three) },
		func() (request, error) { return AllgatherInit(w, one, three) })
	each("Allgatherv", func() error { return Allgatherv(w, one, more) },
		func() (request, error) { return Iallgatherv(w, one, more) },
		func() (request, error) { return AllgathervInit(w, one, more) })
	each("Alltoall", func() error { return Alltoall(w, two, three) },
		func() (request, error) { return Ialltoall(w, two, three) },
		func() (request, error) { return AlltoallInit(w, two, three) })
	each("Alltoallv", func() error { return Alltoallv(w, blocks, more) },
		func() (request, error) { return Ialltoallv(w, blocks, more) },
		func() (request, error) { return AlltoallvInit(w, blocks, more) })
	each("Reduce", func() error { return Reduce(w, two, three, Sum, 0) },
		func() (request, error) { return Ireduce(w, two, three, Sum, 0) },
		func() (request, error) { return ReduceInit(w, two, three, Sum, 0) })
	each("Allreduce", func() error { return Allreduce(w, two, three, Sum) },
		func() (request, error) { return Iallreduce(w, two, three, Sum) },
		func() (request, error) { return AllreduceInit(w, two, three, Sum) })
	each("ReduceScatterBlock", func() error { return ReduceScatterBlock(w, two, one, Sum) },
		func() (request, error) { return IreduceScatterBlock(w, two, one, Sum) },
		func() (request, error) { return ReduceScatterBlockInit(w, two, one, Sum) })
	counts := []int{1, 1}
	each("ReduceScatter", func() error { return ReduceScatter(w, two, one, counts, Sum) },
		func() (request, error) { return IreduceScatter(w, two, one, counts, Sum) },
		func() (request, error) { return ReduceScatterInit(w, two, one, counts, Sum) })
	each("Scan", func() error { return Scan(w, two, three, Sum) },
		func() (request, error) { return Iscan(w, two, three, Sum) },
		func() (request, error) { return ScanInit(w, two, three, Sum) })
	each("Exscan", func() error { return Exscan(w, two, three, Sum) },
		func() (request, error) { return Iexscan(w, two, three, Sum) },
		func() (request, error) { return ExscanInit(w, two, three, Sum) })
	ring := ok(w.Cart([]int{2}, []bool{true}, false))
	each("NeighborAllgather", func() error { return NeighborAllgather(ring, one, three) },
		func() (request, error) { return IneighborAllgather(ring, one, three) },
		func() (request, error) { return NeighborAllgatherInit(ring, one, three) })
	each("NeighborAllgatherv", func() error { return NeighborAllgatherv(ring, one, more) },
		func() (request, error) { return IneighborAllgatherv(ring, one, more) },
		func() (request, error) { return NeighborAllgathervInit(ring, one, more) })
	each("NeighborAlltoall", func() error { return NeighborAlltoall(ring, two, three) },
		func() (request, error) { return IneighborAlltoall(ring, two, three) },
		func() (request, error) { return NeighborAlltoallInit(ring, two, three) })
	each("NeighborAlltoallv", func() error { return NeighborAlltoallv(ring, blocks, more) },
		func() (request, error) { return IneighborAlltoallv(ring, blocks, more) },
		func() (request, error) { return NeighborAlltoallvInit(ring, blocks, more) })
	t.call("BcastValue", func() { ok(BcastValue(w, 1, 0)) })
	t.call("ReduceValue", func() { ok(ReduceValue(w, 1, Sum, 0)) })
	t.call("AllreduceValue", func() { ok(AllreduceValue(w, 1, Sum)) })
	t.call("GatherValues", func() { ok(GatherValues(w, 1, 0)) })
	t.call("AllgatherValues", func() { ok(AllgatherValues(w, 1)) })
	t.call("ScatterValues", func() { ok(ScatterValues(w, two, 0)) })
	t.call("BcastObject", func() { ok(BcastObject(w, "a", 0)) })
	t.call("GatherObjects", func() { ok(GatherObjects(w, "a", 0)) })
	t.call("AllgatherObjects", func() { ok(AllgatherObjects(w, "a")) })
	t.call("ScatterObjects", func() { ok(ScatterObjects(w, []string{"a", "b"}, 0)) })
	t.call("GatherAlloc", func() { ok(GatherAlloc(w, one, 0)) })
	t.call("AllgatherAlloc", func() { ok(AllgatherAlloc(w.WithContext(context.Background()), one)) })
	is(Bcast(w, one, 9), ErrRoot)
}

func (t *tour) layouts() {
	w, peer := t.w, 1-t.w.Rank()
	type request = *Request
	l := Vector(2, 1, 2, Of[int]())
	base, in := make([]int, 4), make([]int, 4)
	t.call("SendLayout", func() { must(SendLayout(w, base, l, peer, 7)) })
	t.call("RecvLayout", func() { ok(RecvLayout(w, in, l, peer, 7)) })
	var s, r *Request
	t.call("IsendLayout", func() { s = ok(IsendLayout(w, base, l, peer, 7)) })
	t.call("IrecvLayout", func() { r = ok(IrecvLayout(w, in, l, peer, 7)) })
	must(WaitAll(s, r))
	t.call("SendrecvLayout", func() { ok(SendrecvLayout(w, base, l, peer, 7, in, l, peer, 7)) })
	t.call("SendLayoutInit", func() { s = ok(SendLayoutInit(w, base, l, peer, 7)) })
	t.call("RecvLayoutInit", func() { r = ok(RecvLayoutInit(w, in, l, peer, 7)) })
	must(StartAll(r, s))
	must(WaitAll(s, r))
	must(s.Free())
	must(r.Free())
	one := Contiguous(1, Of[int]())
	at := func(i int) Layout { return Indexed([]int{1}, []int{i}, Of[int]()) }
	both := []Layout{at(0), at(1)}
	each := func(name, start, init string, block func() error, startIt, keep func() (request, error)) {
		t.call(name, func() { must(block()) })
		t.call(start, func() { ok(ok(startIt()).Wait()) })
		t.call(init, func() { r := ok(keep()); must(r.Start()); ok(r.Wait()); must(r.Free()) })
	}
	each("BcastLayout", "IbcastLayout", "BcastLayoutInit", func() error { return BcastLayout(w, base, l, 0) },
		func() (request, error) { return IbcastLayout(w, base, l, 0) },
		func() (request, error) { return BcastLayoutInit(w, base, l, 0) })
	each("Gatherw", "Igatherw", "GatherwInit", func() error { return Gatherw(w, base, one, in, both, 0) },
		func() (request, error) { return Igatherw(w, base, one, in, both, 0) },
		func() (request, error) { return GatherwInit(w, base, one, in, both, 0) })
	each("Scatterw", "Iscatterw", "ScatterwInit", func() error { return Scatterw(w, base, both, in, one, 0) },
		func() (request, error) { return Iscatterw(w, base, both, in, one, 0) },
		func() (request, error) { return ScatterwInit(w, base, both, in, one, 0) })
	each("Allgatherw", "Iallgatherw", "AllgatherwInit", func() error { return Allgatherw(w, base, one, in, both) },
		func() (request, error) { return Iallgatherw(w, base, one, in, both) },
		func() (request, error) { return AllgatherwInit(w, base, one, in, both) })
	each("Alltoallw", "Ialltoallw", "AlltoallwInit", func() error { return Alltoallw(w, base, both, in, both) },
		func() (request, error) { return Ialltoallw(w, base, both, in, both) },
		func() (request, error) { return AlltoallwInit(w, base, both, in, both) })
	ring := ok(w.Cart([]int{2}, []bool{true}, false))
	each("NeighborAlltoallw", "IneighborAlltoallw", "NeighborAlltoallwInit",
		func() error { return NeighborAlltoallw(ring, base, both, in, both) },
		func() (request, error) { return IneighborAlltoallw(ring, base, both, in, both) },
		func() (request, error) { return NeighborAlltoallwInit(ring, base, both, in, both) })
}

func (t *tour) communicators() {
	w, me := t.w, t.w.Rank()
	made := func(name string, f func() (*Comm, error)) *Comm {
		var c *Comm
		t.call(name, func() { c = ok(f()) })
		check(c.hook() != nil, "%s has lost its hooks", name)
		was := t.calm
		must(Barrier(c))
		check(t.calm == was+1, "calls on the result of %s are not seen", name)
		return c
	}
	check(Self(w).hook() != nil, "Self has lost its hooks")
	t.call("Spawn", func() { is(second(Spawn(w, 1, "", nil)), ErrUnavailable) })
	d := made("Comm.Dup", w.Dup)
	same(ok(d.Compare(w)), Congruent)
	t.call("Comm.Free", func() { must(d.Free()) })
	is(Barrier(d), ErrComm)
	solo := made("Comm.Split", func() (*Comm, error) { return w.Split(me, 0) })
	made("Comm.SplitShared", func() (*Comm, error) { return w.SplitShared(0) })
	made("Comm.Create", func() (*Comm, error) { return w.Create(w.Group()) })
	made("Comm.CreateGroup", func() (*Comm, error) { return w.CreateGroup(w.Group(), 3) })
	cart := made("Comm.Cart", func() (*Comm, error) { return w.Cart([]int{2}, []bool{true}, false) })
	made("Comm.CartSub", func() (*Comm, error) { return cart.CartSub(true) })
	made("Comm.Graph", func() (*Comm, error) { return w.Graph([][]int{{1}, {0}}) })
	made("Comm.DistGraph", func() (*Comm, error) { return w.DistGraph(Edge{me, 1 - me}) })
	made("Comm.DistGraphWeighted", func() (*Comm, error) {
		return w.DistGraphWeighted([]Edge{{me, 1 - me}}, []int{1})
	})
	shrunk := made("Comm.Shrink", w.Shrink)
	made("Comm.Replace", w.Replace)
	t.call("Comm.Agree", func() { same(ok(w.Agree(6)), 6) })
	t.call("Comm.AckFailed", func() { same(ok(w.AckFailed(0)), 0) })
	t.call("Comm.Revoke", func() { must(shrunk.Revoke()) })
	is(Barrier(shrunk), ErrRevoked)
	other := []int{1 - me}
	made("Comm.DistGraphAdjacent", func() (*Comm, error) { return w.DistGraphAdjacent(other, other) })
	made("Comm.DistGraphAdjacentWeighted", func() (*Comm, error) {
		return w.DistGraphAdjacentWeighted(other, other, Weights{[]int{1}, []int{1}})
	})
	inter := made("Comm.Intercomm", func() (*Comm, error) { return solo.Intercomm(0, w, 1-me, 5) })
	made("Comm.Merge", func() (*Comm, error) { return inter.Merge(me == 1) })
	root := 0 // of the group of rank 0
	if me == 0 {
		root = Root
	}
	must(Bcast(inter, []int{1}, root))
}

func (t *tour) windows() {
	w, me, peer := t.w, t.w.Rank(), 1-t.w.Rank()
	var win *Win[int64]
	t.call("WinCreate", func() { win = ok(WinCreate(w, make([]int64, 4))) })
	must(win.Free())
	t.call("WinShared", func() { win = ok(WinShared[int64](w, 4)) })
	must(win.Free())
	t.call("WinAlloc", func() { win = ok(WinAlloc[int64](w, 4)) })
	must(win.SetName("win"))
	same(win.Name(), "win")
	same(len(win.Local()), 4)
	src, dst := []int64{3}, make([]int64, 1)
	one, l := Of[int64](), Of[int64]()
	req := func(name string, f func() (*Request, error)) {
		t.call(name, func() { ok(ok(f()).Wait()) })
		must(win.Flush(peer)) // the next operation names the same element
	}
	type request = *Request
	t.call("Win.Fence", func() { must(win.Fence()) })
	t.call("Win.Put", func() { must(win.Put(src, peer, 0)) })
	must(win.Fence())
	same(win.Local()[0], 3)
	must(win.Fence()) // what the peer does next changes the element
	t.call("Win.Get", func() { must(win.Get(dst, peer, 0)) })
	t.call("Win.Accumulate", func() { must(win.Accumulate(Sum, src, peer, 1)) })
	t.call("Win.GetAccumulate", func() { must(win.GetAccumulate(Sum, src, dst, peer, 1)) })
	t.call("Win.FetchOp", func() { ok(win.FetchOp(Sum, 1, peer, 1)) })
	t.call("Win.CompareAndSwap", func() { ok(win.CompareAndSwap(peer, 1, 0, 1)) })
	must(win.Fence()) // the operations that follow name elements that these do
	t.call("Win.PutLayout", func() { must(win.PutLayout(src, one, peer, 0, l)) })
	must(win.Fence())
	t.call("Win.GetLayout", func() { must(win.GetLayout(dst, one, peer, 0, l)) })
	must(win.Fence())
	t.call("Win.AccumulateLayout", func() { must(win.AccumulateLayout(Sum, src, one, peer, 0, l)) })
	t.call("Win.GetAccumulateLayout", func() {
		must(win.GetAccumulateLayout(Sum, src, one, dst, one, peer, 0, l))
	})
	t.call("Win.PutNotify", func() { must(win.PutNotify(src, peer, 2, 9)) })
	t.call("Win.WaitNote", func() { _, note, err := win.WaitNote(context.Background()); must(err); same(note, 9) })
	must(win.Fence())
	t.call("Win.Free", func() { must(win.Free()) })
	is(win.Fence(), ErrComm)
	win = ok(WinAlloc[int64](w, 4))
	g := ok(win.Group().Incl(peer))
	t.call("Win.Post", func() { must(win.Post(g)) })
	t.call("Win.Start", func() { must(win.Start(g)) })
	must(win.Put(src, peer, 3))
	t.call("Win.Complete", func() { must(win.Complete()) })
	t.call("Win.Wait", func() { must(win.Wait()) })
	must(win.Post(g))
	must(win.Start(g))
	must(win.Complete())
	must(Barrier(w))
	for done := false; !done; {
		t.call("Win.Test", func() { done = ok(win.Test()) })
	}
	must(win.Free())
	win = ok(WinAlloc[int64](w, 4))
	must(win.Lock(peer, Shared))
	req("Win.RPut", func() (request, error) { return win.RPut(src, peer, 0) })
	req("Win.RGet", func() (request, error) { return win.RGet(dst, peer, 0) })
	req("Win.RAccumulate", func() (request, error) { return win.RAccumulate(Sum, src, peer, 0) })
	req("Win.RGetAccumulate", func() (request, error) { return win.RGetAccumulate(Sum, src, dst, peer, 0) })
	req("Win.RPutLayout", func() (request, error) { return win.RPutLayout(src, one, peer, 0, l) })
	req("Win.RGetLayout", func() (request, error) { return win.RGetLayout(dst, one, peer, 0, l) })
	req("Win.RAccumulateLayout", func() (request, error) { return win.RAccumulateLayout(Sum, src, one, peer, 0, l) })
	req("Win.RGetAccumulateLayout", func() (request, error) {
		return win.RGetAccumulateLayout(Sum, src, one, dst, one, peer, 0, l)
	})
	must(win.Unlock(peer))
	is(win.Put(src, peer, 0), ErrEpoch)
	must(win.Free())
	t.call("WinDynamic", func() { win = ok(WinDynamic[int64](w)) })
	at := ok(win.Attach(make([]int64, 2+me)))
	t.call("Win.Detach", func() { must(win.Detach(at)) })
	must(win.Free())
}

func (t *tour) locks() {
	win := ok(WinAlloc[int64](t.w, 4))
	t.call("Win.Lock", func() { must(win.Lock(1, Shared)) })
	t.call("Win.Flush", func() { must(win.Flush(1)) })
	t.call("Win.FlushLocal", func() { must(win.FlushLocal(1)) })
	t.call("Win.Unlock", func() { must(win.Unlock(1)) })
	t.call("Win.LockAll", func() { must(win.LockAll()) })
	t.call("Win.FlushAll", func() { must(win.FlushAll()) })
	t.call("Win.FlushLocalAll", func() { must(win.FlushLocalAll()) })
	t.call("Win.Sync", func() { must(win.Sync()) })
	t.call("Win.UnlockAll", func() { must(win.UnlockAll()) })
	must(win.Free())
}

// What hooks are told is what the program has called: operations, peers, tags, lengths, requests and errors.
func TestHooksTell(t *testing.T) {
	var told [2][]string
	tell := func(when string) func(k *Call) {
		return func(k *Call) {
			line := fmt.Sprintf("%s %s %v %s peer %d tag %d bytes %d", when, k.Op, k.Kind, k.Comm.Name(), k.Peer, k.Tag,
				k.Bytes)
			if k.SentBytes > 0 {
				line += fmt.Sprintf(" sent %d to %d tag %d", k.SentBytes, k.Dest, k.DestTag)
			}
			for _, d := range k.Done {
				line += fmt.Sprintf(", done %s %v peer %d tag %d bytes %d", d.Op, d.Kind, d.Peer, d.Tag, d.Bytes)
			}
			var e *Error
			if errors.As(k.Err, &e) {
				line += fmt.Sprintf(" error %v", e.Class)
			}
			told[k.Rank] = append(told[k.Rank], line)
		}
	}
	overLoop(t)(2, func(w *Comm) {
		if w.Rank() == 0 {
			must(Send(w, make([]int64, 3), 1, 7))
			is(Send(w, []byte{1}, 2, 7), ErrRank)
			ok(ok(Isend(w, make([]byte, 5), 1, 8)).Wait())
			return
		}
		ok(Recv(w, make([]int64, 4), AnySource, AnyTag))
		r := ok(Irecv(w, make([]byte, 9), 0, AnyTag))
		must(WaitAll(r))
	}, WithHooks(Hooks{Before: tell("before"), After: tell("after")}))
	u := fmt.Sprint(Undefined)
	want := [2]string{`before Send send world peer 1 tag 7 bytes 24
after Send send world peer 1 tag 7 bytes 24
before Send send world peer 2 tag 7 bytes 1
after Send send world peer 2 tag 7 bytes 1 error no such rank
before Isend send world peer 1 tag 8 bytes 5
after Isend send world peer 1 tag 8 bytes 5
before Wait wait world peer U tag U bytes 0
after Wait wait world peer U tag U bytes 0, done Isend send peer 1 tag 8 bytes 5
before Finalize other world peer U tag U bytes 0
after Finalize other world peer U tag U bytes 0`, `before Recv recv world peer -1 tag -1 bytes 32
after Recv recv world peer 0 tag 7 bytes 24
before Irecv recv world peer 0 tag -1 bytes 9
after Irecv recv world peer 0 tag -1 bytes 9
before WaitAll wait world peer U tag U bytes 0
after WaitAll wait world peer U tag U bytes 0, done Irecv recv peer 0 tag 8 bytes 5
before Finalize other world peer U tag U bytes 0
after Finalize other world peer U tag U bytes 0`}
	for rank := range want {
		got := strings.Join(told[rank], "\n")
		if want := strings.ReplaceAll(want[rank], "U", u); got != want {
			t.Errorf("rank %d was told\n%s\nwant\n%s", rank, got, want)
		}
	}
}

func init() {
	roles["hooks"] = func() error {
		var ops []string
		w, err := Init(WithHooks(Hooks{After: func(k *Call) { ops = append(ops, k.Op) }}))
		if err == nil {
			err = errors.Join(Barrier(w), Finalize())
		}
		fmt.Fprintln(os.Stdout, ops)
		return err
	}
}

// Hooks of Init see Finalize, when the rank has left; a Before that is missing is no call.
func TestHooksOfInit(t *testing.T) {
	if out := reexec(t, "hooks"); !strings.Contains(out, "[Barrier Finalize]") {
		t.Errorf("the hooks have seen %q", out)
	}
}
