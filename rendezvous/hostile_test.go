package rendezvous

import (
	"math"
	"math/rand/v2"
	"testing"
)

// FuzzHostilePeer: whatever a peer sends, and whenever, what the machines tell their callers to do lies inside of the
// buffer and of the message, and comes to an end at most once.
func FuzzHostilePeer(f *testing.F) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		b := make([]byte, 50+seed*3)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := &hostile{t: t, data: data}
		h.receiver()
		h.sender()
	})
}

type hostile struct {
	t    *testing.T
	data []byte
}

func (h *hostile) upTo(n int) int {
	if len(h.data) == 0 {
		return 0
	}
	b := h.data[0]
	h.data = h.data[1:]
	return int(b) % n
}

// length is one of those that a peer may try for a message of size bytes.
func (h *hostile) length(size int64) int64 {
	return [...]int64{0, 1, -1, size, size + 1, size / 2, 4096, math.MaxInt64, math.MinInt64, size - 1, 100, 64}[h.upTo(12)]
}

func (h *hostile) receiver() {
	want := [...]int64{0, 1, 100, 10_000, 1 << 40}[h.upTo(5)]
	var r Receiver
	r.Init(want, 1+int64(h.upTo(200))*100)
	inside := func(a Action) {
		h.t.Helper()
		if a.Off < 0 || a.Len <= 0 || a.Off > want || a.Len > want-a.Off {
			h.t.Fatalf("%+v of a message of %d bytes: %+v", a, want, r)
		}
	}
	reading, asking, ends := int64(0), false, 0
	var act func(a Action)
	act = func(a Action) {
		switch a.Do {
		case SendCTS:
			inside(a)
		case Read:
			inside(a)
			reading = a.Len
		case AskPut:
			inside(a)
			asking = true
			act(r.Step(Input{On: Asked}))
		case Copy:
			inside(a)
			act(r.Step(Input{On: Copied, Len: a.Len}))
		case Finish:
			if ends++; ends > 1 {
				h.t.Fatalf("it ends twice: %+v", r)
			}
			if r.Have() > want {
				h.t.Fatalf("%d bytes of %d are in place", r.Have(), want)
			}
		case Fail:
			ends = 2 // the peer is failed: no more input
		case Nothing, Drop:
		default:
			h.t.Fatalf("a receiver says %+v", a)
		}
	}
	act(r.Step(Input{On: Matched, Scheme: Idle + 1 + Scheme(h.upTo(3)), Len: h.length(want)}))
	for len(h.data) > 100 && ends == 0 {
		switch h.upTo(6) {
		case 0:
			act(r.Step(Input{On: Fragment, Gen: int32(h.upTo(4)), Off: r.Have(), Len: h.length(want)}))
		case 1:
			act(r.Step(Input{On: Fragment, Gen: int32(h.upTo(4)), Off: h.length(want), Len: h.length(want)}))
		case 2:
			if asking { // the engine lets no other through
				asking = false
				in := Input{On: PutDone, Len: h.length(want)}
				if in.Len == 0 {
					in.On = PutFailed
				}
				act(r.Step(in))
			}
		case 3:
			act(r.Step(Input{On: Stalled}))
		case 4, 5:
			if n := reading; n > 0 {
				reading = 0
				if h.upTo(3) == 0 {
					act(r.Step(Input{On: GetFailed}))
				} else {
					act(r.Step(Input{On: Got, Len: n}))
				}
			}
		}
	}
}

func (h *hostile) sender() {
	size := [...]int64{0, 1, 100, 10_000, 1 << 40}[h.upTo(5)]
	var s Sender
	s.Init(size, 1+int64(h.upTo(200))*100)
	ends := 0
	for range 300 {
		in := Input{On: Clear, Gen: int32(h.upTo(3)), Off: h.length(size), Len: h.length(size)}
		switch h.upTo(8) {
		case 0, 1, 2:
			in.On = Room
		case 3:
			in.On = Finished
		}
		a := s.Step(in)
		switch a.Do {
		case Send:
			if a.Off < 0 || a.Len <= 0 || a.Off > size || a.Len > size-a.Off || ends > 0 {
				h.t.Fatalf("%+v of a message of %d bytes: %+v", a, size, s)
			}
			if h.upTo(2) == 0 {
				s.Step(Input{On: Sent, Len: a.Len})
			}
		case Complete:
			if ends++; ends > 1 {
				h.t.Fatal("it ends twice")
			}
		case Fail:
			return
		case Nothing, Drop:
		default:
			h.t.Fatalf("a sender says %+v", a)
		}
	}
}
