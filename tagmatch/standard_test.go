package tagmatch

import (
	"fmt"
	"testing"
)

// One test per rule of MPI 4.1 that matching has to keep. The rule stands above
// the test in our words; section numbers are those of MPI 4.1 (November 2023).

func post(t *Table, ctx uint32, source, tag int32) (*Receive, *Message) {
	r := &Receive{Ctx: ctx, Source: source, Tag: tag}
	return r, t.Post(r)
}

func mustPost(tb testing.TB, t *Table, ctx uint32, source, tag int32) *Receive {
	tb.Helper()
	r, m := post(t, ctx, source, tag)
	if m != nil {
		tb.Fatalf("Post(%d,%d,%d) got a message (%d,%d,%d), want it posted", ctx, source, tag, m.Ctx, m.Source, m.Tag)
	}
	return r
}

func mustQueue(tb testing.TB, t *Table, ctx uint32, source, tag int32) *Message {
	tb.Helper()
	if r := t.Arrive(ctx, source, tag); r != nil {
		tb.Fatalf("Arrive(%d,%d,%d) met a receive (%d,%d,%d), want it unexpected",
			ctx, source, tag, r.Ctx, r.Source, r.Tag)
	}
	m := &Message{Ctx: ctx, Source: source, Tag: tag}
	t.Queue(m)
	return m
}

func mustArrive(tb testing.TB, t *Table, ctx uint32, source, tag int32, want *Receive) {
	tb.Helper()
	if got := t.Arrive(ctx, source, tag); got != want {
		tb.Fatalf("Arrive(%d,%d,%d) met %+v, want %+v", ctx, source, tag, got, want)
	}
}

func mustMeet(tb testing.TB, t *Table, ctx uint32, source, tag int32, want *Message) {
	tb.Helper()
	if _, got := post(t, ctx, source, tag); got != want {
		tb.Fatalf("Post(%d,%d,%d) met %+v, want %+v", ctx, source, tag, got, want)
	}
}

// 3.2.2, 3.2.3: the envelope is source, tag and communicator; a message goes to a
// receive only if all three agree.
func TestEnvelope(t *testing.T) {
	for _, other := range [][3]int32{{2, 5, 6}, {1, 4, 6}, {1, 5, 7}, {1, 6, 5}} {
		ctx, source, tag := uint32(other[0]), other[1], other[2]

		posted := New()
		r := mustPost(t, posted, 1, 5, 6)
		mustQueue(t, posted, ctx, source, tag)
		mustArrive(t, posted, 1, 5, 6, r)

		unexpected := New()
		m := mustQueue(t, unexpected, 1, 5, 6)
		mustPost(t, unexpected, ctx, source, tag)
		mustMeet(t, unexpected, 1, 5, 6, m)
	}
}

// 3.2.2: tags run from 0 to MPI_TAG_UB, here 2^31-1; ranks from 0.
func TestEnvelopeLimits(t *testing.T) {
	const most = 1<<31 - 1
	for _, key := range [][2]int32{{0, 0}, {0, most}, {most, 0}, {most, most}} {
		table := New()
		r := mustPost(t, table, 1<<32-1, key[0], key[1])
		mustArrive(t, table, 1<<32-1, key[0], key[1], r)
		m := mustQueue(t, table, 1<<32-1, key[0], key[1])
		mustMeet(t, table, 1<<32-1, AnySource, AnyTag, m)
	}
}

// 3.2.4: the receiver may give MPI_ANY_SOURCE, MPI_ANY_TAG or both, and then any
// source or any tag is acceptable; what is not a wildcard still has to agree.
func TestWildcards(t *testing.T) {
	cases := []struct {
		source, tag int32 // of the receive; the message has source 5, tag 6
		matches     bool
	}{
		{AnySource, 6, true}, {5, AnyTag, true}, {AnySource, AnyTag, true}, {5, 6, true},
		{AnySource, 7, false}, {4, AnyTag, false}, {4, 6, false}, {5, 7, false},
	}
	for _, c := range cases {
		posted := New()
		r := mustPost(t, posted, 1, c.source, c.tag)
		if got := posted.Arrive(1, 5, 6) == r; got != c.matches {
			t.Errorf("posted (%d,%d) matches (5,6): %v", c.source, c.tag, got)
		}
		unexpected := New()
		m := mustQueue(t, unexpected, 1, 5, 6)
		if got := unexpected.Probe(1, c.source, c.tag) == m; got != c.matches {
			t.Errorf("probe (%d,%d) matches (5,6): %v", c.source, c.tag, got)
		}
		if _, got := post(unexpected, 1, c.source, c.tag); (got == m) != c.matches {
			t.Errorf("unexpected (5,6) matches (%d,%d): %v", c.source, c.tag, got == m)
		}
	}
}

// 3.2.4: there is no wildcard for the communicator. A message is received within
// the communicator it was sent in.
func TestNoWildcardForCommunicator(t *testing.T) {
	table := New()
	r := mustPost(t, table, 1, AnySource, AnyTag)
	m := mustQueue(t, table, 2, 5, 6)
	mustPost(t, table, 1, AnySource, AnyTag)
	if got := table.Probe(1, AnySource, AnyTag); got != nil {
		t.Fatal("a probe saw a message of another communicator")
	}
	mustMeet(t, table, 2, AnySource, AnyTag, m)
	mustArrive(t, table, 1, 5, 6, r)
}

// 3.5, order: messages are non-overtaking. If two messages from one sender match
// the same receive, the receive does not get the second while the first is pending.
func TestMessagesDoNotOvertake(t *testing.T) {
	for _, k := range benchKinds {
		table := New()
		first := mustQueue(t, table, 1, 5, 6)
		second := mustQueue(t, table, 1, 5, 6)
		third := mustQueue(t, table, 1, 5, 6)
		source, tag := k.kind.key(5, 6)
		for _, m := range []*Message{first, second, third} {
			mustMeet(t, table, 1, source, tag, m)
		}
	}
}

// 3.5, order: with a wildcard for the tag, messages of one sender come in the
// order sent although their tags differ (the standard's example: first receive
// MPI_ANY_TAG, second with the tag).
func TestMessagesOfDifferentTagsDoNotOvertake(t *testing.T) {
	table := New()
	first := mustQueue(t, table, 1, 5, 9)
	second := mustQueue(t, table, 1, 5, 6)
	third := mustQueue(t, table, 1, 5, 9)
	mustMeet(t, table, 1, 5, AnyTag, first)
	mustMeet(t, table, 1, 5, 6, second)
	mustMeet(t, table, 1, AnySource, AnyTag, third)
}

// 3.5, order: if a receiver posts two receives and both match a message, the
// second does not get it while the first is pending.
func TestReceivesDoNotOvertake(t *testing.T) {
	for _, k := range benchKinds {
		table := New()
		source, tag := k.kind.key(5, 6)
		first := mustPost(t, table, 1, source, tag)
		second := mustPost(t, table, 1, source, tag)
		third := mustPost(t, table, 1, source, tag)
		for _, r := range []*Receive{first, second, third} {
			mustArrive(t, table, 1, 5, 6, r)
		}
	}
}

// 3.5, order, 3.2.4: an exact receive has no precedence over a wildcard: whatever
// their kinds, the one posted first gets the message. All 24 orders of the four kinds.
func TestWildcardAndExactReceivesInOrder(t *testing.T) {
	permutations(4, func(order []int) {
		table := New()
		var receives []*Receive
		for _, k := range order {
			source, tag := kind(k).key(5, 6)
			receives = append(receives, mustPost(t, table, 1, source, tag))
		}
		for _, r := range receives {
			mustArrive(t, table, 1, 5, 6, r)
		}
		if table.Posted() != 0 {
			t.Fatalf("%v: %d receives left", order, table.Posted())
		}
	})
}

// 3.5, order: taking messages by receives of changing kinds never gives a younger
// message of the same envelope before an older one, whether the wildcard was
// first used before or after the messages came. All orders of the kinds.
func TestMessagesInOrderForEveryKindOfReceive(t *testing.T) {
	for _, before := range []bool{true, false} {
		permutations(4, func(order []int) {
			table := New()
			if before {
				for k := range kinds {
					source, tag := kind(k).key(7, 7)
					table.Cancel(mustPost(t, table, 3, source, tag))
				}
			}
			var messages []*Message
			for range order {
				messages = append(messages, mustQueue(t, table, 1, 5, 6))
				mustQueue(t, table, 2, 5, 6)
			}
			for i, k := range order {
				source, tag := kind(k).key(5, 6)
				mustMeet(t, table, 1, source, tag, messages[i])
			}
		})
	}
}

func permutations(n int, f func([]int)) {
	var extend func(order []int)
	extend = func(order []int) {
		if len(order) == n {
			f(order)
			return
		}
	next:
		for i := range n {
			for _, used := range order {
				if used == i {
					continue next
				}
			}
			extend(append(order[:len(order):len(order)], i))
		}
	}
	extend(nil)
}

// 3.7.4: nonblocking operations are ordered by the calls that start them; a
// receive that is cancelled does not change the order of the others.
func TestOrderSurvivesCancel(t *testing.T) {
	for gone := range 3 {
		table := New()
		var receives []*Receive
		for range 3 {
			receives = append(receives, mustPost(t, table, 1, AnySource, 6))
		}
		if !table.Cancel(receives[gone]) {
			t.Fatal("not cancelled")
		}
		for i, r := range receives {
			if i != gone {
				mustArrive(t, table, 1, 5, 6, r)
			}
		}
		mustQueue(t, table, 1, 5, 6)
	}
}

// 3.8.1: MPI_IPROBE is true when there is a message that a receive with the same
// arguments would get; that receive then gets this very message. A message may be
// probed several times and need not be received after it was probed.
func TestProbe(t *testing.T) {
	for _, k := range benchKinds {
		table := New()
		source, tag := k.kind.key(5, 6)
		if table.Probe(1, source, tag) != nil {
			t.Fatal("a message in an empty table")
		}
		mustQueue(t, table, 2, 5, 6)
		if table.Probe(1, source, tag) != nil {
			t.Fatal("a message of another communicator")
		}
		first := mustQueue(t, table, 1, 5, 6)
		second := mustQueue(t, table, 1, 5, 6)
		for range 3 {
			if table.Probe(1, source, tag) != first {
				t.Fatal("not the oldest")
			}
		}
		mustMeet(t, table, 1, source, tag, first)
		if table.Probe(1, source, tag) != second {
			t.Fatal("not the next")
		}
	}
}

// 3.8.1: a probe sees no message that a receive has matched.
func TestProbeSeesNoMatchedMessage(t *testing.T) {
	table := New()
	r := mustPost(t, table, 1, AnySource, AnyTag)
	mustArrive(t, table, 1, 5, 6, r)
	if table.Probe(1, AnySource, AnyTag) != nil {
		t.Fatal("a matched message is still there")
	}
}

// 3.8.2: a message matched by MPI_MPROBE is received by its handle only: no other
// probe or receive gets it, and those behind it keep their order.
func TestMatchedProbe(t *testing.T) {
	for _, k := range benchKinds {
		table := New()
		source, tag := k.kind.key(5, 6)
		first := mustQueue(t, table, 1, 5, 6)
		second := mustQueue(t, table, 1, 5, 6)
		third := mustQueue(t, table, 1, 5, 6)
		m := table.Probe(1, source, tag)
		if m != first {
			t.Fatal("not the oldest")
		}
		table.Remove(m)
		if table.Probe(1, source, tag) != second {
			t.Fatal("the next probe does not see the next message")
		}
		table.Remove(third) // not the head of its queue
		mustMeet(t, table, 1, source, tag, second)
		mustPost(t, table, 1, source, tag)
	}
}

// 3.8.4: either the cancellation succeeds or the communication does, never both.
func TestCancel(t *testing.T) {
	for _, k := range benchKinds {
		table := New()
		source, tag := k.kind.key(5, 6)
		r := mustPost(t, table, 1, source, tag)
		if !table.Cancel(r) {
			t.Fatal("a posted receive was not cancelled")
		}
		if table.Cancel(r) {
			t.Fatal("cancelled twice")
		}
		m := mustQueue(t, table, 1, 5, 6) // a cancelled receive takes no message
		mustMeet(t, table, 1, source, tag, m)

		mustPost(t, table, 1, source, tag)
		matched := table.Arrive(1, 5, 6)
		if table.Cancel(matched) {
			t.Fatal("a matched receive was cancelled")
		}
		if table.Post(r) != nil || !table.Cancel(r) {
			t.Fatal("a cancelled receive cannot be used again (3.9, persistent requests)")
		}
	}
}

// MPI 4.1 7.4.2: a peer may be done making a communicator, and send on
// it, before this rank is: such messages wait, in order, until it is made.
func TestMessagesOfUnknownCommunicatorsAreParked(t *testing.T) {
	table := New()
	var messages []*Message
	for tag := range int32(3) {
		messages = append(messages, mustQueue(t, table, 41, 5, tag))
	}
	mustQueue(t, table, 42, 5, 0)
	for i, m := range messages {
		mustMeet(t, table, 41, []int32{5, AnySource, AnySource}[i], []int32{0, 1, AnyTag}[i], m)
	}
	if table.Unexpected() != 1 {
		t.Fatalf("%d messages left, want that of context 42", table.Unexpected())
	}
}

// 7.4.3: a freed communicator: what is queued on it comes back in order, what is
// queued on others stays.
func TestDropContext(t *testing.T) {
	table := New()
	a := mustPost(t, table, 1, 5, 6)
	b := mustPost(t, table, 1, AnySource, 7)
	kept := mustPost(t, table, 2, 5, 6)
	c := mustPost(t, table, 1, 5, 6)
	m := mustQueue(t, table, 1, 9, 9)
	n := mustQueue(t, table, 1, 8, 8)
	keptMessage := mustQueue(t, table, 2, 9, 9)
	receives, messages := table.DropContext(1)
	if fmt.Sprint(receives) != fmt.Sprint([]*Receive{a, b, c}) || fmt.Sprint(messages) != fmt.Sprint([]*Message{m, n}) {
		t.Fatalf("got %v and %v", receives, messages)
	}
	if receives, messages = table.DropContext(1); receives != nil || messages != nil {
		t.Fatal("dropped twice")
	}
	mustArrive(t, table, 2, 5, 6, kept)
	mustMeet(t, table, 2, AnySource, AnyTag, keptMessage)
	checkTable(t, table)
}

// A peer lost: the receives that name it come back, of every communicator, in
// order; receives from any source and the messages that it sent before stay.
func TestFailSource(t *testing.T) {
	table := New()
	a := mustPost(t, table, 1, 5, 6)
	b := mustPost(t, table, 2, 5, AnyTag)
	wildcard := mustPost(t, table, 1, AnySource, 6)
	other := mustPost(t, table, 1, 4, 6)
	c := mustPost(t, table, 1, 5, 6)
	m := mustQueue(t, table, 1, 5, 9)
	if got := table.FailSource(5, nil); fmt.Sprint(got) != fmt.Sprint([]*Receive{a, b, c}) {
		t.Fatalf("got %v", got)
	}
	if got := table.FailSource(5, nil); got != nil {
		t.Fatal("failed twice")
	}
	last := mustPost(t, table, 2, AnySource, 3)
	got := table.FailSource(AnySource, func(r *Receive) bool { return r != last })
	if len(got) != 1 || got[0] != last { // the one before it keeps its place
		t.Fatalf("from any source: got %v", got)
	}
	mustArrive(t, table, 1, 4, 6, wildcard)
	mustArrive(t, table, 1, 4, 6, other)
	mustMeet(t, table, 1, 5, AnyTag, m)
	checkTable(t, table)
}
