package mpi

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/pml"
)

// Special values of ranks and tags.
const (
	AnySource = pml.AnySource // a receive from any rank; §3.2.4
	AnyTag    = pml.AnyTag    // a receive of any tag; §3.2.4
	ProcNull  = -2            // no rank: calls that name it do nothing and succeed; §3.11
	Undefined = -3            // no such value; §2.5.4
)

// MaxTag is the largest tag; §9.1.2 (MPI_TAG_UB).
const MaxTag = math.MaxInt32

// Comm is a communicator: an ordered group of ranks whose messages are apart from those of any other communicator; §7.
type Comm struct {
	*shared
	ctx context.Context // nil: calls are not ended by a context
}

// shared is what the Comms that WithContext makes have in common.
type shared struct {
	name  string
	eng   *pml.Engine
	rank  int
	size  int
	world []int32       // rank here -> rank in the world; nil: the same
	back  map[int32]int // rank in the world -> rank here; nil: the same
	// cid is the context of point-to-point messages, cid+1 that of the library's own. Even, and no two
	// communicators of this rank have the same at the same time.
	cid   uint32
	ids   *contextIDs
	freed atomic.Bool
	dups  atomic.Int32

	// coll orders the collective calls of this rank on this communicator.
	coll  ticketLock
	tried uint32 // numbers tried for communicators made of this one; the same at all ranks. Guarded by coll.
}

// Rank is the caller's number in the communicator, 0 … Size-1; Undefined if c is nil; §7.4.1.
func (c *Comm) Rank() int {
	if c == nil || c.shared == nil {
		return Undefined
	}
	return c.rank
}

// Size is the number of ranks in the communicator; 0 if c is nil; §7.4.1.
func (c *Comm) Size() int {
	if c == nil || c.shared == nil {
		return 0
	}
	return c.size
}

// Name is what errors and logs call the communicator: "world", or its parent's name with a suffix; "" if c is nil.
func (c *Comm) Name() string {
	if c == nil || c.shared == nil {
		return ""
	}
	return c.name
}

// WithContext returns a Comm for the same communicator whose calls end with ctx's error when ctx does. The operation is
// then cancelled or completed, never half done, and its buffer is the caller's again. A send whose payload the receiver
// has begun to read is completed. It is nil if c is nil.
func (c *Comm) WithContext(ctx context.Context) *Comm {
	if c == nil {
		return nil // calls on nil are ErrComm
	}
	d := &Comm{shared: c.shared}
	if ctx != nil && ctx.Done() != nil {
		d.ctx = ctx
	}
	return d
}

// usualSend reports whether these arguments are correct and usual: no ProcNull, no context. If not, checkSend decides.
func (c *Comm) usualSend(dest, tag int) bool {
	return c != nil && c.shared != nil && c.ctx == nil && uint(dest) < uint(c.size) && uint(tag) <= MaxTag &&
		!c.freed.Load()
}

// usualRecv is usualSend where rank and tag may be wildcards, which are -1.
func (c *Comm) usualRecv(source, tag int) bool {
	return c != nil && c.shared != nil && c.ctx == nil && uint(source+1) <= uint(c.size) && uint(tag+1) <= MaxTag+1 &&
		!c.freed.Load()
}

// toWorld translates a rank of this communicator, or a wildcard.
func (c *Comm) toWorld(rank int) int {
	if c.world == nil || rank < 0 {
		return rank
	}
	return int(c.world[rank])
}

// rankOf translates a rank of the world, or a wildcard, into one of this communicator.
func (c *shared) rankOf(world int32) int {
	if c.world == nil || world < 0 {
		return int(world)
	}
	if r, ok := c.back[world]; ok {
		return r
	}
	return Undefined
}

// Status describes a completed receive, or a message found by a probe; §3.2.5.
type Status struct {
	Source    int   // rank in the communicator, or ProcNull
	Tag       int   // 0 … MaxTag, or AnyTag with ProcNull
	Bytes     int64 // received; of a probe: length of the message
	Cancelled bool  // the operation was cancelled, nothing was transferred; §3.8.4
}

// Count is the length of the message in elements of T, or Undefined if it is not a whole number of them; §3.2.5
// (MPI_Get_count).
func Count[T any](s Status) int {
	n := int64(sizeOf[T]())
	switch {
	case n == 0 && s.Bytes == 0:
		return 0
	case n == 0 || s.Bytes%n != 0:
		return Undefined
	}
	return int(s.Bytes / n)
}

func (c *Comm) status(s pml.Status) Status {
	return Status{Source: c.rankOf(s.Source), Tag: int(s.Tag), Bytes: s.Bytes, Cancelled: s.Cancelled}
}

// emptyStatus is that of a wait for no request; §3.7.3.
var emptyStatus = Status{Source: AnySource, Tag: AnyTag}

// nullStatus is that of an operation with ProcNull; §3.11.
var nullStatus = Status{Source: ProcNull, Tag: AnyTag}

// checkSend reports which argument of a send is wrong.
func (c *Comm) checkSend(op string, dest, tag int) error {
	if err := c.usable(op); err != nil {
		return err.named(dest, tag, false)
	}
	if dest != ProcNull && (dest < 0 || dest >= c.size) {
		return c.rankError(op, dest, false)
	}
	if tag < 0 || tag > MaxTag {
		return &Error{Op: op, Class: ErrTag, Comm: c.name, Peer: dest, Tag: Undefined,
			Err: fmt.Errorf("the tag is %d; tags of sends are 0 to %d", tag, MaxTag)}
	}
	return nil
}

// checkRecv reports which argument of a receive or probe is wrong.
func (c *Comm) checkRecv(op string, source, tag int) error {
	if err := c.usable(op); err != nil {
		return err.named(source, tag, true)
	}
	if source != ProcNull && source != AnySource && (source < 0 || source >= c.size) {
		return c.rankError(op, source, true)
	}
	if tag != AnyTag && (tag < 0 || tag > MaxTag) {
		return &Error{Op: op, Class: ErrTag, Comm: c.name, Peer: source, Tag: Undefined,
			Err: fmt.Errorf("the tag is %d; tags are 0 to %d, or AnyTag", tag, MaxTag), source: true}
	}
	return nil
}

func (c *Comm) rankError(op string, rank int, source bool) error {
	ranks, more := "1 rank (0)", ""
	if c.size > 1 {
		ranks = fmt.Sprintf("%d ranks (0–%d)", c.size, c.size-1)
	}
	if source {
		more = "; a source may also be AnySource"
	}
	return &Error{Op: op, Class: ErrRank, Comm: c.name, Peer: rank, Tag: Undefined,
		Err: fmt.Errorf("the communicator has %s%s", ranks, more), source: source}
}

// named adds the rank and the tag that the caller gave.
func (e *Error) named(peer, tag int, source bool) *Error {
	e.Peer, e.Tag, e.source = peer, tag, source
	return e
}

// usable reports why c cannot be used: nil, freed, finalized, or its context has ended.
func (c *Comm) usable(op string) *Error {
	switch {
	case c == nil || c.shared == nil:
		return opError(op, ErrComm, "the communicator is nil; call Init (or Main) first and use what it returns")
	case c.freed.Load() && c.cid == 0:
		return opError(op, ErrInit, "called after Finalize")
	case c.freed.Load():
		return &Error{Op: op, Class: ErrComm, Comm: c.name, Peer: Undefined, Tag: Undefined,
			Err: fmt.Errorf("the communicator has been freed; use it before Free, or make another with Dup")}
	case c.ctx != nil:
		if err := c.ctx.Err(); err != nil {
			return &Error{Op: op, Class: err, Comm: c.name, Peer: Undefined, Tag: Undefined, Err: err}
		}
	}
	return nil
}

// valid is usable without regard to the context. It is for collective calls: see Barrier.
func (c *Comm) valid(op string) *Error {
	if c == nil {
		return c.usable(op)
	}
	return (&Comm{shared: c.shared}).usable(op)
}

// Dup makes a communicator of the same ranks in the same order, whose messages are apart from c's; §7.4.2. Every rank
// of c calls it. If c's context ends first, or has ended, Dup returns its error, and this rank has no part in a
// communicator that the other ranks may make all the same; the call counts, as that of Barrier does.
func (c *Comm) Dup() (*Comm, error) {
	if err := c.valid("Dup"); err != nil {
		return nil, err
	}
	var made handover
	err := c.collective(func() error {
		if err := c.eng.Closed(); err != nil { // in a world of one nothing below notices
			return err
		}
		cid, err := c.agreeContext()
		if err != nil {
			return err
		}
		s := &shared{name: fmt.Sprintf("%s.dup%d", c.name, c.dups.Add(1)), eng: c.eng, rank: c.rank, size: c.size,
			world: slices.Clone(c.world), back: c.back, cid: cid, ids: c.ids}
		made.give(&Comm{shared: s, ctx: c.ctx})
		return nil
	})
	if err != nil {
		made.refuse()
		return nil, c.wrap("Dup", Undefined, Undefined, err)
	}
	return made.c, nil
}

// handover passes a communicator to a caller that may have gone away. Then it is freed: the messages that other ranks
// send on it are dropped.
type handover struct {
	mu      sync.Mutex
	c       *Comm
	refused bool
}

func (h *handover) give(c *Comm) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.c = c; h.refused {
		c.free()
	}
}

func (h *handover) refuse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused = true; h.c != nil {
		h.c.free()
	}
}

// Free gives the communicator back; §7.4.3. Messages that were sent on it to this rank and not received are dropped,
// and so are those that come later: their senders find them sent. Receives that wait on it fail with ErrComm. It
// returns at once, also if c's context has ended. A second Free is ErrComm, and so is that of the world, which Finalize
// frees.
func (c *Comm) Free() error {
	if err := c.valid("Free"); err != nil {
		return err
	}
	if c.cid == 0 {
		return opError("Free", ErrComm, "the world is given back by Finalize, not by Free")
	}
	if !c.free() {
		return &Error{Op: "Free", Class: ErrComm, Comm: c.name, Peer: Undefined, Tag: Undefined,
			Err: fmt.Errorf("the communicator has been freed already")}
	}
	return nil
}

// free reports false if c is freed already.
func (c *Comm) free() bool {
	if c.freed.Swap(true) {
		return false
	}
	err := opError("", ErrComm, "the communicator was freed while this call waited")
	c.eng.DropContext(c.cid, err)
	c.eng.DropContext(c.cid+1, err)
	c.ids.release(c.cid)
	return true
}

// Stats are counters of this rank for all communicators together.
type Stats = pml.Stats

// Fallbacks count the receives that were not handed to a device that matches tags, by reason. Fallback is a reason.
type (
	Fallbacks = pml.Fallbacks
	Fallback  = pml.Fallback
)

// Stats returns the counters of this rank since it joined; zeros if c is nil.
func (c *Comm) Stats() Stats {
	if c == nil || c.shared == nil || c.eng == nil {
		return Stats{}
	}
	return c.eng.Stats()
}

// Transport is how this rank reaches the other ranks: "shm", "tcp", or "shm+tcp" where only some of them are on this
// host; "loop" under RunLocal and in a world of one.
func (c *Comm) Transport() string {
	if c == nil || c.shared == nil || c.eng == nil {
		return ""
	}
	return c.eng.Transport()
}

// contextIDs are the context numbers that this rank uses. 0 is the world's.
type contextIDs struct {
	mu   sync.Mutex
	used map[uint32]bool
}

func newContextIDs() *contextIDs { return &contextIDs{used: map[uint32]bool{0: true}} }

// claim takes id and reports true, or reports that it is in use.
func (x *contextIDs) claim(id uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.used[id] {
		return false
	}
	x.used[id] = true
	return true
}

func (x *contextIDs) release(id uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.used, id)
}
