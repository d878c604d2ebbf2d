package pml

import (
	"math"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// transfer is one end of a message that peers speak of by a number: a rendezvous, or a synchronous eager message that
// is not matched yet. What is sent on which event is package rendezvous's to say; here that is carried out. An
// operation on memory that another rank has lent is a transfer too, and so is the registration of memory to lend
// (winlink.go).
//
// From open to close the request's buffer is the library's, and also what the link may touch it for: READs and WRITEs
// under way, fragments that are placed, what is registered. close gives all of it back.
type transfer struct {
	id   uint64
	r    *Request // r.transfer == this
	peer *peer
	recv bool        // rcv is in use, else snd
	prep preparation // of a send that is in its peer's queue, or of memory to lend
	rcv  rendezvous.Receiver
	snd  rendezvous.Sender
	one  oneSided

	jobs   jobSet // what is in the worklist
	placed bool   // the link's Place has the buffer
	// failed is what r ends with: the peer has failed. r is under way all the same, and the buffer the library's, while
	// touched: until RMADone of a READ or WRITE of ours, and if the peer can reach the buffer until Down. There is no
	// other end: where a device cannot say that a peer's access is over, r waits for the end of the peer's process.
	failed error
	next   *transfer
}

// preparation is how far the link is with a message whose registration takes long. The message is in its peer's queue
// until it is prepared, so that no later one overtakes it.
type preparation uint8

const (
	unprepared preparation = iota
	preparing              // the buffer is the link's until RMADone
	prepared               // snd has what came of it
)

// transfers are those of one rank.
type transfers struct {
	l *linkPath
	numbers[transfer]
	spare   *transfer // for reuse
	packed  packedPiece
	inbound int // those that receive
	chooser rendezvous.Chooser
	batch   readBatch
	accel   *accelerators // nil until there is a message in device memory
	making  sync.Mutex    // held while accel is made
}

// readBatch is what readSome hands to a link. It is empty but while that runs.
type readBatch struct {
	reads [transport.MaxReads]transport.Read
	ids   [transport.MaxReads]uint64 // of the transfers
}

// open makes a transfer for r, with a number.
func (ts *transfers) open(r *Request, p *peer) *transfer {
	t := ts.spare
	if t == nil {
		t = new(transfer)
	}
	ts.spare = t.next
	*t = transfer{r: r, peer: p, id: ts.add(t)}
	r.transfer = t
	return t
}

// receiving returns the transfer with that number if it is one that p sends.
func (ts *transfers) receiving(p *peer, id uint64) *transfer {
	if t := ts.find(id); t != nil && t.peer == p && t.recv {
		return t
	}
	return nil
}

// rest ends what this end does with the buffer.
func (ts *transfers) rest(t *transfer) {
	for k := range jobKinds {
		ts.l.worklist.remove(k, t)
	}
	if t.placed {
		t.peer.zcopy.Displace(t.id)
		t.placed = false
	}
}

// close gives t back.
func (ts *transfers) close(t *transfer) {
	ts.rest(t)
	memory := t.snd.Memory()
	if t.recv {
		memory = t.rcv.Back()
		if ts.inbound--; ts.inbound == 0 && len(ts.l.wanting) != 0 {
			ts.l.unheard = true // letSendersGoOn may have passed them over
			ts.l.lookAgain()
		}
	} else if memory.OK {
		t.peer.offered--
	}
	if memory.OK {
		t.peer.rma.Deregister(memory.Addr, memory.Key)
	}
	ts.remove(t.id)
	t.r.transfer = nil
	t.r, t.peer = nil, nil
	t.next, ts.spare = ts.spare, t
}

// failPeer ends what involves p, which has failed.
func (ts *transfers) failPeer(p *peer, err error) {
	for t := range ts.values() {
		switch {
		case t.peer != p:
			continue
		case t.recv:
			t.rcv.Abandon()
			t.r.status.Bytes = 0
		default:
			t.snd.Abandon()
		}
		t.failed = err
		ts.rest(t)
		t.r.device().endHost()
		ts.release(t)
	}
}

// touched reports whether something may still read or write the buffer.
func (t *transfer) touched() bool {
	if t.one.reach != nil {
		return t.one.under > 0
	}
	if t.prep == preparing {
		return true
	}
	if t.recv {
		return t.rcv.ReadUnderWay() || t.rcv.Back().OK && !t.peer.harmless()
	}
	return t.snd.WriteUnderWay() > 0 || t.snd.Exposed() && !t.peer.harmless()
}

// release ends t, whose peer has failed, unless its buffer may be touched.
func (ts *transfers) release(t *transfer) {
	if !t.touched() {
		ts.end(t, t.failed)
	}
}

// releaseAll is called when p is harmless.
func (ts *transfers) releaseAll(p *peer) {
	for t := range ts.values() {
		if t.peer == p {
			ts.release(t)
		}
	}
}

// finish ends what is left: the devices are closed.
func (ts *transfers) finish() {
	for t := range ts.values() {
		if f := t.one.reach; f != nil {
			f.over(t, t.failed)
		}
		ts.remove(t.id)
		t.r.transfer = nil
		ts.l.e.complete(t.r, t.failed)
	}
	ts.accel.finish()
	for _, p := range ts.l.peers {
		if p != nil {
			p.unshare()
		}
	}
}

// end gives the buffer back to its user.
func (ts *transfers) end(t *transfer, err error) {
	r := t.r
	if f := t.one.reach; f != nil {
		f.over(t, err)
	}
	ts.close(t)
	ts.l.e.complete(r, err)
}

// work goes on with the jobs.
func (ts *transfers) work() int {
	jobs, n := &ts.l.worklist.jobs, 0
	// Oldest first, and one at a time: the peer works on them in the same order, and a message's end is worth more
	// than the beginnings of many.
	streams := &jobs[jobStream]
	for i := 0; i < streams.len(); {
		t := streams.items()[i]
		n += ts.pump(t)
		if i < streams.len() && streams.items()[i] == t {
			i++
		}
	}
	return n + ts.oneOf(jobRead, ts.readNext) + ts.oneOf(jobWrite, ts.writeNext)
}

// oneOf moves one piece of the first that can. next parks the others.
func (ts *transfers) oneOf(k jobKind, next func(*transfer) int) int {
	for list := &ts.l.worklist.jobs[k]; list.len() > 0; {
		if next(list.items()[0]) != 0 {
			return 1
		}
	}
	return 0
}

// readPiece bounds what one READ moves while the engine's lock is held, unless the link says otherwise: a device that
// moves memory by itself takes no longer for more.
const readPiece = 1 << 20

func (p *peer) readPiece() int64 {
	if p.getMax > 0 {
		return p.getMax
	}
	return readPiece
}

// The receiving end.

// receive begins to fetch the message of rts for r, which is matched with it and off the table.
func (ts *transfers) receive(r *Request, p *peer, rts *wire.Header) {
	if p.err != nil { // only the envelope is here
		ts.l.e.complete(r, p.err)
		return
	}
	if o := r.device(); o != nil {
		o.receive(p, rts)
		return
	}
	t := ts.open(r, p)
	t.recv = true
	ts.inbound++
	t.rcv.Init(rts, int64(r.buf.Len), t.id)
	r.status.Bytes = t.rcv.Want()
	if p.link == nil { // the answer needs one
		p.starters = append(p.starters, t)
		p.ensureConnected()
		return
	}
	ts.begin(t)
}

// begin chooses the scheme.
func (ts *transfers) begin(t *transfer) {
	p := t.peer
	if p.rma == nil {
		t.rcv.NotReadable()
	}
	f := rendezvous.Facts{Size: t.rcv.Size(), Room: int64(t.r.buf.Len), Readable: t.rcv.Readable(), Writable: !p.noSplit,
		Mapped: t.rcv.Source.Key != 0, Presence: (*rendezvous.Presence)(p.presence), Watched: ts.l.e.wait.watching(),
		Computing: ts.l.e.wait.computing(), Mutual: p.offered > 0}
	s, n := ts.chooser.Choose(&t.rcv.Trial, &p.tuner, &f)
	var back rendezvous.Region
	switch s {
	case rendezvous.Get:
		ts.l.e.stats.Gets++
	case rendezvous.Split:
		ts.l.e.stats.Splits++
		if back = ts.registerBack(t, n); !back.OK {
			s = rendezvous.Get
		}
	}
	ts.onReceiver(t, t.rcv.Begin(s, p.readPiece(), back))
}

// registerBack registers the last n bytes that the message will have in its buffer, for the sender to write.
func (ts *transfers) registerBack(t *transfer, n int64) rendezvous.Region {
	size := t.rcv.Size()
	addr, key, ok := t.peer.rma.Register(t.r.buf.Part(size-n, n), transport.Writable)
	if !ok || key > math.MaxUint32 {
		t.peer.noSplit = true
		return rendezvous.Region{}
	}
	return rendezvous.Region{Addr: addr, Key: key, Len: n, OK: true}
}

// onReceiver does what the receiving machine says. t may be closed afterwards.
func (ts *transfers) onReceiver(t *transfer, a rendezvous.Action) {
	switch a.Do {
	case rendezvous.Expect:
		if z := t.peer.zcopy; z != nil {
			z.Place(t.id, a.Header.Tag, t.r.buf.Part(0, a.Off+a.Len), a.Off)
			t.placed = true
		}
		t.peer.sendControl(a.Header)
	case rendezvous.Send:
		t.peer.sendControl(a.Header)
	case rendezvous.Finish:
		ts.finishReceive(t, a.Header)
		return
	case rendezvous.Part:
		t.r.pieces.device.partHere()
		return
	case rendezvous.Fail:
		t.peer.fail(&PeerError{int(t.peer.rank), a.Err})
		return
	}
	ts.l.worklist.set(jobRead, t, t.readDue())
	ts.l.worklist.set(jobInbound, t, t.rcv.Streaming())
}

// finishReceive is called when everything that was wanted is here.
func (ts *transfers) finishReceive(t *transfer, fin wire.Header) {
	r, p, size := t.r, t.peer, t.rcv.Size()
	ts.close(t)
	if fin.Kind != 0 {
		p.sendControl(fin)
	}
	p.returnCredit(eager.Envelope)
	ts.l.e.complete(r, r.truncated(size))
}

// onData takes a piece of a stream.
func (ts *transfers) onData(p *peer, h *wire.Header, payload []byte) {
	if t := ts.receiving(p, h.Key); t != nil { // else it is over: READ was faster
		ts.onFragment(t, h, int64(len(payload)), payload)
	}
}

// onPlaced is called when a piece of a fragment is in the buffer already.
func (ts *transfers) onPlaced(p *peer, h *wire.Header) {
	if t := ts.receiving(p, h.Key); t != nil && t.placed && h.Len <= math.MaxInt64 {
		ts.onFragment(t, h, int64(h.Len), nil)
	}
}

func (ts *transfers) onFragment(t *transfer, h *wire.Header, n int64, payload []byte) {
	a := t.rcv.OnData(h.Tag, int64(h.Addr), n)
	if a.Do == rendezvous.Copy {
		t.r.arrived(a.Off, payload)
		a = t.rcv.Copied(a.Len)
	}
	ts.onReceiver(t, a)
}

// readDue reports whether there is a READ to do. While one is under way RMADone is the reminder of the next.
func (t *transfer) readDue() bool {
	_, _, due := t.rcv.NextRead()
	return due
}

// batchBytes bounds what readSome moves while the engine's lock is held.
const batchBytes = 256 << 10

// readSome does the next READs of several transfers in one call of the link: of those that wait next to each other, are
// from one peer and are not long. It returns how many are done; 0: readNext goes on with the first.
func (ts *transfers) readSome(jobs []*transfer) (done int) {
	p, b, n, left := jobs[0].peer, &ts.batch, 0, int64(batchBytes)
	if p.rma.GetSome == nil {
		return 0
	}
	for _, t := range jobs[:min(len(jobs), transport.MaxReads)] {
		off, size, due := t.rcv.NextRead()
		if left -= size; left < 0 || t.peer != p || !due {
			break
		}
		from := &t.rcv.Source
		b.reads[n] = transport.Read{Dst: t.r.buf.Part(off, size), Addr: from.Addr + uint64(off), Key: from.Key}
		b.ids[n] = t.id
		n++
	}
	if n > 1 {
		done = p.rma.GetSome(b.reads[:n])
	}
	clear(b.reads[:n])
	if done > 0 {
		ts.chooser.Together(func() { ts.readsDone(b.ids[:done]) })
	}
	return done
}

// readsDone is called when the READs of these transfers have ended, in one call.
func (ts *transfers) readsDone(ids []uint64) {
	for _, id := range ids {
		// Whatever the end of one leads to, what is over by then is left alone.
		if t := ts.find(id); t != nil && t.failed == nil {
			ts.onReceiver(t, t.rcv.OnGetDone())
		}
	}
}

// readNext does one READ, or several.
func (ts *transfers) readNext(t *transfer) int {
	if t.one.reach != nil {
		return ts.operate(t)
	}
	if jobs := ts.l.worklist.jobs[jobRead].items(); len(jobs) > 1 {
		if n := ts.readSome(jobs); n > 0 {
			return n
		}
	}
	off, n, _ := t.rcv.NextRead()
	from := t.rcv.Source
	switch st, err := t.peer.rma.Get(t.r.buf.Part(off, n), from.Addr+uint64(off), from.Key, t.id); {
	case err != nil:
		ts.readFailed(t)
	case st == transport.Full:
		ts.l.worklist.park(jobRead, t)
		return 0
	case st == transport.Started:
		t.rcv.ReadStarted()
		ts.l.worklist.remove(jobRead, t)
	default:
		ts.onReceiver(t, t.rcv.OnGetDone())
	}
	return 1
}

func (ts *transfers) readFailed(t *transfer) {
	ts.l.e.stats.GetsFailed++
	ts.onReceiver(t, t.rcv.OnGetFailed())
}

// onGetDone is called when a READ, WRITE or atomic that was started has ended. value is what an atomic has found.
func (ts *transfers) onGetDone(id, value uint64, err error) {
	t := ts.find(id)
	switch {
	case t == nil:
	case t.prep == preparing:
		ts.onPrepared(t, err)
	case t.one.reach != nil:
		ts.operationDone(t, value, err)
	case t.failed != nil:
		t.rcv.OnGetDone()
		t.snd.OnWriteFailed()
		ts.release(t)
	case !t.recv:
		if n := t.snd.WriteUnderWay(); n > 0 {
			ts.wrote(t, n, err)
		}
	case !t.rcv.Reading():
		if o := t.r.device(); o != nil && t.rcv.ReadUnderWay() {
			o.hasRead(t, err)
		}
	case err != nil:
		ts.readFailed(t)
	default:
		ts.onReceiver(t, t.rcv.OnGetDone())
	}
}

// onPutDone is called when the sender has written its part, or cannot.
func (ts *transfers) onPutDone(p *peer, h *wire.Header) {
	t := ts.receiving(p, h.Key)
	if t == nil || !t.rcv.Back().OK {
		return
	}
	back := t.rcv.Back()
	p.rma.Deregister(back.Addr, back.Key)
	p.noSplit = p.noSplit || h.Len == 0
	ts.onReceiver(t, t.rcv.OnPutDone(int64(h.Len)))
}

// switchToGet changes stalled streams to READs, and reports whether there were any: the senders have stopped sending,
// perhaps to compute.
func (ts *transfers) switchToGet() bool {
	found := false
	streams := &ts.l.worklist.jobs[jobInbound]
	// One whose peer fails takes others off the list.
	for i := streams.len() - 1; i >= 0; i = min(i, streams.len()) - 1 {
		if t := streams.items()[i]; t.rcv.Readable() {
			found = true
			ts.l.e.stats.TakenOver++
			ts.onReceiver(t, t.rcv.Stall())
		}
	}
	return found
}

// The sending end.

// announce sends the RTS of r, whose credit has been taken. Unless the link has taken the RTS, the credit is back.
func (ts *transfers) announce(p *peer, r *Request) sendResult {
	t := r.transfer
	if t == nil {
		t = ts.open(r, p)
	} else if t.prep != unprepared {
		return ts.announcePrepared(t)
	}
	if r.pieces != nil {
		return ts.announcePieces(t)
	}
	var memory rendezvous.Region
	if p.rma != nil {
		memory.Addr, memory.Key, memory.OK = p.rma.Register(r.buf, transport.Readable)
		if memory.OK {
			p.offered++
		} else if p.rma.Prepare != nil && p.rma.Prepare(r.buf, transport.Readable, t.id) {
			t.prep = preparing
			p.out.Refund(eager.Envelope)
			return sendPrepares
		}
	}
	t.snd.Init(t.id, int64(r.buf.Len), memory, p.piece(r.buf.Len))
	if p.zcopy != nil {
		t.snd.EndsAlone()
	}
	rts := t.snd.RTS(r.recv.Ctx, r.recv.Tag)
	rts.Flags |= p.blocking(r)
	if p.out.SendPaid(rts, nil, eager.Envelope) {
		return sendTaken
	}
	if memory.OK {
		p.offered--
		p.rma.Deregister(memory.Addr, memory.Key)
	}
	t.snd.Init(t.id, 0, rendezvous.Region{}, 0)
	return sendFull
}

// announcePrepared is announce of a message that the link registers, or has registered.
func (ts *transfers) announcePrepared(t *transfer) sendResult {
	p, r := t.peer, t.r
	if t.prep == preparing {
		p.out.Refund(eager.Envelope)
		return sendPrepares
	}
	rts := t.snd.RTS(r.recv.Ctx, r.recv.Tag)
	rts.Flags |= p.blocking(r)
	if !p.out.SendPaid(rts, nil, eager.Envelope) {
		return sendFull
	}
	t.prep = unprepared
	return sendTaken
}

// prepareMemory has a link of p register memory for long, as a transfer of r without a message, and reports whether the
// link does. r, which is activated afterwards, is done when it has, or cannot. Else Register alone says what it can.
func (ts *transfers) prepareMemory(r *Request, p *peer, rma *transport.RMA, mem transport.Mem,
	access transport.Access) bool {
	if rma.Prepare == nil {
		return false
	}
	t := ts.open(r, p)
	r.buf = mem
	if !rma.Prepare(mem, access, t.id) {
		ts.close(t)
		return false
	}
	t.prep = preparing
	return true
}

// onPrepared is called when the link has registered t's memory, or cannot: a message will be a stream then.
func (ts *transfers) onPrepared(t *transfer, err error) {
	r, p := t.r, t.peer
	if r.op == opLink {
		ts.end(t, err)
		return
	}
	var memory rendezvous.Region
	if err == nil {
		memory.Addr, memory.Key, memory.OK = p.rma.Register(r.buf, transport.Readable)
	}
	if t.failed != nil {
		if memory.OK {
			p.rma.Deregister(memory.Addr, memory.Key)
		}
		t.prep = unprepared
		ts.release(t)
		return
	}
	if memory.OK {
		p.offered++
	}
	t.prep = prepared
	t.snd.Init(t.id, int64(r.buf.Len), memory, p.piece(r.buf.Len))
	if p.zcopy != nil {
		t.snd.EndsAlone()
	}
	if r.cancelling {
		p.queue.remove(slices.Index(p.queue.items(), r))
		ts.l.dequeued(r)
		ts.l.e.endCancelled(r, r.cancelErr)
	}
	p.flush()
}

// sending returns the transfer that p speaks of if it is one to p. what says what it does, if it cannot know the
// number.
func (ts *transfers) sending(p *peer, id uint64, what string) *transfer {
	t := ts.find(id)
	if t == nil || t.peer != p || t.recv || t.r.op == opLink {
		return nil // over: FIN was faster
	}
	if t.r.queued {
		p.breaks(what + " a message that has not been sent")
		return nil
	}
	return t
}

// onSender does what the sending machine says. t may be closed afterwards.
func (ts *transfers) onSender(t *transfer, a rendezvous.Action) {
	switch a.Do {
	case rendezvous.Send:
		t.peer.sendControl(a.Header)
	case rendezvous.Complete:
		ts.end(t, nil)
		return
	case rendezvous.Fail:
		t.peer.fail(&PeerError{int(t.peer.rank), a.Err})
		return
	}
	ts.l.worklist.set(jobStream, t, t.snd.Streaming())
	ts.l.worklist.set(jobWrite, t, t.writeDue())
}

// onCTS is called when the receiver asks for a stream.
func (ts *transfers) onCTS(p *peer, h *wire.Header) {
	t := ts.sending(p, h.ID, "it asked for")
	if t == nil {
		return
	}
	began := !t.snd.Streaming()
	ts.stream(t, t.snd.OnCTS(h), began)
}

// stream begins a stream, or goes on with one that had begun already.
func (ts *transfers) stream(t *transfer, a rendezvous.Action, began bool) {
	p := t.peer
	ts.onSender(t, a)
	if began && t.jobs.has(jobStream) {
		ts.l.e.stats.Streams++
		if !p.stalled {
			ts.pump(t)
		}
	}
}

// onFIN takes FIN, or Matched for a synchronous eager message.
func (ts *transfers) onFIN(p *peer, h *wire.Header) {
	t := ts.sending(p, h.ID, "it acknowledged")
	switch {
	case t == nil:
	case t.snd.WriteUnderWay() > 0 || !t.snd.GetsFIN():
		p.breaks("it acknowledged a message that it has not got")
	case t.snd.Lent() && t.r.pieces == nil && p.zcopy != nil && p.zcopy.Reads():
		t.snd.OnEarlyFIN()
		ts.l.worklist.set(jobStream, t, true) // for streamed
		ts.l.worklist.stall(p)
	default:
		ts.onSender(t, t.snd.OnFIN())
	}
}

// onPutReq is called when the receiver asks this sender to write the end of its message.
func (ts *transfers) onPutReq(p *peer, h *wire.Header) {
	if t := ts.sending(p, h.ID, "it asked for"); t != nil {
		ts.onSender(t, t.snd.OnPutReq(h, p.rma != nil && p.rma.Put != nil && t.r.pieces == nil))
		p.checkAnswers()
	}
}

// piece is how long the fragments of a message are.
func (p *peer) piece(size int) int64 {
	if p.zcopy != nil {
		return int64(p.zcopy.Max)
	}
	return rendezvous.PieceOf(size, p.fragment)
}

// pump sends fragments while there is room, and reports how many, and 1 for the end of the message. t may be closed
// afterwards.
func (ts *transfers) pump(t *transfer) int {
	p := t.peer
	for n := 0; ; n++ {
		limit := int64(math.MaxInt64)
		if p.zcopy == nil {
			limit = int64(p.link.Caps().FragMax) // which is less once memory has run out
		}
		a := t.snd.NextFragment(limit)
		if a.Do != rendezvous.Fragment {
			return n + ts.streamed(t)
		}
		ts.l.hdr = a.Header
		sent := a.Len
		if t.r.pieces != nil {
			if sent = ts.sendPiece(t, &a); sent < 0 {
				t.snd.Sent(-sent)
				return n + 1
			}
		} else if !ts.sendFragment(p, t.r.buf.Part(a.Off, a.Len)) {
			sent = 0
		}
		if sent == 0 {
			return n
		}
		t.snd.Sent(sent)
	}
}

// streamed is called when the link has all fragments of t. A sender that gets no FIN is done when the link has let go
// of them.
func (ts *transfers) streamed(t *transfer) int {
	if z := t.peer.zcopy; z != nil && z.Reads() {
		ts.l.worklist.stall(t.peer)
		return 0
	}
	ts.l.worklist.remove(jobStream, t)
	a := t.snd.OnReleased()
	ts.onSender(t, a)
	if a.Do == rendezvous.Complete {
		return 1
	}
	return 0
}

// sendFragment sends ts.l.hdr with payload, which can be lent: the buffer is left alone until the link has let go of
// it. It reports whether the link has taken the fragment.
func (ts *transfers) sendFragment(p *peer, payload transport.Mem) bool {
	taken := false
	if p.zcopy != nil {
		taken = p.zcopy.Send(&ts.l.hdr, payload)
	} else {
		taken = p.link.TrySend(&ts.l.hdr, copyOut(payload))
	}
	if !taken {
		ts.l.worklist.stall(p)
	}
	return taken
}

// writeDue reports whether there is a WRITE to do, as readDue does for READs.
func (t *transfer) writeDue() bool {
	_, _, _, _, due := t.snd.NextWrite(1)
	return due
}

// writeNext does one WRITE.
func (ts *transfers) writeNext(t *transfer) int {
	if t.one.reach != nil {
		return ts.operate(t)
	}
	off, n, addr, key, _ := t.snd.NextWrite(t.peer.readPiece())
	switch st, err := t.peer.rma.Put(t.r.buf.Part(off, n), addr, key, t.id); {
	case err == nil && st == transport.Full:
		ts.l.worklist.park(jobWrite, t)
		return 0
	case err == nil && st == transport.Started:
		t.snd.WriteStarted(n)
		ts.l.worklist.remove(jobWrite, t)
	default:
		ts.wrote(t, n, err)
	}
	return 1
}

// wrote is called when a WRITE of n bytes has ended.
func (ts *transfers) wrote(t *transfer, n int64, err error) {
	if err != nil {
		ts.onSender(t, t.snd.OnWriteFailed())
		return
	}
	ts.onSender(t, t.snd.OnWritten(n))
}
