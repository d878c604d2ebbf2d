package pml

import "testing"

// The latest contexts are remembered, each once, and no more than that.
func TestDropped(t *testing.T) {
	var d dropped
	const more = 100
	for ctx := range uint32(rememberDropped + more) {
		d.add(ctx)
		d.add(ctx)
		d.add(ctx / 2)
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
		if last := rememberDropped + more - 1 - ctx; !d.has(last) {
			t.Fatalf("context %d is not remembered", last)
		}
	}
}
