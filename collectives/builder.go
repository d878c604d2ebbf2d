package collectives

import "math"

// Builder makes schedules. Its memory is used again by each Build, which therefore allocates nothing once the longest
// schedule has been built. The zero Builder is ready.
type Builder struct {
	s        Schedule
	last     int  // rounds from last on are counted and not stored
	round    int  // the number of the round that is open
	messages int  // end of the open round's messages in s.steps, once local is set
	local    bool // the open round has local steps
	filled   bool // the open round has steps
	p        *Params
}

// Build makes the whole schedule of one rank. It is b's, and valid until b's next Build or Window. The algorithm must
// fit (Algorithm.Fits).
func (b *Builder) Build(a *Algorithm, p *Params) *Schedule {
	return b.Window(a, p, 0, math.MaxInt)
}

// Window makes the part of a schedule that begins with round first and has at most n rounds. It takes memory for these
// rounds only, so an executor can run a long schedule, such as a pipeline's, window by window.
func (b *Builder) Window(a *Algorithm, p *Params, first, n int) *Schedule {
	last := first + n
	if last < first {
		last = math.MaxInt
	}
	*b = Builder{s: Schedule{First: first, steps: b.s.steps[:0], marks: b.s.marks[:0]}, last: last, p: p}
	a.build(b, p)
	b.next()
	b.s.Rounds = b.round
	b.p = nil
	return &b.s
}

// next ends the open round, unless it is empty.
func (b *Builder) next() {
	if !b.filled {
		return
	}
	if b.stored() {
		m := mark{b.messages, len(b.s.steps)}
		if !b.local {
			m.messages = m.end
		}
		b.s.marks = append(b.s.marks, m)
	}
	b.round++
	b.local, b.filled = false, false
}

// stored reports whether the open round is in the window.
func (b *Builder) stored() bool { return b.s.First <= b.round && b.round < b.last }

// tmp takes n more elements of Tmp.
func (b *Builder) tmp(n int64) Ref {
	r := Ref{Space: Tmp, Off: b.s.Tmp}
	b.s.Tmp += n
	return r
}

// message adds a message; after a local step it begins the next round.
func (b *Builder) message(s Step) {
	if b.local {
		b.next()
	}
	b.filled = true
	b.s.Messages++
	if b.stored() {
		b.s.steps = append(b.s.steps, s)
	}
}

// step adds a local step.
func (b *Builder) step(s Step) {
	if s.Len <= 0 {
		return
	}
	if !b.local {
		b.messages = len(b.s.steps)
	}
	b.filled, b.local = true, true
	if b.stored() {
		b.s.steps = append(b.s.steps, s)
	}
}

// send and recv add a message of n elements. Both sides leave out those of none.
func (b *Builder) send(peer int, src Ref, n int64) {
	if n > 0 {
		b.message(Step{Kind: Send, Peer: int32(peer), Src: src, Len: n})
	}
}

func (b *Builder) recv(peer int, dst Ref, n int64) {
	if n > 0 {
		b.message(Step{Kind: Recv, Peer: int32(peer), Dst: dst, Len: n})
	}
}

// signal and await add a message without elements.
func (b *Builder) signal(peer int) { b.message(Step{Kind: Send, Peer: int32(peer)}) }
func (b *Builder) await(peer int)  { b.message(Step{Kind: Recv, Peer: int32(peer)}) }

func (b *Builder) copy(dst, src Ref, n int64) {
	if dst != src {
		b.step(Step{Kind: Copy, Dst: dst, Src: src, Len: n})
	}
}

// combine sets dst to low ∘ high.
func (b *Builder) combine(dst, low, high Ref, n int64) {
	b.step(Step{Kind: Combine, Dst: dst, Src: low, With: high, Len: n})
}
