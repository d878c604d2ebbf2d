package tagmatch

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The queries of shadow.go have the model's answers at every step of random schedules, and change nothing.
func TestShadowQueries(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		p := newPair(t)
		for range 200 {
			ctx, source, tag := uint32(rng.IntN(2)), int32(rng.IntN(4)-1), int32(rng.IntN(4)-1)
			switch k := rng.IntN(5); {
			case k < 2:
				p.post(ctx, source, tag)
			case k < 4:
				p.arrive(ctx, max(source, 0), max(tag, 0))
			case len(p.receives) > 0:
				p.cancel(rng.IntN(len(p.receives)))
			}
			p.query(uint32(rng.IntN(2)), int32(rng.IntN(3)), int32(rng.IntN(3)))
			p.check()
		}
	}
}

func (p *pair) query(ctx uint32, source, tag int32) {
	p.tb.Helper()
	would, any := -1, 0
	var naming, all []int
	for _, r := range p.model.receives {
		if would < 0 && r.matches(modelEntry{ctx, source, tag, -1}) {
			would = r.id
		}
		all = append(all, r.id)
		if r.source == AnySource {
			any++
		}
		if r.source == source {
			naming = append(naming, r.id)
		}
	}
	p.same("Peek", receiveID(p.table.Peek(ctx, source, tag)), would)
	p.same("FromAny", p.table.FromAny(), any)
	p.sameIDs("Receives", receiveIDs(p.table.Receives()), all)
	p.sameIDs("Naming", receiveIDs(p.table.Naming(source)), naming)
	if p.table.Awaits(source) != (any+len(naming) > 0) {
		p.tb.Fatalf("Awaits(%d) is wrong: %d receives are from any source, %d from that", source, any, len(naming))
	}
	for i, r := range p.model.receives {
		older := slices.Clone(p.model.receives[:i])
		slices.Reverse(older)
		want := slices.IndexFunc(older, func(o modelEntry) bool {
			return o.ctx == r.ctx && o.source == r.source && o.tag == r.tag
		})
		if want >= 0 {
			want = older[want].id
		}
		p.same("Older", receiveID(p.table.Older(p.receives[r.id])), want)
	}
}
