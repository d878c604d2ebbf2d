package tagmatch

import (
	"hash/maphash"
	"math/bits"
)

// The hash of bins. It grows by linear hashing: there are 2^n + p buckets, and
// one more bin than buckets splits bucket p in two. No operation ever moves more
// than one chain, so there is no pause that grows with the queue; nothing
// shrinks. Buckets stand in pages, so that growth copies no buckets either.
//
//	mask = 2^(n+1) - 1
//	bucket of h = h & mask              if that bucket exists already
//	            = h & mask>>1           if not: its half has not been split off
//
// Memory stays at the high-water mark of distinct keys queued at one time: one
// bin (64 B) and one bucket (8 B) per key.

const (
	pageBits = 9
	pageSize = 1 << pageBits
	slabSize = 64  // bins made at a time
	idleSize = 128 // empty bins kept in the hash, a power of two
)

type page [pageSize]*bin

type hash struct {
	pages   []*page
	mask    uint64
	buckets uint64    // mask/2 < buckets ≤ mask
	bins    uint64    // in the hash, empty ones included; ≤ buckets
	seed    [2]uint64 // random per table: a peer that picks the tags cannot pick the chains
	free    *bin      // not in the hash; they hold no receive and no message

	// Bins that have been empty lately stay in the hash, so that a key in steady
	// use costs no hash work. Written round robin: a bin that fell empty is listed
	// once and stays while it is used again. When its slot is needed it leaves the
	// hash if it is empty then.
	idle     [idleSize]*bin
	nextIdle uint

	// steps counts the turns of every loop that an operation can run, so that a
	// test can prove the cost flat without a clock.
	steps uint64
}

// nowhere has a key that no caller can pass. It is never written.
var nowhere = bin{source: AnySource - 1, tag: AnyTag - 1}

func (h *hash) init() {
	random := maphash.MakeSeed()
	h.seed = [2]uint64{maphash.String(random, "context, source"), maphash.String(random, "tag")}
	h.pages = []*page{new(page)}
	h.buckets = pageSize
	h.mask = 2*pageSize - 1
}

// sum is one folded multiplication (as in wyhash) over the 96 bits of the key, and
// a plain one. Measured with 100,000 tags that count up, the longest chain over
// 100 seeds: 30 with the first alone, 11 with both.
func (h *hash) sum(ctx uint32, source, tag int32) uint64 {
	hi, lo := bits.Mul64(h.seed[0]^(uint64(ctx)<<32|uint64(uint32(source))), h.seed[1]^uint64(uint32(tag)))
	sum := (hi ^ lo) * 0x9e3779b97f4a7c15
	return sum ^ sum>>32
}

// bucket is where the chain of a hash value starts.
func (h *hash) bucket(sum uint64) **bin {
	i := sum & h.mask
	if i >= h.buckets {
		i &= h.mask >> 1
	}
	return &h.pages[i>>pageBits][i%pageSize]
}

// find returns the bin of a key, nil when the hash has none.
func (t *Table) find(k kind, ctx uint32, source, tag int32) *bin {
	for b := *t.bucket(t.sum(ctx, source, tag)); b != nil; b = b.next {
		t.steps++
		if b.tag == tag && b.source == source && b.ctx == ctx {
			t.last[k&3] = b
			return b
		}
	}
	return nil
}

// obtain returns the bin of a key, a new one when the hash has none.
func (t *Table) obtain(k kind, ctx uint32, source, tag int32) *bin {
	b := t.last[k&3]
	if b.tag == tag && b.source == source && b.ctx == ctx {
		return b
	}
	if b = t.find(k, ctx, source, tag); b != nil {
		return b
	}
	return t.insert(k, ctx, source, tag)
}

// insert puts a bin for a new key into the hash. The caller fills it before the
// next call of retire: until then it is empty and not idle.
func (t *Table) insert(k kind, ctx uint32, source, tag int32) *bin {
	b := t.free
	if b == nil {
		b = t.makeBins()
	}
	t.free = b.next
	if t.bins++; t.bins > t.buckets {
		t.split()
	}
	at := t.bucket(t.sum(ctx, source, tag))
	b.ctx, b.source, b.tag, b.kind = ctx, source, tag, k
	b.next = *at
	*at = b
	t.last[k&3] = b
	return b
}

// makeBins fills the empty free list.
func (t *Table) makeBins() *bin {
	slab := new([slabSize]bin)
	for i := range slab {
		t.steps++
		slab[i].table = t
		slab[i].next = t.free
		t.free = &slab[i]
	}
	return t.free
}

// split adds one bucket and gives it its share of the chain it was split from.
func (h *hash) split() {
	to := h.buckets
	from := to & (h.mask >> 1)
	if to>>pageBits == uint64(len(h.pages)) {
		h.pages = append(h.pages, new(page))
	}
	source := &h.pages[from>>pageBits][from%pageSize]
	target := &h.pages[to>>pageBits][to%pageSize]
	b := *source
	*source = nil
	for b != nil {
		h.steps++
		next, at := b.next, source
		if h.sum(b.ctx, b.source, b.tag)&h.mask == to {
			at = target
		}
		b.next = *at
		*at = b
		b = next
	}
	if h.buckets++; h.buckets == h.mask+1 {
		h.mask = h.mask<<1 | 1
	}
}

// retire lists b, which just fell empty, as idle. The bin that b displaces leaves
// the hash if it is empty. Precondition: b is not idle.
func (t *Table) retire(b *bin) {
	at := &t.idle[t.nextIdle%idleSize]
	t.nextIdle++
	old := *at
	*at = b
	b.idle = true
	if old == nil {
		return
	}
	old.idle = false
	if old.firstReceive == nil && old.firstMessage == nil {
		t.delete(old)
	}
}

// delete takes an empty bin out of the hash and into the free list.
func (t *Table) delete(b *bin) {
	at := t.bucket(t.sum(b.ctx, b.source, b.tag))
	for *at != b {
		t.steps++
		at = &(*at).next
	}
	*at = b.next
	t.bins--
	if t.last[b.kind&3] == b {
		t.last[b.kind&3] = &nowhere
	}
	b.next = t.free
	t.free = b
}
