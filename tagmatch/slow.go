package tagmatch

import (
	"cmp"
	"fmt"
	"slices"
)

// What happens less than once a message: the first wildcard of a kind, a
// communicator freed, a peer lost. Each walks all bins. And the panics: each says
// that the caller, a package of this module, broke a rule.

// startLinking links all queued messages into their bins of kind k, in order of
// arrival; from now on Queue does so. It happens at most once per kind and table.
func (t *Table) startLinking(k kind) {
	if t.unexpected == 0 {
		t.linking |= 1 << k
		return
	}
	type aged struct {
		seq uint64 // a copy, so that the sort stays in one piece of memory
		m   *Message
	}
	queued := make([]aged, 0, t.unexpected)
	t.eachBin(func(b *bin) {
		if b.kind != exact {
			return
		}
		for m := b.firstMessage; m != nil; m = m.links[exact].next {
			queued = append(queued, aged{m.seq, m})
		}
	})
	slices.SortFunc(queued, func(a, b aged) int { return cmp.Compare(a.seq, b.seq) })
	t.linking |= 1 << k
	for _, a := range queued {
		a.m.linked |= 1 << k
		t.linkWild(a.m, 1<<k)
	}
}

// DropContext takes every receive and message of a context off the table and
// returns them, each in the order in which they were queued.
func (t *Table) DropContext(ctx uint32) (receives []*Receive, messages []*Message) {
	t.eachBin(func(b *bin) {
		if b.ctx != ctx {
			return
		}
		receives = b.receives(receives)
		if b.kind == exact {
			messages = b.messages(messages)
		}
	})
	t.removeAll(receives)
	sortMessages(messages)
	for _, m := range messages {
		t.take(m)
	}
	return receives, messages
}

// FailSource takes every posted receive that names exactly this source (or
// AnySource), of any context and tag, off the table and returns them in the order
// in which they were posted. A receive for which stays returns true keeps its
// place; nil: none does. Messages that arrived stay.
func (t *Table) FailSource(source int32, stays func(*Receive) bool) []*Receive {
	if source < AnySource {
		panic(fmt.Sprintf("tagmatch: FailSource(%d): needs a rank or AnySource", source))
	}
	return t.fail(func(b *bin) bool { return b.source == source }, stays)
}

// FailAll takes every posted receive off the table.
func (t *Table) FailAll() []*Receive { return t.fail(func(*bin) bool { return true }, nil) }

func (t *Table) fail(which func(*bin) bool, stays func(*Receive) bool) []*Receive {
	var receives []*Receive
	t.eachBin(func(b *bin) {
		if which(b) {
			receives = b.receives(receives)
		}
	})
	if stays != nil {
		receives = slices.DeleteFunc(receives, stays)
	}
	t.removeAll(receives)
	return receives
}

// removeAll sorts receives by age and takes them off.
func (t *Table) removeAll(receives []*Receive) {
	sortReceives(receives)
	for _, r := range receives {
		t.remove(r)
	}
}

func sortReceives(receives []*Receive) {
	slices.SortFunc(receives, func(a, b *Receive) int { return cmp.Compare(a.seq, b.seq) })
}

func sortMessages(messages []*Message) {
	slices.SortFunc(messages, func(a, b *Message) int { return cmp.Compare(a.seq, b.seq) })
}

// eachBin calls f with every bin in the hash. f changes no bin.
func (t *Table) eachBin(f func(*bin)) {
	for _, p := range t.pages {
		for _, b := range p {
			for ; b != nil; b = b.next {
				f(b)
			}
		}
	}
}

func (b *bin) receives(to []*Receive) []*Receive {
	for r := b.firstReceive; r != nil; r = r.next {
		to = append(to, r)
	}
	return to
}

func (b *bin) messages(to []*Message) []*Message {
	for m := b.firstMessage; m != nil; m = m.links[b.kind].next {
		to = append(to, m)
	}
	return to
}

//go:noinline
func panicPost(r *Receive) {
	if r.bin != nil {
		panic(fmt.Sprintf("tagmatch: Post of a receive that is posted already: "+
			"context %d, source %d, tag %d, sequence %d", r.Ctx, r.Source, r.Tag, r.seq))
	}
	panic(fmt.Sprintf("tagmatch: Post of a receive with source %d, tag %d: each must be -1 (any) or more",
		r.Source, r.Tag))
}

//go:noinline
func panicArrive(ctx uint32, source, tag int32) {
	panic(fmt.Sprintf("tagmatch: Arrive of a message with context %d, source %d, tag %d: "+
		"source and tag must be 0 or more; check them where they are decoded", ctx, source, tag))
}

//go:noinline
func panicQueue(m *Message) {
	if m.linked != 0 {
		panic(fmt.Sprintf("tagmatch: Queue of a message that is queued already: "+
			"context %d, source %d, tag %d, sequence %d", m.Ctx, m.Source, m.Tag, m.seq))
	}
	panic(fmt.Sprintf("tagmatch: Queue of a message with source %d, tag %d: each must be 0 or more", m.Source, m.Tag))
}

//go:noinline
func panicPartner(m *Message, b *bin) {
	panic(fmt.Sprintf("tagmatch: Queue of a message with context %d, source %d, tag %d while a receive "+
		"that matches it is posted (source %d, tag %d, sequence %d): Arrive comes first",
		m.Ctx, m.Source, m.Tag, b.source, b.tag, b.firstReceive.seq))
}

//go:noinline
func panicProbe(ctx uint32, source, tag int32) {
	panic(fmt.Sprintf("tagmatch: Probe of context %d with source %d, tag %d: each must be -1 (any) or more",
		ctx, source, tag))
}

//go:noinline
func panicRemove(m *Message) {
	what := "is not queued"
	if m.linked != 0 {
		what = "is queued in another table"
	}
	panic(fmt.Sprintf("tagmatch: Remove of a message that %s: context %d, source %d, tag %d, sequence %d",
		what, m.Ctx, m.Source, m.Tag, m.seq))
}

//go:noinline
func panicCancel(r *Receive) {
	panic(fmt.Sprintf("tagmatch: Cancel of a receive posted in another table: "+
		"context %d, source %d, tag %d, sequence %d", r.Ctx, r.Source, r.Tag, r.seq))
}
