package tagmatch

// Queries for the engine where a sender waits for credit, and where the engine also hands posted receives to a device
// that matches by itself: the table is then the shadow of the device's list. They change nothing, and none is on the
// path of a message between peers without such a device.

// Peek returns the receive that Arrive would return, and leaves it posted.
func (t *Table) Peek(ctx uint32, source, tag int32) *Receive {
	if source|tag < 0 {
		panicArrive(ctx, source, tag)
	}
	return t.match(ctx, source, tag)
}

// Older returns the youngest posted receive that is older than r and has r's context, source and tag, or nil.
// Precondition: r is posted.
func (t *Table) Older(r *Receive) *Receive { return r.prev }

// FromAny is the number of posted receives whose source is AnySource.
func (t *Table) FromAny() int { return t.posted[anySource] + t.posted[anyBoth] }

// Awaits reports whether a receive is posted that a message from source could match, whatever its context and tag. It
// walks all bins, unless a receive is from any source or none is posted.
func (t *Table) Awaits(source int32) bool {
	if t.FromAny() != 0 || t.Posted() == 0 {
		return t.FromAny() != 0
	}
	found := false
	t.eachBin(func(b *bin) { found = found || b.source == source && b.firstReceive != nil })
	return found
}

// Sources returns the ranks that posted receives name, each once for each context and tag. It walks all bins.
func (t *Table) Sources() (sources []int32) {
	t.eachBin(func(b *bin) {
		if b.source >= 0 && b.firstReceive != nil {
			sources = append(sources, b.source)
		}
	})
	return sources
}

// Naming returns the posted receives with exactly this source, of any context and tag, oldest first. They stay posted.
// It walks all bins.
func (t *Table) Naming(source int32) []*Receive {
	var receives []*Receive
	t.eachBin(func(b *bin) {
		if b.source == source {
			receives = b.receives(receives)
		}
	})
	sortReceives(receives)
	return receives
}

// Receives returns all posted receives, oldest first. They stay posted. It walks all bins.
func (t *Table) Receives() []*Receive {
	var receives []*Receive
	t.eachBin(func(b *bin) { receives = b.receives(receives) })
	sortReceives(receives)
	return receives
}

// Messages returns the queued messages, oldest first, but not more than most: of these, any. They stay queued. It walks
// all bins.
func (t *Table) Messages(most int) []*Message {
	var messages []*Message
	t.eachBin(func(b *bin) {
		if b.kind != exact {
			return
		}
		for m := b.firstMessage; m != nil && len(messages) < most; m = m.links[exact].next {
			messages = append(messages, m)
		}
	})
	sortMessages(messages)
	return messages
}
