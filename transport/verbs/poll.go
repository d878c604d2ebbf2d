//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// pollMax is how many completions are taken at once.
const pollMax = 32

var errNoRoom = syscall.ENOMEM // what a full send queue says

// outcomes are what a Poll hands out: completions, and what makes none.
type outcomes struct {
	wcs    [pollMax]completion
	stash  []completion // of wcs: found by Arm, or left by a Poll that had no room
	events []transport.Packet
	rooms  []*session
	ending []*session // that have failed and are not flushed yet

	entries int // of the completion queue
}

// some reports whether there is something for Poll besides what the completion queue has. The end of a session is such
// a thing, once its requests are back.
func (o *outcomes) some() bool {
	return len(o.stash)+len(o.events)+len(o.rooms)+len(o.ending) > 0
}

// handOut fills in what makes no completion.
func (o *outcomes) handOut(pkts []transport.Packet) int {
	n := min(len(pkts), len(o.rooms))
	for i, s := range o.rooms[:n] {
		pkts[i] = transport.Packet{Event: transport.Room, Peer: int32(s.peer)}
	}
	o.rooms = slices.Delete(o.rooms, 0, n)
	k := copy(pkts[n:], o.events)
	o.events = slices.Delete(o.events, 0, k)
	return n + k
}

// Counters say what software has done; what a device does by itself is not in them.
type Counters struct {
	Sent, Received uint64 // frames: requests of SEND, and receive buffers that were filled
	Reads, Writes  uint64 // requests
	Copied         uint64 // bytes of payload into send buffers
	Registered     uint64 // registrations of Go memory
	Failures       uint64 // of queue pairs
	Calls          uint64 // of the C layer, to post, poll and ask for notice
}

// Counters returns those since the device was opened. It is called where Poll is, by one goroutine at a time.
func (d *Device) Counters() Counters {
	c := d.stats
	c.Calls = d.hca.calls
	return c
}

// SoftInject has the software HCA do what softdevices/softhca/README.md lists; other devices cannot.
func (d *Device) SoftInject(what string) error { return d.hca.inject(what) }

// SoftCounter is one of the software HCA's own (softdevices/softhca/README.md); other devices have none.
func (d *Device) SoftCounter(name string) (uint64, error) { return d.hca.counter(name) }

// Poll is transport.Device's.
func (d *Device) Poll(pkts []transport.Packet) int {
	if len(pkts) == 0 || d.closed.Load() {
		return 0
	}
	d.polls++
	d.check.Polled(d.polls)
	d.recv.reclaim()
	if d.notices.Load() {
		d.takeNotices()
	}
	n := 0
	if len(d.events)+len(d.rooms) > 0 {
		if n = d.handOut(pkts); n == len(pkts) {
			return n
		}
	}
	if len(d.table.Load().all) == 0 {
		return n // there is no peer to hear from
	}
	took := d.take(len(pkts) - n)
	for i := range took {
		if n == len(pkts) { // one of a tagged buffer can make two packets
			d.stash = took[i : len(took)+len(d.stash)] // what is left of the stash lies behind it
			took = took[:i]
			break
		}
		w := &took[i]
		switch w.id & ownMask {
		case 0:
			d.sent(w)
		case ownTagged:
			n += d.tags.landed(w, pkts[n:])
		case ownOperation:
			d.tags.operated(w)
		default:
			if d.arrived(w, &pkts[n]) {
				n++
			}
		}
	}
	if len(d.events)+len(d.rooms) > 0 {
		n += d.handOut(pkts[n:])
	}
	if len(d.waitingRMA) > 0 {
		d.advanceWaiting()
	}
	if len(d.ending) > 0 {
		d.endSessions(len(took))
	}
	return n
}

// take returns completions, at most n.
func (d *Device) take(n int) []completion {
	if len(d.stash) > 0 {
		took := d.stash[:min(n, len(d.stash))]
		d.stash = d.stash[len(took):]
		return took
	}
	due := d.recv.due()
	k, taken, err := d.hca.turn(due, d.wcs[:min(n, pollMax)])
	if taken > 0 { // after an error too: a buffer that is posted twice could get two messages
		d.recv.given(taken)
	}
	if err != nil {
		d.failAll(pollError(err))
		return nil
	}
	return d.wcs[:k]
}

func pollError(err error) error { return fmt.Errorf("polling the completion queue: %w", err) }

// arrived takes a receive completion. It reports whether there is a packet.
func (d *Device) arrived(w *completion, pkt *transport.Packet) bool {
	buffer := uint32(w.id)
	s := d.table.Load().find(w.qpn)
	if w.status != 0 {
		d.receiveFailed(w, s)
		return false
	}
	if !d.recv.takeBack(buffer) {
		d.failAll(fmt.Errorf("the device says that a message lies in receive buffer %d, which it does not have", buffer))
		return false
	}
	d.recv.lent = append(d.recv.lent, buffer)
	if s == nil || s.downReported {
		return false
	}
	frame := d.recv.piece(buffer)[:min(int(w.length), d.recv.size)]
	if w.opcode == wcRecvImm {
		pkt.Event, pkt.Peer, pkt.Value = transport.Noted, int32(s.peer), uint64(w.imm)
		return true
	}
	event, err := s.unframe(frame, pkt)
	if event == transport.Unmatched {
		d.tags.unmatched++
		if err != nil {
			d.tags.sawOne() // the engine will not see it
		}
	}
	if err != nil {
		d.fail(s, err, true)
		return false
	}
	d.stats.Received++
	s.heard = true
	pkt.Event, pkt.Peer = event, int32(s.peer)
	return true
}

// receiveFailed takes the error of a receive, after which the queue pair is in error. Which buffer it names may be
// wrong where the device has tagged buffers: mlx5 looks also an error of these up among the receive buffers. So the
// buffer stays with the device until a message lies in it. Posted once more, it could get two messages at once. At most
// one is lost for each queue pair that fails.
func (d *Device) receiveFailed(w *completion, s *session) {
	if buffer := uint32(w.id); !d.tags.on() && d.recv.takeBack(buffer) {
		d.recv.lent = append(d.recv.lent, buffer)
	}
	if s != nil {
		d.fail(s, fmt.Errorf("receiving: %s (vendor code %#x)", statusText(w.status), w.vendor), true)
	}
}

// sent takes the completion of a request: it and those before it, of the same queue pair, are over.
func (d *Device) sent(w *completion) {
	t := d.table.Load()
	var s *session
	if i := w.id >> 32; i < uint64(len(t.all)) {
		s = t.all[i]
	}
	var err error
	if w.status != 0 {
		err = fmt.Errorf("%s (vendor code %#x)", statusText(w.status), w.vendor)
		if w.status == statusRetries {
			err = d.noAnswer(err)
		}
		of := t.find(w.qpn)
		if of != nil {
			d.fail(of, err, true)
		}
		if of == nil || of != s || w.qpn != s.qpn {
			return // of what the device does by itself (serve): the number is none of this rank's
		}
	}
	if s == nil {
		return
	}
	upTo := uint32(w.id) + 1
	if upTo-s.done > s.next-s.done {
		return // not one that is under way
	}
	s.release(upTo, err)
}

// release takes back what the requests before upTo had.
func (s *session) release(upTo uint32, err error) {
	d := s.d
	for s.done != upTo {
		r := d.over(&s.requests)
		if r.buffer >= 0 {
			d.freeSends = append(d.freeSends, uint32(r.buffer))
		}
		if r.rma != nil {
			r.rma.partDone(d, err)
		}
	}
	s.hasRoom()
	for _, other := range d.starved {
		other.hasRoom()
	}
	clear(d.starved)
	d.starved = d.starved[:0]
}

// hasRoom: if something was refused, it may be tried again.
func (s *session) hasRoom() {
	if s.refused {
		s.owesRoom(false)
		s.d.rooms = append(s.d.rooms, s)
	}
}

// takeNotices looks at what goroutines have found out.
func (d *Device) takeNotices() {
	lost, parts := d.noticed()
	for _, p := range parts {
		if err := d.recv.extend(p); err != nil {
			d.opt.Log("receive buffers stay few", "error", err)
		}
	}
	for _, s := range lost {
		d.fail(s, s.err, false)
	}
	d.registered()
	if d.tails.lookAt.Swap(false) {
		d.lookAfterTails()
	}
	d.tags.giveUpList() // if no session was left when the device failed, none ends
}

// fail ends a session: the queue pair goes into the error state, its requests are flushed, and when the device has
// none left and everything that has arrived is handed out, Down is told. tell: neither the peer nor Connect knows yet.
func (d *Device) fail(s *session, err error, notifyPeer bool) {
	if s.failed {
		return
	}
	s.failed = true
	s.owesRoom(false)
	s.why = err
	if !errors.Is(err, transport.ErrPeerGone) {
		s.why = fmt.Errorf("%w: verbs: %w", transport.ErrPeerGone, err)
	}
	d.stats.Failures++
	if notifyPeer {
		d.mu.Lock()
		d.abort(s, err, true)
		d.mu.Unlock()
	}
	s.qp.fail()
	if s.serve != 0 {
		s.serve.fail()
	}
	s.confirm()
	s.flushBy = time.Now().Add(flushPatience)
	s.behind = d.entries + pollMax
	d.ending = append(d.ending, s)
}

// flushPatience is how long a device may take to give a failed queue pair's requests back before it is destroyed, which
// takes them away from it.
const flushPatience = 2 * time.Second

func (d *Device) failAll(err error) {
	d.dead.Store(true)
	d.mu.Lock() // no session is made from now on
	all := d.table.Load().all
	d.mu.Unlock()
	for _, s := range all {
		d.fail(s, err, true)
	}
	d.tags.giveUpList()
}

// endSessions tells of the sessions whose requests are all back, for which the device moves no message any more, and of
// which everything that has arrived is handed out. took is how many completions this Poll has handed out: with none,
// the queue was empty.
func (d *Device) endSessions(took int) {
	list := d.ending
	kept := list[:0]
	d.ending = nil // a session that fails meanwhile comes here
	for _, s := range list {
		s.behind -= took
		waits := took > 0 && s.behind > 0
		busy := s.next != s.done || s.incoming > 0
		if waits || busy && time.Now().Before(s.flushBy) {
			kept = append(kept, s)
			continue
		}
		if busy || d.tags.hasLost(s) || d.dead.Load() {
			d.destroyed(s)
		}
		s.downReported = true
		if len(d.waitingRMA) > 0 {
			d.advanceWaiting()
		}
		if s.wasOpen() {
			d.events = append(d.events, transport.Packet{Event: transport.Down, Peer: int32(s.peer), Err: s.why})
		}
	}
	clear(list[len(kept):])
	d.ending = append(kept, d.ending...)
	d.tags.giveUpList()
}

// destroyed takes the requests of a queue pair from a device that does not give them back.
func (d *Device) destroyed(s *session) {
	s.destroy()
	s.release(s.next, s.why)
	d.tags.drop(s)
}

// wasOpen reports whether the engine may have a link, or have got packets.
func (s *session) wasOpen() bool {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.everOpen || s.heard
}
