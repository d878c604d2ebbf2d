package rma

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The lock of words that ranks have mapped, in every order in which ranks of short scripts can take their steps. A step
// is one Add, one Load or Take of TryEnter, or the Load that shows a rank its turn. The walk goes through states: a
// state is the words, and for each rank how many steps it has taken, and its ticket.

// Steps that are no Add: of a rank that sleeps until it has its turn, and of one that tries to enter.
const (
	await = 2*Words + iota
	look
	take
)

// walker runs the script of one rank up to a step, and is the rank's Memory meanwhile.
type walker struct {
	seen []uint64 // results of the steps so far
	next int      // of those, the next to be returned

	// The rank when it is about to take its next step.
	step    Word // an Add to a word, await, look or take
	word    Word // of await and look
	ticket  uint64
	tries   bool // in TryEnter
	has     Mode
	leaving bool     // the rank lets the lock go, and has it until the next step is over
	entered []uint64 // its tickets that have had their turn
	done    bool
}

// stop ends a run of a script.
type stop struct{}

func (w *walker) result(step, word Word) uint64 {
	if w.next == len(w.seen) {
		w.step, w.word = step, word
		panic(stop{})
	}
	if w.next++; w.leaving {
		w.has, w.leaving = Unlocked, false
	}
	return w.seen[w.next-1]
}

func (w *walker) Add(word Word) uint64 { return w.result(word, word) }

func (w *walker) Load(word Word) uint64 {
	if w.tries {
		w.ticket = w.result(look, word)
		return w.ticket
	}
	return w.result(await, word)
}

func (w *walker) Take(from uint64) bool { return w.result(take, Next) == from+1 }

// run finds out what the rank does next.
func (w *walker) run(script []Mode) {
	*w = walker{seen: w.seen, entered: w.entered[:0]}
	defer func() {
		if e := recover(); e != nil && e != (stop{}) {
			panic(e)
		}
	}()
	for _, mode := range script {
		w.tries = true
		entered := TryEnter(w, mode)
		if w.tries = false; !entered {
			w.ticket = Enter(w)
			w.Load(Turn(mode))
		}
		w.entered, w.has = append(w.entered, w.ticket), mode
		Entered(w, mode)
		w.leaving = true
		Leave(w, mode)
	}
	w.done = true
}

// walk goes through the states of ranks with scripts.
type walk struct {
	t       *testing.T
	scripts [][]Mode
	words   [Words]uint64
	ranks   []*walker
	path    []string
	known   map[string]bool
}

func (k *walk) fail(format string, args ...any) {
	k.t.Helper()
	k.t.Fatalf("scripts %v, after %s: %s; the words are %v", k.scripts, strings.Join(k.path, ", "),
		fmt.Sprintf(format, args...), k.words)
}

// from goes on from a state, and returns when it has been in all states that follow.
func (k *walk) from() {
	key := fmt.Append(nil, k.words)
	for _, w := range k.ranks {
		key = append(key, byte(len(w.entered)), byte(w.step), byte(w.word), byte(w.ticket))
	}
	if k.known[string(key)] {
		return
	}
	k.known[string(key)] = true
	moved := false
	for rank, w := range k.ranks {
		if w.done {
			continue
		}
		if w.step == await && k.words[w.word] < w.ticket {
			continue // asleep
		}
		if w.step == await && k.words[w.word] > w.ticket {
			k.fail("the word of rank %d has passed its ticket %d", rank, w.ticket)
		}
		moved = true
		before, took := k.words, w.step == take && k.words[Next] == w.ticket
		seen := uint64(0) // of a Take that takes nothing
		if took || w.step < Words {
			k.words[w.word]++
		}
		if took || w.step != take {
			seen = k.words[w.word]
		}
		w.seen = append(w.seen, seen)
		k.path = append(k.path, fmt.Sprintf("rank %d's step %d", rank, len(w.seen)))
		enters, ticket := w.step == await || took, w.ticket
		w.run(k.scripts[rank])
		if enters {
			k.enters(rank, ticket)
		}
		k.check()
		k.from()
		k.path, w.seen = k.path[:len(k.path)-1], w.seen[:len(w.seen)-1]
		w.run(k.scripts[rank])
		k.words = before
	}
	if !moved {
		for rank, w := range k.ranks {
			if !w.done {
				k.fail("rank %d waits for ever with ticket %d", rank, w.ticket)
			}
		}
		if k.words[Readers] != k.words[Next] || k.words[Left] != k.words[Next] {
			k.fail("all ranks are done, and the words differ")
		}
	}
}

// enters checks that each older ticket has had its turn.
func (k *walk) enters(rank int, ticket uint64) {
	for older := range ticket {
		if !slices.ContainsFunc(k.ranks, func(w *walker) bool { return slices.Contains(w.entered, older) }) {
			k.fail("rank %d has its turn with ticket %d before ticket %d", rank, ticket, older)
		}
	}
}

// check looks for a rank with an exclusive lock that is not alone, and for a word that is ahead of the tickets.
func (k *walk) check() {
	var have, exclusive []int
	for rank, w := range k.ranks {
		if w.has != Unlocked {
			have = append(have, rank)
		}
		if w.has == Exclusive {
			exclusive = append(exclusive, rank)
		}
	}
	if len(exclusive) > 0 && len(have) > 1 {
		k.fail("ranks %v have the lock, ranks %v alone", have, exclusive)
	}
	if k.words[Readers] > k.words[Next] || k.words[Left] > k.words[Readers] {
		k.fail("a word is ahead")
	}
}

// walkAll walks every choice of modes for so many ranks that take the lock so many times, and returns how many states
// there are.
func walkAll(t *testing.T, ranks, rounds int) (states int) {
	for choice := range 1 << (ranks * rounds) {
		k := &walk{t: t, known: map[string]bool{}}
		sorted := true // ranks are alike: of choices that differ in their order, one is enough
		before := 0
		for rank := range ranks {
			bits := choice >> (rank * rounds) & (1<<rounds - 1)
			sorted, before = sorted && bits >= before, bits
			var script []Mode
			for i := range rounds {
				script = append(script, Shared+Mode(bits>>i&1))
			}
			k.scripts, k.ranks = append(k.scripts, script), append(k.ranks, &walker{})
			k.ranks[rank].run(script)
		}
		if sorted {
			k.from()
			states += len(k.known)
		}
	}
	return states
}

// The lock of words is exclusive, is given in the order of tickets, and comes to each rank that asks, in every order of
// the ranks' steps; §12.5.3.
func TestTicket(t *testing.T) {
	sizes := [][2]int{{1, 3}, {2, 3}, {3, 2}, {4, 1}}
	if !testing.Short() {
		sizes = append(sizes, [2]int{5, 1})
	}
	for _, size := range sizes {
		t.Logf("ranks: %d, rounds: %d, states: %d", size[0], size[1], walkAll(t, size[0], size[1]))
	}
}

// A row of readers has the lock together: the second one does not wait for the first one to leave.
func TestTicketReadersTogether(t *testing.T) {
	var m counters
	for want := range uint64(3) {
		ticket := Enter(&m)
		if turn := m.Load(Turn(Shared)); ticket != want || turn != want {
			t.Fatalf("reader %d has ticket %d, and the turn is %d", want, ticket, turn)
		}
		Entered(&m, Shared)
	}
	writer := Enter(&m)
	for n := range uint64(3) {
		if turn := m.Load(Turn(Exclusive)); turn != n {
			t.Fatalf("when %d of 3 readers have left, the turn of a writer is %d", n, turn)
		}
		Leave(&m, Shared)
	}
	if turn := m.Load(Turn(Exclusive)); turn != writer {
		t.Fatalf("when all readers have left, the turn is %d, the writer's ticket %d", turn, writer)
	}
}

type counters [Words]uint64

func (c *counters) Add(i Word) uint64  { c[i]++; return c[i] }
func (c *counters) Load(i Word) uint64 { return c[i] }

func (c *counters) Take(from uint64) bool {
	if c[Next] != from {
		return false
	}
	c[Next]++
	return true
}
