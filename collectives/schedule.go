package collectives

import "fmt"

// Space is one of the three memories that a schedule works on. Offsets and lengths in it count elements.
type Space uint8

// The spaces. What In and Out hold for each operation is said at Operation; the executor provides Tmp.
const (
	In Space = iota
	Out
	Tmp
)

func (s Space) String() string { return [...]string{"in", "out", "tmp"}[s] }

// Ref is a place in a space. In operations with a block for each rank (the v and w forms) In or Out is a list of
// blocks, each with memory of its own: Block is its index and Off counts from its start. Elsewhere, and in Tmp, Block
// is 0.
type Ref struct {
	Off   int64
	Block int32
	Space Space
}

// At is n elements after r.
func (r Ref) At(n int64) Ref {
	r.Off += n
	return r
}

func (r Ref) String() string {
	if r.Block != 0 {
		return fmt.Sprintf("%v[%d]+%d", r.Space, r.Block, r.Off)
	}
	return fmt.Sprintf("%v+%d", r.Space, r.Off)
}

// Kind is what a step does.
type Kind uint8

// The kinds of steps. The first two are messages, the others are local.
const (
	// Send sends Len elements at Src to Peer.
	Send Kind = iota
	// Recv receives Len elements from Peer to Dst.
	Recv
	// Copy copies Len elements from Src to Dst. The two may overlap.
	Copy
	// Combine sets Dst to Src ∘ With, element by element. The elements in Src come from lower ranks than the elements
	// in With. Dst is With, or overlaps neither of the two; if the operator commutes, Dst may also be Src.
	Combine
)

func (k Kind) String() string { return [...]string{"send", "recv", "copy", "combine"}[k] }

// Step is one thing that a rank does. Which of the Refs are used is said at Kind.
type Step struct {
	Len  int64 // in elements; 0 only in the messages of a barrier
	Peer int32 // rank in the communicator
	Kind Kind
	Dst  Ref
	Src  Ref
	With Ref
}

func (s Step) String() string {
	switch s.Kind {
	case Send:
		return fmt.Sprintf("send %d of %v to %d", s.Len, s.Src, s.Peer)
	case Recv:
		return fmt.Sprintf("recv %d to %v from %d", s.Len, s.Dst, s.Peer)
	case Copy:
		return fmt.Sprintf("copy %d to %v from %v", s.Len, s.Dst, s.Src)
	}
	return fmt.Sprintf("combine %d to %v from %v and %v", s.Len, s.Dst, s.Src, s.With)
}

// Schedule is what one rank does in one operation.
//
// In a round the rank posts all its receives, starts all its sends and waits until all these are complete. Then it runs
// the local steps, one after the other in their order. The next round begins after that. A local step never precedes a
// message of its own round: a computation before a send is in the round before, and a round may have no messages. The
// memory of a receive overlaps neither the memory of the round's sends nor of its other receives.
//
// The n-th message that a sends to b in the operation is received by the n-th receive from a that b posts, and is as
// long as that receive. So one tag for each operation in flight is enough, since messages of a pair keep their order;
// a round has different numbers at different ranks. A send may wait for its receive: no schedule counts on buffering.
type Schedule struct {
	Tmp      int64 // elements that the executor provides as Tmp
	Rounds   int   // of the whole schedule
	Messages int   // of the whole schedule, sent and received
	First    int   // the rounds that are stored are First and those after it; 0 after Build

	steps []Step
	marks []mark // for each stored round
}

// mark is where a round's parts end in Schedule.steps. The parts begin where the round before ends.
type mark struct{ messages, end int }

// Stored is how many rounds are there to be read, from First on. After Build it is Rounds.
func (s *Schedule) Stored() int { return len(s.marks) }

// Round returns the messages and the local steps of round i, First ≤ i < First+Stored.
func (s *Schedule) Round(i int) (messages, local []Step) {
	start := 0
	if i -= s.First; i > 0 {
		start = s.marks[i-1].end
	}
	m := s.marks[i]
	return s.steps[start:m.messages:m.messages], s.steps[m.messages:m.end:m.end]
}
