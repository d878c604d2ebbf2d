package collectives

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// element stands for a value: which ranks' contributions are combined in it, and which element of theirs it is.
// No rank at all: it was never written. order tells in which order they are combined.
type element struct {
	ranks uint64
	index int64
	order uint64
}

// combined is low ∘ high. Of an operator that does not commute it must be a run of ranks before the run that follows:
// a free monoid in which a product of other neighbours has no meaning.
func combined(low, high element, commutative bool) (element, error) {
	switch {
	case low.ranks == 0 || high.ranks == 0:
		return element{}, fmt.Errorf("%v ∘ %v: an operand was never written", low, high)
	case low.index != high.index || low.ranks&high.ranks != 0:
		return element{}, fmt.Errorf("%v ∘ %v: not parts of one element", low, high)
	case !commutative && bits.Len64(low.ranks) != bits.TrailingZeros64(high.ranks):
		return element{}, fmt.Errorf("%v ∘ %v: not in the order of ranks", low, high)
	}
	return element{low.ranks | high.ranks, low.index, inOrder(low.order, high.order, commutative)}, nil
}

// inOrder is the order of low ∘ high. Which is low does not count if the operator commutes.
func inOrder(low, high uint64, commutative bool) uint64 {
	if commutative {
		low, high = low+high, low*high^bits.RotateLeft64(low^high, 29)
	}
	return (low*5 + bits.RotateLeft64(high, 13)) * 0x9e3779b97f4a7c15
}

// orderByPairs returns the order in which one rank combines the contributions of all ranks by pairs.
func orderByPairs(rank, ranks int, commutative bool) uint64 {
	pairs, buffers := Pairs(rank, ranks)
	sums, own := make([]uint64, buffers), value(rank, 0, 0).order
	for _, p := range pairs {
		if p.To != Own {
			sums[p.To] = value(p.Rank, 0, 0).order
		}
		for _, m := range p.Merges {
			if m.Lower == Own {
				sums[m.Upper] = inOrder(own, sums[m.Upper], commutative)
				continue
			}
			sums[m.Upper] = inOrder(sums[m.Lower], sums[m.Upper], commutative)
			sums[m.Lower] = 0
		}
	}
	return sums[0]
}

// memory is what a space holds: blocks.
type memory [][]element

// at is n elements of a space, or nil if they are not all there.
func (m memory) at(r Ref, n int64) []element {
	if int(r.Block) >= len(m) || r.Off < 0 || n < 0 || r.Off+n > int64(len(m[r.Block])) {
		return nil
	}
	return m[r.Block][r.Off : r.Off+n]
}

// process is one rank in the executor.
type process struct {
	params   Params
	schedule *Schedule
	spaces   [3]memory
	round    int
	open     int // messages of the round that are not complete
}

// message is one that waits for its other side.
type message struct {
	rank int
	step Step
}

// network executes the schedules of all ranks. A send is complete when its receive has come, and not before. Which rank
// goes on next is drawn by random, or always the last that became able to: no result may depend on it.
type network struct {
	ranks   []*process
	random  *rand.Rand // nil: the last goes on
	waiting map[[3]int32][]message
	ready   []int
}

func (w *network) run() error {
	w.waiting = map[[3]int32][]message{}
	for i := range w.ranks {
		w.ready = append(w.ready, i)
	}
	for len(w.ready) > 0 {
		last := len(w.ready) - 1
		if w.random != nil {
			at := w.random.IntN(last + 1)
			w.ready[at], w.ready[last] = w.ready[last], w.ready[at]
		}
		rank := w.ready[last]
		w.ready = w.ready[:last]
		if err := w.start(rank); err != nil {
			p := w.ranks[rank]
			return fmt.Errorf("rank %d, round %d of %d: %w", rank, p.round, p.schedule.Rounds, err)
		}
	}
	for rank, p := range w.ranks {
		if p.round < p.schedule.Rounds {
			messages, _ := p.schedule.Round(p.round)
			return fmt.Errorf("rank %d never ends round %d: %v", rank, p.round, messages)
		}
	}
	return nil
}

// start begins the next round of a rank.
func (w *network) start(rank int) error {
	p := w.ranks[rank]
	if p.round == p.schedule.Rounds {
		return nil
	}
	messages, local := p.schedule.Round(p.round)
	if len(messages)+len(local) == 0 {
		return fmt.Errorf("the round is empty")
	}
	if err := p.check(messages, local); err != nil {
		return err
	}
	p.open = len(messages)
	for _, s := range messages {
		if err := w.post(rank, s); err != nil {
			return fmt.Errorf("%v: %w", s, err)
		}
	}
	if len(messages) == 0 {
		return w.end(rank)
	}
	return nil
}

// post matches a message with the other side's, or leaves it to wait. The two are complete together.
func (w *network) post(rank int, s Step) error {
	mine, its := [3]int32{int32(rank), s.Peer, int32(s.Kind)}, [3]int32{s.Peer, int32(rank), int32(Recv - s.Kind)}
	queue := w.waiting[its]
	if len(queue) == 0 {
		w.waiting[mine] = append(w.waiting[mine], message{rank, s})
		return nil
	}
	other := queue[0]
	w.waiting[its] = queue[1:]
	send, recv := message{rank, s}, other
	if s.Kind == Recv {
		send, recv = other, send
	}
	if send.step.Len != recv.step.Len {
		return fmt.Errorf("rank %d has %v", other.rank, other.step)
	}
	to, from := w.ranks[recv.rank], w.ranks[send.rank]
	dst, src := recv.step.Dst, send.step.Src
	copy(to.spaces[dst.Space].at(dst, s.Len), from.spaces[src.Space].at(src, s.Len))
	for _, m := range []message{send, recv} {
		p := w.ranks[m.rank]
		if p.open--; p.open == 0 {
			if err := w.end(m.rank); err != nil {
				return err
			}
		}
	}
	return nil
}

// end runs the local steps of a round whose messages are complete.
func (w *network) end(rank int) error {
	p := w.ranks[rank]
	_, local := p.schedule.Round(p.round)
	for _, s := range local {
		if err := p.local(s); err != nil {
			return fmt.Errorf("rank %d, %v: %w", rank, s, err)
		}
	}
	p.round++
	w.ready = append(w.ready, rank)
	return nil
}

func (p *process) local(s Step) error {
	dst, src := p.spaces[s.Dst.Space].at(s.Dst, s.Len), p.spaces[s.Src.Space].at(s.Src, s.Len)
	if s.Kind == Copy {
		for _, e := range src {
			if e.ranks == 0 {
				return fmt.Errorf("what is copied was never written")
			}
		}
		copy(dst, src)
		return nil
	}
	with := p.spaces[s.With.Space].at(s.With, s.Len)
	for i := range dst {
		e, err := combined(src[i], with[i], p.params.Commutative)
		if err != nil {
			return err
		}
		dst[i] = e
	}
	return nil
}

// check finds what no executor could do, or what would race.
func (p *process) check(messages, local []Step) error {
	for i, s := range messages {
		if s.Kind != Send && s.Kind != Recv {
			return fmt.Errorf("%v is among the messages", s)
		}
		if s.Peer < 0 || int(s.Peer) >= p.params.Size || int(s.Peer) == p.params.Rank && p.params.Sources == nil {
			return fmt.Errorf("%v", s)
		}
		if err := p.valid(s); err != nil {
			return err
		}
		for _, other := range messages[:i] {
			if s.Kind == Send && other.Kind == Send {
				continue
			}
			if s.Len > 0 && overlap(s.place(), other.place(), s.Len, other.Len) {
				return fmt.Errorf("%v and %v in one round", s, other)
			}
		}
	}
	for _, s := range local {
		if s.Kind != Copy && s.Kind != Combine {
			return fmt.Errorf("%v is among the local steps", s)
		}
		if err := p.valid(s); err != nil {
			return err
		}
	}
	return nil
}

// place is what a message reads or writes.
func (s Step) place() Ref {
	if s.Kind == Send {
		return s.Src
	}
	return s.Dst
}

func (p *process) valid(s Step) error {
	refs := []Ref{s.Dst, s.Src, s.With}
	switch s.Kind {
	case Send:
		refs = []Ref{s.Src}
	case Recv:
		refs = []Ref{s.Dst}
	case Copy:
		refs = []Ref{s.Dst, s.Src}
	case Combine:
		over := overlap(s.Dst, s.Src, s.Len, s.Len) && (s.Dst != s.Src || !p.params.Commutative)
		if over || s.Dst != s.With && overlap(s.Dst, s.With, s.Len, s.Len) || overlap(s.Src, s.With, s.Len, s.Len) {
			return fmt.Errorf("%v: operands overlap", s)
		}
	}
	if s.Kind != Send && s.Dst.Space == In && s.Len > 0 {
		return fmt.Errorf("%v writes the caller's input", s)
	}
	for _, r := range refs {
		if s.Len > 0 && p.spaces[r.Space].at(r, s.Len) == nil {
			return fmt.Errorf("%v: %v and %d more are not in this rank's memory", s, r, s.Len)
		}
	}
	return nil
}

func overlap(a, b Ref, n, m int64) bool {
	return a.Space == b.Space && a.Block == b.Block && a.Off < b.Off+m && b.Off < a.Off+n
}
