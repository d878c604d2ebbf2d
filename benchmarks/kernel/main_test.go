package main

import (
	"slices"
	"testing"
)

// A round adds and then copies, and both take time that is counted.
func TestPlay(t *testing.T) {
	v := newVectors(1000)
	if err := v.play(3); err != nil || !slices.Equal(v.a, v.b) {
		t.Errorf("%v; b is not a after the copy", err)
	}
	if v.sums <= 0 || v.copies < 0 {
		t.Errorf("sums took %v, copies %v", v.sums, v.copies)
	}
}
