package eager

import "math/bits"

// Pool keeps unexpected-message buffers for reuse. One goroutine at a time.
// A buffer belongs to the caller between Get and Put and to the pool after.
type Pool struct {
	free [classes][][]byte
	kept int // bytes in free. kept <= Keep
	Keep int // bytes the pool may hold on to; what is put beyond goes to the garbage collector
}

const (
	minClass = 6  // 64 bytes
	maxClass = 20 // 1 MiB
	classes  = maxClass - minClass + 1
)

func class(n int) int { return max(bits.Len(uint(max(n, 1)-1)), minClass) - minClass }

// Get returns a buffer of n bytes.
func (p *Pool) Get(n int) []byte {
	c := class(n)
	if c >= classes {
		return make([]byte, n)
	}
	if l := p.free[c]; len(l) > 0 {
		b := l[len(l)-1]
		l[len(l)-1] = nil
		p.free[c] = l[:len(l)-1]
		p.kept -= cap(b)
		return b[:n]
	}
	return make([]byte, n, 1<<(c+minClass))
}

// Put takes back what Get returned.
func (p *Pool) Put(b []byte) {
	c := class(cap(b))
	if c >= classes || cap(b) != 1<<(c+minClass) || p.kept+cap(b) > p.Keep {
		return
	}
	p.kept += cap(b)
	p.free[c] = append(p.free[c], b)
}
