package tagmatch

// Questions of a caller who also hands posted receives to a device that matches by itself: the table then is the shadow of
// the device's list. None of them changes anything, and none is on the path of a message between peers without such a
// device.

// Peek returns the receive that Arrive would, and leaves it posted.
func (t *Table) Peek(ctx uint32, source, tag int32) *Receive {
	if source|tag < 0 {
		panicArrive(ctx, source, tag)
	}
	return t.match(ctx, source, tag)
}

// Older returns the youngest of the posted receives that have r's context, source and tag and are older than r, which
// is posted; or nil.
func (t *Table) Older(r *Receive) *Receive { return r.prev }

// FromAny is the number of posted receives whose source is AnySource.
func (t *Table) FromAny() int { return t.posted[anySource] + t.posted[anyBoth] }

// Naming returns the posted receives whose source is exactly this one, of any context and tag, oldest first. They stay
// posted. It walks all bins.
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
