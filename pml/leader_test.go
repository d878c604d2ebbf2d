package pml

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// parkedLeader is an engine of a world of one in which a caller sleeps in the device, for a message that does not come.
func parkedLeader(t *testing.T) (e *Engine, end func()) {
	t.Helper()
	watchdog(t)
	cpus := runtime.GOMAXPROCS(2) // with one only, a leader gives way to the goroutines that wait for it here
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	e = newRanks(t, 1, Config{}).e[0]
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		e.Recv(ctx, 1, 0, silence, nil)
		close(over)
	}()
	for e.leads() != leaderParked {
		runtime.Gosched()
	}
	return e, func() { cancel(); <-over }
}

func (e *Engine) leads() leaderState {
	e.lock()
	defer e.unlock()
	return e.wait.leader
}

// looked is how often a goroutine has looked at the device.
func (e *Engine) looked() uint32 {
	e.lock()
	defer e.unlock()
	return uint32(e.links.transfers.chooser.Looks)
}

// A leader that sleeps is not woken by what it does not wait for: messages of its rank to itself, also those whose send
// no caller collects.
func TestLeaderSleepsOn(t *testing.T) {
	e, end := parkedLeader(t)
	for i := range 300 {
		r := e.Irecv(nil, 1, 0, int32(i), make([]byte, 8))
		if err := e.Send(nil, 1, 0, int32(i), make([]byte, 8), Standard); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(); err != nil {
			t.Fatal(err)
		}
		both := e.Isendrecv(nil, 1, 0, int32(i), make([]byte, 8), 0, int32(i), make([]byte, 8))
		if _, err := both.Wait(); err != nil {
			t.Fatal(err)
		}
		if e.leads() != leaderParked {
			t.Fatalf("message %d has woken the leader, which waits for another one", i)
		}
	}
	end()
}

// It is woken by what it waits for, and by what only it can go on with.
func TestLeaderIsWoken(t *testing.T) {
	e, end := parkedLeader(t)
	r := e.Isend(nil, 1, 0, 5, make([]byte, 8), Synchronous)
	if err := r.Cancel(); err != nil { // by a packet to this rank
		t.Fatal(err)
	}
	if st, err := r.Wait(); err != nil || !st.Cancelled {
		t.Errorf("%+v, %v", st, err)
	}
	end()
	for _, set := range []bool{false, true} {
		done := make(chan error)
		rs := Set{e.Irecv(nil, 1, 0, 6, make([]byte, 8)), e.Irecv(nil, 1, 0, 7, make([]byte, 8))}
		go func() {
			if !set {
				_, err := rs[0].Wait()
				done <- err
				return
			}
			_, err := e.WaitSome(rs[:1], 1, nil, func(int, Status, error) {})
			done <- err
		}()
		for e.leads() != leaderParked {
			runtime.Gosched()
		}
		for _, tag := range []int32{7, 6} {
			if err := e.Send(nil, 1, 0, tag, make([]byte, 8), Standard); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := rs[1].Wait(); err != nil {
			t.Error(err)
		}
	}
}

// A packet that wakes a rank with nothing under way may wake its watcher just when a caller leads, which ends without
// another look: what it waits for is done while it lets others run. The packet is read all the same, also behind more
// messages than one look takes.
func TestWatcherMeetsALeader(t *testing.T) {
	watchdog(t)
	w := newRanks(t, 2, Config{})
	e := w.e[1]
	first := w.e[0].Isend(nil, 1, 1, 4, make([]byte, 8), Synchronous) // makes the link
	if _, err := e.Recv(nil, 1, 0, 4, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	e.lock()
	leads := e.wait.lead()
	e.sleep.Disarm()
	e.unlock() // it lets others run
	if !leads {
		t.Fatal("another caller leads")
	}
	for range 3 * len(e.pkts) {
		if err := w.e[0].Send(nil, 1, 1, 6, make([]byte, 8), Standard); err != nil {
			t.Fatal(err)
		}
	}
	r := w.e[0].Isend(nil, 1, 1, 5, make([]byte, 8), Synchronous)
	if err := r.Cancel(); err != nil {
		t.Fatal(err)
	}
	for missed := false; !missed; runtime.Gosched() {
		e.lock()
		missed = e.wait.missed
		e.unlock()
	}
	e.lock()
	e.stopLeading()
	e.exitCall()
	e.unlock()
	if st, err := r.Wait(); err != nil || !st.Cancelled {
		t.Errorf("%+v, %v", st, err)
	}
}

// A persistent request that is started while a caller waits for a set in which it is is not that caller's; MPI 4.1
// §3.7.5. It wakes the caller that waits for it, which gets its result.
func TestStartedInASet(t *testing.T) {
	watchdog(t)
	cpus := runtime.GOMAXPROCS(2) // as in parkedLeader
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	e := newRanks(t, 1, Config{}).e[0]
	late, r := e.PrepareRecv(nil, 1, 0, 6, make([]byte, 8)), e.Irecv(nil, 1, 0, 7, make([]byte, 8))
	done := e.PrepareSend(nil, 1, 0, 8, nil, Standard)
	parked := func() {
		for e.leads() != leaderParked {
			runtime.Gosched()
		}
	}
	some, one := make(chan []int), make(chan Status)
	go func() {
		var got []int
		e.WaitSome(Set{late, done, r}, -1, nil, func(i int, _ Status, err error) { got = append(got, i) })
		some <- got
	}()
	parked()
	if err := errors.Join(late.Start(), done.StartDone(Status{})); err != nil {
		t.Fatal(err)
	}
	go func() {
		st, _ := late.Wait()
		one <- st
	}()
	for following := false; !following; runtime.Gosched() {
		e.lock()
		following = e.wait.followers == 1
		e.unlock()
	}
	s := e.Isend(nil, 1, 0, 5, make([]byte, 8), Synchronous)
	if err := s.Cancel(); err != nil { // by a packet to this rank: the leader wakes, and sleeps again
		t.Fatal(err)
	}
	if _, err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	parked()
	for _, tag := range []int32{6, 7} {
		if err := e.Send(nil, 1, 0, tag, make([]byte, 8), Standard); err != nil {
			t.Fatal(err)
		}
		if tag == 6 {
			if st := <-one; st.Tag != 6 {
				t.Errorf("the caller that waits for the request that was started has got %+v", st)
			}
			parked()
		}
	}
	if got := <-some; !slices.Equal(got, []int{2}) {
		t.Errorf("of the set %v are complete, of which only 2 was started when the caller came", got)
	}
	if _, err := done.Wait(); err != nil {
		t.Error(err)
	}
}

// newStrangers are two ranks, of which rank 0 finds the address of the other one when known is closed.
func newStrangers(t *testing.T) (w *ranks, known chan struct{}) {
	t.Helper()
	w, known = newRanks(t, 2, Config{}), make(chan struct{})
	cfg := &w.e[0].cfg
	lookup := cfg.Lookup
	cfg.Lookup = func(ctx context.Context, peer int) ([]byte, error) {
		<-known
		return lookup(ctx, peer)
	}
	return w, known
}

// Flush, which sleeps as a leader, is woken by the end of a send that no caller waits for, though no packet comes: the
// link that the message waited for has been made.
func TestFlushIsWoken(t *testing.T) {
	w, known := newStrangers(t)
	e := w.e[0]
	if err := e.SendDetached(1, 1, 5, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	done := make(chan int)
	go func() { done <- e.Flush() }()
	for e.leads() != leaderParked {
		runtime.Gosched()
	}
	close(known)
	if open := <-done; open != 0 || e.Pending() != 0 {
		t.Errorf("%d operations are under way, of callers %d", e.Pending(), open)
	}
	if _, err := w.e[1].Recv(nil, 1, 0, 5, make([]byte, 8)); err != nil {
		t.Error(err)
	}
}

// A call that looks whether something has come looks at the device, also while the thread of a leader sleeps there; and
// what has come is there for it though the leader is not woken yet.
func TestLooksWhileALeaderSleeps(t *testing.T) {
	watchdog(t)
	cpus := runtime.GOMAXPROCS(2) // as in parkedLeader
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	none := func(int, Status, error) {}
	for _, c := range []struct {
		name string
		call func(e *Engine, r *Request)
	}{
		{"Test", func(_ *Engine, r *Request) { r.Test() }},
		{"TestSome", func(e *Engine, r *Request) { e.TestSome(Set{r}, -1, false, none) }},
		{"TestAny", func(e *Engine, r *Request) { e.TestSome(Set{r}, 1, false, none) }},
		{"TestAll", func(e *Engine, r *Request) { e.TestSome(Set{r}, -1, true, none) }},
		{"Iprobe", func(e *Engine, _ *Request) { e.Iprobe(1, 1, 5, false) }},
		{"Improbe", func(e *Engine, _ *Request) { e.Iprobe(1, 1, 5, true) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newRanks(t, 2, Config{})
			e := w.e[0]
			over := make(chan struct{})
			go func() {
				e.Recv(nil, 1, 1, silence, nil)
				close(over)
			}()
			r := e.Irecv(nil, 1, 1, 5, make([]byte, 8))
			const looks = 100
			for done := 0; done < looks; {
				if e.leads() != leaderParked {
					runtime.Gosched()
					continue
				}
				before := e.looked()
				c.call(e, r)
				if e.leads() != leaderParked {
					continue // woken meanwhile, by no message: it is the leader that looks then
				}
				if e.looked() == before {
					t.Fatalf("call %d has not looked at the device", done)
				}
				done++
			}
			for _, tag := range []int32{5, silence} {
				if err := w.e[1].Send(nil, 1, 0, tag, nil, Standard); err != nil {
					t.Fatal(err)
				}
			}
			<-over
			if _, err := r.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A leader that cannot sleep, since a request of a window is to be handled again, lets other goroutines call the
// library: one of them may be what the request waits for.
func TestSleeplessLeaderGivesTheLock(t *testing.T) {
	e, end := parkedLeader(t)
	h := &later{}
	e.OpenWindow(1, 9, make([]byte, 8), h)
	sendSelf(t, e, 9)
	for h.tries.Load() < 1000 {
		runtime.Gosched()
	}
	e.lock() // has to be had while the leader looks on
	h.now = true
	e.unlock()
	end()
}

// connectsWhile has rank 0 of two make its first link to the other one while what busy has begun goes on.
func connectsWhile(t *testing.T, busy func(e *Engine)) *Engine {
	t.Helper()
	w, known := newStrangers(t)
	e := w.e[0]
	busy(e)
	if err := e.SendDetached(1, 1, 5, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	close(known)
	if _, err := w.e[1].Recv(nil, 1, 0, 5, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	return e
}

// Requests of two windows may have to be handled again at one time. With these nothing goes on: a goroutine that holds
// the lock as long as something does, as behind a link that it has made, gives it back.
func TestTwoRequestsAgain(t *testing.T) {
	var windows [2]later
	e := connectsWhile(t, func(e *Engine) {
		for i := range windows {
			e.OpenWindow(1, int32(8+i), make([]byte, 8), &windows[i])
			sendSelf(t, e, int32(8+i))
		}
		for windows[0].tries.Load() < 10 || windows[1].tries.Load() < 10 {
			runtime.Gosched()
		}
	})
	e.lock()
	windows[0].now, windows[1].now = true, true
	e.unlock()
	e.Flush()
}

// That goroutine gives the lock back too where requests come without end, if another one wants it.
func TestRequestsWithoutEnd(t *testing.T) {
	h := &endless{}
	e := connectsWhile(t, func(e *Engine) {
		h.w = e.OpenWindow(1, 9, make([]byte, 8), h)
		sendSelf(t, e, 9)
		for h.handled.Load() < 10 {
			runtime.Gosched()
		}
	})
	e.lock()
	h.over = true
	e.unlock()
	e.Flush()
}

// endless is the Handler of a window in which each request has another one follow, until over is set, under the
// engine's lock.
type endless struct {
	lender
	w       *Window
	over    bool
	handled atomic.Int64
}

func (h *endless) Handle(int32, []byte) (again bool) {
	h.handled.Add(1)
	if !h.over {
		h.w.SendNow(0, 9, make([]byte, 8))
	}
	return false
}

// A watcher that cannot sleep either lets goroutines that do not call the library have the only processor: one of them
// may be in the memory that the request is about.
func TestSleeplessWatcherGivesTheProcessor(t *testing.T) {
	cpus := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	e := newRanks(t, 1, Config{}).e[0]
	h := &later{}
	e.OpenWindow(1, 9, make([]byte, 8), h)
	sendSelf(t, e, 9)
	for h.tries.Load() < 10 {
		runtime.Gosched()
	}
	const turns, most = 20, 1000 // in the time that Go leaves a goroutine the processor there are 10 000 tries and more
	before := h.tries.Load()
	for range turns {
		runtime.Gosched()
	}
	if n := h.tries.Load() - before; n > turns*most {
		t.Errorf("the watcher has tried %d times while another goroutine had %d turns", n, turns)
	}
	e.lock()
	h.now = true
	e.unlock()
	e.Flush()
}

// later is the Handler of a window whose requests cannot be handled until now is set, under the engine's lock.
type later struct {
	lender
	now   bool
	tries atomic.Int64
}

func (l *later) Handle(int32, []byte) (again bool) {
	l.tries.Add(1)
	return !l.now
}

// Each caller that sleeps says for how long it has, the one that sleeps in the device and the one that follows it.
func TestSleepersSayForHowLong(t *testing.T) {
	e, end := parkedLeader(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		e.Recv(ctx, 1, 0, silence+1, nil)
		close(over)
	}()
	e.following()
	for known := 0; known < 2; runtime.Gosched() {
		known = 0
		e.Snapshot(func(s *Snapshot) {
			for _, by := range s.Sleepers {
				if by.For > 0 && by.For < time.Hour {
					known++
				}
			}
		})
	}
	cancel()
	<-over
	end()
}

// A server that waits neither leads nor follows: a caller that waits meanwhile leads, by the policy of its rank, and
// the server has what the caller finds for it.
func TestServerDoesNotLead(t *testing.T) {
	watchdog(t)
	cpus := runtime.GOMAXPROCS(2) // as in parkedLeader
	defer runtime.GOMAXPROCS(cpus)
	e := newRanks(t, 1, Config{}).e[0]
	e.StartServer(1, askTag, answerTag, func() {
		for e.Serve(1, askTag, 0) == nil {
			m, st, is, _ := e.Iprobe(1, AnySource, askTag, true)
			if !is {
				continue
			}
			if r, err := e.Imrecv(nil, m, make([]byte, st.Bytes)); err == nil {
				r.Wait()
			}
			e.SendDetached(1, 0, answerTag, nil)
		}
	})
	e.CallServer()
	waits := func() (serves bool, w waitState) {
		e.lock()
		defer e.unlock()
		return len(e.probers) > 0 && e.probers[0].w != nil, e.wait
	}
	for {
		serves, w := waits()
		if w.leader != noLeader || w.followers != 0 {
			t.Fatalf("the server leads or follows: %+v", w)
		}
		if serves {
			break
		}
		runtime.Gosched()
	}
	over := make(chan error)
	for range 20 {
		go func() {
			over <- e.AwaitServer(nil, 1, answerTag)
		}()
		for e.leads() == noLeader {
			runtime.Gosched()
		}
		e.SendToServer(1, 0, askTag, []byte{1})
		if err := <-over; err != nil {
			t.Fatal(err)
		}
	}
	if open := e.Flush(); open != 0 {
		t.Errorf("%d operations are under way", open)
	}
}
