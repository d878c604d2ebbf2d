package layout

import (
	"fmt"
	"slices"
	"testing"
)

// inRuns compares the runs of a Type with the places of its bytes in their order.
func inRuns(t testing.TB, typ *Type, offsets []int64) {
	var got []int64
	all := typ.Runs(func(at, size, count, stride int64) bool {
		for range count {
			for b := range size {
				got = append(got, at+b)
			}
			at += stride
		}
		return true
	})
	if !all || !slices.Equal(got, offsets) {
		t.Fatalf("the runs are %.200s, want %.200s", fmt.Sprint(got), fmt.Sprint(offsets))
	}
	visits := 0
	if typ.Runs(func(int64, int64, int64, int64) bool { visits++; return false }) != (len(offsets) == 0) || visits > 1 {
		t.Fatalf("%d visits, none was to follow the first", visits)
	}
}
