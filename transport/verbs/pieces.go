//go:build verbs && linux && cgo

package verbs

import (
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// pieces are the memory of a long READ or WRITE. Goroutines register it in pieces, while those before move.
type pieces struct {
	mem     transport.Mem
	rights  int
	regs    []*registration // by piece; nil: it is not registered yet
	asked   int             // pieces that the cache or a goroutine has been asked for, from the first on
	missing int             // of these, how many goroutines are at
}

func newPieces(mem transport.Mem, rights int) *pieces {
	return &pieces{mem: mem, rights: rights, regs: make([]*registration, (mem.Len+registerPiece-1)/registerPiece)}
}

func (p *pieces) part(i int) transport.Mem {
	from := int64(i) * registerPiece
	return p.mem.Part(from, min(registerPiece, int64(p.mem.Len)-from))
}

// registeredPart returns how many of the n bytes that come next one request may move, and has the memory behind them
// registered. 0: the next byte is not registered yet.
func (g *rmaOp) registeredPart(d *Device, n int) int {
	p := g.pieces
	at := p.mem.Len - g.left
	next := at / registerPiece
	for ; p.asked < min(len(p.regs), next+piecesAhead); p.asked++ {
		g.ask(d, p.asked)
	}
	if p.regs[next] == nil {
		return 0
	}
	g.lkey = p.regs[next].region.lkey
	return min(n, registerPiece-at%registerPiece)
}

// ask asks for piece i.
func (g *rmaOp) ask(d *Device, i int) {
	p := g.pieces
	mem := p.part(i)
	if p.regs[i] = d.kept(mem, p.rights); p.regs[i] != nil {
		return
	}
	p.missing++
	d.registerLater(mem, p.rights, func(x *registration, err error) {
		p.missing--
		p.regs[i] = x
		if err != nil && g.err == nil {
			g.err = fmt.Errorf("verbs: registering bytes %d to %d of %d: %w", i*registerPiece,
				i*registerPiece+mem.Len, p.mem.Len, err)
		}
		if g.over() && !g.waits { // it has been given up meanwhile
			g.end(d)
		}
	})
}

// end ends the registrations.
func (p *pieces) end(d *Device) {
	for _, x := range p.regs {
		if x != nil {
			d.deregister(x)
		}
	}
}
