package window

import (
	"bytes"
	"testing"
)

// CopyLong copies all bytes of src, and writes no byte beside dst.
func TestCopyLong(t *testing.T) {
	src := make([]byte, 2*stringPiece+100)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	for _, n := range []int{CopyLeast, CopyLeast + 1, CopyLeast + 63, stringPiece - 1, stringPiece, stringPiece + 1,
		2*stringPiece + 31} {
		for _, at := range [][2]int{{0, 0}, {1, 0}, {0, 3}, {33, 64}} {
			got, want := make([]byte, n+100), make([]byte, n+100)
			copy(want[at[0]:], src[at[1]:at[1]+n])
			if CopyLong(got[at[0]:][:n], src[at[1]:][:n]) != copyString || copyString && !bytes.Equal(got, want) {
				t.Errorf("%d bytes from %d to %d", n, at[1], at[0])
			}
		}
	}
	moveString(nil, nil)
	if CopyLong(make([]byte, CopyLeast-1), src[:CopyLeast-1]) {
		t.Error("CopyLong has copied what is short")
	}
}
