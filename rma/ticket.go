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
// is Add(Next) if that word is the ticket, and reports whether it was, in one atomic step.
type Memory interface {
	Add(Word) uint64
	Load(Word) uint64
	Take(ticket uint64) bool
}

// Enter takes a ticket.
func Enter(m Memory) (ticket uint64) { return m.Add(Next) - 1 }

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

// Try takes a shared lock if it can be had at once, and reports whether the caller has it. It may be false although the
// lock could be had, if another rank takes a ticket meanwhile.
func Try(m Memory) bool {
	turn := m.Load(Readers)
	if !m.Take(turn) { // a ticket has been given that has not had its turn for a shared lock
		return false
	}
	Entered(m, Shared)
	return true
}

// Leave lets the lock go.
func Leave(m Memory, mode Mode) {
	if mode == Exclusive {
		m.Add(Readers)
	}
	m.Add(Left)
}
