package join

import (
	"slices"
	"testing"
)

func TestPlaces(t *testing.T) {
	p := &Port{Parents: 2, Size: 5}
	want := []int{0, 1, 4}
	if got, err := parsePlaces(encodePlaces(want), p); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for name, b := range map[string][]byte{
		"none": nil, "too few": encodePlaces([]int{0, 1}), "too many": encodePlaces([]int{0, 1, 2, 3}),
		"no place": encodePlaces([]int{0, 1, 5}), "twice": encodePlaces([]int{1, 1, 2}),
		"descending": encodePlaces([]int{1, 0, 2}), "half a place": encodePlaces(want)[:11],
		"more": append(encodePlaces(want), 0),
	} {
		if got, err := parsePlaces(b, p); err == nil {
			t.Errorf("%s: %v is read", name, got)
		}
	}
}
