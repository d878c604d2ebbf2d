package mpi

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// desk has what leaders of other groups have said to this rank on one communicator, and no call has taken yet. A word
// may be for a later call, whose leader there is early; or for another goroutine's, with another tag or leader; or
// its sender and this rank do not name each other, which is a mistake. So calls take words of any rank.
type desk struct {
	mu      sync.Mutex                          // guards what follows
	words   []*word                             // in the order of arrival
	refused int                                 // how often this rank has told all others a refusal: see mostRefused
	waiting map[*appointment]context.CancelFunc // what ends the wait for messages, so that it looks at words again
}

// word is what a leader says to the rank that it takes for the leader of the other group.
type word struct {
	from   int // in the world
	tag    int32
	kind   creation
	value  uint32
	no     *refusal
	leaves bool       // the sender takes no word any more; it tells nothing then
	told   []byte     // what the group has to know of it: see leadersWord
	far    *ranks.Set // the sender's group
	bad    bool       // it is none
	coming bool       // its message has been taken, and is being received
	err    error      // why it could not be received
}

func (w *word) append(b []byte) []byte {
	leaves := int64(0)
	if w.leaves {
		leaves = 1
	}
	b = appendInts(b, int64(w.tag), int64(w.kind), int64(w.value), leaves)
	return append(w.no.append(b), w.told...)
}

func readWord(from int, b []byte, size int) *word {
	d := decoder{b: b}
	w := &word{from: from, tag: int32(d.within(0, MaxTag)), kind: creation(d.within(0, int64(makeEnd)-1)),
		value: uint32(d.within(0, 1<<32-1)), leaves: d.within(0, 1) != 0, no: d.refusal(), told: d.b}
	if w.leaves {
		w.bad = !d.over() || w.no == nil
		return w
	}
	_, w.far = readTold(&d, size)
	w.bad = !d.over() || w.far.N == 0
	return w
}

// readTold is what a group has to know of the other one's leader.
func readTold(d *decoder, size int) (high bool, far *ranks.Set) {
	return d.within(0, 1) != 0, d.ranks(size)
}

// appointment is what a leader waits for.
type appointment struct {
	tag     int32
	remote  int // the other leader, in the world
	members *ranks.Set
}

// concerns: the word is from the leader that is named, or from one that takes this rank for the one it has an
// appointment with, by mistake: its group has the rank that is named here, or ranks of this group. Calls at one time
// that have ranks in common have different tags.
func (a *appointment) concerns(w *word) bool {
	switch {
	case w.bad:
		return w.from == a.remote
	case w.tag != a.tag:
		return false
	case w.from == a.remote:
		return true
	}
	return !w.leaves && (w.far.Find(int32(a.remote)) != Undefined || overlap(a.members, w.far))
}

// await waits for a word that concerns a, as long as the other leader lives. All that wait look for messages, since
// each may have to end when another rank fails.
func (c *shared) await(a *appointment) (*word, error) {
	d := &c.desk
	for {
		ctx, w := d.look(a)
		if w != nil {
			return w, w.err
		}
		switch err := c.eng.ProbeAny(ctx, c.cid+ctxCollective, a.remote, tagLeaders); {
		case err == nil:
			c.receiveWord()
		case d.stopWaiting(a, ctx):
			return nil, err
		default:
			<-ctx.Done()
		}
	}
}

// receiveWord takes the next message, unless another goroutine has. Its place on the desk is that of its arrival: words
// of one rank are not to change places, where it makes several tries at a number. The word comes there in the
// background, since it may be for another goroutine, and a sender that has stopped must not keep this one from hearing
// that the rank which it waits for has failed.
func (c *shared) receiveWord() {
	d := &c.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	found, st, is, _ := c.eng.Iprobe(c.cid+ctxCollective, pml.AnySource, tagLeaders, true)
	if !is {
		return
	}
	w := &word{from: int(st.Source), coming: true}
	d.words = append(d.words, w)
	newComm(c, nil).inBackground("", func() error {
		b, err := receiveFound(c.eng, found, st.Bytes)
		d.came(w, b, err, c.eng.Size())
		return err
	})
}

// came: the word has been received, or could not be.
func (d *desk) came(w *word, b []byte, err error, size int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		*w = word{from: w.from, bad: true, err: err}
	} else {
		*w = *readWord(w.from, b, size)
	}
	for _, look := range d.waiting { // also those for which later words are that have come already
		look()
	}
}

// look takes the word that a waits for, or says until when to wait for messages.
func (d *desk) look(a *appointment) (context.Context, *word) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(a)
	for i, w := range d.words {
		// What has come before may be what the sender has said first, or what the other leader had said before it
		// could join in the call of a group that this word is of.
		before := func(o *word) bool { return o.coming && (o.from == w.from || o.from == a.remote) }
		if !w.coming && a.concerns(w) && !slices.ContainsFunc(d.words[:i], before) {
			d.words = slices.Delete(d.words, i, i+1)
			return nil, w
		}
	}
	if d.waiting == nil {
		d.waiting = map[*appointment]context.CancelFunc{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.waiting[a] = cancel
	return ctx, nil
}

// stopWaiting ends the wait of a for messages, unless it is to look at words again, or will be: a word that is coming
// from the rank which it waits for was sent before that has failed.
func (d *desk) stopWaiting(a *appointment, ctx context.Context) (stopped bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	coming := func(w *word) bool { return w.coming && w.from == a.remote }
	if ctx.Err() != nil || slices.ContainsFunc(d.words, coming) {
		return false
	}
	d.forget(a)
	return true
}

func (d *desk) forget(a *appointment) {
	if cancel := d.waiting[a]; cancel != nil {
		cancel()
		delete(d.waiting, a)
	}
}

// leave tells a rank of the world that there will be nothing, and does not wait. A word of its call may come later, and
// is never taken: so the tag is not to be used again.
func (b *bridge) leave(m *meeting, to int, no *refusal) {
	w := word{tag: b.tag, kind: m.kind, no: no, leaves: true}
	b.over.eng.SendDetached(b.over.cid+ctxCollective, to, tagLeaders, w.append(nil))
}

// stray is why there is no communicator when another leader than the one that is named has said this word.
func (b *bridge) stray(m *meeting, w *word) *refusal {
	if overlap(m.members, w.far) {
		return overlapping()
	}
	name := func(world int) int { return b.over.rankOf(int32(world)) }
	return &refusal{class: ErrRank, text: fmt.Sprintf("rank %d of %s gives rank %d as the leader of the other group, "+
		"whose leader is rank %d: each leader gives the rank of the other one", b.over.rank, b.over.Name(), name(b.remote),
		name(w.from))}
}

func (d *desk) mayRefuse() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused++
	return d.refused <= mostRefused
}

func overlapping() *refusal {
	return &refusal{class: ErrGroup, text: "the two groups have ranks in common; an intercommunicator is between " +
		"groups that have none"}
}

// mostRefused is how often a rank tells all others of a communicator that it cannot name a leader: what they do not
// take stays there until they free it.
const mostRefused = 64

// refuse tells the other group, before anything is agreed, that there will be nothing. Where the rank that is named
// cannot be its leader, that may be any rank which is not in this group.
func (b *bridge) refuse(m *meeting, no *refusal) {
	if b.remote != Undefined {
		b.leave(m, b.remote, no)
	} else if b.over.desk.mayRefuse() {
		b.over.members().All(func(world int32) bool {
			if m.members.Find(world) == Undefined {
				b.leave(m, int(world), no)
			}
			return true
		})
	}
	b.over = nil
}

// exchange says a word to the other leader and waits for what that says.
func (b *bridge) exchange(m *meeting, mine *word) (*word, *refusal) {
	eng, over := b.over.eng, b.over
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	// It is over when the other leader has the word: what other ranks say there after this call cannot come before.
	sent := eng.Isend(ctx, over.cid+ctxCollective, b.remote, tagLeaders, mine.append(nil), pml.Synchronous)
	w, err := over.await(&appointment{tag: b.tag, remote: b.remote, members: m.members})
	answers := err == nil && w.from == b.remote && !w.leaves
	if err == nil && !answers {
		giveUp() // it may never be taken; Cancel would do nothing where UCX has it
	}
	if _, e := sent.Wait(); answers {
		err = e
	}
	switch {
	case err != nil:
		return nil, m.met(err)
	case w.bad || w.kind != m.kind:
		return nil, &refusal{class: ErrAborted,
			text: "the leader of the other group has sent what is no part of this call"}
	case w.from != b.remote:
		no := b.stray(m, w)
		b.leave(m, w.from, no)
		return nil, no
	case w.leaves:
		return nil, w.no
	}
	return w, w.no
}
