package tagmatch

// A Table holds bins. A bin is the queue of one distinct key (context, source,
// tag), where a wildcard is a value like any other (-1): four kinds of key,
// four kinds of bin, one hash of them all (bins.go).
//
//	a posted receive   is in one bin, that of its own key
//	a queued message   is in the exact bin of its key, and in one bin of each
//	                   wildcard kind that was ever used: (ctx, any, tag),
//	                   (ctx, source, any), (ctx, any, any)
//
// So Post and Probe look into one bin, whose head is the oldest match, and
// Arrive looks into one bin per kind of receive that is posted right now and
// takes the head that was posted first.
//
// Rejected: one list of posted wildcards next to a hash of exact receives, as most
// MPI libraries have it: each arrival then pays for every posted wildcard. Also
// rejected: linking every message four times from the start: a rank that never
// uses wildcards would pay three look-ups per unexpected message.

const (
	// AnySource as a receive's Source matches every source (MPI_ANY_SOURCE).
	AnySource = -1
	// AnyTag as a receive's Tag matches every tag (MPI_ANY_TAG).
	AnyTag = -1
)

// kind says which of source and tag are wildcards.
type kind uint8

const (
	exact     kind = 0
	anySource kind = 1
	anyTag    kind = 2
	anyBoth   kind = anySource | anyTag
	kinds          = 4
)

func kindOf(source, tag int32) kind {
	return kind(uint32(source)>>31 | uint32(tag)>>31<<1)
}

// Receive is a posted receive, embedded by value in the caller's request. It
// must not move or be copied while it is posted.
//
// Owner of the record: the table from a Post that returned nil until Arrive,
// Cancel, DropContext or FailSource returns it; the caller at all other times.
type Receive struct {
	Ctx    uint32
	Source int32 // a rank, or AnySource
	Tag    int32 // ≥ 0, or AnyTag
	Owner  any   // the caller's; never read here

	seq  uint64 // age among everything queued in this table; set by Post
	next *Receive
	prev *Receive
	bin  *bin // not nil ⇔ posted; next and prev are nil when it is nil
}

// Message is an arrived message without a receive, embedded by value in the
// caller's record. It must not move or be copied while it is queued.
//
// Owner of the record: the table from Queue until Post returns it, or Remove or
// DropContext takes it off; the caller at all other times.
type Message struct {
	Ctx    uint32
	Source int32  // exact, ≥ 0
	Tag    int32  // exact, ≥ 0
	linked uint32 // bit k ⇔ links[k].bin != nil; 0 ⇔ not queued; bit exact is set in every queued message
	Owner  any    // the caller's; never read here

	seq   uint64 // age among everything queued in this table; set by Queue
	links [kinds]messageLink
}

type messageLink struct {
	next *Message
	prev *Message
	bin  *bin // all three are nil when not linked
}

// bin is the queue of one distinct key.
type bin struct {
	ctx    uint32
	source int32
	tag    int32
	kind   kind
	idle   bool // ⇔ listed in Table.idle; an empty bin in the hash is always idle
	next   *bin // the bucket's chain, or the free list

	// At most one of the two queues is non-empty: a receive and a message that
	// match never wait at the same time. Both are ordered by seq, oldest first.
	firstReceive, lastReceive *Receive
	firstMessage, lastMessage *Message // chained by links[kind]

	table *Table // that it is of; to refuse a receive or a message of another table
}

// Table is the matching state of one rank. The zero Table is not ready: New.
type Table struct {
	last   [kinds]*bin // the bin of each kind used last, or &nowhere; in the hash, or &nowhere
	posted [kinds]int  // posted receives by kind
	wild   int         // sum of posted but for exact
	seq    uint64      // of the receive or message queued last

	unexpected int
	// Bit k: every queued message is linked in its bin of kind k. Once set it
	// stays; bit exact is set from the start.
	linking uint32

	hash
}

// New makes an empty table.
func New() *Table {
	t := &Table{
		last:    [kinds]*bin{&nowhere, &nowhere, &nowhere, &nowhere},
		linking: 1 << exact,
	}
	t.hash.init()
	return t
}

// Posted is the number of posted receives.
func (t *Table) Posted() int { return t.posted[exact] + t.wild }

// Unexpected is the number of queued messages.
func (t *Table) Unexpected() int { return t.unexpected }

// Post returns the oldest queued message that r matches, off the table now; or
// it returns nil, and r is posted.
func (t *Table) Post(r *Receive) *Message {
	if r.bin != nil || r.Source < AnySource || r.Tag < AnyTag {
		panicPost(r)
	}
	k := kindOf(r.Source, r.Tag)
	if t.linking&(1<<k) == 0 {
		t.startLinking(k)
	}
	b := t.last[k&3]
	if b.tag != r.Tag || b.source != r.Source || b.ctx != r.Ctx {
		b = t.obtain(k, r.Ctx, r.Source, r.Tag)
	}
	if m := b.firstMessage; m != nil {
		t.take(m)
		return m
	}
	t.append(b, k, r)
	return nil
}

// Arrive returns the oldest posted receive that matches, off the table now. If
// it returns nil, nothing has changed: the caller builds its record and calls
// Queue before any other call for this table.
//
// source and tag are exact; the caller has checked what came from outside.
func (t *Table) Arrive(ctx uint32, source, tag int32) *Receive {
	if source|tag < 0 {
		panicArrive(ctx, source, tag)
	}
	if t.wild != 0 {
		return t.arriveWild(ctx, source, tag)
	}
	if t.posted[exact] == 0 {
		return nil
	}
	b := t.last[exact]
	if b.tag != tag || b.source != source || b.ctx != ctx {
		if b = t.find(exact, ctx, source, tag); b == nil {
			return nil
		}
	}
	r := b.firstReceive
	if r == nil {
		return nil
	}
	// As remove does with the oldest one of an exact bin.
	t.posted[exact]--
	next := r.next
	b.firstReceive = next
	if next != nil {
		next.prev, r.next, r.bin = nil, nil, nil
		return r
	}
	b.lastReceive, r.bin = nil, nil
	if !b.idle {
		t.retire(b)
	}
	return r
}

// arriveWild is Arrive while wildcard receives are posted.
func (t *Table) arriveWild(ctx uint32, source, tag int32) *Receive {
	oldest := t.match(ctx, source, tag)
	if oldest != nil {
		t.remove(oldest)
	}
	return oldest
}

// match is the oldest receive for a message, of all kinds.
func (t *Table) match(ctx uint32, source, tag int32) *Receive {
	var oldest *Receive
	if t.posted[exact] != 0 {
		oldest = t.oldest(exact, ctx, source, tag, oldest)
	}
	if t.posted[anySource] != 0 {
		oldest = t.oldest(anySource, ctx, AnySource, tag, oldest)
	}
	if t.posted[anyTag] != 0 {
		oldest = t.oldest(anyTag, ctx, source, AnyTag, oldest)
	}
	if t.posted[anyBoth] != 0 {
		oldest = t.oldest(anyBoth, ctx, AnySource, AnyTag, oldest)
	}
	return oldest
}

// oldest is the older of best and the head of one bin.
func (t *Table) oldest(k kind, ctx uint32, source, tag int32, best *Receive) *Receive {
	b := t.last[k&3]
	if b.tag != tag || b.source != source || b.ctx != ctx {
		if b = t.find(k, ctx, source, tag); b == nil {
			return best
		}
	}
	if r := b.firstReceive; r != nil && (best == nil || r.seq < best.seq) {
		return r
	}
	return best
}

// Queue keeps m as unexpected, behind everything queued so far. Precondition:
// Arrive for m's context, source and tag just returned nil.
func (t *Table) Queue(m *Message) {
	if m.linked != 0 || m.Source|m.Tag < 0 {
		panicQueue(m)
	}
	t.seq++
	m.seq = t.seq
	m.linked = t.linking
	t.unexpected++
	b := t.last[exact]
	if b.tag != m.Tag || b.source != m.Source || b.ctx != m.Ctx {
		b = t.obtain(exact, m.Ctx, m.Source, m.Tag)
	}
	b.appendMessage(m, exact)
	if t.linking != 1<<exact {
		t.linkWild(m, t.linking)
	}
}

// linkWild links m into its bins of the wildcard kinds named in which.
func (t *Table) linkWild(m *Message, which uint32) {
	if which&(1<<anySource) != 0 {
		t.obtain(anySource, m.Ctx, AnySource, m.Tag).appendMessage(m, anySource)
	}
	if which&(1<<anyTag) != 0 {
		t.obtain(anyTag, m.Ctx, m.Source, AnyTag).appendMessage(m, anyTag)
	}
	if which&(1<<anyBoth) != 0 {
		t.obtain(anyBoth, m.Ctx, AnySource, AnyTag).appendMessage(m, anyBoth)
	}
}

// Probe returns the oldest queued message that a receive with this context,
// source and tag would get. It stays queued.
func (t *Table) Probe(ctx uint32, source, tag int32) *Message {
	if source < AnySource || tag < AnyTag {
		panicProbe(ctx, source, tag)
	}
	if t.unexpected == 0 {
		return nil
	}
	k := kindOf(source, tag)
	if t.linking&(1<<k) == 0 {
		t.startLinking(k)
	}
	b := t.last[k&3]
	if b.tag != tag || b.source != source || b.ctx != ctx {
		if b = t.find(k, ctx, source, tag); b == nil {
			return nil
		}
	}
	return b.firstMessage
}

// Remove takes a queued message off the table (a matched probe).
func (t *Table) Remove(m *Message) {
	if m.linked == 0 || m.links[exact].bin.table != t {
		panicRemove(m)
	}
	t.take(m)
}

// Cancel takes a posted receive off the table. It reports whether r was posted: it is not if it never was or has been
// matched.
func (t *Table) Cancel(r *Receive) bool {
	if r.bin == nil {
		return false
	}
	if r.bin.table != t {
		panicCancel(r)
	}
	t.remove(r)
	return true
}

// append posts r at the end of its bin, which is of kind k.
func (t *Table) append(b *bin, k kind, r *Receive) {
	t.seq++
	r.seq = t.seq
	t.posted[k&3]++
	if k != exact {
		t.wild++
	}
	p := b.lastReceive
	if p == nil {
		r.bin, b.firstReceive, b.lastReceive = b, r, r
		return
	}
	r.bin, r.prev, p.next, b.lastReceive = b, p, r, r
}

// remove takes r out of its bin and clears its links.
func (t *Table) remove(r *Receive) {
	b, next, prev := r.bin, r.next, r.prev
	if prev != nil {
		prev.next = next
	} else {
		b.firstReceive = next
	}
	if next != nil {
		next.prev = prev
	} else {
		b.lastReceive = prev
	}
	r.next, r.prev, r.bin = nil, nil, nil
	t.posted[b.kind&3]--
	if b.kind != exact {
		t.wild--
	}
	if b.firstReceive == nil && !b.idle {
		t.retire(b)
	}
}

// appendMessage links m at the end of b.
func (b *bin) appendMessage(m *Message, k kind) {
	if b.firstReceive != nil {
		panicPartner(m, b)
	}
	l := &m.links[k&3]
	l.bin = b
	if p := b.lastMessage; p != nil {
		l.prev = p
		p.links[k&3].next = m
	} else {
		b.firstMessage = m
	}
	b.lastMessage = m
}

// take takes m out of all its bins and clears its links.
func (t *Table) take(m *Message) {
	t.unexpected--
	linked := m.linked
	m.linked = 0
	t.unlink(m, exact)
	if linked == 1<<exact {
		return
	}
	if linked&(1<<anySource) != 0 {
		t.unlink(m, anySource)
	}
	if linked&(1<<anyTag) != 0 {
		t.unlink(m, anyTag)
	}
	if linked&(1<<anyBoth) != 0 {
		t.unlink(m, anyBoth)
	}
}

// unlink takes m out of its bin of one kind.
func (t *Table) unlink(m *Message, k kind) {
	l := &m.links[k&3]
	b, next, prev := l.bin, l.next, l.prev
	if prev != nil {
		prev.links[k&3].next = next
	} else {
		b.firstMessage = next
	}
	if next != nil {
		next.links[k&3].prev = prev
	} else {
		b.lastMessage = prev
	}
	l.next, l.prev, l.bin = nil, nil, nil
	if b.firstMessage == nil && !b.idle {
		t.retire(b)
	}
}
