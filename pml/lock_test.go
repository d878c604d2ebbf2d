package pml

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// oneProcessor runs the rest of the test on one, where no goroutine runs but by the grace of the one that does.
func oneProcessor(t *testing.T) {
	t.Helper()
	watchdog(t)
	cpus := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
}

// A goroutine that takes the lock in a loop hands it over to one that wants it after a bounded number of calls.
func TestLockIsHandedOver(t *testing.T) {
	oneProcessor(t)
	for range 10 {
		var l engineLock
		var after atomic.Int64
		calls := 0
		after.Store(-1)
		l.lock()
		go func() {
			l.lock()
			after.Store(int64(calls))
			l.unlock()
		}()
		for !l.asked() {
			runtime.Gosched()
		}
		for l.unlock(); after.Load() < 0; calls++ {
			l.lock()
			l.unlock()
		}
		if got := after.Load(); got >= callsPerTurn {
			t.Errorf("%d calls have gone by before the other goroutine had the lock, at most %d may", got, callsPerTurn-1)
		}
	}
}

// Goroutines of a rank exchange messages while another one of it calls the library in a loop, on the only processor:
// few of its calls go by for each message, and not as many as fill the time slices of the scheduler. A goroutine that
// waits for the lock sleeps between its looks, and longer on a busy machine, so one try of a few has to show it.
func TestCallsInALoopLetOthersRun(t *testing.T) {
	const turns, most, tries = 200, 64, 5
	for _, c := range []struct {
		name string
		call func(e *Engine, r *Request)
	}{
		{"Test", func(_ *Engine, r *Request) { r.Test() }},
		{"TestSome", func(e *Engine, r *Request) { e.TestSome(Set{r}, -1, false, func(int, Status, error) {}) }},
		{"TestAll", func(e *Engine, r *Request) { e.TestSome(Set{r}, -1, true, func(int, Status, error) {}) }},
		{"Iprobe", func(e *Engine, _ *Request) { e.Iprobe(1, 0, silence, false) }},
		{"Improbe", func(e *Engine, _ *Request) { e.Iprobe(1, 0, silence, true) }},
		{"Send, Recv", func(e *Engine, _ *Request) {
			e.Send(nil, 1, 0, 7, make([]byte, 8), Standard)
			e.Recv(nil, 1, 0, 7, make([]byte, 8))
		}},
		{"Isend, Irecv, Wait", func(e *Engine, _ *Request) {
			s, r := e.Isend(nil, 1, 0, 7, make([]byte, 8), Synchronous), e.Irecv(nil, 1, 0, 7, make([]byte, 8))
			r.Wait()
			s.Wait()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			oneProcessor(t)
			calls := 0
			for range tries {
				if calls = callsWhileOthersRun(t, turns, c.call); calls <= most*turns {
					return
				}
			}
			t.Errorf("%d calls went by while %d messages went there and back, at most %d may for each", calls, turns, most)
		})
	}
}

// callsWhileOthersRun is how often a goroutine makes a call while two others of its rank play ping-pong.
func callsWhileOthersRun(t *testing.T, turns int, call func(e *Engine, r *Request)) (calls int) {
	e := newRanks(t, 1, Config{}).e[0]
	r := e.Irecv(nil, 1, 0, silence, nil)
	ended, begun := make(chan bool), make(chan bool)
	for tag := range int32(2) {
		go func() {
			for turn := range turns {
				if turn == 1 && tag == 0 {
					begun <- true
				}
				if tag == 0 {
					e.Send(nil, 1, 0, 1, make([]byte, 8), Standard)
				}
				e.Recv(nil, 1, 0, tag, make([]byte, 8))
				if tag == 1 {
					e.Send(nil, 1, 0, 0, make([]byte, 8), Standard)
				}
			}
			ended <- true
		}()
	}
	<-begun
	for left := 2; left > 0; calls++ {
		call(e, r)
		select {
		case <-ended:
			left--
		default:
		}
	}
	t.Logf("%d calls while %d messages went there and back", calls, turns)
	e.Send(nil, 1, 0, silence, nil, Standard)
	r.Wait()
	return calls
}
