package coll

import (
	"cmp"
	"slices"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// A call has blocks of memory in two spaces, In and Out. A block that is one run is sent from where it lies, and
// received there. Others are packed before the schedule runs, and unpacked when it has.

// Layout is how a block lies in memory that is not one run. Its methods panic if the block does not fit.
type Layout interface {
	PackAll(packed, base []byte)   // copies from base
	UnpackAll(packed, base []byte) // copies to base
}

// scattered is a block of a call that is not one run.
type scattered struct {
	layout       Layout
	base, packed []byte
	load, store  bool // packed before, unpacked after
}

// SetBuffer makes buf the only block of a space.
func (p *Plan) SetBuffer(s collectives.Space, buf []byte) { p.spaces[s] = append(p.spaces[s][:0], buf) }

// ClearSpace removes all blocks of a space.
func (p *Plan) ClearSpace(s collectives.Space) { p.spaces[s] = p.spaces[s][:0] }

// AddBlock adds a block to a space.
func (p *Plan) AddBlock(s collectives.Space, block []byte) { p.spaces[s] = append(p.spaces[s], block) }

// AddScattered adds a block of size bytes to a space, which l names in base. load: the schedule may read it; store: it
// writes all of it.
func (p *Plan) AddScattered(s collectives.Space, base []byte, l Layout, size int64, load, store bool) {
	block := aligned(int(size))
	p.scattered = append(p.scattered, scattered{l, base, block, load, store})
	p.AddBlock(s, block)
}

// Blocks returns the memory of a space as the schedule sees it.
func (p *Plan) Blocks(s collectives.Space) [][]byte { return p.spaces[s] }

// Packed returns how many blocks of the call are packed.
func (p *Plan) Packed() int { return len(p.scattered) }

// space returns the only block of a space; nil: there is none at this rank.
func (p *Plan) space(s collectives.Space) []byte {
	if len(p.spaces[s]) == 0 {
		return nil
	}
	return p.spaces[s][0]
}

// pack and unpack bring the blocks that are scattered to where the schedule has them, and back.
func (p *Plan) pack() {
	for i := range p.scattered {
		if b := &p.scattered[i]; b.load {
			b.layout.PackAll(b.packed, b.base)
		}
	}
}

func (p *Plan) unpack() {
	for i := range p.scattered {
		if b := &p.scattered[i]; b.store {
			b.layout.UnpackAll(b.packed, b.base)
		}
	}
}

// CheckBuffers returns p, unless the buffers of In and Out share memory: then a rank would read what it has written. op
// is the call. There is one buffer of each.
func (p *Plan) CheckBuffers(op string) (*Plan, error) {
	in, out := p.spaces[collectives.In][0], p.spaces[collectives.Out][0]
	if len(in) > 0 && len(out) > 0 && address(in) < address(out)+uintptr(len(out)) &&
		address(out) < address(in)+uintptr(len(in)) {
		return nil, p.overlapping(op)
	}
	return p, nil
}

// CheckBlocks is CheckBuffers of any number of blocks. It looks at them only if calls are compared: that takes longer.
func (p *Plan) CheckBlocks(op string) (*Plan, error) {
	if !p.group.Setup.Check {
		return p, nil
	}
	type block struct {
		begin, end uintptr
		s          collectives.Space
	}
	var all []block
	for s, blocks := range p.spaces[:collectives.Tmp] {
		for _, b := range blocks {
			if len(b) > 0 {
				all = append(all, block{address(b), address(b) + uintptr(len(b)), collectives.Space(s)})
			}
		}
	}
	slices.SortFunc(all, func(a, b block) int { return cmp.Compare(a.begin, b.begin) })
	var ends [collectives.Tmp]uintptr // of what begins before
	for _, b := range all {
		if b.begin < ends[collectives.Out] || b.s == collectives.Out && b.begin < ends[collectives.In] {
			return nil, p.overlapping(op)
		}
		ends[b.s] = max(ends[b.s], b.end)
	}
	return p, nil
}

// overlapping gives back the plan of a call whose buffers share memory, and returns the error of that.
func (p *Plan) overlapping(op string) error {
	p.giveBack()
	return mpierr.On(mpierr.New(op, mpierr.ErrBuffer, "a receive buffer shares memory with the send buffer, or with "+
		"another receive buffer; for a call in place pass nil for send (for recv at the root of a scatter)"),
		p.group.Name())
}
