package pmi

import (
	"slices"
	"testing"
)

// The ranks whose places are taken come as they are sent, whatever their order. A list that is too long is left out.
func TestDead(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "0": {0}, "3,0-2,65535": {3, 0, 1, 2, 65535}, "5,4": {5, 4}} {
		if got := FormatRanks(want); got != text {
			t.Errorf("%v is %q, want %q", want, got, text)
		}
		if got, ok := ParseRanks(text, len(want)); text != "" && (!ok || !slices.Equal(got, want)) {
			t.Errorf("%q is %v", text, got)
		}
	}
	var odd []int
	for rank := 1; rank < MaxSpawned; rank += 2 {
		odd = append(odd, rank)
	}
	if text := FormatRanks(odd); text != "" {
		t.Errorf("%d bytes", len(text))
	}
	const n = 3
	for _, text := range []string{"", "0,1", "0-3", "0-1", "0,1,1", "2,1-2", "-1,0,1", "0,1,65536", "a,1,2", "2-0", "1,,2",
		"0,1,2,", "0-9223372036854775807", "9223372036854775807,0,1", "0-1-2"} {
		if got, ok := ParseRanks(text, n); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}
