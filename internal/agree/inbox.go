package agree

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// leaderInbox has what leaders of other groups have said to this rank on one communicator, and no call has taken yet. A
// word may be for a later call, whose leader there is early; or for another goroutine's, with another tag or leader; or
// its sender and this rank do not name each other, which is a mistake. So calls take words of any rank.
type leaderInbox struct {
	Mu       sync.Mutex                            // guards what follows
	Messages []*leaderMessage                      // in the order of arrival
	refused  int                                   // how often this rank has told all others a veto: see mostRefused
	waiting  map[*PendingLeader]context.CancelFunc // what ends the wait for messages, so that it looks at words again
}

// leaderMessage is what a leader says to the rank that it takes for the leader of the other group.
type leaderMessage struct {
	from   int // in the world
	tag    int32
	kind   Creation
	value  uint32
	no     *Veto
	leaves bool       // the sender takes no word any more; it tells nothing then
	told   []byte     // what the group has to know of it: see leaderPayload
	far    *ranks.Set // the sender's group
	bad    bool       // it is none
	coming bool       // its message has been taken, and is being received
	err    error      // why it could not be received
}

func (w *leaderMessage) append(b []byte) []byte {
	leaves := int64(0)
	if w.leaves {
		leaves = 1
	}
	b = AppendInts(b, int64(w.tag), int64(w.kind), int64(w.value), leaves)
	return append(w.no.Append(b), w.told...)
}

func readLeaderMessage(from int, b []byte, size int) *leaderMessage {
	d := Decoder{B: b}
	w := &leaderMessage{from: from, tag: int32(d.Within(0, maxTag)), kind: Creation(d.Within(0, int64(MakeEnd)-1)),
		value: uint32(d.Within(0, 1<<32-1)), leaves: d.Within(0, 1) != 0, no: d.Veto(), told: d.B}
	if w.leaves {
		w.bad = !d.Over() || w.no == nil
		return w
	}
	_, w.far, _ = readTold(&d, size)
	w.bad = !d.Over() || w.far.N == 0
	return w
}

// readTold is what a group has to know of the other one's leader.
func readTold(d *Decoder, size int) (high bool, far *ranks.Set, note []byte) {
	return d.Within(0, 1) != 0, d.Ranks(size), d.Bytes()
}

// PendingLeader is what a leader waits for.
type PendingLeader struct {
	Tag     int32
	Remote  int // the other leader, in the world
	Members *ranks.Set
}

// concerns reports whether w is from the leader that a names, or from a leader that names this rank by mistake: its
// group has the rank that a names, or ranks of this group. Calls at one time that have ranks in common have different
// tags.
func (a *PendingLeader) concerns(w *leaderMessage) bool {
	switch {
	case w.bad:
		return w.from == a.Remote
	case w.tag != a.Tag:
		return false
	case w.from == a.Remote:
		return true
	}
	return !w.leaves && (w.far.Find(int32(a.Remote)) != ranks.Undefined || overlap(a.Members, w.far))
}

// Await waits for a word that concerns a, as long as the other leader lives. All that wait look for messages, since
// each may have to end when another rank fails.
func (g *Group) Await(a *PendingLeader) (*leaderMessage, error) {
	d := &g.Inbox
	for {
		ctx, w := d.look(a)
		if w != nil {
			return w, w.err
		}
		switch err := g.Engine.ProbeAny(ctx, g.Context+CtxCollective, a.Remote, TagLeaders); {
		case err == nil:
			g.receiveLeaderMessage()
		case d.stopWaiting(a, ctx):
			return nil, err
		default:
			<-ctx.Done()
		}
	}
}

// receiveLeaderMessage takes the next message, unless another goroutine has. Its place in the inbox is that of its
// arrival: words of one rank are not to change places, where it makes several tries at a number. The word comes there
// in the background, since it may be for another goroutine, and a sender that has stopped must not keep this one from
// hearing that the rank which it waits for has failed.
func (g *Group) receiveLeaderMessage() {
	d := &g.Inbox
	d.Mu.Lock()
	defer d.Mu.Unlock()
	found, st, is, _ := g.Engine.Iprobe(g.Context+CtxCollective, pml.AnySource, TagLeaders, true)
	if !is {
		return
	}
	w := &leaderMessage{from: int(st.Source), coming: true}
	d.Messages = append(d.Messages, w)
	g.InBackground("", func() error {
		b, err := receiveFound(g.Engine, found, st.Bytes)
		d.came(w, b, err, g.Engine.Size())
		return err
	})
}

// came: the word has been received, or could not be.
func (d *leaderInbox) came(w *leaderMessage, b []byte, err error, size int) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err != nil {
		*w = leaderMessage{from: w.from, bad: true, err: err}
	} else {
		*w = *readLeaderMessage(w.from, b, size)
	}
	for _, look := range d.waiting { // also those for which later words are that have come already
		look()
	}
}

// look takes the word that a waits for, or says until when to wait for messages.
func (d *leaderInbox) look(a *PendingLeader) (context.Context, *leaderMessage) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	d.forget(a)
	for i, w := range d.Messages {
		// What has come before may be what the sender has said first, or what the other leader had said before it
		// could join in the call of a group that this word is of.
		before := func(o *leaderMessage) bool { return o.coming && (o.from == w.from || o.from == a.Remote) }
		if !w.coming && a.concerns(w) && !slices.ContainsFunc(d.Messages[:i], before) {
			d.Messages = slices.Delete(d.Messages, i, i+1)
			return nil, w
		}
	}
	if d.waiting == nil {
		d.waiting = map[*PendingLeader]context.CancelFunc{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.waiting[a] = cancel
	return ctx, nil
}

// stopWaiting ends the wait of a for messages and reports whether it did. It does not where a must read words again, or
// will: the rank that a waits for sent a word before it failed, and the word is still under way.
func (d *leaderInbox) stopWaiting(a *PendingLeader, ctx context.Context) (stopped bool) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	coming := func(w *leaderMessage) bool { return w.coming && w.from == a.Remote }
	if ctx.Err() != nil || slices.ContainsFunc(d.Messages, coming) {
		return false
	}
	d.forget(a)
	return true
}

func (d *leaderInbox) forget(a *PendingLeader) {
	if cancel := d.waiting[a]; cancel != nil {
		cancel()
		delete(d.waiting, a)
	}
}

// Leave tells a rank of the world that there will be nothing, and does not wait. A word of its call may come later, and
// is never taken: so the tag is not to be used again.
func (b *Bridge) Leave(m *Exchange, to int, no *Veto) {
	w := leaderMessage{tag: b.Tag, kind: m.kind, no: no, leaves: true}
	b.Over.Engine.SendDetached(b.Over.Context+CtxCollective, to, TagLeaders, w.append(nil))
}

// stray is why there is no communicator when another leader than the one that is named has said this word.
func (b *Bridge) stray(m *Exchange, w *leaderMessage) *Veto {
	if overlap(m.members, w.far) {
		return Overlapping()
	}
	name := func(world int) int { return b.Over.RankOf(int32(world)) }
	return &Veto{Class: mpierr.ErrRank,
		Text: fmt.Sprintf("rank %d of %s gives rank %d as the leader of the other group, "+
			"whose leader is rank %d: each leader gives the rank of the other one", b.Over.Rank, b.Over.Name(),
			name(b.Remote), name(w.from))}
}

func (d *leaderInbox) mayRefuse() bool {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	d.refused++
	return d.refused <= MostRefused
}

// Overlapping is the veto of groups that have ranks in common.
func Overlapping() *Veto {
	return &Veto{Class: mpierr.ErrGroup, Text: "the two groups have ranks in common; an intercommunicator is between " +
		"groups that have none"}
}

// MostRefused is how often a rank tells all others of a communicator that it cannot name a leader: what they do not
// take stays there until they free it.
const MostRefused = 64

// Refuse tells the other group, before anything is agreed, that there will be nothing. Where the rank that is named
// cannot be its leader, that may be any rank which is not in this group.
func (b *Bridge) Refuse(m *Exchange, no *Veto) {
	if b.Remote != ranks.Undefined {
		b.Leave(m, b.Remote, no)
	} else if b.Over.Inbox.mayRefuse() {
		b.Over.Members().All(func(world int32) bool {
			if m.members.Find(world) == ranks.Undefined {
				b.Leave(m, int(world), no)
			}
			return true
		})
	}
	b.Over = nil
}

// exchange says a word to the other leader and waits for what that says.
func (b *Bridge) exchange(m *Exchange, mine *leaderMessage) (*leaderMessage, *Veto) {
	eng, over := b.Over.Engine, b.Over
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	// It is over when the other leader has the word: what other ranks say there after this call cannot come before.
	sent := eng.Isend(ctx, over.Context+CtxCollective, b.Remote, TagLeaders, mine.append(nil), pml.Synchronous)
	w, err := over.Await(&PendingLeader{Tag: b.Tag, Remote: b.Remote, Members: m.members})
	answers := err == nil && w.from == b.Remote && !w.leaves
	if err == nil && !answers {
		giveUp() // it may never be taken; Cancel would do nothing where UCX or libfabric has it
	}
	if _, e := sent.Wait(); answers {
		err = e
	}
	switch {
	case err != nil:
		return nil, m.Met(err)
	case w.bad || w.kind != m.kind:
		return nil, &Veto{Class: mpierr.ErrAborted,
			Text: "the leader of the other group has sent what is no part of this call"}
	case w.from != b.Remote:
		no := b.stray(m, w)
		b.Leave(m, w.from, no)
		return nil, no
	case w.leaves:
		return nil, w.no
	}
	return w, w.no
}
