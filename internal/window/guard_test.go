package window

import (
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/coll"
)

// Callers that share the memory do not wait for each other; one that wants it alone waits for all, and all wait for it.
// A request, which must not wait, is put off.
func TestGuard(t *testing.T) {
	w := &Window{group: &coll.Group{}}
	p := &part{w: w}
	w.near = map[int]*part{0: p}
	w.findGuards()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	waits := func(alone bool) (done chan bool) {
		t.Helper()
		done = make(chan bool)
		go func() {
			p.Begin(alone)
			close(done)
		}()
		select {
		case <-done:
			t.Errorf("Begin(%v) has not waited", alone)
		case <-time.After(20 * time.Millisecond):
		}
		return done
	}
	request := impatient{p}
	must(p.Begin(false))
	must(p.Begin(false))
	must(request.Begin(false))
	request.End(false)
	p.End(false)
	alone := waits(true) // for the one that is left; requests to share wait for that in turn
	if err := request.Begin(false); err != errBusy {
		t.Errorf("the error is %v", err)
	}
	p.End(false)
	<-alone
	other, shared := waits(true), waits(false)
	if err := request.Begin(true); err != errBusy {
		t.Errorf("the error is %v", err)
	}
	p.End(true)
	for range 2 { // in any order
		select {
		case <-other:
			p.End(true)
			other = nil
		case <-shared:
			p.End(false)
			shared = nil
		}
	}
	must(p.Begin(false))
	if err := request.Begin(true); err != errBusy {
		t.Errorf("the error is %v", err)
	}
	p.End(false)
	must(request.Begin(true))
	request.End(true)
	if p.alone.Load() != 0 || p.users.Load() != 0 {
		t.Errorf("alone is %d, users %d", p.alone.Load(), p.users.Load())
	}
}

// A rank that is kept out lets no goroutine in until the request is over which waits for it, or a rank has failed,
// which may have kept it out.
func TestKeptOut(t *testing.T) {
	w := &Window{group: &coll.Group{}}
	p := &part{w: w}
	w.near, w.parts = map[int]*part{0: p}, []*part{p}
	w.findGuards()
	request := impatient{p}
	if !w.Enter(0) {
		t.Fatal("nothing keeps a goroutine out")
	}
	for range 2 { // it is handled again
		if err := request.Begin(true); err != errBusy {
			t.Fatalf("the error is %v", err)
		}
		if w.Enter(0) || request.Begin(false) != errBusy {
			t.Fatal("a goroutine is let in")
		}
	}
	w.Leave()
	if err := request.Begin(true); err != nil {
		t.Fatal(err)
	}
	request.End(true)
	if !w.Enter(0) {
		t.Error("a goroutine is not let in when the request has had the memory")
	}
	w.keepOut(p)
	w.keepOut(nil)
	if !w.Enter(0) {
		t.Error("a goroutine is not let in when the request is over")
	}
	w.keepOut(p)
	if w.Enter(0) {
		t.Error("a goroutine is let in")
	}
	if w.died.Store(true); !w.Enter(0) {
		t.Error("a rank that may have failed keeps a goroutine out")
	}
}
