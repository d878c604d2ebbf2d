package tagmatch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"weak"
)

// What matching may cost: the same work at any depth, and no allocation.
// Work is counted (hash.steps), not timed.

// queued is a table with depth entries of one kind, all of them reachable.
type queued struct {
	*Table
	kind     kind
	same     bool
	receives []Receive
	messages []Message
	most     uint64 // steps of the most expensive operation
	before   uint64
	ops      uint64
	total    uint64
}

func (q *queued) begin() { q.before = q.steps }

func (q *queued) end() {
	n := q.steps - q.before
	q.most = max(q.most, n)
	q.total += n
	q.ops++
}

// key of entry i: every part of it distinct, or nothing.
func (q *queued) key(i int) (ctx uint32, source, tag int32) { return otherKey(i, q.same) }

func (q *queued) post(i int) *Message {
	r := &q.receives[i]
	var source, tag int32
	r.Ctx, source, tag = q.key(i)
	r.Source, r.Tag = q.kind.key(source, tag)
	q.begin()
	m := q.Post(r)
	q.end()
	return m
}

func (q *queued) arrive(i int) *Receive {
	ctx, source, tag := q.key(i)
	q.begin()
	r := q.Arrive(ctx, source, tag)
	q.end()
	return r
}

func (q *queued) queue(i int) {
	m := &q.messages[i]
	m.Ctx, m.Source, m.Tag = q.key(i)
	q.begin()
	q.Queue(m)
	q.end()
}

func newQueued(depth int, k kind, same bool) *queued {
	q := &queued{Table: New(), kind: k, same: same}
	q.seed = [2]uint64{0x9e3779b97f4a7c15, 0xd1b54a32d192ed03} // the counts below are the same in every run
	q.receives = make([]Receive, depth+1)
	q.messages = make([]Message, depth+1)
	return q
}

func (q *queued) fillPosted(depth int) {
	for i := range depth {
		q.post(i)
	}
}

func (q *queued) fillUnexpected(depth int) {
	q.post(depth) // a receive of that kind was used: messages are linked for it
	q.Cancel(&q.receives[depth])
	for i := range depth {
		q.arrive(i)
		q.queue(i)
	}
}

// turnPosted runs each operation on an entry in the middle, one at the head and
// one that is not there, and leaves the depth as it was.
func (q *queued) turnPosted(tb testing.TB, i int) {
	r := &q.receives[i]
	q.begin()
	ok := q.Cancel(r)
	q.end()
	if !ok || q.post(i) != nil {
		tb.Fatal("a receive was not where it should be")
	}
	r = q.arrive(i) // the oldest of that key
	if r == nil {
		tb.Fatal("not met")
	}
	q.begin()
	m := q.Post(r)
	q.end()
	q.begin()
	none := q.Arrive(1<<31, 3, 4) // while all the others are posted
	q.end()
	if m != nil || none != nil {
		tb.Fatal("met")
	}
}

func (q *queued) turnUnexpected(tb testing.TB, i, depth int) {
	m := &q.messages[i]
	q.begin()
	q.Remove(m)
	q.end()
	if q.arrive(i) != nil {
		tb.Fatal("met")
	}
	q.queue(i)
	ctx, source, tag := q.key(i)
	source, tag = q.kind.key(source, tag)
	q.begin()
	seen := q.Probe(ctx, source, tag)
	q.end()
	r := &q.receives[depth]
	r.Ctx, r.Source, r.Tag = ctx, source, tag
	q.begin()
	got := q.Post(r)
	q.end()
	if got == nil || got != seen {
		tb.Fatal("the probe and the receive saw different messages")
	}
	q.begin()
	q.Queue(got)
	q.end()
	q.begin()
	none := q.Probe(1<<31, source, tag)
	q.end()
	if none != nil {
		tb.Fatal("found")
	}
}

type column struct {
	name       string
	kind       kind
	unexpected bool
	same       bool
}

func allColumns() (all []column) {
	for _, k := range benchKinds {
		for _, unexpected := range []bool{false, true} {
			for _, same := range []bool{false, true} {
				name := fmt.Sprintf("%s/%s/%s", k.name,
					map[bool]string{false: "posted", true: "unexpected"}[unexpected],
					map[bool]string{false: "distinct", true: "same"}[same])
				all = append(all, column{name, k.kind, unexpected, same})
			}
		}
	}
	return all
}

func (c column) fill(depth int) *queued {
	q := newQueued(depth, c.kind, c.same)
	if c.unexpected {
		q.fillUnexpected(depth)
	} else {
		q.fillPosted(depth)
	}
	return q
}

func (c column) turn(tb testing.TB, q *queued, i, depth int) {
	if c.unexpected {
		q.turnUnexpected(tb, i, depth)
	} else {
		q.turnPosted(tb, i)
	}
}

// deep is the length of a queue whose scan takes far more steps than any bound below.
func deep() int {
	if testing.Short() {
		return 10_000
	}
	return 100_000
}

// The same cost with 10 or 100,000 entries queued. One bound for all
// depths: a scan of the queue, of a chain that is never split, or of all wildcards
// would show as thousands of steps.
func TestCostDoesNotGrowWithTheQueue(t *testing.T) {
	const (
		mostWhileFilling = slabSize + 32 // one slab of bins, one chain or two
		most             = 48            // four chains walked, four bins deleted
		mean             = 6.0
	)
	for _, c := range allColumns() {
		t.Run(c.name, func(t *testing.T) {
			for _, depth := range []int{10, 1000, deep()} {
				q := c.fill(depth)
				if q.most > mostWhileFilling {
					t.Errorf("depth %d: %d steps in one operation while filling, want at most %d",
						depth, q.most, mostWhileFilling)
				}
				q.turnAll(t, c, depth, 500) // the first bins are made
				q.most, q.total, q.ops = 0, 0, 0
				q.turnAll(t, c, depth, 3000)
				if average := float64(q.total) / float64(q.ops); average > mean || q.most > most {
					t.Errorf("depth %d: %.1f steps per operation, %d in the most expensive; want at most %v and %d",
						depth, average, q.most, mean, most)
				}
				if n := q.Posted() + q.Unexpected(); n != depth {
					t.Fatalf("%d entries, want %d", n, depth)
				}
			}
		})
	}
}

func (q *queued) turnAll(tb testing.TB, c column, depth, times int) {
	random := rand.New(rand.NewPCG(1, 2))
	for range times {
		c.turn(tb, q, random.IntN(depth), depth)
	}
}

// The count above is complete only if every loop is in it: every loop of the
// files that hold the operations counts its turns, and these files call nothing of
// slow.go but the first use of a wildcard kind and the panics.
func TestEveryLoopIsCounted(t *testing.T) {
	files := token.NewFileSet()
	slow := map[string]bool{}
	for _, d := range parse(t, files, "slow.go").Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name != "startLinking" && !strings.HasPrefix(f.Name.Name, "panic") {
			slow[f.Name.Name] = true
		}
	}
	loops := 0
	for _, name := range []string{"table.go", "bins.go"} {
		ast.Inspect(parse(t, files, name), func(n ast.Node) bool {
			var body *ast.BlockStmt
			switch n := n.(type) {
			case *ast.ForStmt:
				body = n.Body
			case *ast.RangeStmt:
				body = n.Body
			case *ast.BranchStmt:
				if n.Tok == token.GOTO {
					t.Errorf("%s: goto", files.Position(n.Pos()))
				}
			case *ast.CallExpr:
				if called := nameOf(n.Fun); slow[called] {
					t.Errorf("%s: calls %s of slow.go", files.Position(n.Pos()), called)
				}
			}
			if body != nil {
				loops++
				if !countsFirst(body) {
					t.Errorf("%s: the first statement of this loop is not steps++", files.Position(body.Pos()))
				}
			}
			return true
		})
	}
	if loops < 3 {
		t.Fatalf("found %d loops: the test looks at the wrong files", loops)
	}
}

func parse(t *testing.T, files *token.FileSet, name string) *ast.File {
	f, err := parser.ParseFile(files, name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func countsFirst(body *ast.BlockStmt) bool {
	if len(body.List) == 0 {
		return false
	}
	s, ok := body.List[0].(*ast.IncDecStmt)
	return ok && s.Tok == token.INC && nameOf(s.X) == "steps"
}

// A rank that uses no wildcard links each message once and looks into one bin.
func TestWildcardsCostNothingUntilUsed(t *testing.T) {
	q := newQueued(100, exact, false)
	q.fillUnexpected(100)
	if q.linking != 1<<exact || q.bins != 100+1 {
		t.Fatalf("linking %b, %d bins for 100 messages and the receive that was cancelled", q.linking, q.bins)
	}
	q.Probe(2, AnySource, 0)
	if q.linking != 1<<exact|1<<anySource {
		t.Fatalf("linking %b after the first probe of any source", q.linking)
	}
	checkTable(t, q.Table)
}

// manyTurns are one run of AllocsPerRun, which rounds its mean down: run singly, a
// slab of bins made at every 64th turn would count as 0.
const manyTurns = 2000

// Nothing is allocated in steady state, at any depth.
func TestNoAllocation(t *testing.T) {
	for _, c := range allColumns() {
		t.Run(c.name, func(t *testing.T) {
			for _, depth := range []int{1, deep()} {
				q := c.fill(depth)
				q.turnAll(t, c, depth, 500)
				i := 0
				if n := testing.AllocsPerRun(5, func() {
					for range manyTurns {
						c.turn(t, q, i%depth, depth)
						i += 7919
					}
				}); n != 0 {
					t.Errorf("depth %d: %v allocations in %d turns", depth, n, manyTurns)
				}
			}
		})
	}
}

// Keys that never come back: bins are used again, the hash does not grow.
func TestNewKeysAllocateNothing(t *testing.T) {
	table := New()
	r := &Receive{Ctx: 1, Source: 5}
	turn := func() {
		r.Tag++
		table.Post(r)
		if table.Arrive(1, 5, r.Tag) != r {
			t.Fatal("not met")
		}
	}
	for range 1000 {
		turn()
	}
	if n := testing.AllocsPerRun(5, func() {
		for range manyTurns {
			turn()
		}
	}); n != 0 {
		t.Errorf("%v allocations in %d turns", n, manyTurns)
	}
	if table.bins > idleSize || table.buckets != pageSize {
		t.Errorf("%d bins, %d buckets for one receive at a time", table.bins, table.buckets)
	}
}

// Structured keys, as programs use them, spread over the chains.
func TestChainsAreShort(t *testing.T) {
	const n = 100_000
	keys := map[string]func(i int) (uint32, int32, int32){
		"tags":               func(i int) (uint32, int32, int32) { return 1, 5, int32(i) },
		"tags times 2^12":    func(i int) (uint32, int32, int32) { return 1, 5, int32(i) << 12 },
		"sources":            func(i int) (uint32, int32, int32) { return 1, int32(i), 6 },
		"contexts":           func(i int) (uint32, int32, int32) { return uint32(i), 5, 6 },
		"source = tag":       func(i int) (uint32, int32, int32) { return 1, int32(i), int32(i) },
		"context = tag":      func(i int) (uint32, int32, int32) { return uint32(i), 5, int32(i) },
		"sources by tags":    func(i int) (uint32, int32, int32) { return 1, int32(i % 316), int32(i / 316) },
		"source, no tag":     func(i int) (uint32, int32, int32) { return 1, int32(i), AnyTag },
		"any source, by tag": func(i int) (uint32, int32, int32) { return 1, AnySource, int32(i) },
	}
	for name, key := range keys {
		seeds := 5 // of those that New draws
		if testing.Short() {
			seeds = 1
		}
		for range seeds {
			table := New()
			receives := make([]Receive, n)
			for i := range receives {
				r := &receives[i]
				r.Ctx, r.Source, r.Tag = key(i)
				table.Post(r)
			}
			longest := 0
			for _, p := range table.pages {
				for _, b := range p {
					length := 0
					for ; b != nil; b = b.next {
						length++
					}
					longest = max(longest, length)
				}
			}
			if longest > 20 { // a random function gives about 10
				t.Errorf("%s: a chain of %d, seed %x", name, longest, table.seed)
			}
		}
	}
}

// A peer that picks tags cannot know the chains: each table has its own seed.
func TestSeedsDiffer(t *testing.T) {
	a, b := New(), New()
	if a.seed[0] == b.seed[0] || a.seed[1] == b.seed[1] || a.seed[0] == a.seed[1] {
		t.Fatalf("seeds %x and %x", a.seed, b.seed)
	}
}

// What an operation touches first stands in one cache line.
func TestLayout(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("64-bit layout")
	}
	if n := reflect.TypeFor[Receive]().Size(); n != 64 {
		t.Errorf("Receive takes %d bytes, want one line", n)
	}
	if n := reflect.TypeFor[bin]().Size(); n != 64 {
		t.Errorf("bin takes %d bytes, want one line", n)
	}
	links, _ := reflect.TypeFor[Message]().FieldByName("links")
	if end := links.Offset + reflect.TypeFor[messageLink]().Size(); end != 64 {
		t.Errorf("the exact link of a Message ends at %d, want 64", end)
	}
}

// The table keeps no pointer to what is off it.
func TestNothingIsKeptAlive(t *testing.T) {
	table := New()
	var receives []weak.Pointer[Receive]
	var messages []weak.Pointer[Message]
	watch := func(r *Receive, m *Message) {
		if r != nil {
			receives = append(receives, weak.Make(r))
		}
		if m != nil {
			messages = append(messages, weak.Make(m))
		}
	}
	func() {
		for _, k := range benchKinds {
			source, tag := k.kind.key(5, 6)
			for range 3 {
				watch(mustPost(t, table, 1, source, tag), nil)
			}
			cancelled := mustPost(t, table, 1, source, tag)
			watch(cancelled, nil)
			table.Cancel(cancelled)
			for range 3 {
				table.Arrive(1, 5, 6)
			}
			for range 4 {
				watch(nil, mustQueue(t, table, 1, 5, 6))
			}
			table.Remove(table.Probe(1, source, tag))
			for range 3 {
				watch(post(table, 1, source, tag))
			}
			watch(mustPost(t, table, 1, source, tag), mustQueue(t, table, 2, 8, 8))
			table.DropContext(1)
			table.DropContext(2)
			watch(mustPost(t, table, 1, 5, tag), nil)
			table.FailSource(5, nil)
		}
	}()
	for range 3 { // a stack that the first looks at may still hold one
		runtime.GC()
	}
	for i, r := range receives {
		if r.Value() != nil {
			t.Errorf("receive %d of %d is kept alive", i, len(receives))
		}
	}
	for i, m := range messages {
		if m.Value() != nil {
			t.Errorf("message %d of %d is kept alive", i, len(messages))
		}
	}
	runtime.KeepAlive(table)
}

// A broken rule of ours is a panic with numbers, at the call that broke it.
func TestMisusePanics(t *testing.T) {
	message := func() *Message { return &Message{Ctx: 1, Source: 5, Tag: 6} }
	cases := []struct {
		name, want string
		do         func(t *Table)
	}{
		{"Post twice", "posted already: context 1, source 5, tag 6", func(t *Table) {
			r, _ := post(t, 1, 5, 6)
			t.Post(r)
		}},
		{"Post twice, not alone", "posted already", func(t *Table) {
			r, _ := post(t, 1, 5, 6)
			post(t, 1, 5, 6)
			t.Post(r)
		}},
		{"Post source", "source -2, tag 6", func(t *Table) { post(t, 1, -2, 6) }},
		{"Post tag", "source 5, tag -2", func(t *Table) { post(t, 1, 5, -2) }},
		{"Arrive wildcard source", "source -1, tag 6", func(t *Table) { t.Arrive(1, -1, 6) }},
		{"Arrive wildcard tag", "source 5, tag -1", func(t *Table) { t.Arrive(1, 5, -1) }},
		{"Probe source", "source -2, tag 6", func(t *Table) { t.Probe(1, -2, 6) }},
		{"Probe tag", "source 5, tag -9", func(t *Table) { t.Probe(1, 5, -9) }},
		{"Queue twice", "queued already: context 1, source 5, tag 6", func(t *Table) {
			m := message()
			t.Queue(m)
			t.Queue(m)
		}},
		{"Queue wildcard", "source -1, tag 6", func(t *Table) { t.Queue(&Message{Ctx: 1, Source: -1, Tag: 6}) }},
		{"Queue, receive posted", "Arrive comes first", func(t *Table) { post(t, 1, 5, 6); t.Queue(message()) }},
		{"Queue, wildcard posted", "(source -1, tag 6", func(t *Table) { post(t, 1, -1, 6); t.Queue(message()) }},
		{"Remove of no queued message", "is not queued", func(t *Table) { t.Remove(message()) }},
		{"Remove twice", "is not queued", func(t *Table) { m := message(); t.Queue(m); t.Remove(m); t.Remove(m) }},
		{"Remove of a matched message", "is not queued", func(t *Table) {
			m := message()
			t.Queue(m)
			post(t, 1, 5, 6)
			t.Remove(m)
		}},
		{"Remove from another table", "another table", func(t *Table) { m := message(); New().Queue(m); t.Remove(m) }},
		{"Cancel in another table", "another table", func(t *Table) { r, _ := post(New(), 1, 5, 6); t.Cancel(r) }},
		{"FailSource of no rank", "FailSource(-2)", func(t *Table) { t.FailSource(-2, nil) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				text := fmt.Sprint(recover())
				if !strings.HasPrefix(text, "tagmatch: ") || !strings.Contains(text, c.want) {
					t.Errorf("panic %q, want one with %q", text, c.want)
				}
			}()
			c.do(New())
		})
	}
}
