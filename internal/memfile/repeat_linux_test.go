package memfile

import "testing"

// A byte that is written to repeated memory appears in each piece, and memory of any length takes one piece.
func TestRepeat(t *testing.T) {
	for _, c := range []struct{ n, piece int }{{1, 2 << 20}, {100<<20 + 1, 2 << 20}, {64 << 30, 16 << 20}} {
		b, err := Repeat(c.n)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) != c.n {
			t.Fatalf("%d bytes of %d", len(b), c.n)
		}
		for i, at := range []int{0, c.n - 1, c.n / 2} {
			b[at] = byte(17 + i)
			for other := at % c.piece; other < c.n; other += max(c.piece, c.n/50/c.piece*c.piece) {
				if b[other] != byte(17+i) {
					t.Fatalf("of %d bytes byte %d is %d, and byte %d is %d", c.n, at, b[at], other, b[other])
				}
			}
		}
	}
}
