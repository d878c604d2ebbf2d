package agree

import (
	"testing"

	"github.com/gorun-mpi/mpi/internal/ranks"
)

// unlinked is a communicator at a rank that can reach no other one.
func unlinked(rank, size int) *Group { return &Group{Rank: rank, Size: size} }

// What a rank sends for a Split whose colors follow a rule does not grow with the job.
func TestSplitIsToldInParts(t *testing.T) {
	const n = 1 << 16
	for name, color := range map[string]func(r int) int{
		"one": func(int) int { return 0 }, "two": func(r int) int { return r % 2 },
	} {
		s := NewSplit(unlinked(0, n), ranks.Undefined, 0)
		for r := range n {
			peer := NewSplit(unlinked(r, n), color(r), r)
			d := Decoder{B: peer.Up()}
			if no := s.Take(r, &d); no != nil || !d.Over() {
				t.Fatal(name, no)
			}
		}
		if b := len(s.Up()); b > 100 {
			t.Errorf("%s: %d bytes for %d ranks", name, b, n)
		}
	}
}

func FuzzSplitFromOutside(f *testing.F) {
	peer := NewSplit(unlinked(3, 8), 5, 1)
	f.Add(peer.Up())
	f.Add([]byte("\x060\x02")) // a length that holds with its own byte
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewSplit(unlinked(2, 8), 5, 1)
		d := Decoder{B: b}
		if no := s.Take(3, &d); no == nil && d.Over() {
			s.Decide()
		}
		told := NewSplit(unlinked(2, 8), 5, 1)
		told.ReadVerdict(&Decoder{B: b})
		(&Decoder{B: b}).Report()
	})
}
