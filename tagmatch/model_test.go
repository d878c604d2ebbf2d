package tagmatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// The model: two lists in order of age and a linear scan, from the text of the
// standard. It is the truth that the Table is compared with.

type modelEntry struct {
	ctx         uint32
	source, tag int32
	id          int
}

// matches reports whether e matches, by MPI 4.1 section 3.2.4: "The selection of a message by a receive operation is
// governed by the value of the message envelope. A message can be received by a receive operation if its envelope
// matches the source, tag and comm values specified by the receive operation. The receiver may specify a wildcard
// MPI_ANY_SOURCE value for source, and/or a wildcard MPI_ANY_TAG value for tag, indicating that any source and/or tag
// are acceptable."
func (receive modelEntry) matches(m modelEntry) bool {
	if receive.ctx != m.ctx {
		return false
	}
	if receive.source != AnySource && receive.source != m.source {
		return false
	}
	return receive.tag == AnyTag || receive.tag == m.tag
}

type model struct {
	receives []modelEntry // posted, oldest first
	messages []modelEntry // unexpected, oldest first
}

// post returns the id of the message, or -1 and keeps the receive.
func (m *model) post(r modelEntry) int {
	for i, message := range m.messages {
		if r.matches(message) {
			m.messages = slices.Delete(m.messages, i, i+1)
			return message.id
		}
	}
	m.receives = append(m.receives, r)
	return -1
}

// arrive returns the id of the receive, or -1 and keeps the message.
func (m *model) arrive(message modelEntry) int {
	for i, r := range m.receives {
		if r.matches(message) {
			m.receives = slices.Delete(m.receives, i, i+1)
			return r.id
		}
	}
	m.messages = append(m.messages, message)
	return -1
}

func (m *model) probe(r modelEntry) int {
	for _, message := range m.messages {
		if r.matches(message) {
			return message.id
		}
	}
	return -1
}

// drop deletes the entries for which gone holds and returns their ids.
func drop(from *[]modelEntry, gone func(modelEntry) bool) (ids []int) {
	*from = slices.DeleteFunc(*from, func(e modelEntry) bool {
		if gone(e) {
			ids = append(ids, e.id)
			return true
		}
		return false
	})
	return ids
}

// pair drives the table and the model alike and compares every answer.
type pair struct {
	tb    testing.TB
	table *Table
	model model
	// Every entry ever made, by id; out of the table or not.
	receives []*Receive
	messages []*Message
}

func newPair(tb testing.TB) *pair { return &pair{tb: tb, table: New()} }

func (p *pair) post(ctx uint32, source, tag int32) {
	p.tb.Helper()
	id := len(p.receives)
	r := &Receive{Ctx: ctx, Source: source, Tag: tag, Owner: id}
	p.receives = append(p.receives, r)
	want := p.model.post(modelEntry{ctx, source, tag, id})
	p.same(fmt.Sprintf("Post(%d,%d,%d)", ctx, source, tag), messageID(p.table.Post(r)), want)
}

func (p *pair) arrive(ctx uint32, source, tag int32) {
	p.tb.Helper()
	id := len(p.messages)
	want := p.model.arrive(modelEntry{ctx, source, tag, id})
	got := p.table.Arrive(ctx, source, tag)
	var m *Message
	if got == nil {
		m = &Message{Ctx: ctx, Source: source, Tag: tag, Owner: id}
		p.table.Queue(m)
	}
	p.messages = append(p.messages, m)
	p.same(fmt.Sprintf("Arrive(%d,%d,%d)", ctx, source, tag), receiveID(got), want)
}

func (p *pair) probe(ctx uint32, source, tag int32) *Message {
	p.tb.Helper()
	m := p.table.Probe(ctx, source, tag)
	want := p.model.probe(modelEntry{ctx, source, tag, -1})
	p.same(fmt.Sprintf("Probe(%d,%d,%d)", ctx, source, tag), messageID(m), want)
	return m
}

func (p *pair) remove(m *Message) {
	p.tb.Helper()
	id := m.Owner.(int)
	if ids := drop(&p.model.messages, func(e modelEntry) bool { return e.id == id }); len(ids) != 1 {
		p.tb.Fatalf("the model does not hold message %d", id)
	}
	p.table.Remove(m)
}

// cancel cancels the receive of any age, posted or long matched.
func (p *pair) cancel(id int) {
	p.tb.Helper()
	want := len(drop(&p.model.receives, func(e modelEntry) bool { return e.id == id })) == 1
	if got := p.table.Cancel(p.receives[id]); got != want {
		p.tb.Fatalf("Cancel(receive %d) = %v, the model says %v", id, got, want)
	}
}

func (p *pair) dropContext(ctx uint32) {
	p.tb.Helper()
	of := func(e modelEntry) bool { return e.ctx == ctx }
	receives, messages := p.table.DropContext(ctx)
	p.sameIDs("DropContext receives", receiveIDs(receives), drop(&p.model.receives, of))
	p.sameIDs("DropContext messages", messageIDs(messages), drop(&p.model.messages, of))
}

func (p *pair) failSource(source int32) {
	p.tb.Helper()
	of := func(e modelEntry) bool { return e.source == source }
	p.sameIDs("FailSource", receiveIDs(p.table.FailSource(source, nil)), drop(&p.model.receives, of))
}

func (p *pair) same(what string, got, want int) {
	p.tb.Helper()
	if got != want {
		p.tb.Fatalf("%s = %d, the model says %d", what, got, want)
	}
	if p.table.Posted() != len(p.model.receives) || p.table.Unexpected() != len(p.model.messages) {
		p.tb.Fatalf("after %s: %d posted, %d unexpected; the model has %d and %d", what,
			p.table.Posted(), p.table.Unexpected(), len(p.model.receives), len(p.model.messages))
	}
}

func (p *pair) sameIDs(what string, got, want []int) {
	p.tb.Helper()
	if !slices.Equal(got, want) {
		p.tb.Fatalf("%s = %v, the model says %v", what, got, want)
	}
}

func receiveID(r *Receive) int {
	if r == nil {
		return -1
	}
	return r.Owner.(int)
}

func messageID(m *Message) int {
	if m == nil {
		return -1
	}
	return m.Owner.(int)
}

func receiveIDs(rs []*Receive) (ids []int) {
	for _, r := range rs {
		ids = append(ids, r.Owner.(int))
	}
	return ids
}

func messageIDs(ms []*Message) (ids []int) {
	for _, m := range ms {
		ids = append(ids, m.Owner.(int))
	}
	return ids
}

// check proves every invariant that stands on the fields, and that no receive or
// message that is off the table holds a link.
func (p *pair) check() {
	p.tb.Helper()
	checkTable(p.tb, p.table)
	for _, r := range p.receives {
		if r.bin == nil && (r.next != nil || r.prev != nil) {
			p.tb.Fatalf("receive %v is off the table and keeps links", r.Owner)
		}
	}
	for _, m := range p.messages {
		if m != nil && m.linked == 0 && m.links != [kinds]messageLink{} {
			p.tb.Fatalf("message %v is off the table and keeps links", m.Owner)
		}
	}
}

func checkTable(tb testing.TB, t *Table) {
	tb.Helper()
	must := func(ok bool, format string, args ...any) {
		if !ok {
			tb.Helper()
			tb.Fatalf("invariant: "+format, args...)
		}
	}
	var posted [kinds]int
	linked := map[*Message]uint32{}
	inHash := map[*bin]bool{}
	idle := map[*bin]int{}
	for _, b := range t.idle {
		if b != nil {
			idle[b]++
		}
	}
	for i, pg := range t.pages {
		for j, head := range pg {
			for b := head; b != nil; b = b.next {
				must(!inHash[b], "bin twice in the hash")
				inHash[b] = true
				must(t.bucket(t.sum(b.ctx, b.source, b.tag)) == &t.pages[i][j], "bin in the wrong bucket")
				must(b.kind == kindOf(b.source, b.tag), "kind")
				must(b.table == t, "table of a bin")
				must(b.idle == (idle[b] == 1) && idle[b] <= 1, "idle %v, listed %d times", b.idle, idle[b])
				empty := b.firstReceive == nil && b.firstMessage == nil
				must(!empty || b.idle, "empty bin not idle")
				must(b.firstReceive == nil || b.firstMessage == nil, "a receive and its message both wait")
				var prev *Receive
				oldest := uint64(0)
				for r := b.firstReceive; r != nil; r = r.next {
					posted[b.kind]++
					must(r.bin == b && r.prev == prev, "links of a receive")
					must(r.Ctx == b.ctx && r.Source == b.source && r.Tag == b.tag, "key of a receive")
					must(r.seq > oldest, "order of receives")
					oldest, prev = r.seq, r
				}
				must(b.lastReceive == prev, "lastReceive")
				var before *Message
				oldest = 0
				for m := b.firstMessage; m != nil; m = m.links[b.kind].next {
					linked[m] |= 1 << b.kind
					must(m.links[b.kind].bin == b && m.links[b.kind].prev == before, "links of a message")
					must(m.Ctx == b.ctx && (m.Source == b.source || b.kind&anySource != 0) &&
						(m.Tag == b.tag || b.kind&anyTag != 0), "key of a message")
					must(m.seq > oldest, "order of messages")
					oldest, before = m.seq, m
				}
				must(b.lastMessage == before, "lastMessage")
			}
		}
	}
	for m, mask := range linked {
		must(mask == m.linked && mask == t.linking, "message linked in %b, its mask is %b, the table links %b",
			mask, m.linked, t.linking)
	}
	must(posted == t.posted && t.wild == posted[1]+posted[2]+posted[3], "posted %v, counted %v", t.posted, posted)
	must(len(linked) == t.unexpected, "unexpected %d, counted %d", t.unexpected, len(linked))
	must(uint64(len(inHash)) == t.bins && t.bins <= t.buckets, "%d bins, counted %d, %d buckets",
		t.bins, len(inHash), t.buckets)
	must(t.mask/2 < t.buckets && t.buckets <= t.mask, "%d buckets, mask %x", t.buckets, t.mask)
	for b := range idle {
		must(inHash[b], "idle bin not in the hash")
	}
	for k, b := range t.last {
		must(b == &nowhere || inHash[b] && int(b.kind) == k, "last bin of kind %d", k)
	}
	for b := t.free; b != nil; b = b.next {
		must(!inHash[b] && !b.idle, "free bin in use")
		must(b.firstReceive == nil && b.lastReceive == nil, "free bin keeps a receive")
		must(b.firstMessage == nil && b.lastMessage == nil, "free bin keeps a message")
	}
	must(nowhere == bin{source: -2, tag: -2}, "nowhere was written")
}

// step does one operation on both, chosen by three bytes.
func (p *pair) step(op, key, pick byte) {
	ctx := uint32(key & 3)
	source := int32(key >> 2 & 7)
	tag := int32(key >> 5)
	anyOf := func(wild byte) (int32, int32) {
		s, g := source, tag
		if wild&1 != 0 {
			s = AnySource
		}
		if wild&2 != 0 {
			g = AnyTag
		}
		return s, g
	}
	switch op % 16 {
	case 0, 1, 2:
		s, g := anyOf(pick)
		p.post(ctx, s, g)
	case 3:
		p.post(ctx, source, tag)
	case 4, 5, 6, 7:
		p.arrive(ctx, source, tag)
	case 8:
		s, g := anyOf(pick)
		p.probe(ctx, s, g)
	case 9:
		s, g := anyOf(pick)
		if m := p.probe(ctx, s, g); m != nil {
			p.remove(m)
		}
	case 10: // any queued message, not just the oldest of its key
		if n := len(p.model.messages); n != 0 {
			p.remove(p.messages[p.model.messages[int(pick)%n].id])
		}
	case 11:
		if n := len(p.receives); n != 0 {
			p.cancel(int(pick) % n)
		}
	case 12:
		if n := len(p.model.receives); n != 0 {
			p.cancel(p.model.receives[int(pick)%n].id)
		}
	case 13: // many distinct keys: bins come and go, buckets split
		s, _ := anyOf(pick)
		if len(p.model.receives)+len(p.model.messages) > 700 {
			return // the model is slow
		}
		for i := range int32(pick) {
			if op&16 != 0 {
				p.arrive(ctx, source, 1000+i)
			} else {
				p.post(ctx, s, 1000+i)
			}
		}
	case 14:
		p.dropContext(ctx)
	case 15:
		p.failSource(source)
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 0, 0})
	f.Add([]byte{4, 1, 0, 4, 2, 0, 8, 1, 3, 0, 1, 3, 0, 1, 2, 12, 0, 0})
	f.Add([]byte{29, 0, 255, 13, 0, 255, 29, 4, 200, 13, 0, 255, 14, 0, 0, 15, 0, 0})
	f.Add([]byte{0, 9, 3, 0, 9, 2, 0, 9, 1, 0, 9, 0, 4, 9, 0, 4, 9, 0, 4, 9, 0, 4, 9, 0, 4, 9, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		p := newPair(t)
		for n := 0; len(ops) >= 3 && n < 150; n++ {
			p.step(ops[0], ops[1], ops[2])
			ops = ops[3:]
			if n%50 == 49 {
				p.check()
			}
		}
		p.check()
	})
}

func TestRandomAgainstModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			p := newPair(t)
			for n := range 1000 {
				op := byte(random.Uint32())
				if k := op % 16; k >= 13 && random.IntN(20) != 0 {
					op -= k // the heavy ones are rare
				}
				p.step(op, byte(random.Uint32()), byte(random.Uint32()))
				if n%100 == 0 {
					p.check()
				}
			}
			p.check()
		})
	}
}

// Many distinct keys in every kind: splits over several rounds and evictions.
func TestManyKeysAgainstModel(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	p := newPair(t)
	for range 20000 {
		ctx, source, tag := random.Uint32N(3), random.Int32N(50), random.Int32N(200)
		switch random.IntN(8) {
		case 0, 1:
			p.post(ctx, source, tag)
		case 2:
			p.post([]uint32{ctx, 77}[random.IntN(2)], AnySource, tag+1000*random.Int32N(2))
		case 3:
			p.post(ctx, source, []int32{tag, AnyTag}[random.IntN(2)])
		case 4, 5, 6:
			p.arrive(ctx, source, tag)
		default:
			if n := len(p.model.receives); n > 1000 {
				p.cancel(p.model.receives[random.IntN(n)].id)
			}
		}
	}
	p.check()
	for ctx := range uint32(3) {
		p.dropContext(ctx)
	}
	p.check()
	if p.table.buckets <= 2*pageSize {
		t.Fatalf("%d buckets: the hash was not grown past one round", p.table.buckets)
	}
}
