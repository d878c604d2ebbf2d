package pml

import (
	"context"
	"encoding/binary"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/transport"
)

// A note that a link tells with the bytes of a Put (transport.RMA.PutNote) arrives as if it were an eager message of
// its window: of noteBytes bytes, little-endian, with the window's tag for notes. It costs the credit of that message.
// So a receive takes it, it waits unmatched, and the memory that it takes is bounded, as with any message.

const (
	noteBytes = 4
	// noteBits is how many bits of the link's note the note has. The others are the number of the window.
	noteBits = 22
)

var noteCost = eager.Cost(noteBytes)

// notes are the windows that have numbers.
type notes struct {
	windows map[uint16]*Window
	last    uint16 // the number that was given last: one is not used again soon, since a note may still come
	buf     [noteBytes]byte
	sent    uint64 // notes that links have been given, ever: their receivers count messages
}

// TakeNotes has links tell notes, which arrive as messages with tag. The window gets a number up to most. It comes
// before Lend.
func (w *Window) TakeNotes(tag int32, most uint16) {
	e := w.e
	e.lock()
	defer e.unlock()
	n := &e.windows.notes
	most = min(most, 1<<(32-noteBits)-1)
	if len(n.windows) >= int(most) || !e.direct || e.links.offload.dev != nil { // a device matches messages only
		return
	}
	if n.windows == nil {
		n.windows = map[uint16]*Window{}
	}
	for used := true; used; used = n.windows[n.last] != nil {
		n.last = n.last%most + 1
	}
	w.number, w.noteTag = n.last, tag
	n.windows[n.last] = w
}

// unnumber takes the number of a window back.
func (s *windows) unnumber(w *Window) {
	if s.notes.windows[w.number] == w {
		delete(s.notes.windows, w.number)
	}
}

// onNoted takes a note.
func (l *linkPath) onNoted(pkt *transport.Packet) {
	if uint(pkt.Peer) >= uint(len(l.peers)) {
		return
	}
	p := l.peer(pkt.Peer)
	if p.err != nil {
		return
	}
	n := &l.e.windows.notes
	w := n.windows[uint16(uint32(pkt.Value)>>noteBits)]
	if w == nil { // it has been freed
		p.returnCredit(noteCost)
		return
	}
	binary.LittleEndian.PutUint32(n.buf[:], uint32(pkt.Value)&(1<<noteBits-1))
	l.onEager(p, w.ctx, w.noteTag, n.buf[:])
}

// PutNote is Put that tells the peer a note as well, which is there when src is, and what has been put before. ok: it
// has begun, or the error is that cc has ended before; otherwise the link cannot do it now, and has not.
func (f *Reach) PutNote(cc context.Context, src []byte, off int64, note uint32) (ok bool, err error) {
	p, e := f.p, f.p.l.e
	e.lock()
	defer e.unlock()
	defer e.exitCall()
	if f.lent.Notes == 0 || !f.lent.Writes || f.rma.PutNote == nil || f.isOwn() || f.err != nil ||
		note>>noteBits != 0 || len(src) == 0 || int64(len(src)) > p.readPiece() {
		return false, nil
	}
	if f.oldest != nil { // one that failed and is tried again would come behind the note
		r := f.flushNow(cc)
		e.await(r)
		err := r.err
		if e.requests.putBack(r); err != nil {
			return true, err
		}
	}
	// A message may be on its way to the link: this must not come before it.
	if p.err != nil || p.out.Max < noteBytes || !p.out.TakePayload(noteBytes) {
		return false, nil
	}
	t := f.open(e.unasked(), transport.HostMem(src), off)
	t.one.put, t.one.isNote, t.one.note = true, true, uint32(f.lent.Notes)<<noteBits|note
	gate := f.waits(cc)
	t.one.gate = gate
	p.l.transfers.tryOperation(t)
	e.await(gate)
	err = gate.err
	if e.requests.putBack(gate); err == errOtherWay {
		return false, nil
	}
	e.windows.notes.sent++
	return true, err
}
