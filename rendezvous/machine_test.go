package rendezvous

import (
	"math/rand/v2"
	"testing"
)

// run drives both machines over a wire that delays, and moves real bytes. It returns what arrived.
func run(t *testing.T, rng *rand.Rand, src []byte, room int, events func(step int) On) []byte {
	t.Helper()
	dst := make([]byte, room)
	var s Sender
	var r Receiver
	s.Init(int64(len(src)), 1+rng.Int64N(5000))
	r.Init(int64(min(len(src), room)), 1+rng.Int64N(5000))
	type frag struct {
		off int64
		gen int32
		b   []byte
	}
	var wire []frag // fragments under way
	var cts, puts []Action
	fin, done := false, false
	handle := func(a Action) {
		for {
			switch a.Do {
			case SendCTS:
				cts = append(cts, a)
			case Read:
				if events != nil && events(-1) == GetFailed {
					a = r.Step(Input{On: GetFailed})
					continue
				}
				copy(dst[a.Off:a.Off+a.Len], src[a.Off:])
				a = r.Step(Input{On: Got, Len: a.Len})
				continue
			case Finish:
				if fin {
					t.Fatal("finished twice")
				}
				fin = true
			case AskPut:
				puts = append(puts, a)
				a = r.Step(Input{On: Asked})
				continue
			case Nothing, Drop:
			default:
				t.Fatalf("receiver: %+v", a)
			}
			return
		}
	}
	scheme := Stream
	switch rng.IntN(3) {
	case 0:
		scheme = Get
	case 1:
		scheme = Split
	}
	handle(r.Step(Input{On: Matched, Scheme: scheme, Len: rng.Int64N(int64(room) + 2)}))
	for step := 0; !done; step++ {
		if step > 1_000_000 {
			t.Fatalf("does not end: %+v %+v", s, r)
		}
		switch rng.IntN(5) {
		case 4:
			if len(puts) == 0 {
				break
			}
			in := Input{On: PutFailed}
			if rng.IntN(3) > 0 {
				in = Input{On: PutDone, Len: puts[0].Len}
				copy(dst[puts[0].Off:][:puts[0].Len], src[puts[0].Off:])
			}
			puts = puts[1:]
			handle(r.Step(in))
		case 0:
			if len(cts) > 0 {
				if a := s.Step(Input{On: Clear, Off: cts[0].Off, Len: cts[0].Len, Gen: cts[0].Gen}); a.Do == Fail {
					t.Fatal(a.Err)
				}
				cts = cts[1:]
			}
		case 1:
			if a := s.Step(Input{On: Room}); a.Do == Send {
				wire = append(wire, frag{a.Off, a.Gen, src[a.Off : a.Off+a.Len]})
				s.Step(Input{On: Sent, Len: a.Len})
			}
		case 2:
			if len(wire) > 0 {
				f := wire[0]
				wire = wire[1:]
				if a := r.Step(Input{On: Fragment, Gen: f.gen, Off: f.off, Len: int64(len(f.b))}); a.Do == Copy {
					copy(dst[a.Off:], f.b)
					handle(r.Step(Input{On: Copied, Len: a.Len}))
				} else {
					handle(a)
				}
			}
		case 3:
			if fin && rng.IntN(3) == 0 {
				if a := s.Step(Input{On: Finished}); a.Do != Complete {
					t.Fatalf("FIN: %+v", a)
				}
				done = true
			} else if events != nil {
				if e := events(step); e == Stalled {
					handle(r.Step(Input{On: Stalled}))
				}
			}
		}
	}
	// whatever is still under way must be harmless
	for _, f := range wire {
		if a := r.Step(Input{On: Fragment, Gen: f.gen, Off: f.off, Len: int64(len(f.b))}); a.Do != Drop {
			t.Fatalf("late fragment: %+v", a)
		}
	}
	return dst
}

func TestTransfers(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		src := make([]byte, rng.IntN(100_000))
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		room := len(src)
		if rng.IntN(3) == 0 {
			room = rng.IntN(len(src) + 1)
		}
		fails := 1 + rng.IntN(5)
		events := func(step int) On {
			if step < 0 {
				if fails > 0 && rng.IntN(3) == 0 {
					fails--
					return GetFailed
				}
				return Got
			}
			if rng.IntN(20) == 0 && fails > 0 {
				return Stalled
			}
			return Copied
		}
		dst := run(t, rng, src, room, events)
		if string(dst) != string(src[:room]) {
			t.Fatalf("seed %d: contents differ", seed)
		}
	}
}

func TestRefuses(t *testing.T) {
	var r Receiver
	r.Init(1000, 100)
	r.Step(Input{On: Matched, Scheme: Stream})
	for _, in := range []Input{{On: Fragment, Gen: 1, Off: 10, Len: 10}, {On: Fragment, Gen: 1, Off: 0, Len: 1001}, {On: Fragment, Gen: 1, Off: 0, Len: 0},
		{On: Fragment, Gen: 1, Off: 0, Len: -1}, {On: Got, Len: 5}, {On: Clear}} {
		if a := r.Step(in); a.Do != Fail || a.Err == nil {
			t.Errorf("receiver, %+v: %+v, want Fail", in, a)
		}
	}
	var s Sender
	s.Init(1000, 100)
	for _, in := range []Input{{On: Clear, Off: -1, Len: 5}, {On: Clear, Off: 0, Len: 1001}, {On: Clear, Off: 1001, Len: 1},
		{On: Clear, Off: 1 << 62, Len: 1 << 62}, {On: Clear, Len: 0}, {On: Matched}} {
		if a := s.Step(in); a.Do != Fail || a.Err == nil {
			t.Errorf("sender, %+v: %+v, want Fail", in, a)
		}
	}
}
