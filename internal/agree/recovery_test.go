package agree

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/internal/consensus"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// What is read of a frame is what has been written, for communicators of any size.
func TestFrames(t *testing.T) {
	for _, n := range []int{1, 8, 9, 64, 65, 1000} {
		var some, last consensus.Set
		some.Add(n / 2)
		last.Add(n - 1)
		v := consensus.Value{Flags: 1<<32 - 1, Low: 7, High: 1 << 31, Calls: 3, Count: 1 << 31,
			Acked: some, Dead: last, Gone: last}
		for kind := range consensus.Kinds {
			f := consensus.Frame{Kind: kind, Number: 1<<32 - 1, Dead: last, Gone: last, Value: v}
			b := appendFrame(9, f)
			d := Decoder{B: b}
			if k, number := d.Int(), d.Int(); k != firstFrame+int64(kind) || number != 9 {
				t.Fatalf("a message of kind %d for communicator %d", k, number)
			}
			if len(b) > int(mostAsked(n)) {
				t.Errorf("%d ranks, kind %d: %d bytes, which is more than %d", n, kind, len(b), mostAsked(n))
			}
			got := d.frame(kind, n)
			if !d.Over() {
				t.Fatalf("%d ranks, kind %d: %v is not a frame", n, kind, b)
			}
			if again := appendFrame(9, got); !bytes.Equal(again, b) {
				t.Errorf("%d ranks, kind %d: %+v became %+v", n, kind, f, got)
			}
			d = Decoder{B: b}
			d.Int()
			d.Int()
			if d.frame(kind, n-1); !d.Bad {
				t.Errorf("a frame that names rank %d is taken by a communicator of %d", n-1, n-1)
			}
		}
	}
}

// A rank that hears of a death from another rank connects to the one that is said to be dead. A rank that others take
// for dead connects to none of them.
func TestSuspects(t *testing.T) {
	const n, me = 100, 3
	for name, c := range map[string]struct {
		dead consensus.Set
		want []int32
	}{
		"two others": {consensus.Set{1<<7 | 1<<9}, []int32{7, 9}},
		"this rank":  {consensus.Set{1<<me | 1<<7}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := &party{members: ranks.Of(ranks.Strided(0, n, 1)), machine: consensus.New(n, me)}
			r := &Recovery{}
			p.machine.Begin(consensus.Value{})
			r.settle(p)
			p.machine.Hear(1, consensus.Frame{Kind: consensus.Ask, Number: 1, Dead: c.dead})
			if got := r.settle(p).suspects; !slices.Equal(got, c.want) {
				t.Errorf("it connects to %v, want %v", got, c.want)
			}
		})
	}
}

// Any bytes are a frame or none, and no frame harms the machine that takes it.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendFrame(1, consensus.Frame{Kind: consensus.Report, Number: 1, Dead: consensus.Set{2}})[2:])
	decision := consensus.Frame{Kind: consensus.Decision, Number: 1, Value: consensus.Value{Dead: consensus.Set{9}}}
	f.Add(appendFrame(1, decision)[2:])
	f.Fuzz(func(t *testing.T, b []byte) {
		const n = 5
		for from := range n {
			m := consensus.New(n, 1)
			m.Begin(consensus.Value{})
			for kind := range consensus.Kinds {
				d := Decoder{B: b}
				if fr := d.frame(kind, n); d.Over() {
					m.Hear(from, fr)
				}
			}
			if m.Dead().Has(1) {
				t.Error("a rank takes itself for dead")
			}
			for _, msg := range m.Messages() {
				if msg.To < 0 || msg.To >= n || msg.To == 1 {
					t.Errorf("it sends to rank %d", msg.To)
				}
			}
		}
	})
}
