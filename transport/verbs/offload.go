//go:build verbs && linux && cgo

package verbs

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// The device's half of tag matching: the list of tagged buffers, its operations and their completions. What may be in
// the list is the engine's decision (pml/offload.go). verbs-tm rules R6, R7, R9, R10 and R12 are kept here as far as
// they speak of counters and limits.

const (
	// tagsMost is how many receives are handed down at most, and opsMost how many operations of the list are under way.
	tagsMost = 1024
	opsMost  = 2*tagsMost + 2
	// syncEvery is after how many messages without an entry the device is told of them even if nothing else is to be
	// told: its counter has 16 bits.
	syncEvery = 1 << 14

	// The numbers of requests say whose they are by their first two bits: 00 a send queue's, 10 a receive buffer's, 01
	// a tagged buffer's, 11 an operation's of the list. Those of the list go on with the use of the entry (28 bits), the
	// operation (2) and the entry (32).
	ownBuffer    = 2 << 62
	ownTagged    = 1 << 62
	ownOperation = 3 << 62
	ownMask      = 3 << 62

	operationAdd  = 0 << 32
	operationDel  = 1 << 32
	operationSync = 2 << 32
	operationMask = 3 << 32

	useShift = 34
	useMask  = 1<<28 - 1
)

// tagList is the list and what is under way for it. It belongs to the caller of Poll.
type tagList struct {
	d         *Device
	all       []tagged
	free      []uint32
	byCookie  map[uint64]uint32
	ops       int      // operations that the device has
	opsMax    int      // that it takes
	seen      uint16   // messages without an entry that the engine has dealt with; modulo 2^16, as the device counts
	reported  uint16   // what the device knows of that
	unmatched uint16   // such messages that Poll has handed out
	late      []uint32 // entries whose TAG_DEL found the queue full
	waiting   []uint32 // entries that are not in the device's list yet, in the order of their posts
	wanted    bool     // the device has said that entries rest until it is told
	synced    uint16   // what the last SYNC has told
	syncFor   bool     // and whether it was wanted
}

// tagged is one entry. Its buffer is the device's from post to OffloadDone or OffloadBack.
type tagged struct {
	cookie  uint64
	handle  uint32
	use     uint32   // how many receives have had this entry, modulo 2^28: a late completion of another is told by it
	s       *session // through which its message has come, when it is matched
	buf     []byte
	reg     *registration // nil: the memory is registered for as long as it lives
	used    bool
	adding  bool // its TAG_ADD has not completed
	leaving bool // a TAG_DEL is under way
	matched bool
	offered bool // the device has left the message to software: its RTS is in buf, or will be
	lost    bool // a TAG_DEL has not found it, and no match was reported
	done    bool // done or back: the entry is free when nothing is under way
	priv    uint32
	packed  uint64 // the tag that it waits for, and when it is matched that of the message
	err     error  // why the message that it was matched with does not count

	// An entry waits while its buffer is not registered, which takes long, and while an older one waits that could match
	// the same message. Its message is software's until then: it comes as Unmatched, and the engine cancels the entry.
	waits  bool // it is in tagList.waiting
	memory taggedMemory
	mask   uint64 // of packed
	lkey   uint32
}

// taggedMemory is whether the device can reach a tagged buffer.
type taggedMemory uint8

const (
	memoryReady   taggedMemory = iota
	memoryComing               // a goroutine registers it
	memoryRefused              // it cannot be registered: the entry waits until it is cancelled
)

// number is that of a request about entry i: a receive (ownTagged), or an operation.
func (t *tagList) number(own, operation uint64, i uint32) uint64 {
	return own | uint64(t.all[i].use)<<useShift | operation | uint64(i)
}

// entry is the one that a request of that number is about; nil: none, or its present use is another.
func (t *tagList) entry(id uint64) *tagged {
	i := uint64(uint32(id))
	if i >= uint64(len(t.all)) || !t.all[i].used || uint64(t.all[i].use) != id>>useShift&useMask {
		return nil
	}
	return &t.all[i]
}

// on reports whether this device matches tags.
func (t *tagList) on() bool { return t.all != nil }

// tagSizes decides whether a device is to match tags, and returns the sizes of its list; 0: it is not.
func tagSizes(opt *Options, at *port) (tags, ops int) {
	can := at.tags
	switch {
	case opt.Tags != "on":
		return 0, 0
	case can.tags < 2 || can.ops < 4:
		opt.Log("the RDMA device matches no tags of reliable connections (GORUN_TM), so software does", "device", at.device)
		return 0, 0
	}
	return min(tagsMost, can.tags), min(opsMost, can.ops)
}

// init makes the list as long as tags says; 0: there is none.
func (t *tagList) init(d *Device, tags, ops int) {
	if tags == 0 {
		return
	}
	*t = tagList{d: d, all: make([]tagged, tags), byCookie: make(map[uint64]uint32, tags), opsMax: ops}
	for i := range t.all {
		t.free = append(t.free, uint32(i))
	}
}

// post is Post of transport.Offload.
func (t *tagList) post(tag, mask uint64, buf transport.Mem, cookie uint64) transport.Posted {
	if len(t.free) == 0 || t.ops >= t.opsMax-1 || t.d.closed.Load() || t.d.dead.Load() { // one is left for SYNC
		return transport.PostedFull
	}
	i := t.free[len(t.free)-1]
	e := tagged{cookie: cookie, use: t.all[i].use, buf: buf.Bytes(), used: true, packed: tag, mask: mask}
	if r, known := t.d.allocs.find(buf); known {
		e.lkey = r.lkey
	} else if !t.reach(&e, buf) {
		return transport.PostedUnmapped
	}
	if e.waits = e.memory != memoryReady || t.isBehind(&e); !e.waits && !t.add(i, &e) {
		if e.reg != nil {
			t.d.deregister(e.reg)
		}
		return transport.PostedFull
	}
	t.free = t.free[:len(t.free)-1]
	t.all[i] = e
	t.byCookie[cookie] = i
	if e.waits {
		t.waiting = append(t.waiting, i)
	}
	if e.memory == memoryComing {
		t.d.registerLater(buf, localWrite, func(x *registration, err error) { t.registered(i, x, err) })
	}
	return transport.PostedDown
}

// reach registers the buffer of an entry, or leaves that to registerLater. It reports whether either can be.
func (t *tagList) reach(e *tagged, buf transport.Mem) bool {
	if buf.Len < t.d.opt.RegisterFrom {
		return false
	}
	if t.d.isLong(buf) {
		if e.reg = t.d.kept(buf, localWrite); e.reg == nil {
			e.memory = memoryComing
			return true
		}
	} else {
		var err error
		if e.reg, err = t.d.register(buf, localWrite); err != nil {
			return false
		}
	}
	e.lkey = e.reg.region.lkey
	return true
}

// add puts entry i, which is to be e, into the device's list. It reports whether there was room.
func (t *tagList) add(i uint32, e *tagged) bool {
	n := min(len(e.buf), t.d.at.maxLength)
	handle, err := t.d.hca.addTag(t.number(ownOperation, operationAdd, i), t.number(ownTagged, 0, i), e.packed, e.mask,
		addressOf(e.buf), n, e.lkey, t.seen)
	if err != nil {
		return false
	}
	t.reported = t.seen
	t.ops++
	e.handle, e.adding = handle, true
	return true
}

// isBehind reports whether an entry waits that could match the same message as e, which is younger.
func (t *tagList) isBehind(e *tagged) bool {
	return slices.ContainsFunc(t.waiting, func(i uint32) bool {
		older := &t.all[i]
		return (older.packed^e.packed)&older.mask&e.mask == 0
	})
}

// addWaiting puts the entries into the list that need not wait any more.
func (t *tagList) addWaiting() {
	if t.d.closed.Load() || t.d.dead.Load() {
		return
	}
	list := t.waiting
	t.waiting = t.waiting[:0] // those that stay, each older than the ones of list that are still to come
	for _, i := range list {
		e := &t.all[i]
		if e.memory != memoryReady || t.isBehind(e) || t.ops >= t.opsMax-1 || !t.add(i, e) {
			t.waiting = append(t.waiting, i)
			continue
		}
		e.waits = false
	}
}

// registered is called when a goroutine has registered the buffer of entry i, or cannot.
func (t *tagList) registered(i uint32, x *registration, err error) {
	e := &t.all[i]
	e.reg, e.memory = x, memoryReady
	if err != nil {
		e.memory = memoryRefused
	} else {
		e.lkey = x.region.lkey
	}
	if e.leaving { // if the device has failed meanwhile, the engine has it back already, and does not know it any more
		t.takeBack(i)
	}
	t.addWaiting()
}

// takeBack gives an entry that waits back to the engine.
func (t *tagList) takeBack(i uint32) {
	e := &t.all[i]
	e.leaving = false
	t.giveBack(e)
	t.release(i)
}

// cancel is Cancel of transport.Offload.
func (t *tagList) cancel(cookie uint64) {
	i, ok := t.byCookie[cookie]
	if !ok || t.all[i].leaving || t.all[i].matched {
		return
	}
	e := &t.all[i]
	e.leaving = true
	switch {
	case t.abandoned():
		t.giveBack(e)
	case e.memory == memoryComing: // registered goes on
	case e.waits:
		t.takeBack(i)
	default:
		t.leave(i)
	}
}

// abandoned reports whether the device will execute no operation of the list and write to no buffer of it: it has
// failed, and its queue pairs are destroyed. It destroys those of sessions that had ended before.
func (t *tagList) abandoned() bool {
	if !t.on() || !t.d.dead.Load() {
		return false
	}
	for _, s := range t.d.table.Load().all {
		if !s.downReported {
			return false
		}
		s.destroy()
	}
	return true
}

// giveUpList gives back the receives that were asked for before the list was abandoned, if it is.
func (t *tagList) giveUpList() {
	if !t.abandoned() {
		return
	}
	for i := range t.all {
		if e := &t.all[i]; e.used && e.leaving && !e.done {
			t.giveBack(e)
		}
	}
}

// leave posts the TAG_DEL of an entry, now or, if the queue is full, when an operation has completed.
func (t *tagList) leave(i uint32) {
	if t.ops >= t.opsMax-1 || t.d.hca.dropTag(t.number(ownOperation, operationDel, i), t.all[i].handle, t.seen) != nil {
		t.late = append(t.late, i)
		return
	}
	t.reported = t.seen
	t.ops++
}

// sawOne is Seen of transport.Offload.
func (t *tagList) sawOne() {
	t.seen++
	if t.seen-t.reported >= syncEvery || t.wanted && t.seen == t.unmatched {
		t.sync()
	}
}

// sync tells the device how far the engine is, so that entries that rest are used again.
func (t *tagList) sync() {
	if t.seen == t.reported || t.ops >= t.opsMax || t.d.hca.syncTags(ownOperation|operationSync, t.seen) != nil {
		return // the next operation says it
	}
	t.ops++
	t.synced, t.syncFor = t.seen, t.wanted
	t.reported, t.wanted = t.seen, false
}

// operated takes the completion of an operation of the list.
func (t *tagList) operated(w *completion) {
	t.ops--
	if w.flags&syncWanted != 0 {
		t.wanted = true
		if t.seen == t.unmatched {
			t.sync()
		}
	}
	if late := t.late; len(late) > 0 {
		t.late = t.late[:0]
		for _, i := range late {
			t.leave(i)
		}
	}
	if len(t.waiting) > 0 {
		t.addWaiting()
	}
	operation := w.id & operationMask
	if operation == operationSync {
		t.overtaken()
		return
	}
	e := t.entry(w.id)
	switch {
	case e == nil:
		return
	case operation == operationAdd:
		e.adding = false
		if w.status != 0 && !e.done { // it is not in the list
			t.giveBack(e)
		}
	default:
		e.leaving = false
		switch {
		case e.done:
		case w.status == 0:
			t.giveBack(e)
		case !e.matched:
			e.lost = true
			t.endLost(e)
		}
	}
	t.release(uint32(w.id))
}

// overtaken has another SYNC follow one that was wanted and did not help: messages without an entry had come before the
// device executed it. The completion of a SYNC does not say so.
func (t *tagList) overtaken() {
	if t.syncFor && t.synced != t.unmatched {
		t.wanted = true
		if t.seen == t.unmatched {
			t.sync()
		}
	}
}

// endLost ends a receive that has gone with a message whose completion names another: mlx5 does so with an error. That
// error ends the session of the message. While the session lives, a match may still be reported.
func (t *tagList) endLost(e *tagged) {
	_, source, _ := transport.UnpackTag(e.packed)
	if s := t.d.sessionOf(source); s != nil && s.downReported {
		s.destroy() // nothing is written to the buffer from now on
		t.undone(e, s.why)
	}
}

// hasLost reports whether there are receives for endLost when s has ended.
func (t *tagList) hasLost(s *session) bool {
	for i := range t.all {
		if t.all[i].lostTo(s) {
			return true
		}
	}
	return false
}

func (e *tagged) lostTo(s *session) bool {
	_, source, _ := transport.UnpackTag(e.packed)
	return e.used && e.lost && !e.matched && !e.done && int(source) == s.peer
}

// giveBack gives a receive back to the engine.
func (t *tagList) giveBack(e *tagged) {
	t.endReceive(e)
	_, source, _ := transport.UnpackTag(e.packed)
	t.d.events = append(t.d.events, transport.Packet{Event: transport.OffloadBack, Peer: source, Cookie: e.cookie})
}

// endReceive gives the buffer of an entry back.
func (t *tagList) endReceive(e *tagged) {
	e.done = true
	if e.s != nil {
		e.s.incoming--
		e.s = nil
	}
	delete(t.byCookie, e.cookie)
	if e.waits {
		e.waits = false
		t.waiting = slices.DeleteFunc(t.waiting, func(i uint32) bool { return &t.all[i] == e })
	}
	t.endRegistration(e)
}

func (t *tagList) endRegistration(e *tagged) {
	if e.reg != nil {
		t.d.deregister(e.reg)
		e.reg = nil
	}
}

// release frees an entry that nothing is under way for.
func (t *tagList) release(i uint32) {
	e := &t.all[i]
	if e.used && e.done && !e.adding && !e.leaving && e.memory != memoryComing {
		*e = tagged{use: (e.use + 1) & useMask}
		t.free = append(t.free, i)
		if len(t.waiting) > 0 {
			t.addWaiting()
		}
	}
}

// landed takes a completion of a tagged buffer: a match, or its data, or both, and returns how many of pkts, which is
// not empty, are filled in. A match must come in its place among the messages, or the next message would find its
// receive.
func (t *tagList) landed(w *completion, pkts []transport.Packet) (n int) {
	i, e := uint32(w.id), t.entry(w.id)
	if e == nil || e.done {
		return 0
	}
	if w.status != 0 && w.status != statusIncomplete {
		t.undone(e, fmt.Errorf("%w: verbs: receiving into a tagged buffer: %s", transport.ErrPeerGone, statusText(w.status)))
		t.release(i)
		return 0
	}
	left := w.status == statusIncomplete
	switch {
	case left && e.matched:
		// It was fetching the message, and has given it up. mlx5 says so like this (MSG_COMPLETION_CANCELED); what is in
		// the buffer is no RTS.
		t.undone(e, fmt.Errorf("%w: verbs: the device has given up a message that it was fetching", transport.ErrPeerGone))
		t.release(i)
		return 0
	case w.flags&matched == 0 && !e.matched:
		t.undone(e, fmt.Errorf("%w: verbs: the device has filled a tagged buffer and reported no match",
			transport.ErrPeerGone))
		t.release(i)
		return 0
	case w.flags&matched != 0 && !e.matched:
		e.matched, e.offered, e.priv, e.packed = true, left, w.priv, w.tag
		_, source, tag := transport.UnpackTag(w.tag)
		if e.s = t.d.table.Load().find(w.qpn); e.s == nil {
			e.s = t.d.sessionOf(source)
		}
		if e.s != nil {
			e.s.incoming++
			t.checkSource(e, source)
		}
		pkts[0] = transport.Packet{Event: transport.OffloadMatched, Cookie: e.cookie, Peer: source,
			Header: wire.Header{Tag: tag}}
		n = 1
	}
	if w.flags&dataValid != 0 {
		if pkt := t.done(e, w); n < len(pkts) {
			pkts[n] = pkt
			n++
		} else {
			t.d.events = append(t.d.events, pkt)
		}
	}
	t.release(i)
	return n
}

// checkSource: a device matches what a message says, and so also with the receive of a rank that has not sent it.
func (t *tagList) checkSource(e *tagged, source int32) {
	if int(source) != e.s.peer {
		err := fmt.Errorf("%w: it calls itself rank %d", errFrame, source)
		e.err = fmt.Errorf("%w: verbs: %w", transport.ErrPeerGone, err)
		t.d.fail(e.s, err, true)
	}
}

// done tells what has landed.
func (t *tagList) done(e *tagged, w *completion) transport.Packet {
	ctx, source, tag := transport.UnpackTag(e.packed)
	pkt := transport.Packet{Event: transport.OffloadDone, Cookie: e.cookie, Peer: source}
	pkt.Header = wire.Header{Ctx: ctx, Tag: tag, ID: uint64(e.priv & numberMask), Len: uint64(w.length)}
	switch kind := e.priv >> kindBit; {
	case e.err != nil:
		pkt.Err = e.err
	case e.offered:
		if err := readOffer(e.buf, e.packed, e.priv, &pkt.Header); err != nil {
			pkt.Err = fmt.Errorf("%w: verbs: %w", transport.ErrPeerGone, err)
			t.failSender(e, err)
		}
	case kind == kindPlain:
		pkt.Header.Kind = wire.Eager
	case kind == kindSync:
		pkt.Header.Kind = wire.EagerSync
	case kind == kindRndv:
		pkt.Header.Kind = wire.FIN
	default:
		if err := softwareRTS(e.buf[:min(int(w.length), len(e.buf))], e.packed, &pkt.Header); err != nil {
			pkt.Err = fmt.Errorf("%w: verbs: %w", transport.ErrPeerGone, err)
			t.failSender(e, err)
		}
	}
	t.endReceive(e)
	return pkt
}

// undone is called when what was matched will not come.
func (t *tagList) undone(e *tagged, err error) {
	_, source, _ := transport.UnpackTag(e.packed)
	t.d.events = append(t.d.events, transport.Packet{Event: transport.OffloadDone, Cookie: e.cookie,
		Peer: source, Err: err})
	t.failSender(e, err)
	t.endReceive(e)
}

// failSender ends the session through which the message of an entry has come, or would have.
func (t *tagList) failSender(e *tagged, err error) {
	_, source, _ := transport.UnpackTag(e.packed)
	if s := cmp.Or(e.s, t.d.sessionOf(source)); s != nil {
		t.d.fail(s, err, true)
	}
}

// drop ends the receives that messages of a peer were matched with and whose data will not come any more, since
// its queue pairs are destroyed.
func (t *tagList) drop(s *session) {
	for i := range t.all {
		if e := &t.all[i]; e.s == s || e.lostTo(s) {
			t.undone(e, s.why)
			t.release(uint32(i))
		}
	}
}

// deregister is for Close: the queue pairs are destroyed, so that nothing comes into the receives that are still
// in the device's list.
func (t *tagList) deregister() {
	for i := range t.all {
		t.endRegistration(&t.all[i])
	}
}
