package board

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/ring"
	"github.com/gorun-mpi/mpi/transport"
)

// Set is the boards of a device that expect something. Its methods are guarded as the device's Poll is.
type Set struct {
	expecting []*board
	armed     bool // since the last Disarm
}

// board is one rank's view.
type board struct {
	set  *Set
	head *head
	ends []*end // of each member
	me   int
	rank int32 // this rank's, in the world
	seen transport.Board

	wake, watch func(member int)
	watched     []bool      // by member
	reported    atomic.Bool // this rank has said why a member has failed

	// What Expect has asked for, while the board is in Set.expecting.
	line   int
	least  uint64
	cookie uint64
}

// Size is how many bytes a board takes; 0: more than there can be.
func Size(members, lines, data int) int {
	const most = 1 << 40
	if members < 1 || members > most/endSize || lines < 0 || lines > most/lineSize || data < 0 || data > most {
		return 0
	}
	return dataAt(members, lines) + data
}

func linesAt(members int) int {
	return (headSize + members*endSize + lineSize - 1) / lineSize * lineSize
}

func dataAt(members, lines int) int { return linesAt(members) + lines*lineSize }

// Card is where member i says how it is reached, before any other member knows of that: CardSize bytes, hostile.
func Card(mem []byte, i int) []byte { return endOf(mem, i).card[:] }

// BeginWrite reports whether member me may write into the memory of member i, and is about to until EndWrite: it may
// not once a member has failed. One that fails says so first and then asks for Writer; so if it is not seen here, it
// sees this one.
func BeginWrite(mem []byte, me, i int) bool {
	endOf(mem, me).writes.Store(uint32(i) + 1)
	if headOf(mem).failed.Load() == 0 {
		return true
	}
	EndWrite(mem, me)
	return false
}

// EndWrite ends BeginWrite.
func EndWrite(mem []byte, me int) { endOf(mem, me).writes.Store(0) }

// Writer is a member, of so many, that writes into the memory of member me when a member has failed; -1: none does, and
// none will. No board that is in order has one: it ends each write before it says that all is written.
func Writer(mem []byte, members, me int) int {
	if headOf(mem).failed.Load() == 0 {
		return -1
	}
	for i := range members {
		if endOf(mem, i).writes.Load() == uint32(me)+1 {
			return i
		}
	}
	return -1
}

// New makes a board of memory of that Size, which begins with a line of the cache. me is this rank's place among the
// members. wake wakes a member that sleeps with its device armed, this rank too; any goroutine may call it. watch
// sees to it that the end of another member is reported (Down); it is called once for each that this rank waits for.
// Neither waits. unmap is called by Close.
func (s *Set) New(mem []byte, members []int32, me, lines int, wake, watch func(member int), joined, unmap func(),
) *transport.Board {
	b := &board{set: s, head: headOf(mem), me: me, rank: members[me], wake: wake, watch: watch,
		watched: make([]bool, len(members))}
	b.watched[me] = true
	for i := range members {
		b.ends = append(b.ends, endOf(mem, i))
	}
	b.seen = transport.Board{Data: mem[dataAt(len(members), lines):], Raise: b.raise, Wake: b.wakeFor,
		Watch: b.watchAll, PrefetchW: ring.PrefetchW, Expect: b.expect, Forget: b.forget, Fail: b.fail,
		Failed: b.failed, Joined: joined, Close: func() { b.forget(); unmap() }}
	for i := range lines {
		b.seen.Lines = append(b.seen.Lines, lineOf(mem, len(members), i))
	}
	return &b.seen
}

// No wake-up is lost: a rank that goes to sleep has armed its device, then says here what it waits for, then looks at
// the word. One that raises the word does so first, and then looks who waits. Only the sleeper says that it is awake:
// one whose waker ends before it has woken it is found by those who tell of that end.

func (b *board) raise(line int, to uint64) {
	b.seen.Lines[line].Word.Store(to)
	b.wakeFor(line)
}

func (b *board) wakeFor(line int) {
	if b.head.sleepers.Load() != 0 {
		b.wakeThose(func(awaits uint32) bool { return awaits == uint32(line)+1 })
	}
}

// wakeThose wakes the members that sleep, of those whose awaited line, plus 1, is as said.
func (b *board) wakeThose(which func(awaits uint32) bool) {
	for i, e := range b.ends {
		if a := e.awaits.Load(); a != 0 && which(a) {
			b.wake(i)
		}
	}
}

func (b *board) fail(i int, why []byte) {
	failed := uint64(i) + 1
	if own := b.ends[b.me]; len(why) > 0 && b.reported.CompareAndSwap(false, true) {
		own.says = uint32(copy(own.why[:], why))
		failed |= uint64(b.me+1) << 32
	}
	b.head.failed.CompareAndSwap(0, failed)
	b.wakeThose(func(uint32) bool { return true })
}

// failed is asked by members that have read the memory of another one, which may be its caller's again once that one
// has said that it has failed. A load would not do: a processor may do it before loads that precede it, as arm64 does,
// and in Go's memory model a load that sees no failure is not synchronized before the failure. Adding 0 is: what says
// the failure afterwards observes the addition. So what was read before was read before that.
func (b *board) failed() (i int, why []byte) {
	f := b.head.failed.Add(0)
	if f == 0 {
		return -1, nil
	}
	member := func(half uint64) int { return int(min(max(half&math.MaxUint32, 1), uint64(len(b.ends)))) - 1 }
	if by := f >> 32; by != 0 {
		says := b.ends[member(by)]
		why = slices.Clone(says.why[:min(says.says, uint32(len(says.why)))])
	}
	return member(f), why
}

func (b *board) expect(line int, least, cookie uint64) {
	if !slices.Contains(b.set.expecting, b) {
		b.set.expecting = append(b.set.expecting, b)
	}
	b.line, b.least, b.cookie = line, least, cookie
	b.watchOne(line * len(b.ends) / len(b.seen.Lines))
	if b.set.armed { // the device is armed already, and stays so
		if b.sleep(); b.reached() {
			b.wake(b.me)
		}
	}
}

func (b *board) watchOne(member int) {
	if !b.watched[member] {
		b.watched[member] = true
		b.watch(member)
	}
}

func (b *board) watchAll() {
	for i := range b.ends {
		b.watchOne(i)
	}
}

func (b *board) forget() {
	if i := slices.Index(b.set.expecting, b); i >= 0 {
		b.set.expecting = slices.Delete(b.set.expecting, i, i+1)
		b.awake()
	}
}

// reached reports whether the board is in the state that is expected.
func (b *board) reached() bool {
	return b.seen.Lines[b.line].Word.Load() >= b.least || b.head.failed.Load() != 0
}

// sleep says that this rank is to be woken for what it expects.
func (b *board) sleep() {
	b.awake()
	b.head.sleepers.Add(1)
	b.ends[b.me].awaits.Store(uint32(b.line) + 1)
}

func (b *board) awake() {
	if a := &b.ends[b.me].awaits; a.Load() != 0 && a.Swap(0) != 0 {
		b.head.sleepers.Add(^uint32(0))
	}
}

// Expecting reports whether Poll may find something.
func (s *Set) Expecting() bool { return len(s.expecting) != 0 }

// Poll is part of the device's.
func (s *Set) Poll(pkts []transport.Packet) int {
	n := 0
	s.expecting = slices.DeleteFunc(s.expecting, func(b *board) bool {
		if n == len(pkts) || !b.reached() {
			return false
		}
		b.awake()
		pkts[n].Event, pkts[n].Peer, pkts[n].Cookie = transport.Reached, b.rank, b.cookie
		n++
		return true
	})
	return n
}

// Arm is the part of the device's Arm that the boards have, when the rest of the device is armed. It reports whether
// they are armed too.
func (s *Set) Arm() bool {
	s.armed = true
	for _, b := range s.expecting {
		b.sleep()
	}
	if slices.ContainsFunc(s.expecting, (*board).reached) {
		s.Disarm()
		return false
	}
	return true
}

// Disarm is part of the device's.
func (s *Set) Disarm() {
	if !s.armed {
		return
	}
	s.armed = false
	for _, b := range s.expecting {
		b.awake()
	}
}

// Place returns the place of a rank among the members of a board. Each member is a rank of the world, and is there
// once.
func Place(members []int32, rank, world int) (place int, err error) {
	sorted := slices.Sorted(slices.Values(members))
	for i, m := range sorted {
		if m < 0 || int(m) >= world || i > 0 && m == sorted[i-1] {
			return 0, fmt.Errorf("rank %d cannot be a member, or is one twice", m)
		}
	}
	if place = slices.Index(members, int32(rank)); place < 0 {
		return 0, fmt.Errorf("rank %d is no member", rank)
	}
	return place, nil
}
