package rendezvous

import (
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// Parts that are asked for before the ones before them are here are one stream. One that is asked for later is another,
// and the fragments of the first are out of date then.
func TestParts(t *testing.T) {
	var r Receiver
	var s Sender
	s.Init(7, 100, Region{}, 10)
	rts := s.RTS(0, 1)
	r.Init(&rts, 100, 9)
	r.InParts()
	ask := func(n, left int64, continues bool) {
		t.Helper()
		a := r.Ask(n)
		if c := s.Continues(&a.Header); c != continues {
			t.Errorf("continues: %v", c)
		}
		if b := s.OnAsk(&a.Header); b.Do != Nothing || a.Off+n != 100-left || r.Left() != left {
			t.Fatalf("%+v, %+v, %d left", a, b, r.Left())
		}
	}
	moves := func(n int64) (last What) {
		t.Helper()
		for ; n > 0; n -= 10 {
			f := s.NextFragment(100)
			s.Sent(f.Len)
			if a := r.OnData(f.Header.Tag, f.Off, f.Len); a.Do != Copy || f.Len != 10 {
				t.Fatalf("%+v, %+v", f, a)
			}
			last = r.Copied(f.Len).Do
		}
		return last
	}
	ask(20, 80, false)
	ask(30, 50, true)
	if do := moves(40); do != Nothing {
		t.Errorf("action %v with a part to come", do)
	}
	ask(20, 30, true)
	if do := moves(30); do != Part {
		t.Errorf("action %v when all is here", do)
	}
	if a := r.OnData(1, 70, 10); a.Do != Nothing {
		t.Errorf("a fragment that was not asked for: %+v", a)
	}
	ask(30, 0, false)
	if a := r.OnData(1, 70, 10); a.Do != Nothing {
		t.Errorf("a fragment of the first stream: %+v", a)
	}
	if do := moves(30); do != Part {
		t.Errorf("action %v when all is here", do)
	}
	if a := r.Over(); a.Do != Finish || a.Header.Kind != wire.FIN {
		t.Errorf("%+v", a)
	}
	// A receiver that asks for what there is not, or for nothing, breaks the protocol.
	for _, h := range []wire.Header{{Tag: 2, Key: 9, Addr: 100, Len: 1}, {Tag: 2, Key: 9, Addr: 100},
		{Tag: 2, Key: 9, Addr: 100, Len: 1 << 63}, {Tag: 2, Key: 9, Addr: 90, Len: 11}} {
		if a := s.OnAsk(&h); a.Do != Fail {
			t.Errorf("%+v: %+v", h, a)
		}
	}
}
