package pml

import (
	"errors"
	"runtime"
	"testing"
)

// roundsOfOne is a script: each round receives a message of this rank's, and then has local work.
type roundsOfOne struct {
	e      *Engine
	rounds int // that have not begun
	work   func()
	err    error // how it ends
}

func (s *roundsOfOne) Begin() {}

func (s *roundsOfOne) Next(r *Rounds) RoundKind {
	if s.rounds == 0 {
		return RoundOver
	}
	s.rounds--
	r.Recv(s.e, 0, 0, make([]byte, 8))
	return RoundWork
}

func (s *roundsOfOne) Got(int, Status, error) {}
func (s *roundsOfOne) Work()                  { s.work() }
func (s *roundsOfOne) End(bool) error         { return s.err }

const tagRounds = 11

// start starts the operation.
func (s *roundsOfOne) start(e *Engine, rounds int) *Request {
	s.e, s.rounds = e, rounds
	var o Rounds
	o.Set(s, 1, tagRounds, false)
	return o.Start(nil, e)
}

func sendSelf(t *testing.T, e *Engine, tag int32) {
	t.Helper()
	if err := e.Send(nil, 1, 0, tag, make([]byte, 8), Standard); err != nil {
		t.Fatal(err)
	}
}

// following waits until a caller sleeps while another one leads.
func (e *Engine) following() {
	for {
		e.lock()
		n := e.wait.followers
		e.unlock()
		if n == 1 {
			return
		}
		runtime.Gosched()
	}
}

// A caller that waits for a message and an operation, in this order, sleeps for the message. The local work of the
// operation is done meanwhile, of every round, whether the caller leads or another one does.
func TestWaitAllLeavesNoWork(t *testing.T) {
	for _, follows := range []bool{true, false} {
		e, end := parkedLeader(t)
		if !follows {
			end()
		}
		worked := make(chan bool)
		o := &roundsOfOne{work: func() { worked <- true }}
		message := e.Irecv(nil, 1, 0, 12, make([]byte, 8))
		rs, over := Set{message, o.start(e, 2)}, make(chan int)
		go func() {
			n := 0
			e.WaitAll(rs, true, func(int, Status, error) { n++ })
			over <- n
		}()
		if follows {
			e.following()
		} else {
			for e.leads() != leaderParked {
				runtime.Gosched()
			}
		}
		for range 2 {
			sendSelf(t, e, tagRounds)
			<-worked
		}
		sendSelf(t, e, 12)
		if n := <-over; n != 2 {
			t.Errorf("%d of 2 are complete", n)
		}
		if follows {
			end()
		}
	}
}

// Local work that ends its goroutine ends no more than that: the operation goes on, what its caller waited for another
// one may wait for, and the engine is free.
func TestWorkEndsItsGoroutine(t *testing.T) {
	for name, by := range map[string]func(e *Engine, rs Set){
		"Wait": func(e *Engine, rs Set) { rs[1].Wait() },
		"WaitAll": func(e *Engine, rs Set) {
			e.WaitAll(Set{rs[1], rs[0]}, true, func(int, Status, error) { t.Error("the goroutine has not ended") })
		},
		"no caller": func(*Engine, Set) {},
	} {
		t.Run(name, func(t *testing.T) {
			e, end := parkedLeader(t)
			why, worked := errors.New("left"), make(chan bool)
			o := &roundsOfOne{err: why, work: func() {
				defer close(worked)
				runtime.Goexit()
			}}
			rs := Set{e.Irecv(nil, 1, 0, 12, make([]byte, 8)), o.start(e, 1)}
			over := make(chan bool)
			go func() {
				defer close(over)
				by(e, rs)
			}()
			if name == "no caller" {
				<-over
			} else {
				e.following()
			}
			sendSelf(t, e, tagRounds)
			<-worked
			<-over
			if _, err := rs[1].Wait(); !errors.Is(err, why) {
				t.Errorf("the operation has ended with %v", err)
			}
			sendSelf(t, e, 12)
			if _, err := rs[0].Wait(); err != nil {
				t.Error(err)
			}
			end()
			if n := e.Flush(); n != 0 {
				t.Errorf("%d operations are under way", n)
			}
		})
	}
}
