package mpi

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/internal/window"
	"github.com/gorun-mpi/mpi/pml"
)

// Special values of ranks and tags.
const (
	AnySource = pml.AnySource   // as source: a message of any rank matches; §3.2.4
	AnyTag    = pml.AnyTag      // as tag: a message with any tag matches; §3.2.4
	ProcNull  = ranks.ProcNull  // as rank: the call does nothing and succeeds; §3.11
	Undefined = ranks.Undefined // there is no such value; §2.5.4
	Root      = ranks.Root      // as root, on an intercommunicator: the caller is the root; §6.2.3
)

// MaxTag is the largest tag; §9.1.2 (MPI_TAG_UB).
const MaxTag = math.MaxInt32

// Comm is a communicator: an ordered group of ranks; §7. No message of one communicator matches a receive of another.
type Comm struct {
	*commState
	ctx context.Context // nil: calls are not ended by a context
	// usual is the commState, or nil: calls need a closer look, or a context may end them.
	usual *commState

	landing *landing // not nil: this is the Comm of one request, whose result is to be unpacked, or copied to a device
}

// commState is the state that all Comms of a communicator share: WithContext makes others.
type commState struct {
	group coll.Group

	ended atomic.Uint32  // isFreed, isRevoked; 0: calls can be made
	made  atomic.Int32   // communicators made of this one, for their names
	win   *window.Window // whose messages go on it; nil: it is a caller's
	attrs sync.Map       // of SetAttr
	self  *selfComm      // of the rank: its communicators share it
	alone bool           // this is it
	isWin bool           // it is a window's, also before there is one
}

// Why a communicator can be used no more: bits of commState.ended.
const (
	isFreed = 1 << iota
	isRevoked
)

// selfComm is the communicator of one rank alone, which the first call of Self makes.
type selfComm struct {
	once sync.Once
	of   *commState // the world
	s    *commState
	// renewed counts the calls of Shrink and Replace on all communicators of the rank, for names. The ranks of each call
	// agree on it.
	renewed atomic.Uint32
}

// Self returns a communicator that has the caller's rank alone; §7.2.4 (MPI_COMM_SELF). c is any communicator of the
// rank, and its context ends calls of Self(c) too. All calls at one rank return the same communicator, which has the
// name "self" and cannot be freed. Self talks to no other rank. It returns nil if c is nil.
func Self(c *Comm) *Comm {
	if c == nil || c.commState == nil {
		return nil
	}
	if h := c.hook(); h != nil {
		return h.stand(Self(h.plain))
	}
	own := c.self
	own.once.Do(func() {
		own.s = &commState{self: own, alone: true}
		w := &own.of.group
		w.Derive(&own.s.group, ranks.Of(ranks.Strided(w.WorldRank, 1, 1)), w.Numbers.TakeLast())
		own.s.group.SetName("self")
		own.s.publish()
	})
	return newComm(own.s, c.ctx)
}

// Rank returns the caller's rank in the communicator, 0 … Size-1, or Undefined if c is nil; §7.4.1.
func (c *Comm) Rank() int {
	if c == nil || c.commState == nil {
		return Undefined
	}
	return c.group.Rank
}

// Size returns the number of ranks in the communicator, in the local group of an intercommunicator, and 0 if c is nil;
// §7.4.1.
func (c *Comm) Size() int {
	switch {
	case c == nil || c.commState == nil:
		return 0
	case c.group.Local != nil:
		return int(c.group.Local.N)
	}
	return c.group.Size
}

// Name returns the name of the communicator in errors and logs; §7.8. It is the name that SetName set, "world", or the
// parent's name with a suffix, and "" if c is nil. The suffix of Shrink or Replace takes the place of an earlier one.
func (c *Comm) Name() string {
	if c == nil || c.commState == nil {
		return ""
	}
	return c.group.Name()
}

// SetName names the communicator at this rank; §7.8. Other ranks do not see the name.
func (c *Comm) SetName(name string) error {
	if err := c.exists("SetName"); err != nil {
		return err
	}
	c.group.SetName(name)
	return nil
}

// SetAttr attaches a value to the communicator at this rank; §7.7.2. The key has a comparable type of the caller's own,
// as in a context.Context; another key is ErrComm. A nil value removes the attribute. Communicators made from this one
// do not inherit it.
func (c *Comm) SetAttr(key, value any) error {
	if err := c.exists("SetAttr"); err != nil {
		return err
	}
	if key == nil || !reflect.TypeOf(key).Comparable() {
		return mpierr.New("SetAttr", ErrComm, "a %T cannot be a key; use a value of a comparable type of your own", key)
	}
	if value == nil {
		c.attrs.Delete(key)
	} else {
		c.attrs.Store(key, value)
	}
	return nil
}

// Attr returns the value that SetAttr attached under key, or nil; §7.7.2.
func (c *Comm) Attr(key any) any {
	if c == nil || c.commState == nil || key == nil || !reflect.TypeOf(key).Comparable() {
		return nil
	}
	v, _ := c.attrs.Load(key)
	return v
}

func newComm(s *commState, ctx context.Context) *Comm {
	c := &Comm{commState: s, ctx: ctx}
	if ctx == nil {
		c.usual = s
	}
	return c
}

// WithContext returns a Comm for the same communicator whose calls return ctx's error when ctx ends. The operation is
// then cancelled or complete, never half done, and the caller owns its buffer again. A send whose payload the receiver
// has begun to read completes. UCX and libfabric cannot cancel a send: over them, a rank may receive a message whose
// send ended with the context. WithContext returns nil if c is nil.
func (c *Comm) WithContext(ctx context.Context) *Comm {
	if c == nil {
		return nil // calls on nil are ErrComm
	}
	if h := c.hook(); h != nil {
		return h.standWithin(h.plain.WithContext(ctx), ctx)
	}
	if ctx == nil || ctx.Done() == nil {
		return newComm(c.commState, nil)
	}
	return newComm(c.commState, ctx)
}

// usualSend returns c's state if these arguments are correct and usual: no ProcNull, no context. If it is nil,
// checkSend decides.
func (c *Comm) usualSend(dest, tag int) *commState {
	if c == nil {
		return nil
	}
	s := c.usual
	if s == nil || uint(dest) >= uint(s.group.Size) || uint(tag) > MaxTag || s.ended.Load() != 0 {
		return nil
	}
	return s
}

// usualRecv is usualSend where rank and tag may be wildcards, which are -1.
func (c *Comm) usualRecv(source, tag int) *commState {
	if c == nil {
		return nil
	}
	s := c.usual
	if s == nil || uint(source+1) > uint(s.group.Size) || uint(tag+1) > MaxTag+1 || s.ended.Load() != 0 {
		return nil
	}
	return s
}

// Status describes a completed receive, or the message that a probe has found; §3.2.5.
type Status struct {
	Source    int   // rank in the communicator, or ProcNull
	Tag       int   // 0 … MaxTag, or AnyTag with ProcNull
	Bytes     int64 // received; of a probe: length of the message
	Cancelled bool  // the operation was cancelled, nothing was transferred; §3.8.4
}

// Count returns the length of the message in elements of T, or Undefined if it is not a whole number of them; §3.2.5
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
	return Status{Source: c.group.RankOf(s.Source), Tag: int(s.Tag), Bytes: s.Bytes, Cancelled: s.Cancelled}
}

// emptyStatus is that of a wait for no request; §3.7.3.
var emptyStatus = Status{Source: AnySource, Tag: AnyTag}

// nullStatus is that of an operation with ProcNull; §3.11.
var nullStatus = Status{Source: ProcNull, Tag: AnyTag}

// checkSend reports which argument of a send is wrong.
func (c *Comm) checkSend(op string, dest, tag int) error {
	if err := c.usable(op); err != nil {
		if err == hookedMark {
			return errHooked
		}
		return mpierr.At(err, dest, tag, false)
	}
	if dest != ProcNull && (dest < 0 || dest >= c.group.Size) {
		return c.rankError(op, dest, false)
	}
	if tag < 0 || tag > MaxTag {
		return &Error{Op: op, Class: ErrTag, Comm: c.Name(), Peer: dest, Tag: Undefined,
			Err: fmt.Errorf("the tag is %d; tags of sends are 0 to %d", tag, MaxTag)}
	}
	return nil
}

// checkRecv reports which argument of a receive or probe is wrong.
func (c *Comm) checkRecv(op string, source, tag int) error {
	if err := c.usable(op); err != nil {
		if err == hookedMark {
			return errHooked
		}
		return mpierr.At(err, source, tag, true)
	}
	if source != ProcNull && source != AnySource && (source < 0 || source >= c.group.Size) {
		return c.rankError(op, source, true)
	}
	if tag != AnyTag && (tag < 0 || tag > MaxTag) {
		return mpierr.At(c.opError(op, ErrTag, "the tag is %d; tags are 0 to %d, or AnyTag", tag, MaxTag), source,
			Undefined, true)
	}
	return nil
}

func (c *Comm) rankError(op string, rank int, source bool) error {
	has, text, more := "the communicator has", "1 rank (0)", ""
	if c.group.Size != 1 {
		text = fmt.Sprintf("%d ranks (0–%d)", c.group.Size, c.group.Size-1)
	}
	if c.group.Local != nil {
		has = "the remote group has"
	}
	if source {
		more = "; a source may also be AnySource"
	}
	return mpierr.At(c.opError(op, ErrRank, "%s %s%s", has, text, more), rank, Undefined, source)
}

// usable reports why c cannot be used: nil, freed, revoked, finalized, or its context has ended.
func (c *Comm) usable(op string) *Error {
	if c != nil && c.commState != nil && c.ctx == nil && c.ended.Load() == 0 {
		return nil
	}
	return c.unusable(op)
}

// unusable is usable of a communicator that is not, or that has a context.
func (c *Comm) unusable(op string) *Error {
	switch {
	case c.hook() != nil:
		return hookedMark
	case c == nil || c.commState == nil:
		return mpierr.New(op, ErrComm, "the communicator is nil; call Init (or Main) first and use what it returns")
	case c.ended.Load()&isFreed != 0 && c.group.Context == 0:
		return mpierr.New(op, ErrInit, "called after Finalize")
	case c.ended.Load()&isFreed != 0:
		return c.opError(op, ErrComm, "the communicator has been freed; use it before Free, or make another with Dup")
	case c.ended.Load()&isRevoked != 0:
		return c.opError(op, ErrRevoked, "%s", whyRevoked)
	case c.ctx != nil:
		if err := c.ctx.Err(); err != nil {
			return &Error{Op: op, Class: err, Comm: c.Name(), Peer: Undefined, Tag: Undefined, Err: err}
		}
	}
	return nil
}

// valid is usable without regard to the context. It is for collective calls: see Barrier.
func (c *Comm) valid(op string) *Error {
	if c == nil {
		return c.usable(op)
	}
	return (&Comm{commState: c.commState}).usable(op)
}

// exists is valid for a call that needs no other rank, or is for communicators whose ranks fail: it does not regard
// whether c is revoked.
func (c *Comm) exists(op string) *Error {
	if err := c.valid(op); err != nil && err.Class != ErrRevoked {
		return err
	}
	return nil
}

// intra reports why a call that is for communicators of one group cannot be made. It does not regard the context: see
// Barrier.
func (c *Comm) intra(op string) *Error {
	if err := c.valid(op); err != nil {
		return err
	}
	if c.group.Local != nil {
		return c.opError(op, ErrComm, "this is an intercommunicator, which has no Scan, neighbours, topologies, windows or "+
			"groups to choose from; use Merge to make a communicator of both groups")
	}
	return nil
}

// IsInter reports whether c is an intercommunicator; §7.6.1.
func (c *Comm) IsInter() bool { return c != nil && c.commState != nil && c.group.Local != nil }

// Free releases the communicator; §7.4.3. It drops messages that were sent to this rank and not received, and messages
// that arrive later; their sends complete. Receives that wait on the communicator end with ErrComm. A collective call
// whose context has ended continues in the background, because the other ranks depend on it. Free returns at once, also
// after c's context has ended. It returns ErrComm for a freed communicator, and for the world, which Finalize frees.
func (c *Comm) Free() error {
	if h := c.hook(); h != nil {
		return h.observe(callOf("Free", CallCreate), func(c *Comm) error { return c.Free() })
	}
	if err := c.exists("Free"); err != nil {
		return err
	}
	if c.group.Context == 0 {
		return mpierr.New("Free", ErrComm, "the world is given back by Finalize, not by Free")
	}
	if c.alone {
		return mpierr.New("Free", ErrComm, "self is given back by Finalize, not by Free")
	}
	if !c.free() {
		return c.opError("Free", ErrComm, "the communicator has been freed already")
	}
	return nil
}

// free reports false if c is freed already.
func (c *Comm) free() bool {
	if c.ended.Or(isFreed)&isFreed != 0 {
		return false
	}
	what := "communicator"
	if c.isWin {
		what = "window"
	}
	err := agree.FreedError(what)
	if c.win == nil {
		c.group.Engine.DropContext(c.group.Context+agree.CtxMessages, err)
	}
	c.group.Background.WhenOver(func() {
		if c.win != nil { // whose Free may go on in the background: until then other ranks ask for something
			c.group.Engine.DropContext(c.group.Context+agree.CtxMessages, err)
			c.win.Close()
		}
		c.group.Leave()
		c.group.Free()
		for ctx := uint32(agree.CtxMessages + 1); ctx < agree.ContextsEach; ctx++ {
			c.group.Engine.DropContext(c.group.Context+ctx, err)
		}
		if c.ended.Load()&isRevoked != 0 {
			c.group.Engine.Unrevoke(c.group.Context, agree.ContextsEach)
		}
		c.group.Numbers.Release(c.group.Context/agree.ContextsEach, c.group.Senders())
		c.group.Unpublish()
		process.bridges.freed(c.commState)
	})
	return true
}

// Stats are the counters of a rank, for all its communicators together.
type Stats = pml.Stats

// Fallbacks count, by reason, the receives that a device with tag matching did not get. Fallback is a reason.
type (
	Fallbacks = pml.Fallbacks
	Fallback  = pml.Fallback
)

// Stats returns the counters of this rank since it joined, for all its communicators together; zeros if c is nil.
func (c *Comm) Stats() Stats {
	if c == nil || c.commState == nil || c.group.Engine == nil {
		return Stats{}
	}
	return c.group.Engine.Stats()
}

// Transport returns the name of the transport to the other ranks: "shm", "tcp", or "shm+tcp" if only some of them are
// on this host; "loop" under RunLocal and in a world of one.
func (c *Comm) Transport() string {
	if c == nil || c.commState == nil || c.group.Engine == nil {
		return ""
	}
	return c.group.Engine.Transport()
}
