package coll

import "github.com/gorun-mpi/mpi/collectives"

// shared makes the call by copies through the board.
func (s *boardCall) shared() {
	switch s.p.Operation {
	case collectives.Barrier:
		s.begin(nil)
		s.awaitAll()
	case collectives.Bcast:
		s.bcast()
	case collectives.Reduce:
		s.reduce(false)
	case collectives.Allreduce:
		s.reduce(true)
	case collectives.Allgather:
		s.allgather()
	case collectives.Alltoall:
		s.alltoall()
	}
}

func (s *boardCall) bcast() {
	buf := s.p.space(collectives.Out)
	for from, to := range s.pieces(len(buf), s.Slot) {
		if s.me == s.p.Root {
			s.begin(buf[from:to])
			continue
		}
		s.enter()
		copy(buf[from:to], s.read(s.p.Root, to-from))
	}
}

func (s *boardCall) allgather() {
	out := s.p.space(collectives.Out)
	block := len(out) / s.n
	own := s.p.space(collectives.In)
	if s.p.InPlace {
		own = out[s.me*block:][:block]
	} else {
		copy(out[s.me*block:], own)
	}
	for from, to := range s.pieces(block, 2*s.Slot) {
		s.begin(own[from:to])
		for i := 1; i < s.n; i++ {
			rank := (s.me + i) % s.n
			copy(out[rank*block+from:rank*block+to], s.read(rank, to-from))
		}
		s.all()
	}
}

func (s *boardCall) alltoall() {
	in, out := s.p.space(collectives.In), s.p.space(collectives.Out)
	block := len(out) / s.n
	if s.p.InPlace {
		in = out
	} else {
		copy(out[s.me*block:][:block], in[s.me*block:])
	}
	for from, to := range s.pieces(block, 2*s.Slot/s.n) {
		n := to - from
		room := s.room(n * s.n)
		for i := range s.n {
			if i != s.me {
				copy(room[i*n:][:n], in[i*block+from:])
			}
		}
		s.publish()
		for i := 1; i < s.n; i++ {
			rank := (s.me + i) % s.n
			if peer := s.read(rank, n*s.n); peer != nil {
				copy(out[rank*block+from:], peer[s.me*n:][:n])
			}
		}
		s.all()
	}
}

// If all ranks want the result of SplitMin bytes or more, each of more than two ranks combines a part of the vector for
// all. A root combines alone: the other ranks need not wait for it. Parts take a second step, in which each crowded
// rank needs a turn of its processor. So crowded ranks combine the whole vector if it has at most WholeMost bytes, and
// less than allMost of all ranks.
const (
	SplitMin  = 2 << 10
	WholeMost = 8 << 10
	allMost   = 256 << 10
)

// inParts reports whether a piece of n bytes that all want is combined in parts.
func (s *boardCall) inParts(n int) bool {
	if s.crowded() && n <= WholeMost && n*s.n < allMost {
		return false
	}
	return n >= SplitMin && s.n > 2
}

func (s *boardCall) reduce(all bool) {
	in, out := s.p.space(collectives.In), s.p.space(collectives.Out)
	if s.p.InPlace {
		in = out
	}
	for from, to := range s.pieces(len(in), s.Slot) {
		own := in[from:to]
		var result []byte
		if all || s.me == s.p.Root {
			result = out[from:to]
		}
		if all && s.inParts(to-from) {
			s.reduceParts(own, result)
		} else {
			s.reduceWhole(own, result, all)
		}
	}
}

// reduceWhole combines a piece at each rank that wants the result.
func (s *boardCall) reduceWhole(own, result []byte, all bool) {
	if result != nil && !all {
		s.enter() // no other rank reads the root's vector
	} else {
		s.begin(own)
	}
	if result != nil {
		s.combineShared(own, result, 0, len(own))
		s.all()
	}
}

// reduceParts combines a part of a piece at each rank, for all.
func (s *boardCall) reduceParts(own, result []byte) {
	s.begin(own)
	from, to := s.part(s.me, len(own))
	sum := s.own[from:to]
	s.combineShared(own[from:to], sum, from, len(own))
	s.all()
	s.begin(sum)
	copy(result[from:to], sum)
	for i := 1; i < s.n; i++ {
		rank := (s.me + i) % s.n
		from, to := s.part(rank, len(own))
		copy(result[from:to], s.read(rank, to-from))
	}
	s.all()
}

// part returns the part of a vector of n bytes that a rank combines.
func (s *boardCall) part(rank, n int) (from, to int) {
	elem := int(s.p.ElemSize)
	count := n / elem
	return rank * count / s.n * elem, (rank + 1) * count / s.n * elem
}

// fetch fills dst with the contribution of another rank, and reports whether there is one.
type fetch func(rank int, dst []byte) bool

// contribution returns a fetch of the part at from of the vectors that the ranks have published, of whole bytes each.
func (s *boardCall) contribution(from, whole int) fetch {
	return func(rank int, dst []byte) bool {
		shared := s.read(rank, whole)
		if shared != nil {
			copy(dst, shared[from:])
		}
		return shared != nil
	}
}

// CombinedAtOnce is how many bytes are combined at once, which stay in the processor's cache. An element can be longer.
const CombinedAtOnce = 32 << 10

// combineShared combines the parts at from of the vectors that the ranks have published, of whole bytes each.
func (s *boardCall) combineShared(own, result []byte, from, whole int) {
	for at, to := range s.combined(len(own)) {
		s.combine(own[at:to], result[at:to], s.contribution(from+at, whole))
	}
}

// combined yields the pieces of n bytes that are combined at once.
func (s *boardCall) combined(n int) func(yield func(from, to int) bool) {
	return s.pieces(n, min(s.Slot, max(CombinedAtOnce, int(s.p.ElemSize))))
}

// combine combines own and the contributions that get fetches, by pairs, into result. Messages combine in the same
// order, so a result does not depend on whether there is a board.
func (s *boardCall) combine(own, result []byte, get fetch) {
	sum := result
	if s.me < s.n-1 && sameStart(own, result) {
		sum = s.own[:len(own)] // own is read before the result is complete
	}
	if s.sums == nil || len(own) > len(s.sums[0]) {
		s.takeSums(len(own))
	}
	buffer := func(i int) []byte {
		switch i {
		case collectives.Own:
			return own
		case 0:
			return sum
		}
		return s.sums[i-1][:len(own)]
	}
	for i := range s.pairs {
		p := &s.pairs[i]
		switch to := buffer(p.To); {
		case p.Rank != s.me:
			get(p.Rank, to)
		case p.To != collectives.Own:
			copy(to, own)
		}
		for _, m := range p.Merges {
			s.apply(buffer(m.Upper), buffer(m.Lower))
		}
	}
	if s.err == nil && s.p.failed == nil && !sameStart(sum, result) {
		copy(result, sum)
	}
}

// takeSums takes memory for all sums except the result's, of n bytes each or CombinedAtOnce.
func (s *boardState) takeSums(n int) {
	n = max(n, min(s.Slot, CombinedAtOnce))
	s.sums = make([][]byte, max(1, s.most-1))
	for i := range s.sums {
		s.sums[i] = aligned(n)
	}
}

// sameStart reports whether a and b begin at one address.
func sameStart(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

// apply combines inout with in.
func (s *boardCall) apply(inout, in []byte) {
	if s.err != nil || s.p.failed != nil || len(inout) == 0 {
		return
	}
	returned := false
	defer s.p.operated(&returned)
	s.p.Operator.Combine(inout, in)
	returned = true
}
