package gpu

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// Random programs of messages between devices and hosts. A program follows from its seed. All ranks know which messages
// there are; each rank throws dice of its own for the rest: where a buffer lies, on which stream, when memory is freed.
// A copy on the host of all its memory is the model: at the end of each round the devices have the same bytes.
//
// A round has messages that are started first, in any order, and messages of blocking calls, which all ranks make in
// the order of the messages' numbers: so no rank waits for one that waits for it.

// seedVar repeats the program of one seed. soakVar is how long all random programs run.
const (
	seedVar = "GORUN_TEST_SEED"
	soakVar = "GORUN_TEST_SOAK"
)

// kind is how an end of a message is made.
type kind int

const (
	nonblocking kind = iota // Isend or Irecv, and collected at the end of the round
	other                   // Issend, or Irecv of AnySource
	blocking                // Send, or Recv
	second                  // Ssend, or Mprobe and Mrecv
	third                   // Isend, or Mprobe and Imrecv, and collected at once
	persistent
	kinds
)

func (k kind) early() bool { return k == nonblocking || k == other }

// letter is a message.
type letter struct {
	number        int // which its tag and its bytes follow from
	from, to      int
	size, room    int
	out, in       kind
	fromHost, any bool // any: the receive is into memory of the host
	cancel        bool // its receiver tries to cancel the receive first
	mate          *letter
}

func (l *letter) String() string {
	return fmt.Sprintf("message %d, %+v", l.number, *l)
}

// scenario is what all ranks know.
type scenario struct {
	seed   uint64
	ranks  int
	rounds [][]*letter
	dies   int // the rank that dies; -1: none
	when   int // after so many of its steps
}

// edges are lengths, the frequent ones first.
var edges = []int{0, 1, 333, 5_000, 64<<10 - 1, 64 << 10, 64<<10 + 1, 512<<10 - 1, 512 << 10, 512<<10 + 1, 2<<20 - 1,
	2 << 20, 2<<20 + 1}

func newScenario(seed uint64, ranks int, mortal bool) *scenario {
	s := &scenario{seed: seed, ranks: ranks, dies: -1}
	dice := rand.New(rand.NewPCG(seed, 1))
	number := 0
	for range 3 + dice.IntN(4) {
		var round []*letter
		for range 1 + dice.IntN(3*ranks) {
			number++
			l := &letter{number: number, from: dice.IntN(ranks), to: dice.IntN(ranks),
				size: edges[min(dice.IntN(len(edges)), dice.IntN(len(edges)))], out: kind(dice.IntN(int(kinds))),
				in: kind(dice.IntN(int(kinds))), fromHost: dice.IntN(4) == 0, any: dice.IntN(4) == 0}
			l.room = l.size + max(dice.IntN(60)-50, 0)
			if dice.IntN(30) == 0 {
				l.room = l.size / 2
			}
			l.cancel = l.in == nonblocking && l.from != l.to && dice.IntN(4) == 0
			if l.from == l.to {
				l.in = nonblocking
			}
			if l.out == persistent || l.in == persistent { // the other end is made as often
				l.cancel = false
				if l.from == l.to {
					l.out = blocking
				} else if l.out.early() {
					l.out = third
				} else if l.in.early() {
					l.in = blocking
				}
			}
			round = append(round, l)
			if l.from != l.to && dice.IntN(8) == 0 {
				number++
				l.mate = &letter{number: number, from: l.to, to: l.from, size: edges[dice.IntN(7)]}
				l.mate.room = l.mate.size
				l.out, l.in, l.cancel, l.fromHost, l.any = blocking, blocking, false, false, false
			}
		}
		s.rounds = append(s.rounds, round)
	}
	if mortal {
		s.dies = dice.IntN(ranks)
		s.when = dice.IntN(4*number/ranks + 1)
	}
	return s
}

// String says how to run it again, and which rank dies.
func (s *scenario) String() string {
	return fmt.Sprintf("%s=%d: of %d ranks, rank %d dies in step %d", seedVar, s.seed, s.ranks, s.dies, s.when)
}

// times is how often a message is sent, each time with other bytes.
func (l *letter) times() int {
	if l.out == persistent || l.in == persistent {
		return 2
	}
	return 1
}

func (l *letter) bytes(time int) []byte { return message(l.size, 2*l.number+time) }

// devicesOf is the driver of a rank, as a program uses it.
type devicesOf struct {
	devices int
	alloc   func(device, n int) Slice[byte]
	wrap    func(addr uint64, n int) Slice[byte]
	read    func(s Slice[byte]) []byte
	stream  func(device int) *acceltest.Stream // nil: no kernels, and the stream is the default one
	write   func(addr uint64, b []byte)        // of a kernel, as peek
	peek    func(addr uint64, n int64) []byte
	die     func() // may return
}

// player is a rank of a program.
type player struct {
	*scenario
	*devicesOf
	c       *mpi.Comm
	dice    *rand.Rand
	arenas  []*arena
	streams map[int]*acceltest.Stream
	steps   int
	fate    int // the step in which it dies, if it does
	dead    atomic.Bool
	doing   atomic.Pointer[string]
}

// arena is an allocation.
type arena struct {
	s, under Slice[byte] // under is what s wraps, if that has elements
	model    []byte
	used     int // bytes, of this round
}

// died ends the rank that dies.
type died struct{}

// does notes what a rank is about to do. It is a point at which the rank may die.
func (p *player) does(format string, args ...any) {
	what := fmt.Sprintf("step %d: ", p.steps) + fmt.Sprintf(format, args...)
	p.doing.Store(&what)
	if p.c.Rank() == p.dies && p.steps == p.fate {
		p.dead.Store(true)
		p.die()
		panic(died{})
	}
	p.steps++
}

// play runs the program at a rank. It panics if something is wrong, or the rank dies.
func (p *player) play() {
	defer func() {
		if v := recover(); v != nil {
			if _, dies := v.(died); dies {
				panic(v)
			}
			panic(fmt.Errorf("%s: %s: %v", *p.doing.Load(), testLines(), v))
		}
	}()
	p.fate = 1 + p.when // after link
	p.link()
	for i, round := range p.rounds {
		p.round(i, round)
	}
	p.fate = p.steps // it dies at the end, if it has not
	p.does("the end")
	for _, a := range p.arenas {
		p.free(a)
	}
}

// link makes a link to each rank, which tells of its end. The rank that dies lives until all have theirs.
func (p *player) link() {
	p.does("making links")
	for other := range p.ranks {
		ok(mpi.Sendrecv(p.c, []byte{1}, other, 0, make([]byte, 1), other, 0))
	}
	for other := range p.ranks {
		switch {
		case other == p.c.Rank():
		case p.dies == p.c.Rank():
			ok(mpi.Recv(p.c, make([]byte, 1), other, 0))
		case p.dies == other:
			must(mpi.Send(p.c, []byte{1}, other, 0))
		}
	}
}

func (p *player) round(number int, round []*letter) {
	var due []func()
	retry := map[*letter]func(){}
	for _, i := range p.dice.Perm(2 * len(round)) {
		l := round[i/2]
		switch {
		case l.mate != nil:
		case i%2 == 0 && l.from == p.c.Rank() && l.out.early():
			due = append(due, p.send(l, l.out, 0))
		case i%2 == 1 && l.to == p.c.Rank() && l.in.early():
			finish, again := p.receive(l, l.in, 0)
			if retry[l] = again; again == nil {
				due = append(due, finish)
			}
		}
		if p.dice.IntN(8) == 0 {
			p.never()
		}
	}
	for _, l := range round {
		out, in := l.from == p.c.Rank() && !l.out.early(), l.to == p.c.Rank() && !l.in.early()
		switch {
		case l.mate != nil && (out || in):
			p.exchange(l)
		case l.times() == 2:
			if out {
				p.sendTwice(l)
			}
			if in {
				p.receiveTwice(l)
			}
		default:
			if out {
				p.send(l, l.out, 0)()
			}
			if in {
				finish, _ := p.receive(l, l.in, 0)
				finish()
			} else if again := retry[l]; again != nil {
				again()
			}
		}
	}
	for _, i := range p.dice.Perm(len(due)) {
		due[i]()
	}
	p.does("the end of round %d", number)
	for _, s := range p.streams {
		s.Sync()
	}
	var left []*arena
	for _, a := range p.arenas {
		same(p.read(a.s), a.model)
		if a.used = 0; p.dice.IntN(2) == 0 {
			p.free(a)
		} else {
			left = append(left, a)
		}
	}
	p.arenas = left
}

func (p *player) free(a *arena) {
	must(a.s.Free())
	if a.under.Len() > 0 {
		must(a.under.Free())
	}
}

// region is a part of an arena, or memory of the host.
type region struct {
	p      *player
	s      Slice[byte] // with a stream, perhaps
	model  []byte      // the arena's; or the memory
	onHost bool
	stream *acceltest.Stream // nil: none, or one without kernels
	seen   []byte            // what a kernel has read before a receive
}

// place finds n bytes.
func (p *player) place(n int, onHost bool) *region {
	if onHost {
		return &region{p: p, model: make([]byte, n), onHost: true}
	}
	var a *arena
	gap := p.dice.IntN(4)
	for _, i := range p.dice.Perm(len(p.arenas)) {
		if b := p.arenas[i]; len(b.model)-b.used >= n+gap && p.dice.IntN(3) > 0 {
			a = b
			break
		}
	}
	if a == nil {
		size, device := n+gap+p.dice.IntN(300), p.dice.IntN(p.devices)
		if p.dice.IntN(3) == 0 {
			size += 200_000
		}
		a = &arena{s: p.alloc(device, size+1), model: make([]byte, size+1)}
		if p.dice.IntN(3) == 0 {
			a.under = a.s
			a.s, a.model = p.wrap(a.s.Addr()+1, size), a.model[1:]
		}
		must(a.s.CopyFrom(a.model))
		p.arenas = append(p.arenas, a)
	}
	from := a.used + gap
	a.used = from + n
	g := &region{p: p, s: a.s.Slice(from, from+n), model: a.model[from : from+n]}
	if n > 0 && p.dice.IntN(3) == 0 {
		handle := uint64(0)
		if p.stream != nil {
			device := g.s.Device()
			if p.streams[device] == nil {
				p.streams[device] = p.stream(device)
			}
			g.stream = p.streams[device]
			handle = g.stream.Handle()
		}
		g.s = g.s.On(handle)
	}
	return g
}

// kernel puts work that takes some time on the stream of the region.
func (g *region) kernel(f func()) {
	nap := time.Duration(g.p.dice.IntN(300)) * time.Microsecond
	g.stream.Launch(func() {
		defer func() {
			if v := recover(); v != nil && !g.p.dead.Load() { // the memory of a process that has died is gone
				panic(v)
			}
		}()
		time.Sleep(nap)
		f()
	})
}

// fill has the region contain b, by a kernel that may not have run yet if there is one.
func (g *region) fill(b []byte) {
	copy(g.model, b)
	switch {
	case g.onHost || len(b) == 0:
	case g.stream != nil:
		addr := g.s.Addr()
		g.kernel(func() { g.p.write(addr, b) })
	default:
		must(g.s.CopyFrom(b))
	}
}

// contents are what work that is started now sees.
func (g *region) contents() (b []byte) {
	switch {
	case g.onHost:
		return g.model
	case g.stream != nil:
		g.stream.Launch(func() { b = g.p.peek(g.s.Addr(), int64(g.s.Len())) })
		g.stream.Sync()
		return b
	}
	return g.p.read(g.s)
}

// over checks how a call has ended whose other end is at a rank. It reports whether the call has done what it should.
func (p *player) over(err error, peer int) bool {
	if err == nil {
		return true
	}
	if peer != p.dies || !errors.Is(err, mpi.ErrPeerFailed) {
		panic(err)
	}
	return false
}

// reuse overwrites what has been sent.
func (g *region) reuse(l *letter) { g.fill(message(l.size, 2*l.number+1000)) }

// request starts a send.
func (g *region) request(l *letter, k kind) (*mpi.Request, error) {
	c := g.p.c
	switch {
	case g.onHost && k == other:
		return mpi.Issend(c, g.model, l.to, l.number)
	case g.onHost:
		return mpi.Isend(c, g.model, l.to, l.number)
	case k == other:
		return Issend(c, g.s, l.to, l.number)
	}
	return Isend(c, g.s, l.to, l.number)
}

// send starts a send. finish waits for its end.
func (p *player) send(l *letter, k kind, time int) (finish func()) {
	p.does("sending %v", l)
	g := p.place(l.size, l.fromHost)
	g.fill(l.bytes(time))
	var err error
	switch {
	case k == blocking && g.onHost:
		err = mpi.Send(p.c, g.model, l.to, l.number)
	case k == blocking:
		err = Send(p.c, g.s, l.to, l.number)
	case k == second && g.onHost:
		err = mpi.Ssend(p.c, g.model, l.to, l.number)
	case k == second:
		err = Ssend(p.c, g.s, l.to, l.number)
	default:
		q, err := g.request(l, k)
		must(err)
		return func() {
			p.does("waiting for the end of the send of %v", l)
			_, err := q.Wait()
			p.over(err, l.to)
			g.reuse(l)
		}
	}
	return func() {
		p.over(err, l.to)
		g.reuse(l)
	}
}

// received checks a receive that has ended.
func (g *region) received(l *letter, time int, st mpi.Status, err error) {
	if long := l.size > l.room; long && errors.Is(err, mpi.ErrTruncate) {
		err = nil
	} else if long && err == nil {
		panic("a message that is too long is received")
	} else if err == nil {
		check(st == mpi.Status{Source: l.from, Tag: l.number, Bytes: int64(l.size)}, "%+v", st)
	}
	whole := g.p.over(err, l.from)
	got := g.contents()
	if g.seen != nil {
		same(g.seen, g.model)
	}
	if !whole { // any part of the message may be there, and no more comes
		copy(g.model, got)
		return
	}
	n := min(l.size, l.room)
	if !g.onHost {
		copy(g.model, l.bytes(time)[:n])
		same(got, g.model)
		return
	}
	same(got[:n], l.bytes(time)[:n])
	same(got[n:], make([]byte, l.room-n))
}

// before has a kernel read what the receive is to overwrite.
func (g *region) before() {
	if g.stream != nil {
		addr, n := g.s.Addr(), int64(g.s.Len())
		g.kernel(func() { g.seen = g.p.peek(addr, n) })
	}
}

// receive starts a receive, and cancels it if l says so: again makes it again then. finish waits for its end.
func (p *player) receive(l *letter, k kind, time int) (finish, again func()) {
	p.does("receiving %v", l)
	g := p.place(l.room, l.any)
	g.before()
	source := l.from
	var q *mpi.Request
	var st mpi.Status
	var err error
	switch k {
	case blocking:
		if g.onHost {
			st, err = mpi.Recv(p.c, g.model, source, l.number)
		} else {
			st, err = Recv(p.c, g.s, source, l.number)
		}
	case second, third:
		st, err = p.matched(g, l, k)
	default:
		if k == other && p.dies < 0 { // the failure of any rank ends a receive from AnySource
			source = mpi.AnySource
		}
		if g.onHost {
			q, err = mpi.Irecv(p.c, g.model, source, l.number)
		} else {
			q, err = Irecv(p.c, g.s, source, l.number)
		}
		must(err)
		finish = func() {
			p.does("waiting for the end of the receive of %v", l)
			st, err := q.Wait()
			g.received(l, time, st, err)
		}
		if l.cancel {
			must(q.Cancel())
			return nil, func() {
				p.does("waiting for the cancelled receive of %v", l)
				st, err := q.Wait()
				if !st.Cancelled {
					g.received(l, time, st, err)
					return
				}
				must(err)
				same(g.contents(), g.model)
				finish, _ := p.receive(l, blocking, time)
				finish()
			}
		}
		return finish, nil
	}
	return func() { g.received(l, time, st, err) }, nil
}

// matched receives by a matched probe.
func (p *player) matched(g *region, l *letter, k kind) (mpi.Status, error) {
	m, st, err := mpi.Mprobe(p.c, l.from, l.number)
	if err != nil {
		return st, err
	}
	check(st.Bytes == int64(l.size), "the probe sees %d bytes", st.Bytes)
	switch {
	case g.onHost && k == second:
		return mpi.Mrecv(m, g.model)
	case g.onHost:
		return collect(mpi.Imrecv(m, g.model))
	case k == second:
		return Mrecv(m, g.s)
	}
	return collect(Imrecv(m, g.s))
}

// sendTwice sends two messages, one after the other.
func (p *player) sendTwice(l *letter) {
	if l.out != persistent {
		for time := range 2 {
			p.send(l, l.out, time)()
		}
		return
	}
	p.does("preparing the sends of %v", l)
	g := p.place(l.size, l.fromHost)
	var q *mpi.Request
	if g.onHost {
		q = ok(mpi.SendInit(p.c, g.model, l.to, l.number))
	} else {
		q = ok(SendInit(p.c, g.s, l.to, l.number))
	}
	for time := range 2 {
		g.fill(l.bytes(time))
		p.does("sending %v, time %d", l, time)
		err := q.Start()
		if err == nil {
			_, err = q.Wait()
		}
		p.over(err, l.to)
	}
	must(q.Free())
	g.reuse(l)
}

func (p *player) receiveTwice(l *letter) {
	if l.in != persistent {
		for time := range 2 {
			finish, _ := p.receive(l, l.in, time)
			finish()
		}
		return
	}
	p.does("preparing the receives of %v", l)
	g := p.place(l.room, l.any)
	var q *mpi.Request
	if g.onHost {
		q = ok(mpi.RecvInit(p.c, g.model, l.from, l.number))
	} else {
		q = ok(RecvInit(p.c, g.s, l.from, l.number))
	}
	for time := range 2 {
		p.does("receiving %v, time %d", l, time)
		var st mpi.Status
		err := q.Start()
		if err == nil {
			st, err = q.Wait()
		}
		g.received(l, time, st, err)
	}
	must(q.Free())
}

// exchange sends a message and receives another one by Sendrecv.
func (p *player) exchange(l *letter) {
	out, in := l, l.mate
	if p.c.Rank() != out.from {
		out, in = in, out
	}
	p.does("exchanging %v and %v", out, in)
	a, b := p.place(out.size, false), p.place(in.room, false)
	a.fill(out.bytes(0))
	b.before()
	st, err := Sendrecv(p.c, a.s, out.to, out.number, b.s, in.from, in.number)
	b.received(in, 0, st, err)
	a.reuse(out)
}

// never is a receive that no message meets. Its memory cannot be freed until it is cancelled.
func (p *player) never() {
	const tag = 1 << 20
	p.does("receiving what no rank sends")
	g := p.place(100, false)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	q := ok(Irecv(p.c.WithContext(ctx), g.s, p.c.Rank(), tag))
	isError(g.s.Free(), mpi.ErrBuffer, "")
	if p.dice.IntN(2) == 0 {
		must(q.Cancel())
		check(ok(q.Wait()).Cancelled, "a receive that no message meets is not cancelled")
	} else {
		cancel()
		_, err := q.Wait()
		check(errors.Is(err, context.Canceled), "%v", err)
	}
	same(g.contents(), g.model)
}

// TestRandomMessages runs random programs as ranks of this process.
func TestRandomMessages(t *testing.T) {
	for i, w := range ways {
		for _, mortal := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", w.name, mortal), func(t *testing.T) {
				programs := 40
				switch {
				case testing.Short() && proc.Race: // ten times slower
					programs = 2
				case testing.Short():
					programs = 4
				}
				for seed := range seeds(t, uint64(1000*i), programs) {
					playHere(t, w, newScenario(seed, 2+int(seed%3), mortal))
				}
			})
		}
	}
}

// soakShare is the part of soakVar for each way: there are so many.
const soakShare = 20

// seeds are a test's: so many from the first one on; with soakVar, others for so long; with seedVar, that one.
func seeds(t *testing.T, first uint64, programs int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		end := time.Now()
		if text := os.Getenv(seedVar); text != "" {
			first, programs = ok(strconv.ParseUint(text, 10, 64)), 1
		} else if text := os.Getenv(soakVar); text != "" {
			first, programs, end = rand.Uint64()>>16, 1, end.Add(ok(time.ParseDuration(text))/soakShare)
		}
		for i := 0; (i < programs || time.Now().Before(end)) && !t.Failed() && yield(first+uint64(i)); i++ {
		}
	}
}

// playHere runs a program as ranks of this process: over loop, or over devices that misbehave.
func playHere(t *testing.T, w way, s *scenario) {
	o := w.options
	if o.Seed = s.seed; s.seed%4 == 3 { // so that more copies are under way when a rank dies
		o.Delay *= 20
	}
	var machines []*acceltest.Machine
	w.options = o
	drivers := w.drivers(s.ranks, func(o acceltest.Options) *acceltest.Machine {
		machines = append(machines, acceltest.New(o))
		return machines[len(machines)-1]
	})
	useDriver(t, drivers[0])
	devices, players := make([]transport.Device, s.ranks), make([]*player, s.ranks)
	for i := range players {
		d := drivers[i]
		players[i] = &player{scenario: s, dice: rand.New(rand.NewPCG(s.seed, uint64(100+i))),
			streams: map[int]*acceltest.Stream{}, devicesOf: &devicesOf{devices: w.options.Devices,
				alloc:  func(device, n int) Slice[byte] { return ok(allocOn[byte](d, device, n, int64(n))) },
				wrap:   func(addr uint64, n int) Slice[byte] { return ok(wrapOn[byte](d, addr, n, int64(n))) },
				read:   func(s Slice[byte]) []byte { return contents(rank{d: d}, s) },
				write:  d.Write,
				peek:   d.Read,
				stream: d.Stream,
				die: func() {
					if w.own {
						d.Die()
					}
					devices[i].Close()
				}}}
	}
	where := mpi.Option(func(o *join.Options) {
		o.Host = w.host
		o.Wrap = func(rank int, d transport.Device) transport.Device {
			d = w.apart(rank, d)
			devices[rank] = d // which may be closed while an engine uses it
			if s.seed%2 == 1 {
				d = faulty.Wrap(d, int64(s.seed)*1000+int64(rank), faulty.Random(int64(s.seed)))
			}
			return d
		}
	})
	stuck := time.AfterFunc(hangs, func() {
		debug.SetTraceback("all")
		for rank, p := range players {
			if what := p.doing.Load(); what != nil {
				fmt.Fprintf(os.Stderr, "rank %d: %s\n", rank, *what)
			}
		}
		panic(fmt.Sprintf("%s: %v hangs", t.Name(), s))
	})
	defer stuck.Stop()
	errs := make([]error, s.ranks)
	var living sync.WaitGroup
	living.Add(s.ranks)
	mpi.RunLocal(s.ranks, func(c *mpi.Comm) (err error) {
		defer func() {
			living.Done()
			switch v := recover().(type) {
			case nil:
				return
			case died:
				err = errors.New("the rank has died")
			default:
				err = fmt.Errorf("rank %d: %v", c.Rank(), v)
				errs[c.Rank()] = err
				return
			}
			living.Wait() // without an error it would wait for what is under way over its device
		}()
		players[c.Rank()].c = c
		players[c.Rank()].play()
		return nil
	}, where)
	if s.dies >= 0 && !w.own { // what it has left is the process's
		for _, a := range players[s.dies].arenas {
			of := a.s.of
			if a.under.Len() > 0 {
				of = a.under.of
			}
			if err := drivers[0].Free(of.memory); err != nil {
				t.Error(err)
			}
		}
	}
	drain()
	err := errors.Join(errs...)
	for _, m := range machines {
		if left := m.Left(); left != "" && err == nil {
			err = fmt.Errorf("left:\n%s", left)
		}
	}
	if err != nil {
		t.Errorf("%v: %v", s, err)
	}
}
