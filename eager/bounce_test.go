package eager

import (
	"math/rand/v2"
	"testing"
)

// The pool never keeps more than it may, never gives one buffer to two, and gives what was asked for.
func TestPool(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	p := Pool{Keep: 300 << 10}
	out := map[*byte][]byte{}
	for step := range 20_000 {
		if r.IntN(2) == 0 || len(out) == 0 {
			n := 1 + r.IntN(1<<r.IntN(22))
			b := p.Get(n)
			if len(b) != n {
				t.Fatalf("step %d: %d bytes instead of %d", step, len(b), n)
			}
			if out[&b[0]] != nil {
				t.Fatalf("step %d: a buffer is given out twice", step)
			}
			out[&b[0]] = b
		} else {
			for at, b := range out {
				p.Put(b)
				delete(out, at)
				break
			}
		}
		kept := 0
		for c := range p.free {
			for _, b := range p.free[c] {
				if cap(b) != 1<<(c+minClass) {
					t.Fatalf("step %d: a buffer of %d bytes in class %d", step, cap(b), c)
				}
				kept += cap(b)
			}
		}
		if kept != p.kept || kept > p.Keep {
			t.Fatalf("step %d: %d bytes are kept, it says %d, it may keep %d", step, kept, p.kept, p.Keep)
		}
	}
}

// What comes from elsewhere, or is larger than any class, is not kept.
func TestPoolForeign(t *testing.T) {
	p := Pool{Keep: 100 << 20}
	p.Put(make([]byte, 100))
	p.Put(make([]byte, 0, 65))
	p.Put(nil)
	p.Put(p.Get(1<<maxClass + 1))
	if p.kept != 0 {
		t.Errorf("%d bytes of foreign buffers are kept", p.kept)
	}
	p.Put(p.Get(1 << maxClass))
	if p.kept != 1<<maxClass {
		t.Errorf("%d bytes are kept, want %d", p.kept, 1<<maxClass)
	}
}

func TestPoolAllocatesNothing(t *testing.T) {
	p := Pool{Keep: 1 << 20}
	p.Put(p.Get(1000))
	if n := testing.AllocsPerRun(1000, func() { p.Put(p.Get(700)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
