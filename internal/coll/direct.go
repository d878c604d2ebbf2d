package coll

import (
	"encoding/binary"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/transport"
)

// Where each rank can read the others' memory, long calls on a board do not copy through it (algorithm "direct"). In
// the first step each rank publishes where its buffers are. By the last step, for which all wait, it says that it has
// read what it needs. Until then the buffers are lent. If another rank has failed, a rank cannot wait for that: it says
// on the board that it has failed, before its caller has the buffers again. A rank that reads looks for such a failure
// after the read, and a rank that writes looks before the write.

// boardWays are ways of calls. A plan has the ways that the table gives it, and a board has those that are possible
// there. A call goes by direct where both have it, else by shared, else by messages.
type boardWays uint8

const (
	shared boardWays = 1 << iota
	direct           // the ranks read each other's buffers

	roomyShift     = 2 // these ways of roomy ranks are so many bits higher
	anyDirect      = direct | direct<<roomyShift
	eitherMessages = boardWays(1 << (2 * roomyShift)) // of a plan: roomy ranks have another algorithm for messages
)

// named returns the names of the algorithms of a call that goes by messages if there is no board.
func (w boardWays) named(messages string) string {
	switch {
	case w&direct != 0 && w&shared != 0:
		return "direct or shared"
	case w&direct != 0:
		return "direct or " + messages
	case w&shared != 0:
		return "shared"
	}
	return messages
}

// lends are the loans of a rank's two buffers, as it publishes them in a line.
type lends struct{ in, out transport.Loan }

const lendsSize = 32

// A rank says these of itself when a board is made. All ranks go by the bits that all have set.
const (
	canReach  = 1 << iota // it can read and write what the others lend
	isCrowded             // ranks outnumber CPUs
)

// agree finds the bits that all ranks have set. It is the first step of a board.
func (s *boardState) agree(g *Group) error {
	can := []byte{0}
	if l := s.On.Lending; l != nil && l.Try() == nil {
		can[0] = canReach
	}
	if s.On.Crowded() {
		can[0] |= isCrowded
	}
	p := Plan{tag: agreeTag}
	step := boardCall{boardState: s, p: &p, n: g.Size, me: g.Rank, first: s.Step, sign: p.signature()}
	step.begin(can)
	all := can[0]
	for i := 1; i < g.Size; i++ {
		if peer := step.read((g.Rank+i)%g.Size, len(can)); peer != nil {
			all &= peer[0]
		}
	}
	step.all()
	if step.err != nil {
		return step.err
	}
	if all&canReach != 0 {
		s.lent = make([]lends, g.Size)
	}
	s.SetCrowded(all&isCrowded != 0)
	return nil
}

// SetCrowded has calls go by the ways that the table has for crowded ranks, or for roomy ones. All ranks do the same.
func (s *boardState) SetCrowded(crowded bool) {
	if s.able = shared; s.ReadsBuffers() {
		s.able |= direct
	}
	if !crowded {
		s.able <<= roomyShift
	}
}

// crowded reports whether the ranks outnumber the CPUs of their host, or have no board, on which they agree on that.
func (s *boardState) crowded() bool { return s.able>>roomyShift == 0 }

// agreeTag is in the signature of a step outside of a call.
const agreeTag = -1

// ReadsBuffers reports whether the ranks can read and write each other's memory.
func (s *boardState) ReadsBuffers() bool { return s.lent != nil }

// direct makes the call.
func (s *boardCall) direct() {
	s.sign.call |= readBuffers
	in, out := s.p.space(collectives.In), s.p.space(collectives.Out)
	if s.p.InPlace {
		in = out
	}
	switch s.p.Operation {
	case collectives.Bcast:
		s.bcastDirect(out)
	case collectives.Allgather:
		s.allgatherDirect(in, out)
	case collectives.Alltoall:
		s.alltoallDirect(in, out)
	case collectives.Reduce:
		s.reduceDirect(in, out)
	case collectives.Allreduce:
		s.allreduceDirect(in, out)
	}
	if s.err != nil && s.lent[s.me] != (lends{}) {
		s.On.Give(s.me, s.err)
	}
	s.takeBack(s.me)
}

// takeBack ends the loans of this rank: no other rank writes there any more.
func (s *boardState) takeBack(me int) {
	if !s.ReadsBuffers() {
		return
	}
	own := &s.lent[me]
	for _, l := range []*transport.Loan{&own.in, &own.out} {
		if *l != (transport.Loan{}) {
			s.On.Lending.Return(*l)
			*l = transport.Loan{}
		}
	}
}

// lend begins a step in which this rank says where its buffers are; nil: it lends none.
func (s *boardCall) lend(in, out []byte) {
	room := s.room(lendsSize)
	if s.err != nil {
		return
	}
	own := &s.lent[s.me]
	for i, l := range []struct {
		mem []byte
		to  *transport.Loan
	}{{in, &own.in}, {out, &own.out}} {
		if len(l.mem) > 0 {
			*l.to = s.On.Lending.Lend(l.mem)
		}
		binary.LittleEndian.PutUint64(room[16*i:], l.to.Addr)
		binary.LittleEndian.PutUint64(room[16*i+8:], l.to.Key)
	}
	s.publish()
}

// lentBy reports whether a rank has said in this step where its buffers are, and notes that.
func (s *boardCall) lentBy(rank int) bool {
	b := s.read(rank, lendsSize)
	if b == nil {
		return false
	}
	at := func(i int) transport.Loan {
		return transport.Loan{Addr: binary.LittleEndian.Uint64(b[i:]), Key: binary.LittleEndian.Uint64(b[i+8:])}
	}
	s.lent[rank] = lends{at(0), at(16)}
	return true
}

// pull fills dst from the buffer that a rank lends, and reports whether it has.
func (s *boardCall) pull(dst []byte, rank int, l transport.Loan, from int) bool {
	if s.err != nil || s.p.failed != nil {
		return false
	}
	if len(dst) == 0 {
		return true
	}
	return s.moved(s.On.Read(rank, dst, l, from), rank, "read")
}

// push puts src into the buffer that a rank lends, and reports whether it has.
func (s *boardCall) push(src []byte, rank int, l transport.Loan, from int) bool {
	if s.err != nil || s.p.failed != nil {
		return false
	}
	return len(src) == 0 || s.moved(s.On.Write(rank, src, l, from), rank, "written")
}

// moved reports whether a move to or from the buffer that a rank lends has succeeded. err is its error.
func (s *boardCall) moved(err error, rank int, done string) bool {
	if err == nil {
		return true
	}
	if s.err = s.On.Err(); s.err == nil {
		class := mpierr.ClassOf(err)
		if class == mpierr.ErrAborted {
			class = mpierr.ErrBuffer
		}
		s.p.failed = mpierr.New("", class, "the buffer of rank %d cannot be %s: %w", rank, done, err)
	}
	return false
}

// finish makes the last step, and returns when all ranks have read what they need.
func (s *boardCall) finish() {
	s.enter()
	s.awaitBegun(s.Step)
}

// Two ranks share the work of long calls: each of them moves a part of the data that goes from one to the other. A rank
// that has moved its part begins the next step with a contribution. So the other one hears if it has given up. Only the
// two ranks of such a board can say where one of them writes.
const (
	BothBcast  = 32 << 10 // bytes from which on two ranks share a Bcast
	BothReduce = 64 << 10 // and a Reduce
)

// bcastDirectOfTwo: the root writes the second half of buf where it is to be, and the other rank reads the first.
func (s *boardCall) bcastDirectOfTwo(buf []byte) {
	other, half := 1-s.me, len(buf)/2&^63
	s.lend(buf, nil)
	if s.lentBy(other) {
		if loan := s.lent[other].in; s.me == s.p.Root {
			s.push(buf[half:], other, loan, half)
		} else {
			s.pull(buf[:half], other, loan, 0)
		}
	}
	s.all()
	s.begin(nil)
	s.read(other, 0)
	s.all()
}

func (s *boardCall) bcastDirect(buf []byte) {
	if s.n == 2 && len(buf) >= BothBcast {
		s.bcastDirectOfTwo(buf)
		return
	}
	if s.me == s.p.Root {
		s.lend(buf, nil)
		s.finish()
		return
	}
	s.enter()
	if s.lentBy(s.p.Root) {
		s.pull(buf, s.p.Root, s.lent[s.p.Root].in, 0)
	}
	s.enter()
}

// byTurns is the length of a block from which on one of two ranks copies its own block while the other one reads.
const byTurns = 1 << 20

func (s *boardCall) allgatherDirect(in, out []byte) {
	block := len(out) / s.n
	own := in
	if s.p.InPlace {
		own = out[s.me*block:][:block]
	}
	s.lend(own, nil)
	copyOwn := func() {
		if !s.p.InPlace {
			copy(out[s.me*block:], own)
		}
	}
	last := s.n == 2 && s.me == 1 && block >= byTurns
	if !last {
		copyOwn()
	}
	for i := 1; i < s.n; i++ {
		if rank := (s.me + i) % s.n; s.lentBy(rank) {
			s.pull(out[rank*block:][:block], rank, s.lent[rank].in, 0)
		}
	}
	if last {
		copyOwn()
	}
	s.all()
	s.finish()
}

func (s *boardCall) alltoallDirect(in, out []byte) {
	block := len(out) / s.n
	s.lend(in, nil)
	copy(out[s.me*block:][:block], in[s.me*block:])
	for i := 1; i < s.n; i++ {
		if rank := (s.me + i) % s.n; s.lentBy(rank) {
			s.pull(out[rank*block:][:block], rank, s.lent[rank].in, s.me*block)
		}
	}
	s.all()
	s.finish()
}

// lendToAll is lend, and notes the loans of all others.
func (s *boardCall) lendToAll(in, out []byte) {
	s.lend(in, out)
	for i := 1; i < s.n; i++ {
		s.lentBy((s.me + i) % s.n)
	}
	s.all()
}

// combineLent combines the parts at from of the buffers that all ranks lend.
func (s *boardCall) combineLent(own, result []byte, from int) {
	for at, to := range s.combined(len(own)) {
		s.combine(own[at:to], result[at:to], func(rank int, dst []byte) bool {
			return s.pull(dst, rank, s.lent[rank].in, from+at)
		})
	}
}

// allreduceDirect: each rank combines a part, where it is to be, and reads the parts of the others there. In place it
// overwrites its own part, which no other rank reads before it is complete, and then parts that are complete.
func (s *boardCall) allreduceDirect(in, out []byte) {
	s.lendToAll(in, out)
	from, to := s.part(s.me, len(in))
	s.combineLent(in[from:to], out[from:to], from)
	s.begin(nil)
	for i := 1; i < s.n; i++ {
		rank := (s.me + i) % s.n
		if s.read(rank, 0) != nil {
			from, to := s.part(rank, len(in))
			s.pull(out[from:to], rank, s.lent[rank].out, from)
		}
	}
	s.all()
	s.finish()
}

// reduceDirectOfTwo: the root reads what the other rank has, which leaves when that is read, and combines it: the whole
// at once where the result is to be, if the order does not count and that is another place than the root's own vector.
func (s *boardCall) reduceDirectOfTwo(in, out []byte) {
	if s.p.Commutative && len(in) >= BothReduce {
		s.reduceByBoth(in, out)
		return
	}
	other := 1 - s.p.Root
	if s.me == other {
		s.lend(in, nil)
		s.finish()
		return
	}
	s.enter()
	there := s.lentBy(other)
	if s.p.Commutative && !s.p.InPlace {
		there = there && s.pull(out, other, s.lent[other].in, 0)
		if s.enter(); there {
			s.apply(out, in)
		}
		return
	}
	for from, to := range s.pieces(len(in), s.Slot) {
		s.combine(in[from:to], out[from:to], func(_ int, dst []byte) bool {
			read := there && s.pull(dst, other, s.lent[other].in, from)
			if to == len(in) {
				s.enter()
			}
			return read
		})
	}
}

// reduceByBoth: the other rank combines the end of the vector and writes it where the result is to be. It moves that
// twice, so it is less than a half.
func (s *boardCall) reduceByBoth(in, out []byte) {
	elem := int(s.p.ElemSize)
	other, end := 1-s.me, len(in)/elem*11/16*elem
	s.lend(in, out)
	there := s.lentBy(other)
	s.all()
	switch {
	case s.me != s.p.Root:
		for from, to := range s.pieces(len(in)-end, s.Slot) {
			from, to := end+from, end+to
			if sum := s.own[:to-from]; there && s.pull(sum, other, s.lent[other].in, from) {
				s.apply(sum, in[from:to])
				s.push(sum, other, s.lent[other].out, from)
			}
		}
		s.begin(nil)
	case s.p.InPlace:
		for from, to := range s.pieces(end, s.Slot) {
			if peer := s.peer[:to-from]; there && s.pull(peer, other, s.lent[other].in, from) {
				s.apply(out[from:to], peer)
			}
		}
		s.begin(nil)
	default:
		there = there && s.pull(out[:end], other, s.lent[other].in, 0)
		if s.begin(nil); there {
			s.apply(out[:end], in[:end])
		}
	}
	s.read(other, 0)
	s.all()
}

// reduceDirect: each rank combines a part of a piece, and publishes it in its slot.
func (s *boardCall) reduceDirect(in, out []byte) {
	if s.n == 2 {
		s.reduceDirectOfTwo(in, out)
		return
	}
	s.lendToAll(in, nil)
	for from, to := range s.pieces(len(in), (s.Slot-s.Slot%int(s.p.ElemSize))*s.n) {
		low, high := s.part(s.me, to-from)
		sum := s.own[:high-low]
		if s.me == s.p.Root {
			sum = out[from+low : from+high]
		}
		s.combineLent(in[from+low:from+high], sum, from+low)
		if s.me != s.p.Root {
			s.begin(sum)
			continue
		}
		s.enter()
		for i := 1; i < s.n; i++ {
			rank := (s.me + i) % s.n
			low, high := s.part(rank, to-from)
			copy(out[from+low:from+high], s.read(rank, high-low))
		}
		s.all()
	}
	s.awaitBegun(s.Step) // all have read what they need of the last piece
}
