package rendezvous

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// FuzzHostilePeer checks that whatever a peer sends, and whenever, what the machines tell their callers to do lies
// inside of the buffer and of the message, and comes to an end at most once.
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
	r.Init(announced(want, h.upTo(4) > 0), want, receiverID)
	inside := func(off, n int64) {
		h.t.Helper()
		if off < 0 || n <= 0 || off > want || n > want-off {
			h.t.Fatalf("%d bytes at %d of a message of %d bytes: %+v", n, off, want, r)
		}
	}
	reading, ends := false, 0
	act := func(a Action) {
		switch a.Do {
		case Expect:
			inside(a.Off, a.Len)
			if a.Header.Addr != uint64(a.Off) || a.Header.Len != uint64(a.Len) {
				h.t.Fatalf("bytes %d to %d are expected, %d at %d are asked for", a.Off, a.Off+a.Len, a.Header.Len, a.Header.Addr)
			}
		case Finish:
			if ends++; ends > 1 {
				h.t.Fatalf("it ends twice: %+v", r)
			}
			if r.Have() > want {
				h.t.Fatalf("%d bytes of %d are in place", r.Have(), want)
			}
		case Fail:
			ends = 2 // the peer is failed: no more input
		case Nothing, Send:
		default:
			h.t.Fatalf("a receiver says %+v", a)
		}
		if r.Reading() {
			off, n, ok := r.NextRead()
			if inside(off, n); ok {
				r.ReadStarted()
				reading = true
			}
		}
	}
	s, back := Schemes[h.upTo(len(Schemes))], Region{}
	if s == Split && want > 0 {
		back = Region{Len: 1 + int64(h.upTo(256))*(want-1)/255, OK: true}
	} else if s == Split {
		s = Get
	}
	act(r.Begin(s, 1+int64(h.upTo(200))*100, back))
	for len(h.data) > 100 && ends == 0 {
		switch h.upTo(6) {
		case 0, 1:
			off := r.Have()
			if h.upTo(2) == 0 {
				off = h.length(want)
			}
			a := r.OnData(int32(h.upTo(4)), off, h.length(want))
			if a.Do == Copy {
				inside(a.Off, a.Len)
				a = r.Copied(a.Len)
			}
			act(a)
		case 2:
			if r.Back().Len > 0 { // the engine lets no other through
				act(r.OnPutDone(h.length(want)))
			}
		case 3:
			act(r.Stall())
		case 4, 5:
			if !reading {
				break
			}
			if reading = false; h.upTo(3) == 0 {
				act(r.OnGetFailed())
			} else {
				act(r.OnGetDone())
			}
		}
	}
}

func (h *hostile) sender() {
	size := [...]int64{0, 1, 100, 10_000, 1 << 40}[h.upTo(5)]
	var s Sender
	s.Init(senderID, size, Region{}, 1+int64(h.upTo(200))*100)
	if h.upTo(2) == 0 {
		s.EndsAlone()
	}
	inside := func(off, n int64) {
		h.t.Helper()
		if off < 0 || n <= 0 || off > size || n > size-off {
			h.t.Fatalf("%d bytes at %d of a message of %d bytes: %+v", n, off, size, s)
		}
	}
	over := false
	act := func(a Action) bool {
		switch a.Do {
		case Complete:
			if over {
				h.t.Fatal("it ends twice")
			}
			over = true
		case Fail:
			return false
		case Nothing, Send:
		default:
			h.t.Fatalf("a sender says %+v", a)
		}
		return true
	}
	writing := int64(0)
	for range 300 {
		hdr := wire.Header{Tag: int32(h.upTo(3)), Addr: uint64(h.length(size)), Len: uint64(h.length(size))}
		ok := true
		switch h.upTo(9) {
		case 0:
			ok = act(s.OnFIN())
		case 5:
			ok = act(s.OnReleased())
		case 1, 2:
			ok = act(s.OnCTS(&hdr))
		case 3:
			ok = act(s.OnPutReq(&hdr, h.upTo(4) > 0))
		case 4:
			if writing > 0 {
				if h.upTo(4) == 0 {
					ok = act(s.OnWriteFailed())
				} else {
					ok = act(s.OnWritten(writing))
				}
				writing = 0
			}
		}
		if !ok {
			return
		}
		if a := s.NextFragment(1 + int64(h.upTo(200))); a.Do == Fragment {
			if inside(a.Off, a.Len); over || a.Header.Addr != uint64(a.Off) {
				h.t.Fatalf("%+v of a message that is over: %v", a, over)
			}
			if h.upTo(2) == 0 {
				s.Sent(a.Len)
			}
		}
		if off, n, addr, _, ok := s.NextWrite(1 + int64(h.upTo(200))*10); ok && writing == 0 {
			if inside(off, n); over {
				h.t.Fatalf("a WRITE of %d bytes to %#x of a message that is over", n, addr)
			}
			s.WriteStarted(n)
			writing = n
		}
	}
}
