package transport

import "sync/atomic"

// Boards describes a device by which ranks of one host have memory in common. Any goroutine may call its functions.
type Boards struct {
	// Make makes a board for ranks of the world, of which this is one. They get it by Join of the same numbers and of
	// ticket, which is at most 256 bytes long; it has gone from rank to rank, so Join treats it as hostile.
	Make func(members []int32, lines, bytes int) (b *Board, ticket []byte, err error)
	Join func(members []int32, lines, bytes int, ticket []byte) (*Board, error)
}

// Board is memory that some ranks have mapped: lines, and data behind them. All is zero at first. A line has a word,
// which one rank raises, or all of them, and room for what that rank has to say with it; each member has as many, the
// first member the first of them. Data has room for longer contributions. The memory of another rank may hold anything
// at any time. A rank that waits for a word looks at it, and for longer waits asks for it by Expect: then Poll reports
// Reached, and an armed sleep ends for it.
//
// Any goroutine may call Raise, Wake, Fail and Failed, until Close. Expect, Forget, Watch and Close are called with the
// engine's lock.
type Board struct {
	Lines []*Line
	Data  []byte
	// Raise sets the word of a line, which only grows, and wakes the ranks that sleep until it has that.
	Raise func(line int, to uint64)
	// Wake wakes the ranks that sleep until a line has what its word has now. Where members share a word they change it
	// by Add, which Raise is not, and call this.
	Wake func(line int)
	// Watch has the end of every member reported as Down from now on, like the end of a peer. It is called with the
	// engine's lock.
	Watch func()
	// PrefetchW has the processor fetch the beginning of mem, of a line or of Data, to write it, and returns at once.
	PrefetchW func(mem []byte)
	// Expect: Poll reports Reached, once, when the word of line is at least so much, or the board has failed. It ends
	// an earlier Expect. From then on the end of the member that owns the line is reported as Down, like the end of a
	// peer.
	Expect func(line int, least, cookie uint64)
	// Forget ends Expect.
	Forget func()
	// Fail says that member i has failed, to all that wait or will. The first one counts. The first WhyMost bytes
	// of why are told.
	Fail func(i int, why []byte)
	// Failed is the member that has failed, or -1, and a copy of why: what Fail was given, unless another rank has
	// written something else there. A Failed of -1 is synchronized before each Fail that comes after it.
	Failed func() (i int, why []byte)
	// Joined says that all members have joined: no ticket is needed any more.
	Joined func()
	// Close unmaps the board. No goroutine of this rank uses it.
	Close func()
	// Lending is how members read what others have in memory of their own. nil: there is no way.
	Lending *Lending
}

// Lending lets the members of a board read and write each other's memory. One goroutine at a time calls its functions,
// until Close.
type Lending struct {
	// Try says why this rank cannot read or write what another member may lend; nil: it can. All members have joined.
	Try func() error
	// Lend lets the members read and write mem, by numbers for Read and Write, until Return. mem stays where it is.
	Lend func(mem []byte) Loan
	// Return ends a loan. No member writes to it any more if those that were to write have said that they have done so,
	// or if Fail has been called before: then Return waits for a Write that is under way, or the end of its process.
	Return func(Loan)
	// Read fills dst from what member i has lent, which has it at from. The loan is hostile. The bytes are right if the
	// member had not returned the loan before Read came back. ErrPeerGone: the member has ended.
	Read func(i int, dst []byte, l Loan, from int) error
	// Write puts src there likewise. It is an error, and nothing is written, if Fail has been called.
	Write func(i int, src []byte, l Loan, from int) error
}

// Loan is how the others find what a member lends; zero: nothing is lent.
type Loan struct{ Addr, Key uint64 }

// WhyMost is how much a board tells of a failure.
const WhyMost = 440

// Line is two lines of a cache.
type Line struct {
	Word  atomic.Uint64
	Bytes [120]byte
}
