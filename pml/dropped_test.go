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
	for _, in := range d.ring {
		if !d.has(in.ctx) {
			t.Fatalf("context %d is in its place, and is not remembered", in.ctx)
		}
	}
	for ctx := range uint32(rememberDropped) / 4 {
		if last := rememberDropped + more - 1 - ctx; !d.has(last) {
			t.Fatalf("context %d is not remembered", last)
		}
	}
}

// A context that is in use again is not dropped; one that has been dropped again is remembered as long as any.
func TestDroppedAgain(t *testing.T) {
	var d dropped
	d.add(7)
	d.remove(7)
	if d.has(7) {
		t.Fatal("a context in use is remembered")
	}
	for ctx := range uint32(rememberDropped - 2) {
		d.add(100 + ctx)
	}
	d.add(7)
	for ctx := range uint32(rememberDropped - 1) { // the first place of 7 is taken
		d.add(1<<20 + ctx)
		if !d.has(7) {
			t.Fatalf("it is forgotten after %d others", ctx+1)
		}
	}
	d.add(1 << 30)
	if d.has(7) || len(d.set) != rememberDropped {
		t.Fatalf("it is remembered too long, or %d are remembered", len(d.set))
	}
}
