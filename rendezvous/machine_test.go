package rendezvous

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// exchange is one transfer: both machines, a wire that delays what each sends but keeps its order, and a link that READs
// and WRITEs real bytes.
type exchange struct {
	*testing.T
	rng      *rand.Rand
	src, dst []byte
	snd      Sender
	rcv      Receiver
	toSender []wire.Header // and fragments, whose payload is src's
	toRecv   []packet
	readOff  int64 // of the READ under way
	reading  int64 // its length; 0: none
	writeOff int64
	writing  int64
	writeTo  uint64
	faults   int // READs and WRITEs that may still fail, and stalls
	finished bool
	complete bool
}

type packet struct {
	wire.Header
	payload []byte
}

const (
	senderID, receiverID = 77, 88
	sourceAt, backAt     = 1 << 40, 1 << 50
)

func newExchange(t *testing.T, seed uint64) *exchange {
	x := &exchange{T: t, rng: rand.New(rand.NewPCG(seed, 1))}
	rng := x.rng
	x.src = make([]byte, rng.IntN(100_000))
	for i := range x.src {
		x.src[i] = byte(rng.Uint32())
	}
	room := len(x.src)
	if rng.IntN(3) == 0 {
		room = rng.IntN(len(x.src) + 1)
	}
	x.dst = make([]byte, room)
	x.faults = 1 + rng.IntN(5)
	mem := Region{Addr: sourceAt, Key: 5, Len: int64(len(x.src)), OK: true}
	if rng.IntN(4) == 0 {
		mem = Region{}
	}
	x.snd.Init(senderID, int64(len(x.src)), mem, 1+rng.Int64N(5000))
	rts := x.snd.RTS(3, 4)
	x.rcv.Init(&rts, int64(room), receiverID)
	if x.rcv.Readable() != mem.OK || x.rcv.Size() != int64(len(x.src)) || x.rcv.Want() != int64(room) {
		t.Fatalf("seed %d: %+v is not what was announced: %+v", seed, x.rcv, rts)
	}
	scheme, back := Stream, Region{}
	if x.rcv.Readable() {
		if scheme = Schemes[rng.IntN(len(Schemes))]; scheme == Split {
			back = Region{Addr: backAt, Key: 6, Len: rng.Int64N(int64(room) + 1), OK: true}
		}
	}
	if scheme == Split && back.Len == 0 {
		scheme, back = Get, Region{}
	}
	x.receiver(x.rcv.Begin(scheme, 1+rng.Int64N(5000), back))
	return x
}

// receiver does what the receiving machine says.
func (x *exchange) receiver(a Action) {
	x.Helper()
	switch a.Do {
	case Nothing:
	case Send, Expect:
		x.toSender = append(x.toSender, a.Header)
	case Finish:
		if x.finished || x.reading != 0 {
			x.Fatalf("finished twice, or with a READ under way: %+v", x.rcv)
		}
		x.finished = true
		x.toSender = append(x.toSender, a.Header)
	default:
		x.Fatalf("receiver: %+v", a)
	}
}

func (x *exchange) sender(a Action) {
	x.Helper()
	switch a.Do {
	case Nothing:
	case Send:
		x.toRecv = append(x.toRecv, packet{Header: a.Header})
	case Complete:
		if x.complete || !x.finished {
			x.Fatal("complete twice, or before the receiver is")
		}
		x.complete = true
	default:
		x.Fatalf("sender: %+v", a)
	}
}

func (x *exchange) fault() bool {
	if x.faults == 0 || x.rng.IntN(3) != 0 {
		return false
	}
	x.faults--
	return true
}

// step lets one thing happen.
func (x *exchange) step() {
	switch x.rng.IntN(6) {
	case 0: // the sender sees a packet
		if len(x.toSender) == 0 {
			return
		}
		h := x.toSender[0]
		x.toSender = x.toSender[1:]
		if h.ID != senderID {
			x.Fatalf("the sender gets a packet for %d", h.ID)
		}
		switch h.Kind {
		case wire.CTS:
			x.sender(x.snd.OnCTS(&h))
		case wire.PutReq:
			x.sender(x.snd.OnPutReq(&h, x.rng.IntN(4) > 0))
		case wire.FIN:
			x.sender(x.snd.OnFIN())
		}
	case 1: // its link has room
		if a := x.snd.NextFragment(1 + x.rng.Int64N(6000)); a.Do == Fragment {
			x.toRecv = append(x.toRecv, packet{a.Header, x.src[a.Off : a.Off+a.Len]})
			x.snd.Sent(a.Len)
		}
	case 2: // the receiver sees a packet
		if len(x.toRecv) == 0 {
			return
		}
		p := x.toRecv[0]
		x.toRecv = x.toRecv[1:]
		x.receives(p)
	case 3:
		x.read()
	case 4:
		x.write()
	case 5:
		if x.rng.IntN(20) == 0 && x.fault() {
			x.receiver(x.rcv.Stall())
		}
	}
}

func (x *exchange) receives(p packet) {
	if p.Key != receiverID {
		x.Fatalf("the receiver gets a packet for %d", p.Key)
	}
	if p.Kind == wire.PutDone {
		x.receiver(x.rcv.OnPutDone(int64(p.Len)))
		return
	}
	a := x.rcv.OnData(p.Tag, int64(p.Addr), int64(len(p.payload)))
	if a.Do == Copy {
		if x.reading > 0 {
			x.Fatalf("a fragment is copied while a READ is under way: %+v", x.rcv)
		}
		copy(x.dst[a.Off:a.Off+a.Len], p.payload)
		a = x.rcv.Copied(a.Len)
	}
	x.receiver(a)
}

// read begins a READ, or ends the one under way.
func (x *exchange) read() {
	if x.reading == 0 {
		off, n, ok := x.rcv.NextRead()
		if !ok {
			return
		}
		x.rcv.ReadStarted()
		if _, _, again := x.rcv.NextRead(); again {
			x.Fatal("one READ is given out twice")
		}
		x.readOff, x.reading = off, n
		return
	}
	n := x.reading
	if x.reading = 0; x.fault() {
		x.receiver(x.rcv.OnGetFailed())
		return
	}
	copy(x.dst[x.readOff:x.readOff+n], x.src[x.readOff:])
	x.receiver(x.rcv.OnGetDone())
}

func (x *exchange) write() {
	if x.snd.WriteUnderWay() == 0 {
		off, n, addr, key, ok := x.snd.NextWrite(1 + x.rng.Int64N(5000))
		if !ok {
			return
		}
		if key != 6 {
			x.Fatalf("a WRITE with key %d", key)
		}
		x.snd.WriteStarted(n)
		x.writeOff, x.writing, x.writeTo = off, n, addr
		return
	}
	if x.fault() {
		x.sender(x.snd.OnWriteFailed())
		return
	}
	at := int64(x.writeTo-backAt) + int64(len(x.dst)) - x.backLen()
	copy(x.dst[at:at+x.writing], x.src[x.writeOff:])
	x.sender(x.snd.OnWritten(x.writing))
}

// backLen is how much of the buffer's end the sender may write.
func (x *exchange) backLen() int64 {
	back := x.rcv.Back()
	if back.Addr != backAt || back.Len < x.writing {
		x.Fatalf("the sender writes %d bytes where %+v may be written", x.writing, back)
	}
	return back.Len
}

// Whatever is late, fails or stalls: the receiver finishes once, with the right bytes, the sender completes after that,
// and no byte is written by two at a time.
func TestTransfers(t *testing.T) {
	for seed := range uint64(3000) {
		x := newExchange(t, seed)
		if len(x.dst) < len(x.src) && x.rcv.Back().Len > 0 {
			continue // only whole messages are split: Facts.mayWrite
		}
		for steps := 0; !x.complete; steps++ {
			if steps > 1_000_000 {
				t.Fatalf("seed %d does not end: %+v %+v", seed, x.snd, x.rcv)
			}
			x.step()
		}
		for _, p := range x.toRecv { // what is still under way is harmless
			if a := x.rcv.OnData(p.Tag, int64(p.Addr), int64(len(p.payload))); p.Kind == wire.Data && a.Do != Nothing {
				t.Fatalf("seed %d, late fragment: %+v", seed, a)
			}
		}
		if string(x.dst) != string(x.src[:len(x.dst)]) {
			t.Fatalf("seed %d: contents differ", seed)
		}
	}
}

func announced(size int64, readable bool) *wire.Header {
	h := &wire.Header{Kind: wire.RTS, ID: senderID, Len: uint64(size)}
	if readable {
		h.Flags = wire.Readable
	}
	return h
}

func TestRefuses(t *testing.T) {
	var r Receiver
	r.Init(announced(1000, false), 1000, receiverID)
	r.Begin(Stream, 100, Region{})
	for _, f := range [][2]int64{{10, 10}, {0, 1001}, {0, 0}, {0, -1}} {
		if a := r.OnData(1, f[0], f[1]); a.Do != Fail || a.Err == nil {
			t.Errorf("%d bytes at %d: %+v, want Fail", f[1], f[0], a)
		}
	}
	if a := r.OnPutDone(5); a.Do != Fail {
		t.Errorf("PutDone that was not asked for: %+v, want Fail", a)
	}
	if a := r.OnGetDone(); a.Do != Nothing || r.Have() != 0 {
		t.Errorf("the end of a READ that was not begun: %+v, %d bytes in place", a, r.Have())
	}
	var s Sender
	s.Init(senderID, 1000, Region{}, 100)
	for _, h := range []wire.Header{{Addr: 1 << 63, Len: 5}, {Len: 1001}, {Addr: 1001, Len: 1}, {Addr: 1 << 62, Len: 1 << 62}, {Len: 0}} {
		if a := s.OnCTS(&h); a.Do != Fail || a.Err == nil {
			t.Errorf("CTS for %d bytes at %d: %+v, want Fail", h.Len, h.Addr, a)
		}
	}
	for _, h := range []wire.Header{{Key: 9}, {Key: 9, Len: 1001}, {Key: 9, Len: 1 << 63}} {
		if a := s.OnPutReq(&h, true); a.Do != Send || a.Header.Kind != wire.PutDone || a.Header.Len != 0 || a.Header.Key != 9 || s.Writing() {
			t.Errorf("PutReq for %d bytes: %+v, want a PutDone of none", h.Len, a)
		}
	}
}

// A clock that the test moves.
type clock struct{ now int64 }

func (c *clock) read() int64 { return c.now }

func presence(polls, waits bool) *Presence {
	return &Presence{Polls: func() bool { return polls }, Waits: func() bool { return waits }}
}

// What may be chosen for a message, in order: tried one after the other by a tuner that knows nothing.
func TestAble(t *testing.T) {
	here, away := presence(true, false), presence(false, false)
	long := Facts{Size: 1 << 20, Room: 1 << 20, Readable: true, Writable: true, Presence: here}
	for name, c := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"all":                     {func(*Facts) {}, "stream get split"},
		"cannot be read":          {func(f *Facts) { f.Readable = false }, "stream"},
		"sender away":             {func(f *Facts) { f.Presence = away }, "get"},
		"not known where":         {func(f *Facts) { f.Presence = nil }, "get"},
		"for the watcher":         {func(f *Facts) { f.Watched = true }, "get"},
		"cannot be written":       {func(f *Facts) { f.Writable = false }, "stream get"},
		"too short a buffer":      {func(f *Facts) { f.Room-- }, "get"}, // nothing is tried with it
		"too short to be split":   {func(f *Facts) { f.Size = minSplit - 1 }, "stream get"},
		"sender in a call":        {func(f *Facts) { f.Presence = presence(false, true) }, "get"},
		"both directions":         {func(f *Facts) { f.Mutual = true }, "get"},
		"both, only by packets":   {func(f *Facts) { f.Mutual, f.Readable = true, false }, "stream"},
		"both compute":            {func(f *Facts) { f.Computing, f.Presence = true, away }, "get"},
		"only this rank computes": {func(f *Facts) { f.Computing, f.Presence = true, presence(true, true) }, "split"},
	} {
		f := long
		c.change(&f)
		chooser, tuner := Chooser{Now: (&clock{}).read}, Tuner{}
		var got []string
		for range 3 * aloneTries {
			var tr Trial
			s, back := chooser.Choose(&tr, &tuner, &f)
			if !slices.Contains(got, s.String()) {
				got = append(got, s.String())
			}
			if f.Computing && s == Split && back != f.Size {
				t.Errorf("%s: the sender writes %d bytes of %d", name, back, f.Size)
			}
			tr.end(f.Size, true)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %s", name, got, c.want)
		}
	}
}

// The scheme that has cost least is preferred, alone and among others, and the others are tried again now and then.
func TestTunerLearns(t *testing.T) {
	cost := map[*Scheme]int64{Stream: 3000, Get: 1000, Split: 2000}
	for _, together := range []int{1, 4} {
		c := &clock{now: 1}
		chooser, tuner := Chooser{Now: c.read}, Tuner{}
		f := Facts{Size: 1 << 20, Room: 1 << 20, Readable: true, Writable: true, Presence: presence(true, false)}
		counts := map[*Scheme]int{}
		for round := range 4000 {
			trials := make([]Trial, together)
			chosen := make([]*Scheme, together)
			for i := range trials {
				chosen[i], _ = chooser.Choose(&trials[i], &tuner, &f)
			}
			for i := range trials {
				c.now += cost[chosen[i]]
				trials[i].end(f.Size, true)
				if round >= 1000 && (i > 0 || together == 1) { // the first of several begins alone and does not stay so
					counts[chosen[i]]++
				}
			}
		}
		total := counts[Stream] + counts[Get] + counts[Split]
		if counts[Get] < total*9/10 || counts[Stream]+counts[Split] == 0 {
			t.Errorf("%d at a time: %d of %d by the cheapest, %d and %d by the others", together, counts[Get], total, counts[Stream], counts[Split])
		}
		if chooser.open != 0 {
			t.Errorf("%d transfers are open after the end of all", chooser.open)
		}
	}
}

// A scheme that costs a hundred times as much is left after a few transfers, also in its later trials, and longer
// messages do not try it at first.
func TestTunerLeavesWhatHasLost(t *testing.T) {
	cost := map[*Scheme]int64{Stream: 100_000, Get: 1000, Split: 1500}
	for _, together := range []int{1, 64} {
		c := &clock{now: 1}
		chooser, tuner := Chooser{Now: c.read}, Tuner{}
		play := func(size int64, rounds int) (lost int) {
			f := Facts{Size: size, Room: size, Readable: true, Writable: true, Presence: presence(true, false)}
			for range rounds {
				trials := make([]Trial, together)
				chosen := make([]*Scheme, together)
				for i := range trials {
					chosen[i], _ = chooser.Choose(&trials[i], &tuner, &f)
					if chosen[i] == Stream && (i > 0 || together == 1) { // the first of several begins alone
						lost++
					}
				}
				for i := range trials {
					c.now += cost[chosen[i]]
					trials[i].end(size, true)
				}
			}
			return lost
		}
		run := 2
		if together > 1 {
			run = crowdLeast // one run
		}
		if lost := play(1<<20, firstRetry); lost > run {
			t.Errorf("%d at a time: %d of the first transfers by what costs a hundred times as much, want %d", together, lost, run)
		}
		if lost := play(1<<21, firstRetry/2); lost != 0 {
			t.Errorf("%d at a time: %d of the first longer messages by what costs a hundred times as much", together, lost)
		}
		if lost := play(1<<20, 7*firstRetry); lost == 0 || lost > 3*run {
			t.Errorf("%d at a time: %d later transfers by what costs a hundred times as much, want at most %d", together, lost, 3*run)
		}
	}
}

// What a transfer into too short a buffer takes says nothing of whole messages.
func TestTruncatedTeachNothing(t *testing.T) {
	for _, together := range []int{1, 4} {
		c := &clock{now: 1}
		chooser, tuner := Chooser{Now: c.read}, Tuner{}
		f := Facts{Size: 1 << 20, Room: 1 << 20, Readable: true, Writable: true, Presence: presence(true, false)}
		tuner.class(f.Size, false)
		before := *tuner.classes
		f.Room = 8
		for range 1000 {
			trials := make([]Trial, together)
			for i := range trials {
				chooser.Choose(&trials[i], &tuner, &f)
			}
			for i := range trials {
				c.now++
				trials[i].end(f.Size, true)
			}
		}
		if *tuner.classes != before || chooser.open != 0 {
			t.Errorf("%d at a time: truncated transfers change what the tuner knows; %d are open", together, chooser.open)
		}
	}
}

// The back of a split message moves to where both ends are done at the same time. That is seen by the look that finds
// the PutDone, however long a look takes.
func TestSplitBalances(t *testing.T) {
	c := &clock{now: 1}
	chooser, tuner := Chooser{Now: c.read}, Tuner{}
	tuner.Prefer(Split)
	f := Facts{Size: 1 << 20, Room: 1 << 20, Readable: true, Writable: true, Presence: presence(true, false)}
	part := 0.0
	for range 1000 {
		var tr Trial
		s, back := chooser.Choose(&tr, &tuner, &f)
		if s == Split { // the sender is three times as fast
			part = float64(back) / float64(f.Size)
			tr.frontDone()
			if chooser.Looks++; float64(back)/3 > float64(f.Size-back) {
				chooser.Looks++
			}
			c.now += 5000
			tr.backDone(false)
		}
		tr.end(f.Size, true)
	}
	if part < 0.65 || part > 0.85 {
		t.Errorf("the sender writes %.2f of each message, want 3/4", part)
	}
}

// A stream of a sender whose link says when it has let go of it ends at either side without FIN; a message of which the
// receiver wants nothing, and one that it may READ, end with FIN.
func TestStreamWithoutFIN(t *testing.T) {
	for _, c := range []struct {
		what     string
		room     int64
		readable bool
		fin      bool
	}{
		{"all of it", 100, false, false}, {"a part of it", 60, false, false},
		{"nothing of it", 0, false, true}, {"a readable one", 100, true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			var snd Sender
			snd.Init(senderID, 100, Region{Addr: sourceAt, Len: 100, OK: c.readable}, 50)
			snd.EndsAlone()
			rts := snd.RTS(3, 4)
			var rcv Receiver
			rcv.Init(&rts, c.room, receiverID)
			a := rcv.Begin(Stream, 50, Region{})
			if a.Do == Expect {
				snd.OnCTS(&a.Header)
				for snd.Streaming() {
					if early := snd.OnReleased(); early.Do != Nothing {
						t.Fatalf("it ends with bytes to send: %+v", early)
					}
					f := snd.NextFragment(1 << 20)
					snd.Sent(f.Len)
					a = rcv.OnData(f.Header.Tag, int64(f.Header.Addr), f.Len)
					a = rcv.Copied(a.Len)
				}
			}
			if sent := a.Header.Kind == wire.FIN; a.Do != Finish || sent != c.fin {
				t.Fatalf("the receiver ends with %+v, FIN due: %v", a, c.fin)
			}
			if snd.GetsFIN() != c.fin {
				t.Errorf("the sender takes FIN: %v", snd.GetsFIN())
			}
			end := snd.OnReleased()
			if c.fin {
				if end.Do != Nothing {
					t.Errorf("the sender ends before FIN: %+v", end)
				}
				end = snd.OnFIN()
			}
			if end.Do != Complete || snd.OnReleased().Do != Nothing {
				t.Errorf("the sender ends with %+v", end)
			}
		})
	}
}

// Of READs that one call has fetched together each has cost its part of that call. A scheme that costs less than they
// do is preferred to them.
func TestTogetherCostsTheSame(t *testing.T) {
	const batch = 16
	cost := map[*Scheme]int64{Stream: 1000, Get: 1500}
	c := &clock{now: 1}
	chooser, tuner := Chooser{Now: c.read}, Tuner{}
	f := Facts{Size: 16 << 10, Room: 16 << 10, Readable: true, Presence: presence(true, false)}
	counts := map[*Scheme]int{}
	for range 200 {
		var trials [1 + crowdRun]Trial
		var reads []*Trial
		for i := range trials {
			s, _ := chooser.Choose(&trials[i], &tuner, &f)
			if counts[s]++; s == Get {
				reads = append(reads, &trials[i])
				continue
			}
			c.now += cost[s]
			trials[i].end(f.Size, true)
		}
		for len(reads) > 0 {
			n := min(batch, len(reads))
			c.now += int64(n) * cost[Get]
			chooser.Together(func() {
				for _, tr := range reads[:n] {
					c.now++
					tr.end(f.Size, true)
				}
			})
			reads = reads[n:]
		}
	}
	if counts[Get] > counts[Stream]/3 {
		t.Errorf("%d transfers by what costs more, %d by what costs less", counts[Get], counts[Stream])
	}
}

// READs that have taken a stalled stream over end when the sender sends again: a fragment that comes late is not the
// first of many that are sent for nothing.
func TestStreamGoesOnAfterAStall(t *testing.T) {
	const size, piece = 100 << 20, 1 << 20
	var s Sender
	var r Receiver
	s.Init(senderID, size, Region{Addr: sourceAt, Key: 5, Len: size, OK: true}, piece)
	rts := s.RTS(3, 4)
	r.Init(&rts, size, receiverID)
	a := r.Begin(Stream, piece, Region{})
	sent, reads, streams := int64(0), int64(0), 0
	for a.Do != Finish {
		if a.Do == Expect {
			streams++
			s.OnCTS(&a.Header)
		}
		a = Action{}
		switch {
		case r.Streaming() && r.Have()/(10*piece) == int64(streams): // now and then the sender is away for a while
			r.Stall()
			for range 3 {
				a = r.OnGetDone()
				reads += piece
			}
		default:
			f := s.NextFragment(piece)
			s.Sent(f.Len)
			sent += f.Len
			if a = r.OnData(f.Header.Tag, f.Off, f.Len); a.Do == Copy {
				a = r.Copied(a.Len)
			}
		}
	}
	if over := sent + reads - size; streams < 5 || over < 0 || over > int64(streams)*piece {
		t.Errorf("%d bytes sent and %d read in %d streams, for a message of %d", sent, reads, streams, size)
	}
}
