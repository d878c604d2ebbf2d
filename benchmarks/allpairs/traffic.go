package main

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

const (
	dataTag  = 100
	countTag = 1
	wrongTag = 2
)

// traffic is one rank's part: what it sends and what it receives.
type traffic struct {
	world       *mpi.Comm
	rank, ranks int
	opts        harness.Options
	pace        *bench.Pace
	memory      []byte
	out         []byte
	all         []*mpi.Request   // those of receives and then those of sends
	done        []mpi.Completion // of the last AppendSome
	sends       fifo
	receives    fifo
	random      xorshift
	wrong       int64 // messages with wrong contents
}

// fifo is requests in the order of their start. Entry i has slot i modulo the window; started - finished of them,
// never more than the window, are under way.
type fifo struct {
	requests          []*mpi.Request
	buffers           [][]byte // of receives
	started, finished int
	total             int
}

func newTraffic(j *bench.Job) (*traffic, error) {
	t := &traffic{world: j.World, rank: j.Rank, ranks: j.Ranks, opts: j.Options, pace: bench.NewPace(j)}
	w := j.Options.Window
	t.all = make([]*mpi.Request, 2*w)
	t.receives.requests, t.sends.requests = t.all[:w:w], t.all[w:]
	t.receives.buffers = make([][]byte, w)
	var err error
	t.memory, err = j.Memory(int(j.Options.MaxSize) * (w + 1))
	return t, err
}

// resize lays out the buffers: all sends share one, each receive of the window has its own.
func (t *traffic) resize(size int) {
	t.out = t.memory[:size]
	harness.Fill(t.out, 0, t.rank)
	for i := range t.receives.buffers {
		t.receives.buffers[i] = t.memory[(i+1)*size : (i+2)*size]
	}
}

// xorshift draws the targets. Every rank begins with a seed of its own, the same one each time.
type xorshift uint64

func seed(rank int) xorshift { return xorshift(uint64(rank+1) * 0x9E3779B97F4A7C15) }

// target is a rank, but never the one that draws.
func (x *xorshift) target(rank, ranks int) int {
	*x ^= *x << 13
	*x ^= *x >> 7
	*x ^= *x << 17
	to := int(*x % xorshift(ranks-1))
	if to >= rank {
		to++
	}
	return to
}

// expected is how many messages this rank will get when each sends n: every rank sends every other one its count.
func (t *traffic) expected(n int) (int, error) {
	counts := make([]int64, t.ranks)
	x := seed(t.rank)
	for range n {
		counts[x.target(t.rank, t.ranks)]++
	}
	total := 0
	for distance := 1; distance < t.ranks; distance++ {
		to, from := (t.rank+distance)%t.ranks, (t.rank+t.ranks-distance)%t.ranks
		var peer [1]int64
		if _, err := mpi.Sendrecv(t.world, counts[to:to+1], to, countTag, peer[:], from, countTag); err != nil {
			return 0, err
		}
		total += int(peer[0])
	}
	return total, nil
}

// sum brings the numbers of all ranks together on rank 0.
func (t *traffic) sum(own int64) (int64, error) {
	if t.rank != 0 {
		return 0, mpi.SendValue(t.world, own, 0, wrongTag)
	}
	for other := 1; other < t.ranks; other++ {
		peer, _, err := mpi.RecvValue[int64](t.world, other, wrongTag)
		if err != nil {
			return 0, err
		}
		own += peer
	}
	return own, nil
}

// pass receives and sends until both are done.
//
// It cannot come to a standstill: a rank waits only when neither its oldest receive nor its oldest send is complete.
// A receive that has no message yet takes any, so nothing that was sent to this rank is waiting for one; were all
// ranks to wait like this, no send would be incomplete.
func (t *traffic) pass(toReceive, toSend int) error {
	t.random = seed(t.rank)
	t.receives.begin(toReceive)
	t.sends.begin(toSend)
	if t.opts.WaitSome {
		return t.passSome()
	}
	oldest := make([]*mpi.Request, 2)
	for {
		if err := t.refill(); err != nil {
			return err
		}
		oldest[0], oldest[1] = t.receives.oldest(), t.sends.oldest()
		if oldest[0] == nil && oldest[1] == nil {
			return nil
		}
		if err := t.finishOne(oldest); err != nil {
			return err
		}
	}
}

// passSome starts a window of both, and a new request in the place of each that is complete.
func (t *traffic) passSome() error {
	if err := t.refill(); err != nil {
		return err
	}
	for {
		var err error
		if t.done, err = mpi.AppendSome(t.done[:0], t.all...); err != nil || len(t.done) == 0 {
			return err
		}
		for i := range t.done {
			if err := t.replace(&t.done[i]); err != nil {
				return err
			}
		}
	}
}

// replace starts the next request in the place of one that is complete, if there is one to start.
func (t *traffic) replace(done *mpi.Completion) (err error) {
	slot := done.Index
	if t.all[slot] = nil; done.Err != nil {
		return done.Err
	}
	f, start, i := &t.receives, t.receive, slot
	if w := len(f.requests); slot >= w {
		f, start, i = &t.sends, t.send, slot-w
	} else {
		t.check(slot, done.Status)
	}
	f.finished++
	if f.started < f.total {
		f.requests[i], err = start(i)
		f.started++
	}
	return err
}

// finishOne completes the oldest receive or the oldest send, the first of the two that can be.
func (t *traffic) finishOne(oldest []*mpi.Request) error {
	for i, r := range oldest { // cheaper than WaitAny
		if r == nil {
			continue
		}
		if done, st, err := r.Test(); done || err != nil {
			t.finished(i, st)
			return err
		}
	}
	i, st, err := mpi.WaitAny(oldest...)
	t.finished(i, st)
	return err
}

// finished is called when the oldest receive (0) or the oldest send (1) is complete.
func (t *traffic) finished(which int, st mpi.Status) {
	if which == 1 {
		t.sends.finished++
		return
	}
	f := &t.receives
	t.check(f.finished%len(f.buffers), st)
	f.finished++
}

// check compares what a receive has got, with -c.
func (t *traffic) check(slot int, st mpi.Status) {
	if t.opts.Validate && !harness.Check(t.receives.buffers[slot], 0, st.Source) {
		t.wrong++
	}
}

func (t *traffic) receive(slot int) (*mpi.Request, error) {
	return mpi.Irecv(t.world, t.receives.buffers[slot], mpi.AnySource, mpi.AnyTag)
}

func (t *traffic) send(int) (*mpi.Request, error) {
	return mpi.Isend(t.world, t.out, t.random.target(t.rank, t.ranks), dataTag)
}

// refill starts all that there is room for, receives first.
func (t *traffic) refill() error {
	for f := &t.receives; f.hasRoom(); f.started++ {
		i := f.started % len(f.requests)
		r, err := t.receive(i)
		if err != nil {
			return err
		}
		f.requests[i] = r
	}
	for f := &t.sends; f.hasRoom(); f.started++ {
		i := f.started % len(f.requests)
		r, err := t.send(i)
		if err != nil {
			return err
		}
		f.requests[i] = r
	}
	return nil
}

func (f *fifo) begin(total int) { f.started, f.finished, f.total = 0, 0, total }

func (f *fifo) hasRoom() bool { return f.started < f.total && f.started-f.finished < len(f.requests) }

// oldest is the first that is under way, nil if none is.
func (f *fifo) oldest() *mpi.Request {
	if f.finished == f.started {
		return nil
	}
	return f.requests[f.finished%len(f.requests)]
}
