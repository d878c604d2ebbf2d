package rma

// A lock of words that several ranks have mapped. It is fair: a rank takes a ticket, and ranks get the lock in the
// order of their tickets; a row of tickets for shared locks gets it together.
//
//	Next     the tickets given
//	Readers  the tickets whose successor may have a shared lock
//	Left     the tickets whose holder has let the lock go
//
// Ticket t has its turn for a shared lock when Readers is t, and for an exclusive one when Left is t. Each word only
// grows, so a rank can sleep until a word has the number of its ticket.

// Word is one of the words of a lock.
type Word uint8

const (
	Next Word = iota
	Readers
	Left
	Words // how many there are
)

// Memory is the words of one lock. Add is atomic, adds 1, returns the sum, and wakes the ranks that sleep for it. Take
// is Add of Next in the same way, if that has the value from; it reports whether it has.
type Memory interface {
	Add(Word) uint64
	Load(Word) uint64
	Take(from uint64) bool
}

// Enter takes a ticket.
func Enter(m Memory) (ticket uint64) { return m.Add(Next) - 1 }

// TryEnter takes a ticket only if that has its turn at once, and reports whether it has taken one. No word is ahead of
// Next: so if Next is what the word of the turn was before, that word has not changed since, and the ticket that comes
// next has its turn.
func TryEnter(m Memory, mode Mode) bool { return m.Take(m.Load(Turn(mode))) }

// Turn is the word that has the number of the ticket when that has its turn.
func Turn(mode Mode) Word {
	if mode == Shared {
		return Readers
	}
	return Left
}

// Entered is called when the ticket has its turn: the caller has the lock.
func Entered(m Memory, mode Mode) {
	if mode == Shared {
		m.Add(Readers)
	}
}

// Leave lets the lock go.
func Leave(m Memory, mode Mode) {
	if mode == Exclusive {
		m.Add(Readers)
	}
	m.Add(Left)
}
