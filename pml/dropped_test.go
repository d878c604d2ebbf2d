package pml

import "testing"

// The latest contexts that are not used again are remembered, each once, and no more than that.
func TestDropped(t *testing.T) {
	var d dropped
	const more = 100
	for ctx := range uint32(rememberDropped + more) {
		d.add(reusable + ctx)
		d.add(reusable + ctx)
		d.add(reusable + ctx/2)
	}
	if len(d.set) != rememberDropped || len(d.ring) != rememberDropped {
		t.Fatalf("%d are remembered, in %d places, not %d", len(d.set), len(d.ring), rememberDropped)
	}
	for _, ctx := range d.ring {
		if !d.has(ctx) {
			t.Fatalf("context %d is in its place, and is not remembered", ctx)
		}
	}
	for ctx := range uint32(rememberDropped) / 4 {
		if last := reusable + rememberDropped + more - 1 - ctx; !d.has(last) {
			t.Fatalf("context %d is not remembered", last)
		}
	}
}

// A context that can be used again is dropped until it is, however many others are dropped meanwhile.
func TestDroppedUntilReused(t *testing.T) {
	var d dropped
	d.remove(7)
	if d.has(7) {
		t.Fatal("a context that was never dropped is")
	}
	for _, ctx := range []uint32{0, 7, 8, reusable - 1} {
		d.add(ctx)
		for other := range uint32(rememberDropped + 1) {
			d.add(reusable + other)
			d.add(other | 1<<15)
		}
		if !d.has(ctx) {
			t.Fatalf("context %d is forgotten", ctx)
		}
		d.remove(ctx)
		if d.has(ctx) {
			t.Fatalf("context %d is in use, and is remembered", ctx)
		}
	}
}
