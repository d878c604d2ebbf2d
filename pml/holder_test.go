package pml

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

// pairs are two engines over each of the two paths.
func pairs(t *testing.T, test func(t *testing.T, e0, e1 *Engine)) {
	t.Run("links", func(t *testing.T) {
		w := newRanks(t, 2, Config{})
		test(t, w.e[0], w.e[1])
	})
	t.Run("tagged", func(t *testing.T) {
		e := newTagged(t, 2, 0, Config{})
		test(t, e[0], e[1])
	})
}

// A receive or probe from any source that begins when a rank has failed ends like one that was under way then. What has
// come before is still received.
func TestAnySourceAfterFailure(t *testing.T) {
	pairs(t, func(t *testing.T, e0, e1 *Engine) {
		for range 2 {
			if err := e1.Send(nil, 1, 0, 1, []byte("here"), Standard); err != nil {
				t.Fatal(err)
			}
		}
		for found := false; !found; {
			_, _, found, _ = e0.Iprobe(1, 1, 1, false)
		}
		e1.Close(errors.New("gone"))
		cc, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		buf := make([]byte, 4)
		failed := func(what string, err error) {
			t.Helper()
			var peer *PeerError
			if !errors.As(err, &peer) || peer.Rank != 1 {
				t.Errorf("%s: %v, want that rank 1 has failed", what, err)
			}
		}
		_, err := e0.Recv(cc, 1, AnySource, 99, buf)
		failed("a receive, begun perhaps before the failure is known", err)
		if _, st, err := e0.Probe(cc, 1, AnySource, 1, false); err != nil || st.Bytes != 4 {
			t.Errorf("a probe for what has come: %+v, %v", st, err)
		}
		for range 2 {
			if st, err := e0.Recv(cc, 1, AnySource, 1, buf); err != nil || st.Source != 1 || string(buf) != "here" {
				t.Errorf("a receive of what has come: %+v, %v", st, err)
			}
		}
		_, err = e0.Recv(cc, 1, AnySource, AnyTag, buf)
		failed("a receive", err)
		_, err = e0.Irecv(cc, 1, AnySource, 1, buf).Wait()
		failed("a receive that does not block", err)
		_, _, err = e0.Probe(cc, 1, AnySource, AnyTag, true)
		failed("a probe", err)
		_, _, _, err = e0.Iprobe(1, AnySource, 1, false)
		failed("a probe that does not block", err)
		r := e0.PrepareRecv(cc, 1, AnySource, 1, buf)
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		_, err = r.Wait()
		failed("a persistent receive", err)
	})
}

// Cancel of an Isendrecv is an error, also when it is done, and changes nothing: its messages go in their order, and the
// request completes.
func TestCancelIsendrecv(t *testing.T) {
	pairs(t, func(t *testing.T, e0, e1 *Engine) {
		for _, n := range []int{8, 1 << 20} {
			out, in, got := make([]byte, n), make([]byte, 8), make([]byte, n)
			out[0] = 1
			r := e0.Isendrecv(nil, 1, 1, 5, out, 1, 6, in)
			later := e0.Isend(nil, 1, 1, 5, make([]byte, n), Standard)
			refused := func(when string) {
				if err := r.Cancel(); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "an Isend and an Irecv") {
					t.Errorf("Cancel %s: %v", when, err)
				}
			}
			refused("before anything is matched")
			sent := make(chan error, 1)
			go func() {
				if err := e1.Send(nil, 1, 0, 6, []byte("received"), Standard); err != nil {
					sent <- err
					return
				}
				for _, first := range []byte{1, 0} {
					st, err := recvWithin(e1, 0, 5, got)
					if err != nil || st.Bytes != int64(n) || got[0] != first {
						sent <- fmt.Errorf("%+v, %d where %d was sent, %w", st, got[0], first, err)
						return
					}
				}
				sent <- nil
			}()
			<-r.Done()
			refused("when it is done")
			if st, err := r.Wait(); err != nil || st.Cancelled || st.Bytes != 8 {
				t.Errorf("of %d bytes: %+v, %v", n, st, err)
			}
			if _, err := later.Wait(); err != nil {
				t.Error(err)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
		}
	})
}

// Of many messages that a sender may take back each is found at once, also among those that were received or taken off
// the queue.
func TestCancelOfMany(t *testing.T) {
	watchdog(t)
	n := newTestNet(netOptions{ranks: 2, eagerMax: 256, fragMax: 512, unexpectedMax: 1 << 40})
	defer n.close()
	n.linkAll()
	count := inShort(200_000, 3000)
	var rs []*Request
	for i := range count {
		rs = append(rs, n.engines[0].Isend(nil, 4, 1, int32(i), make([]byte, 8), Synchronous))
	}
	n.deliver(1, math.MaxInt)
	e := n.engines[1]
	for i := 0; i < count; i += 10 {
		e.Irecv(nil, 4, 0, int32(i), make([]byte, 8))
		if _, _, found, err := e.Iprobe(4, 0, int32(i+1), true); !found || err != nil {
			t.Fatal(found, err)
		}
	}
	for _, r := range rs {
		if err := r.Cancel(); err != nil {
			t.Fatal(err)
		}
	}
	n.deliver(1, math.MaxInt)
	n.deliver(0, math.MaxInt)
	for i, r := range rs {
		switch done, st, err := r.Test(); {
		case err != nil, done == (i%10 == 1), done && st.Cancelled != (i%10 > 1):
			t.Fatalf("message %d: done %v, %+v, %v", i, done, st, err)
		}
	}
	if p := e.links.peer(0); len(p.byID) != count/10 {
		t.Errorf("%d messages are known by their numbers, want %d", len(p.byID), count/10)
	}
	n.check(t)
}

func recvWithin(e *Engine, source int, tag int32, buf []byte) (Status, error) {
	cc, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	return e.Recv(cc, 1, source, tag, buf)
}

// A request that a goroutine waits for is that goroutine's until it has the result, also between the end of the
// operation and the waiter's waking.
func TestRequestOfAnotherWaiter(t *testing.T) {
	w := newRanks(t, 2, Config{})
	e := w.e[0]
	none := func(int, Status, error) {}
	waits := map[string]func(r *Request) error{
		"Wait":     func(r *Request) error { _, err := r.Wait(); return err },
		"WaitAll":  func(r *Request) error { _, err := e.WaitAll(Set{r}, true, none); return err },
		"WaitSome": func(r *Request) error { _, err := e.WaitSome(Set{r}, 1, nil, none); return err },
	}
	uses := map[string]func(r *Request) error{
		"Free":      (*Request).Free,
		"Start":     (*Request).Start,
		"StartDone": func(r *Request) error { return r.StartDone(Status{}) },
		"Cancel":    (*Request).Cancel,
		"Done":      func(r *Request) error { <-r.Done(); return nil },
		"Wait":      func(r *Request) error { _, err := r.Wait(); return err },
		"Test":      func(r *Request) error { _, _, err := r.Test(); return err },
		"TestSome":  func(r *Request) error { _, _, err := e.TestSome(Set{r}, 1, false, none); return err },
	}
	e.lock()
	e.pace.oneProcessor = false // or the leader would follow, and the next caller lead
	e.unlock()
	lead := e.Irecv(nil, 1, 1, 99, nil)
	led := make(chan bool)
	go func() { lead.Wait(); close(led) }()
	until := func(ok func() bool) {
		for done := false; !done; runtime.Gosched() {
			e.lock()
			done = ok()
			e.unlock()
		}
	}
	until(func() bool { return e.wait.leader == leaderParked })
	for name, wait := range waits {
		for what, use := range uses {
			first := 0 // rounds in which the other came before the waiter
			for range 20 {
				r := e.PrepareRecv(nil, 1, 1, 1, nil)
				if err := r.Start(); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- wait(r) }()
				until(func() bool { return r.w != nil })
				e.lock()
				e.links.table.Cancel(&r.recv)
				e.complete(r, nil)
				e.unlock()
				switch err := use(r); {
				case errors.Is(err, ErrRequest):
					first++
				case err != nil:
					t.Fatalf("%s under %s: %v", what, name, err)
				}
				select {
				case err := <-done:
					if err != nil {
						t.Fatalf("%s, and %s meanwhile: %v", name, what, err)
					}
				case <-time.After(hangs):
					t.Fatalf("%s hangs: the request was given to %s", name, what)
				}
			}
			t.Logf("%s under %s: refused in %d of 20 rounds", what, name, first)
		}
	}
	w.e[1].Send(nil, 1, 0, 99, nil, Standard)
	<-led
}

// Free of a persistent request that is started is one error, whether its operation is over or not, until its result has
// been collected.
func TestFreeOfStarted(t *testing.T) {
	pairs(t, func(t *testing.T, e0, e1 *Engine) {
		recv := e0.PrepareRecv(nil, 1, 1, 7, make([]byte, 8))
		for _, r := range []*Request{e0.PrepareSend(nil, 1, 1, 7, make([]byte, 8), Standard), recv} {
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
			first := r.Free()
			if r == recv {
				if err := e1.Send(nil, 1, 0, 7, make([]byte, 8), Standard); err != nil {
					t.Fatal(err)
				}
			} else if _, err := recvWithin(e1, 0, 7, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			for done := false; !done; runtime.Gosched() {
				e0.Iprobe(1, 1, 99, false) // polls
				e0.lock()
				done = r.state == stDone
				e0.unlock()
			}
			if second := r.Free(); !errors.Is(first, ErrRequest) || second == nil || second.Error() != first.Error() {
				t.Errorf("Free of a started request: %v, then %v", first, second)
			}
			if _, err := r.Wait(); err != nil {
				t.Error(err)
			}
			if err := r.Free(); err != nil {
				t.Errorf("Free of one whose result has been collected: %v", err)
			}
		}
	})
}
