package tagmatch

import (
	"fmt"
	"testing"
)

// The pair every benchmark times: one entry queued and met by its partner, with
// depth-1 other entries queued that it does not match.

type benchKind struct {
	name string
	kind kind
}

var benchKinds = []benchKind{{"exact", exact}, {"any_source", anySource}, {"any_tag", anyTag}, {"any_both", anyBoth}}

// key is the receive's key for a message (ctx, source, tag).
func (k kind) key(source, tag int32) (int32, int32) {
	if k&anySource != 0 {
		source = AnySource
	}
	if k&anyTag != 0 {
		tag = AnyTag
	}
	return source, tag
}

// otherContext keeps the entries in the way apart from the key that is timed,
// whatever its wildcards are.
func otherKey(i int, same bool) (ctx uint32, source, tag int32) {
	if same {
		return 2, 3, 4
	}
	return uint32(2 + i), int32(i), int32(i)
}

// postOthers posts n receives of kind k that the timed key does not meet.
func postOthers(t *Table, n int, k kind, same bool) {
	receives := make([]Receive, n)
	for i := range receives {
		ctx, source, tag := otherKey(i, same)
		r := &receives[i]
		r.Ctx = ctx
		r.Source, r.Tag = k.key(source, tag)
		if t.Post(r) != nil {
			panic("a receive in the way was matched")
		}
	}
}

// queueOthers queues n messages, linked for kind k, that the timed key does not meet.
func queueOthers(t *Table, n int, k kind, same bool) {
	source, tag := k.key(0, 0)
	r := &Receive{Ctx: 1, Source: source, Tag: tag}
	t.Post(r) // from here on, messages are linked for kind k
	t.Cancel(r)
	messages := make([]Message, n)
	for i := range messages {
		m := &messages[i]
		m.Ctx, m.Source, m.Tag = otherKey(i, same)
		if t.Arrive(m.Ctx, m.Source, m.Tag) != nil {
			panic("a message in the way was matched")
		}
		t.Queue(m)
	}
}

var depths = []int{1, 1000, 100_000, 1_000_000}

func columns(b *testing.B, run func(b *testing.B, k kind, depth int, same bool)) {
	for _, k := range benchKinds {
		for _, same := range []bool{true, false} {
			keys := "distinct"
			if same {
				keys = "same"
			}
			for _, depth := range depths {
				if depth == 1 && !same {
					continue // nothing is in the way
				}
				b.Run(fmt.Sprintf("%s/%s/%d", k.name, keys, depth), func(b *testing.B) { run(b, k.kind, depth, same) })
			}
		}
	}
}

// BenchmarkPosted measures Post, then the Arrive that meets it; posted receives are in the way.
func BenchmarkPosted(b *testing.B) {
	columns(b, func(b *testing.B, k kind, depth int, same bool) {
		t := New()
		postOthers(t, depth-1, k, same)
		r := &Receive{Ctx: 1}
		r.Source, r.Tag = k.key(5, 6)
		b.ReportAllocs()
		for b.Loop() {
			t.Post(r)
			if t.Arrive(1, 5, 6) != r {
				b.Fatal("not met")
			}
		}
	})
}

// BenchmarkUnexpected measures Arrive, Queue, then the Post that meets it; unexpected messages are in the way.
func BenchmarkUnexpected(b *testing.B) {
	columns(b, func(b *testing.B, k kind, depth int, same bool) {
		t := New()
		queueOthers(t, depth-1, k, same)
		r := &Receive{Ctx: 1}
		r.Source, r.Tag = k.key(5, 6)
		m := &Message{Ctx: 1, Source: 5, Tag: 6}
		b.ReportAllocs()
		for b.Loop() {
			if t.Arrive(1, 5, 6) != nil {
				b.Fatal("met")
			}
			t.Queue(m)
			if t.Post(r) != m {
				b.Fatal("not met")
			}
		}
	})
}

// BenchmarkTurn has the queue itself turn, so that every key is cold and bins come and go: the oldest entry is met, and
// a new one takes its place at the end.
func BenchmarkTurn(b *testing.B) {
	columns(b, func(b *testing.B, k kind, depth int, same bool) {
		t := New()
		receives := make([]Receive, depth)
		for i := range receives {
			r := &receives[i]
			ctx, source, tag := otherKey(i, same)
			r.Ctx = ctx
			r.Source, r.Tag = k.key(source, tag)
			t.Post(r)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			ctx, source, tag := otherKey(i, same)
			if t.Arrive(ctx, source, tag) != &receives[i] {
				b.Fatal("not the oldest")
			}
			t.Post(&receives[i])
			if i++; i == depth {
				i = 0
			}
		}
	})
}

// BenchmarkNewTags measures pairs that each have a key never seen before.
func BenchmarkNewTags(b *testing.B) {
	t := New()
	r := &Receive{Ctx: 1, Source: 5}
	b.ReportAllocs()
	for b.Loop() {
		r.Tag = (r.Tag + 1) & (1<<30 - 1)
		t.Post(r)
		if t.Arrive(1, 5, r.Tag) != r {
			b.Fatal("not met")
		}
	}
}

// BenchmarkEightKeys measures eight neighbours in turn, none of them in the one-bin cache.
func BenchmarkEightKeys(b *testing.B) {
	t := New()
	r := &Receive{Ctx: 1, Tag: 6}
	b.ReportAllocs()
	for b.Loop() {
		r.Source = (r.Source + 1) & 7
		t.Post(r)
		if t.Arrive(1, r.Source, 6) != r {
			b.Fatal("not met")
		}
	}
}

func BenchmarkProbe(b *testing.B) {
	columns(b, func(b *testing.B, k kind, depth int, same bool) {
		t := New()
		queueOthers(t, depth-1, k, same)
		m := &Message{Ctx: 1, Source: 5, Tag: 6}
		t.Queue(m)
		source, tag := k.key(5, 6)
		for b.Loop() {
			if t.Probe(1, source, tag) != m {
				b.Fatal("not found")
			}
		}
	})
}
