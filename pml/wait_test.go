package pml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/waitpolicy"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/loop"
)

// counted is a device that counts what the engine asks of it, and notes what it may not ask.
type counted struct {
	transport.Device
	t                         testing.TB
	facts                     transport.Facts
	polls, arms, parks, sends atomic.Int64
	closed                    atomic.Bool
	flood                     atomic.Bool // every Poll brings something that means nothing
	awake                     atomic.Bool // Arm refuses, though there is nothing to poll
}

func (c *counted) alive(what string) {
	if c.closed.Load() {
		c.t.Errorf("%s after Close", what)
	}
}

func (c *counted) Poll(p []transport.Packet) int {
	c.alive("Poll")
	c.polls.Add(1)
	n := c.Device.Poll(p)
	if n == 0 && c.flood.Load() {
		p[0] = transport.Packet{Peer: 1, Header: wire.Header{Kind: wire.Data, Key: 1 << 40}}
		n = 1
	}
	return n
}

func newCounted(t testing.TB, d transport.Device) *counted {
	c := &counted{Device: d, t: t, facts: *d.Facts()}
	c.facts.Wake = slices.Clone(c.facts.Wake)
	c.facts.Wake[0].Clear = func(bool) { c.parks.Add(1) }
	if short := c.facts.Short; short != nil {
		c.facts.Short = func() (transport.Short, []byte, transport.Found) {
			if c.flood.Load() {
				return transport.Short{}, nil, transport.FoundOther
			}
			return short()
		}
	}
	return c
}

func (c *counted) Facts() *transport.Facts { return &c.facts }

func (c *counted) Arm(level transport.Level) bool {
	c.alive("Arm")
	c.arms.Add(1)
	return c.Device.Arm(level) && !c.flood.Load() && !c.awake.Load()
}

func (c *counted) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := c.Device.Connect(ctx, peer, address)
	if err != nil {
		return nil, err
	}
	return &countedLink{l, c}, nil
}

func (c *counted) Close() error {
	c.closed.Store(true)
	return c.Device.Close()
}

type countedLink struct {
	transport.Link
	c *counted
}

func (l *countedLink) TrySend(h *wire.Header, payload []byte) bool {
	l.c.alive("TrySend")
	l.c.sends.Add(1)
	return l.Link.TrySend(h, payload)
}

// ranks are engines over loop, and their devices.
type ranks struct {
	e []*Engine
	d []*counted
}

func newRanks(t testing.TB, n int, cfg Config) *ranks { return newRanksOn(t, loop.New(n), cfg) }

func newRanksOn(t testing.TB, fabric []*loop.Device, cfg Config) *ranks {
	t.Helper()
	devices := make([]transport.Device, len(fabric))
	for i, d := range fabric {
		devices[i] = d
	}
	return newRanksOver(t, devices, cfg)
}

func newRanksOver(t testing.TB, fabric []transport.Device, cfg Config) *ranks {
	t.Helper()
	watchdog(t)
	w := &ranks{}
	for _, d := range fabric {
		w.d = append(w.d, newCounted(t, d))
	}
	for rank, d := range w.d {
		c := cfg
		c.Rank, c.Size, c.Net, c.Self = rank, len(fabric), d, loop.New(1)[0]
		c.Lookup = func(_ context.Context, peer int) ([]byte, error) { return w.e[peer].Address(), nil }
		if c.UnexpectedMax == 0 {
			c.UnexpectedMax = 1 << 20
		}
		w.e = append(w.e, newEngine(c))
	}
	t.Cleanup(w.close)
	return w
}

func (w *ranks) close() {
	for _, e := range w.e {
		if err := e.Close(errOver); err != nil {
			panic(err)
		}
	}
}

// idle waits until an engine has nothing under way, without helping it.
func idle(t testing.TB, e *Engine) {
	t.Helper()
	for limit := time.Now().Add(hangs); e.Pending() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("rank %d: %d operations do not end by themselves", e.cfg.Rank, e.Pending())
		}
	}
}

// Many goroutines of each rank talk with their like, waiting in every way there is: each is woken for its own.
func TestNobodySleepsForEver(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		loop func(int) []*loop.Device
		cpus int
	}{
		{"spinning", Config{Wait: waitpolicy.Spin}, loop.New, 0},
		{"sleeping at once", Config{}, loop.New, 0},
		{"fixed spin", Config{Wait: waitpolicy.Fixed(50 * time.Microsecond)}, loop.New, 0},
		{"one processor", Config{Wait: waitpolicy.Spin}, loop.New, 1},
		{"more ranks than CPUs", Config{Wait: waitpolicy.Yield}, loop.New, 0},
		{"one processor, more ranks than CPUs", Config{Wait: waitpolicy.Yield}, loop.New, 1},
		{"one processor, sleeping", Config{}, loop.New, 1},
		{"streams", Config{}, loop.NewNoGet, 0},
		{"little credit", Config{UnexpectedMax: 1}, loop.New, 0},
		{"everything announced", Config{Wait: waitpolicy.Spin, EagerMax: 1}, loop.New, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.cpus != 0 {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.cpus))
			}
			w := newRanksOn(t, c.loop(3), c.cfg)
			rounds := inShort(60, 8)
			var wg sync.WaitGroup
			for rank := range w.e {
				for g := range 12 {
					wg.Add(1)
					go func() {
						defer wg.Done()
						v := &talker{t: t, e: w.e[rank], n: len(w.e), g: g, rng: rand.New(rand.NewPCG(uint64(rank), uint64(g)))}
						for round := range rounds {
							if err := v.exchange(round); err != nil {
								t.Errorf("rank %d, goroutine %d, round %d: %v", rank, g, round, err)
								return
							}
						}
					}()
				}
			}
			wg.Wait()
			for _, e := range w.e {
				e.Flush()
				idle(t, e)
			}
		})
	}
}

// talker is one goroutine. It has a tag for messages and one on which nothing is ever sent.
type talker struct {
	t    testing.TB
	e    *Engine
	n, g int
	rng  *rand.Rand
}

const silence = 1000 // added to a tag: no rank sends under it

func (v *talker) exchange(round int) error {
	rank := v.e.cfg.Rank
	right, left, tag := (rank+1)%v.n, (rank+v.n-1)%v.n, int32(v.g)
	size := [...]int{0, 8, 100, 5000, 9000, 70_000}[(round*7+v.g)%6]
	out := contents(rank, v.g+round, size)
	s := v.e.Isend(nil, 1, right, tag, out, Mode(v.rng.IntN(2)))
	in, n, err := v.receive(left, tag)
	if err != nil {
		return err
	}
	if !bytes.Equal(in[:n], contents(left, v.g+round, size)) {
		return fmt.Errorf("%d bytes of rank %d are not what was sent", n, left)
	}
	_, err = s.Wait()
	return err
}

// receive takes the next message in a way that chance picks.
func (v *talker) receive(source int, tag int32) ([]byte, int64, error) {
	e, in := v.e, make([]byte, 70_000)
	var st Status
	var err error
	switch v.rng.IntN(9) {
	case 0:
		st, err = e.Recv(nil, 1, source, tag, in)
	case 1:
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		st, err = e.Recv(ctx, 1, source, tag, in)
	case 2:
		st, err = e.Irecv(nil, 1, source, tag, in).Wait()
	case 3:
		r, done := e.Irecv(nil, 1, source, tag, in), false
		for !done {
			if done, st, err = r.Test(); !done {
				runtime.Gosched()
			}
		}
	case 4:
		r := e.Irecv(nil, 1, source, tag, in)
		<-r.Done()
		st, err = r.Wait()
	case 5:
		if _, _, err = e.Probe(nil, 1, source, tag, false); err == nil {
			st, err = e.Recv(nil, 1, source, tag, in)
		}
	case 6:
		var m *Message
		if m, _, err = e.Probe(nil, 1, source, tag, true); err == nil {
			st, err = mrecv(e, m, in)
		}
	case 7:
		st, err = v.some(source, tag, in)
	case 8:
		if err = v.giveUp(tag); err == nil {
			st, err = e.Recv(nil, 1, source, tag, in)
		}
	}
	return in, st.Bytes, err
}

func mrecv(e *Engine, m *Message, buf []byte) (Status, error) {
	r, err := e.Imrecv(nil, m, buf)
	if err != nil {
		return Status{}, err
	}
	return r.Wait()
}

// some waits for any of two, of which one is never sent.
func (v *talker) some(source int, tag int32, in []byte) (st Status, err error) {
	rs := []*Request{v.e.Irecv(nil, 1, source, tag+silence, nil), v.e.Irecv(nil, 1, source, tag, in)}
	got := -1
	set := Set(rs)
	if i, err := v.e.WaitSome(set, 1, nil, func(i int, s Status, e error) { got, st, err = i, s, e }); err != nil {
		return st, fmt.Errorf("request %d: %w", i, err)
	}
	if got != 1 {
		return st, fmt.Errorf("request %d of a message that no rank sends is done", got)
	}
	if e := rs[0].Cancel(); e != nil {
		return st, e
	}
	if s, e := rs[0].Wait(); e != nil || !s.Cancelled {
		return st, fmt.Errorf("cancelled receive: %+v, %v", s, e)
	}
	return st, err
}

// giveUp waits for what does not come until a context ends.
func (v *talker) giveUp(tag int32) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(v.rng.IntN(2000))*time.Microsecond)
	defer cancel()
	var err error
	if v.rng.IntN(2) == 0 {
		_, err = v.e.Recv(ctx, 1, AnySource, tag+silence, nil)
	} else {
		_, _, err = v.e.Probe(ctx, 1, AnySource, tag+silence, false)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("a context ended, the call says %v", err)
	}
	return nil
}

// The leader wakes followers for their own messages only; when it goes, the followers that stay are still served.
func TestFollowers(t *testing.T) {
	for _, policy := range []waitpolicy.Policy{{}, waitpolicy.Spin, waitpolicy.Yield} {
		w := newRanks(t, 2, Config{Wait: policy})
		const followers = 50
		ctx, cancel := context.WithCancel(context.Background())
		leader := make(chan error, 1)
		go func() {
			_, err := w.e[0].Recv(ctx, 1, 1, silence, nil)
			leader <- err
		}()
		for w.e[0].Stats().Posted != 1 {
			runtime.Gosched()
		}
		woken := make(chan int, followers)
		for g := range followers {
			go func() {
				if _, err := w.e[0].Recv(nil, 1, 1, int32(g), make([]byte, 8)); err != nil {
					t.Error(err)
				}
				woken <- g
			}()
		}
		for w.e[0].Stats().Posted != 1+followers {
			runtime.Gosched()
		}
		for i, g := range rand.Perm(followers) {
			if i == followers/2 {
				cancel()
				if err := <-leader; !errors.Is(err, context.Canceled) {
					t.Errorf("leader: %v", err)
				}
			}
			if err := w.e[1].Send(nil, 1, 0, int32(g), make([]byte, 8), Standard); err != nil {
				t.Error(err)
			}
			if got := <-woken; got != g {
				t.Fatalf("message %d woke goroutine %d", g, got)
			}
		}
		cancel()
	}
}

// What a rank has started completes although no goroutine of it calls the library again: all of its receives, and the
// sends that its peer needs.
func TestCompletesByItself(t *testing.T) {
	for _, fabric := range []func(int) []*loop.Device{loop.New, loop.NewNoGet} {
		for _, size := range []int{10, 8 << 10, 100_000, 3 << 20} {
			for _, late := range []bool{false, true} {
				w := newRanksOn(t, fabric(2), Config{})
				peer := func() {
					in := make([]byte, size)
					if _, err := w.e[1].Recv(nil, 1, 0, 1, in); err != nil || !bytes.Equal(in, contents(0, 1, size)) {
						t.Errorf("%d bytes: wrong contents, or %v", size, err)
					}
					if err := w.e[1].Send(nil, 1, 0, 2, contents(1, 2, size), Synchronous); err != nil {
						t.Error(err)
					}
				}
				done := make(chan struct{})
				if late {
					go func() {
						for w.e[1].Stats().Unexpected == 0 { // what rank 0 has sent is here
							w.e[1].Iprobe(1, 0, 9, false)
						}
						peer()
						close(done)
					}()
				} else {
					go func() { peer(); close(done) }()
				}
				in := make([]byte, size)
				s := w.e[0].Isend(nil, 1, 1, 1, contents(0, 1, size), Standard)
				r := w.e[0].Irecv(nil, 1, 1, 2, in)
				<-done
				idle(t, w.e[0])
				_, err1 := s.Wait()
				_, err2 := r.Wait()
				if err1 != nil || err2 != nil || !bytes.Equal(in, contents(1, 2, size)) {
					t.Errorf("%d bytes: %v, %v, or wrong contents", size, err1, err2)
				}
			}
		}
	}
}

// An answer that found the link full gets out although its rank has nothing under way any more and does not call.
func TestAnswerThroughFullLink(t *testing.T) {
	w := newRanks(t, 2, Config{})
	e0, e1 := w.e[0], w.e[1]
	big := contents(1, 5, 100_000)
	s := e1.Isend(nil, 1, 0, 5, big, Standard)
	if _, _, err := e0.Probe(nil, 1, 1, 5, false); err != nil { // it is announced
		t.Fatal(err)
	}
	if err := e0.Send(nil, 1, 1, 6, nil, Standard); err != nil { // there is a link
		t.Fatal(err)
	}
	for w.e[1].Stats().Unexpected == 0 {
		e1.Iprobe(1, 0, 6, false)
	}
	e1.lock()       // from here on rank 1 does not poll
	for range 128 { // what a link of loop takes: it is full, and no caller has noticed
		if err := e0.Send(nil, 1, 1, 6, nil, Standard); err != nil {
			t.Fatal(err)
		}
	}
	in := make([]byte, len(big))
	if _, err := e0.Recv(nil, 1, 1, 5, in); err != nil || !bytes.Equal(in, big) {
		t.Fatal(err)
	}
	e0.lock()
	if e0.load.outstanding != 0 || e0.load.stalled == 0 {
		t.Fatalf("%d operations under way and %d links stalled; the test wants an answer that waits for room, and nothing else", e0.load.outstanding, e0.load.stalled)
	}
	e0.unlock()
	e1.unlock()
	if _, err := s.Wait(); err != nil { // needs FIN of a rank that computes
		t.Fatal(err)
	}
}

// A rank whose messages find a link full sleeps until there is room, in whatever call: it does not look from time to
// time.
func TestFullLinkSleeps(t *testing.T) {
	for name, send := range map[string]func(e *Engine) error{
		"Send": func(e *Engine) error { return e.Send(nil, 1, 1, 2, nil, Standard) },
		"Isend, Wait": func(e *Engine) error {
			_, err := e.Isend(nil, 1, 1, 2, nil, Standard).Wait()
			return err
		},
		"computing": func(e *Engine) error {
			r := e.Isend(nil, 1, 1, 2, nil, Standard)
			<-r.Done()
			_, err := r.Wait()
			return err
		},
		"Flush": func(e *Engine) error {
			err := e.SendDetached(1, 1, 2, nil)
			if open := e.Flush(); open != 0 {
				return fmt.Errorf("%d operations are under way", open)
			}
			return err
		},
	} {
		for _, policy := range []waitpolicy.Policy{{}, waitpolicy.Spin, waitpolicy.Yield} {
			t.Run(fmt.Sprintf("%s, %v", name, policy), func(t *testing.T) {
				w := newRanks(t, 2, Config{Wait: policy})
				e0, e1 := w.e[0], w.e[1]
				if err := e0.Send(nil, 1, 1, 1, nil, Standard); err != nil { // there is a link
					t.Fatal(err)
				}
				if _, err := e1.Recv(nil, 1, 0, 1, nil); err != nil {
					t.Fatal(err)
				}
				e1.lock() // from here on rank 1 does not poll
				for range 128 {
					if err := e0.Send(nil, 1, 1, 2, nil, Standard); err != nil {
						t.Fatal(err)
					}
				}
				done := make(chan error, 1)
				go func() { done <- send(e0) }()
				calls := func() int64 {
					return w.d[0].polls.Load() + w.d[0].arms.Load() + w.d[0].sends.Load() + w.d[0].parks.Load()
				}
				for still, late := false, time.Now().Add(30*time.Second); !still; { // it has to notice, and may spin
					before := calls()
					time.Sleep(50 * time.Millisecond)
					if still = calls() == before; !still && time.Now().After(late) {
						t.Errorf("the link is full, and in the last 50 ms rank 0 called its device %d times", calls()-before)
						break
					}
				}
				e1.unlock()
				for range 129 {
					if _, err := e1.Recv(nil, 1, 0, 2, nil); err != nil {
						t.Fatal(err)
					}
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// A rank with nothing under way does nothing, whatever arrives; one that computes with a receive posted does nothing
// for packets that no caller waits for.
func TestIdleRankSleeps(t *testing.T) {
	w := newRanks(t, 2, Config{})
	if err := w.e[1].Send(nil, 1, 0, 1, nil, Standard); err != nil {
		t.Fatal(err)
	}
	if _, err := w.e[0].Recv(nil, 1, 1, 1, nil); err != nil {
		t.Fatal(err)
	}
	calls := func() int64 { return w.d[0].polls.Load() + w.d[0].arms.Load() + w.d[0].parks.Load() }
	quiet := func(what string, most int64) {
		t.Helper()
		var n int64
		for range 20 { // its watcher may still be on its way to bed
			before := calls()
			for range 50 {
				if err := w.e[1].Send(nil, 1, 0, 2, make([]byte, 8), Standard); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
			if n = calls() - before; n <= most {
				return
			}
		}
		t.Errorf("%s: %d calls of the device while 50 messages came that no caller waits for", what, n)
	}
	quiet("nothing under way", 2)
	r := w.e[0].Irecv(nil, 1, 1, 1, nil)
	quiet("a receive posted", 40)
	if err := w.e[1].Send(nil, 1, 0, 1, nil, Synchronous); err != nil { // it is woken for this one
		t.Fatal(err)
	}
	if _, err := r.Wait(); err != nil {
		t.Fatal(err)
	}
}

// A blocked receive sleeps in the kernel.
func TestBlockedReceiveSleeps(t *testing.T) {
	for _, policy := range []waitpolicy.Policy{{}, waitpolicy.Spin, waitpolicy.Yield} {
		w := newRanks(t, 2, Config{Wait: policy})
		done := make(chan error, 1)
		go func() {
			_, err := w.e[0].Recv(nil, 1, 1, 1, nil)
			done <- err
		}()
		for w.e[0].Stats().Posted == 0 {
			runtime.Gosched()
		}
		n := int64(0)
		for range 50 { // it spins first, and when that is the machine decides
			before := w.d[0].polls.Load()
			time.Sleep(100 * time.Millisecond)
			if n = w.d[0].polls.Load() - before; n <= 20 {
				break
			}
		}
		if n > 20 {
			t.Errorf("%v: %d polls in 0.1 s of waiting", policy, n)
		}
		if err := w.e[1].Send(nil, 1, 0, 1, nil, Standard); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Packets without end do not keep a context from ending a wait, nor other goroutines from the library.
func TestFloodAndContext(t *testing.T) {
	for _, policy := range []waitpolicy.Policy{{}, waitpolicy.Spin, waitpolicy.Yield} {
		w := newRanks(t, 2, Config{Wait: policy})
		w.d[0].flood.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if _, err := w.e[0].Recv(ctx, 1, 1, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Recv: %v", err)
		}
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
		if _, _, err := w.e[0].Probe(ctx, 1, 1, 1, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Probe: %v", err)
		}
		cancel()
		w.d[0].flood.Store(false)
	}
}

// A device that cannot be armed, such as one to which a peer makes signs without end, does not keep callers from the
// library while the watcher tries.
func TestDeviceThatCannotBeArmed(t *testing.T) {
	w := newRanks(t, 2, Config{})
	e := w.e[0]
	r := e.Irecv(nil, 1, 1, 1, nil)
	w.d[0].awake.Store(true)
	for range 20 {
		arms := w.d[0].arms.Load()
		e.sleep.Interrupt()
		for w.d[0].arms.Load() == arms {
			runtime.Gosched()
		}
		if e.Pending() != 1 {
			t.Error("the receive is over")
		}
		if e.lock(); e.wait.watching() {
			t.Error("a caller has the lock, and the watcher counts as the one that does what is done")
		}
		e.unlock()
	}
	w.d[0].awake.Store(false)
	if err := w.e[1].Send(nil, 1, 0, 1, nil, Standard); err != nil {
		t.Error(err)
	}
	if _, err := r.Wait(); err != nil {
		t.Error(err)
	}
}

// A rank returns while the device is armed for what is urgent alone. From then on it reads everything.
func TestReturnWhileArmed(t *testing.T) {
	w := newRanks(t, 2, Config{})
	e := w.e[0]
	r := e.Irecv(nil, 1, 1, 1, nil)
	e.Return()
	e.lock()
	if err := e.wait.check(&e.load); err != nil {
		t.Error(err)
	}
	e.unlock()
	if err := w.e[1].Send(nil, 1, 0, 1, nil, Standard); err != nil {
		t.Error(err)
	}
	if _, err := r.Wait(); err != nil {
		t.Error(err)
	}
}

// A rank that has returned reads what others send, also when its device could not be armed for a while: their last
// packets, such as credit, find no room otherwise.
func TestReturnedRankReads(t *testing.T) {
	w := newRanks(t, 2, Config{})
	w.d[0].awake.Store(true)
	w.e[0].Return()
	for w.d[0].arms.Load() < 100 {
		runtime.Gosched()
	}
	w.d[0].awake.Store(false)
	for tag := range int32(5) {
		if err := w.e[1].Send(nil, 1, 0, tag, nil, Standard); err != nil {
			t.Fatal(err)
		}
	}
	for w.e[0].Stats().Unexpected < 5 {
		runtime.Gosched()
	}
}

// After Close every call is refused, and none touches the device.
func TestAfterClose(t *testing.T) {
	w := newRanks(t, 2, Config{})
	e := w.e[0]
	r := e.Irecv(nil, 1, 1, 1, nil)
	set := Set{r}
	blocked := make(chan error, 3)
	go func() { _, err := e.Recv(nil, 1, 1, 2, nil); blocked <- err }()
	go func() { _, err := e.Recv(nil, 1, 1, 3, nil); blocked <- err }()
	go func() { _, _, err := e.Probe(nil, 1, 1, 4, false); blocked <- err }()
	for e.Pending() != 4 {
		runtime.Gosched()
	}
	over := errors.New("closed by the test")
	if err := e.Close(over); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-blocked; !errors.Is(err, over) {
			t.Errorf("a blocked call ends with %v", err)
		}
	}
	if _, _, _, err := e.Iprobe(1, 1, 1, false); !errors.Is(err, over) {
		t.Errorf("Iprobe: %v", err)
	}
	if _, _, err := e.Probe(nil, 1, 1, 1, false); !errors.Is(err, over) {
		t.Errorf("Probe: %v", err)
	}
	if err := e.Send(nil, 1, 1, 1, nil, Standard); !errors.Is(err, over) {
		t.Errorf("Send: %v", err)
	}
	if err := e.Send(nil, 1, 0, 1, nil, Standard); !errors.Is(err, over) {
		t.Errorf("Send to itself: %v", err)
	}
	if _, err := e.Recv(nil, 1, 1, 1, nil); !errors.Is(err, over) {
		t.Errorf("Recv: %v", err)
	}
	if _, _, err := e.TestSome(set, 1, true, func(_ int, _ Status, err error) {
		if !errors.Is(err, over) {
			t.Errorf("TestSome: %v", err)
		}
	}); err != nil {
		t.Error(err)
	}
	if n := e.Flush(); n != 0 {
		t.Errorf("%d operations are under way", n)
	}
}

// A caller that receives a message that has been announced before does its part of it: it does not compute.
func TestReceiverDoesNotCompute(t *testing.T) {
	n := newTestNet(netOptions{ranks: 2, eagerMax: 1 << 10, fragMax: 8 << 10, unexpectedMax: 1 << 20, put: true})
	defer n.close()
	n.linkAll()
	n.waits[0] = true
	n.prefer(1, rendezvous.Get)
	asked, done := make(chan struct{}), make(chan struct{})
	n.log = func(format string, args ...any) {
		if strings.Contains(fmt.Sprintf(format, args...), "put-req") {
			close(asked)
		}
	}
	n.engines[0].Isend(nil, scriptContext, 1, 0, make([]byte, 100<<10), Standard)
	n.devices[1].inbox = n.wires[[2]int{0, 1}]
	n.wires[[2]int{0, 1}] = nil
	go func() {
		defer close(done)
		if _, err := n.engines[1].Recv(nil, scriptContext, 0, 0, make([]byte, 100<<10)); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-asked:
		t.Error("the sender is asked to write all of it, though the receiver waits")
	}
}

// A watcher that comes though nothing is under way, and finds messages without end, does not take them all, but comes
// back: a caller may be about to receive them.
func TestWatcherLeavesAFlood(t *testing.T) {
	w := newRanks(t, 2, Config{})
	e, d := w.e[0], w.d[0]
	d.flood.Store(true)
	e.sleep.Interrupt()
	for came := range 3 {
		for first := d.polls.Load(); d.polls.Load() == first; runtime.Gosched() { // it has come, or comes back
		}
		for begun := d.polls.Load(); ; runtime.Gosched() {
			e.lock()
			asleep := e.wait.watcher == watcherAsleep
			e.unlock()
			if asleep {
				break
			}
			if n := d.polls.Load() - begun; n > 1000 {
				t.Fatalf("visit %d: the watcher has looked %d times, and looks on", came, n)
			}
		}
	}
	d.flood.Store(false)
}
