package agree

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/gorun-mpi/mpi/internal/consensus"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// Ranks agree though others have died, and hear that a communicator is revoked, by messages of the control context: no
// communicator has it, so it works whatever has become of them. The goroutine that answers (vote.go) takes the
// messages, and hears of deaths. It runs from the first death that this rank hears of, from its first call of this
// file, or from the first synchronous message on; until then nothing of this costs anything.
//
// A message has the number of a communicator. This rank may have freed that: then the party of the communicator stays
// for a while, for ranks that ask late. Or this rank is still making it: then the message waits.

// The kinds of messages of the control context: of vote.go, frames of package consensus, and revocations.
const (
	askVote     = 0
	firstFrame  = 1
	tellRevoked = firstFrame + int64(consensus.Kinds) // the last
)

// Recovery is what a rank knows of failures. All communicators of the rank share it.
type Recovery struct {
	world  *Group
	groups sync.Map // of weak.Pointer[Group], by number: the communicators that are complete

	// mu guards what follows. It is held while a communicator is revoked, and not while any message is sent.
	mu      sync.Mutex
	parties map[uint32]*party // by number
	freed   []uint32          // parties of freed communicators, the oldest first: ≤ partiesKept
	early   []earlyMessage    // for communicators that are being made here: ≤ earlyKept
	losses  []pml.Loss        // that all parties know
	left    bool              // this rank makes no call any more, but perhaps on the world
}

const (
	partiesKept = 256
	earlyKept   = 1 << 12
)

type earlyMessage struct {
	number uint32
	from   int32
	body   []byte
}

// party are the ranks of a communicator, of an intercommunicator the ranks of both groups, as far as failures go.
type party struct {
	number  uint32
	members *ranks.Set
	machine *consensus.Machine

	// Guarded by Recovery.mu.
	failed []int32          // in the world, in the order in which this rank has heard of them
	known  consensus.Set    // the same, by member
	acked  int              // how many of them are acknowledged
	flood  *consensus.Flood // nil: the communicator is not revoked
	last   uint32           // agreement that was decided
	left   bool             // the communicator has been freed

	// answered is the last agreement whose decision this rank has passed on. A caller returns no earlier: it may leave,
	// and a rank that heard of that before the decision would decide without this one.
	answered atomic.Uint32
}

// outbox is what is to be done when Recovery.mu is free.
type outbox struct {
	letters  []letter
	suspects []int32 // ranks that others take for dead, and this one does not yet: a connection shows whether they are
	decided  []decided
}

// decided is an agreement that has been decided, and for which a caller waits.
type decided struct {
	p      *party
	number uint32
}

type letter struct {
	to     int32 // in the world
	body   []byte
	surely bool // also if its receiver does not look for it
}

// newRecovery returns the Recovery of a rank, whose world g is.
func newRecovery(g *Group) *Recovery {
	return &Recovery{world: g, parties: map[uint32]*party{}}
}

func (g *Group) number() uint32 { return g.Context / ContextsEach }

// whole returns g, or the group of both sides of an intercommunicator.
func (g *Group) whole() *Group {
	if g.Local != nil {
		return g.Both
	}
	return g
}

// First returns the first rank of g, of an intercommunicator of both sides, in the world.
func (g *Group) First() int { return g.whole().ToWorld(0) }

// PlaceOf returns the place of a rank of the world in g, of an intercommunicator among the ranks of both sides.
func (g *Group) PlaceOf(world int32) int { return g.whole().RankOf(world) }

// Publish lets other ranks reach g, which is complete.
func (g *Group) Publish() {
	r, number := g.Recovery, g.number()
	r.mu.Lock()
	delete(r.parties, number) // of an earlier communicator
	r.groups.Store(number, weak.Make(g))
	var here []earlyMessage
	r.early = slices.DeleteFunc(r.early, func(m earlyMessage) bool {
		if m.number == number {
			here = append(here, m)
		}
		return m.number == number
	})
	r.mu.Unlock()
	for _, m := range here {
		r.hear(m.from, m.body)
	}
}

// Leave says that this rank makes no call on g any more.
func (g *Group) Leave() {
	r := g.Recovery
	g.gone.Store(true)
	r.mu.Lock()
	var out outbox
	if p := r.parties[g.number()]; p != nil && !p.left {
		out = r.leave(p)
	}
	r.mu.Unlock()
	r.dispatch(out)
}

// leave ends the part of this rank in p, and keeps p for a while.
func (r *Recovery) leave(p *party) outbox {
	p.left = true
	if r.freed = append(r.freed, p.number); len(r.freed) > partiesKept {
		if old := r.parties[r.freed[0]]; old != nil && old.left {
			delete(r.parties, old.number)
		}
		r.freed = slices.Delete(r.freed, 0, 1)
	}
	p.machine.Leave()
	return r.settle(p)
}

// Unpublish forgets g when its number is given back.
func (g *Group) Unpublish() { g.Recovery.groups.CompareAndDelete(g.number(), weak.Make(g)) }

// LeaveAll says that this rank makes no call on communicators made of g any more. g is the world.
func (g *Group) LeaveAll() {
	r := g.Recovery
	r.mu.Lock()
	var out outbox
	r.left = true
	for _, p := range r.parties {
		if !p.left && p.number != 0 {
			out.add(r.leave(p))
		}
	}
	r.mu.Unlock()
	r.dispatch(out)
}

// group returns the communicator with a number. known reports whether there is one, or was until a moment ago.
func (r *Recovery) group(number uint32) (g *Group, known bool) {
	v, known := r.groups.Load(number)
	if !known {
		return nil, false
	}
	if g = v.(weak.Pointer[Group]).Value(); g == nil || g.gone.Load() {
		return nil, true
	}
	return g, true
}

// concern returns the error of the first loss that concerns a wait for any source with a context: the loss of a rank of
// the communicator that the caller has not acknowledged. It is called under the engine's lock.
func (r *Recovery) concern(ctx uint32, losses []pml.Loss) error {
	g, _ := r.group(ctx / ContextsEach)
	if g == nil {
		return losses[0].Err
	}
	acked := g.acked.Load()
	for _, l := range losses {
		if i := g.PlaceOf(l.Rank); i >= 0 && (acked == nil || !acked.Has(i)) {
			return l.Err
		}
	}
	return nil
}

// HasLost reports whether this rank has heard that a member of g has failed.
func (g *Group) HasLost() bool {
	return slices.ContainsFunc(g.Engine.Losses(0), func(l pml.Loss) bool { return g.PlaceOf(l.Rank) >= 0 })
}

// party returns the party of g, made now if g has no party. The caller holds mu.
func (r *Recovery) party(g *Group) *party {
	if p := r.parties[g.number()]; p != nil {
		return p
	}
	whole := g.whole()
	p := &party{number: g.number(), members: whole.Members(), machine: consensus.New(whole.Size, whole.Rank)}
	r.parties[p.number] = p
	for _, l := range r.losses {
		p.lose(l.Rank)
	}
	if r.left && p.number != 0 || g.gone.Load() { // others are not to wait for a call on what has been freed
		r.leave(p)
	}
	return p
}

// lose tells p that a rank of the world has failed.
func (p *party) lose(world int32) {
	if i := p.members.Find(world); i >= 0 {
		p.known.Add(i)
		if !slices.Contains(p.failed, world) {
			p.failed = append(p.failed, world)
		}
		p.machine.Died(i)
	}
}

// learn takes the failures that the engine has heard of. The caller holds mu.
func (r *Recovery) learn() (out outbox) {
	fresh := r.world.Engine.Losses(len(r.losses))
	if len(fresh) == 0 {
		return out
	}
	r.losses = append(r.losses, fresh...)
	for _, p := range r.parties {
		for _, l := range fresh {
			p.lose(l.Rank)
		}
		out.add(r.settle(p))
	}
	return out
}

// settle takes what p's machine has to send, what it has heard, and what it has decided. The caller holds mu.
func (r *Recovery) settle(p *party) (out outbox) {
	dead := p.machine.Dead()
	for i := range dead.All {
		if p.known.Add(i) {
			world := int32(p.members.At(i))
			p.failed = append(p.failed, world)
			if !p.machine.Alone() { // else they live, and one that has died is heard of from the launcher
				out.suspects = append(out.suspects, world)
			}
		}
	}
	for _, m := range p.machine.Messages() {
		out.letters = append(out.letters, letter{to: int32(p.members.At(m.To)), body: appendFrame(p.number, m.Frame)})
	}
	if p.flood != nil {
		for _, i := range p.flood.Next(dead) {
			out.letters = append(out.letters, letter{to: int32(p.members.At(i)), surely: true,
				body: AppendInts(nil, tellRevoked, int64(p.number))})
		}
	}
	if n, _ := p.machine.Decided(); n != p.last {
		p.last = n
		out.decided = append(out.decided, decided{p, n})
	}
	return out
}

func (o *outbox) add(more outbox) {
	o.letters, o.suspects = append(o.letters, more.letters...), append(o.suspects, more.suspects...)
	o.decided = append(o.decided, more.decided...)
}

// dispatch does what is in an outbox. A letter to a rank that has died is lost. A caller that waits for an agreement
// gets a message of its own rank: it waits in the engine, as callers do, and so it is the one that polls meanwhile.
func (r *Recovery) dispatch(out outbox) {
	e := r.world.Engine
	for _, l := range out.letters {
		if l.surely {
			e.SendToServer(control, int(l.to), tagAsk, l.body)
		} else {
			e.SendDetached(control, int(l.to), tagAsk, l.body)
		}
	}
	for _, d := range out.decided {
		d.p.answered.Store(d.number)
		e.SendDetached(control, int(r.world.WorldRank), answerTag(d.p.number), nil)
	}
	for _, world := range out.suspects {
		e.EnsureLink(int(world))
	}
}

// appendFrame writes a frame of the communicator with a number.
func appendFrame(number uint32, f consensus.Frame) []byte {
	b := AppendInts(nil, firstFrame+int64(f.Kind), int64(number), int64(f.Number))
	b = appendSet(appendSet(b, f.Dead), f.Gone)
	if f.Kind == consensus.Report || f.Kind == consensus.Decision {
		v := f.Value
		b = AppendInts(b, int64(v.Flags), int64(v.Low), int64(v.High), int64(v.Calls), int64(v.Count))
		b = appendSet(appendSet(appendSet(b, v.Acked), v.Dead), v.Gone)
	}
	return b
}

func appendSet(b []byte, s consensus.Set) []byte {
	var bytes []byte
	for _, w := range s {
		bytes = binary.LittleEndian.AppendUint64(bytes, w)
	}
	for len(bytes) > 0 && bytes[len(bytes)-1] == 0 {
		bytes = bytes[:len(bytes)-1]
	}
	return AppendBytes(b, bytes)
}

// members reads a set of n ranks at most.
func (d *Decoder) members(n int) (s consensus.Set) {
	for i, b := range d.Bytes() {
		for bit := range 8 {
			switch rank := i*8 + bit; {
			case b>>bit&1 == 0:
			case rank >= n:
				d.Bad = true
				return nil
			default:
				s.Add(rank)
			}
		}
	}
	return s
}

// frame reads the rest of a frame whose communicator has n ranks.
func (d *Decoder) frame(kind consensus.Kind, n int) consensus.Frame {
	word := func() uint32 { return uint32(d.Within(0, 1<<32-1)) }
	f := consensus.Frame{Kind: kind, Number: word(), Dead: d.members(n), Gone: d.members(n)}
	if kind == consensus.Report || kind == consensus.Decision {
		f.Value = consensus.Value{Flags: word(), Low: word(), High: word(), Calls: word(), Count: word(),
			Acked: d.members(n), Dead: d.members(n), Gone: d.members(n)}
	}
	return f
}

// hear takes a message of a rank of the world.
func (r *Recovery) hear(from int32, body []byte) {
	d := Decoder{B: body}
	kind, number := d.Within(firstFrame, tellRevoked), uint32(d.Within(0, 1<<32-1))
	if d.Bad {
		return
	}
	r.mu.Lock()
	var out outbox
	g, known := r.group(number)
	p := r.parties[number]
	if g != nil {
		p = r.party(g)
	}
	switch coming := !known && r.world.Numbers.claimed(number); {
	case coming:
		if r.early = append(r.early, earlyMessage{number, from, body}); len(r.early) > earlyKept {
			r.early = slices.Delete(r.early, 0, 1)
		}
	case p != nil && kind == tellRevoked:
		if i := p.members.Find(from); i >= 0 && d.Over() {
			out = r.revoke(p, g, i)
		}
	case p != nil:
		f := d.frame(consensus.Kind(kind-firstFrame), int(p.members.N))
		if i := p.members.Find(from); i >= 0 && d.Over() {
			p.machine.Hear(i, f)
			out = r.settle(p)
		}
	case kind == firstFrame+int64(consensus.Report), kind == firstFrame+int64(consensus.Ask), kind == tellRevoked:
		// It has been freed here. A revocation goes on to the next rank.
		out.letters = []letter{{to: from, body: appendFrame(number, consensus.Frame{Kind: consensus.Left})}}
	}
	r.mu.Unlock()
	r.dispatch(out)
}

// revoke revokes the communicator of p, once. g is it; nil: it has been freed here. from is the member that has said
// so, or none.
func (r *Recovery) revoke(p *party, g *Group, from int) (out outbox) {
	if p.flood != nil {
		p.flood.Heard(from)
		return out
	}
	p.flood = consensus.NewFlood(int(p.members.N), p.members.Find(r.world.WorldRank))
	p.flood.Heard(from)
	if g != nil && g.OnRevoke != nil {
		g.OnRevoke()
	}
	return r.settle(p)
}

// revokedFor is how long Revoke waits for another rank to hear of it.
const revokedFor = time.Second

// Revoke revokes g at all its ranks. It returns when it is revoked here, and another rank has heard of it, if one does
// soon: from then on all that live hear of it, also if this rank dies.
func (g *Group) Revoke() {
	r := g.Recovery
	g.Engine.CallServer()
	r.mu.Lock()
	out := r.learn()
	news := r.revoke(r.party(g), g, ranks.Undefined)
	r.mu.Unlock()
	letters := news.letters
	news.letters = nil
	r.dispatch(out)
	r.dispatch(news)
	taken := make(chan error, len(letters))
	for _, l := range letters {
		sent := g.Engine.Isend(nil, control, int(l.to), tagAsk, l.body, pml.Synchronous)
		r.world.InBackground("", func() error {
			_, err := sent.Wait()
			taken <- err
			return nil
		})
	}
	soon := time.NewTimer(revokedFor)
	defer soon.Stop()
	for range letters {
		select {
		case err := <-taken:
			if err == nil {
				return
			}
		case <-soon.C:
			return
		}
	}
}

// Failed returns the ranks of the world that have failed, of those that are in g, in the order in which this rank has
// heard of them.
func (g *Group) Failed() []int32 {
	r := g.Recovery
	r.mu.Lock()
	out := r.learn()
	failed := slices.Clone(r.party(g).failed)
	r.mu.Unlock()
	r.dispatch(out)
	return failed
}

// AckFailed acknowledges the first n of Failed, and returns how many are.
func (g *Group) AckFailed(n int) int {
	r := g.Recovery
	r.mu.Lock()
	out := r.learn()
	p := r.party(g)
	p.acked = max(p.acked, min(n, len(p.failed)))
	acked := p.acknowledged()
	g.acked.Store(&acked)
	n = p.acked
	r.mu.Unlock()
	r.dispatch(out)
	return n
}

// acknowledged are the failures that the caller has acknowledged.
func (p *party) acknowledged() (s consensus.Set) {
	for _, world := range p.failed[:p.acked] {
		s.Add(p.members.Find(world))
	}
	return s
}

// The calls that agree, as bits of a Value.
const (
	CallAgree = 1 << iota
	CallShrink
	CallReplace
)

const (
	// nudgeAfter is for how long a rank waits until it asks those that it waits for. It asks less and less often, up to
	// nudgeMost.
	nudgeAfter = time.Second
	nudgeMost  = 30 * time.Second
)

// Agree makes an agreement of the ranks of g: all that live get one value. One call goes on at a time.
func (g *Group) Agree(v consensus.Value) (consensus.Value, error) {
	r, e := g.Recovery, g.Engine
	if err := e.Closed(); err != nil {
		return v, err
	}
	e.CallServer()
	r.mu.Lock()
	out := r.learn()
	p := r.party(g)
	v.Acked = p.acknowledged()
	number := p.machine.Begin(v)
	out.add(r.settle(p))
	r.mu.Unlock()
	r.dispatch(out)
	return r.await(p, number)
}

// await returns when an agreement that was begun is decided.
func (r *Recovery) await(p *party, number uint32) (consensus.Value, error) {
	e := r.world.Engine
	for pause := nudgeAfter; ; pause = min(2*pause, nudgeMost) {
		ctx, stop := context.WithTimeout(context.Background(), pause)
		err := e.AwaitServer(ctx, control, answerTag(p.number)) // dispatch sends that
		stop()
		if p.answered.Load() == number {
			r.mu.Lock()
			_, v := p.machine.Decided()
			r.mu.Unlock()
			return v, nil
		}
		if err := e.Closed(); err != nil {
			return consensus.Value{}, err
		}
		if err != nil {
			r.nudge(p)
		}
	}
}

// nudge asks the ranks that p waits for. They may have returned, and have heard of nothing.
func (r *Recovery) nudge(p *party) {
	r.mu.Lock()
	out := r.learn()
	p.machine.Nudge()
	asks := r.settle(p)
	r.mu.Unlock()
	for i := range asks.letters {
		asks.letters[i].surely = true
	}
	r.dispatch(out)
	r.dispatch(asks)
}

// callNames are the names of these bits.
var callNames = [...]string{"Agree", "Shrink", "Replace"}

// MixedCalls is the error of ranks that make different calls.
func MixedCalls(calls uint32) *mpierr.Error {
	var names []string
	for bit, name := range callNames {
		if calls>>bit&1 != 0 {
			names = append(names, name)
		}
	}
	return mpierr.New("", mpierr.ErrComm, "some ranks call %s; all ranks make the same calls in the same order",
		strings.Join(names, " and others "))
}

// AwaitLoss returns why calls on g can go on no more: a rank of g has failed, or g is revoked. It returns when ctx ends
// at the latest.
func (g *Group) AwaitLoss(ctx context.Context) error {
	never := int32(tagFlush) // on this context
	_, _, err := g.Engine.Probe(ctx, g.Context+CtxCollective, pml.AnySource, never, false)
	return err
}

// Shrink finds a number for a communicator of the ranks of g that live: Low of the value that all of them get. It is an
// agreement on what all of them offer, until they offer the same. call is the caller's, and count what it offers.
func (g *Group) Shrink(call, count uint32) (v consensus.Value, err error) {
	want := g.number() + 1
	for try := range tries {
		id := g.Numbers.take(want)
		v, err = g.Agree(consensus.Value{Flags: ^uint32(0), Low: id, High: id, Calls: call, Count: count})
		switch {
		case err == nil && v.Calls != call:
			err = MixedCalls(v.Calls)
		case err == nil && v.Low == v.High:
			return v, nil
		}
		if err != nil { // the engine has been closed, or all ranks have heard of the mistake
			g.Numbers.Release(id, nil)
			return v, err
		}
		g.Numbers.Release(id, nil)
		if want = v.High; try > 0 {
			want += scatter(g.Context, want) % (1 << min(try, 10))
		}
	}
	return v, mpierr.New("", mpierr.ErrComm, "the ranks could not agree on a number for a new communicator in %d "+
		"tries; free some of those you have", tries)
}
