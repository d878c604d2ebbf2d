package join

import (
	"reflect"
	"strings"
	"testing"
)

func TestPlaces(t *testing.T) {
	p := &Port{Parents: 2, Size: 5}
	text := func(ranks ...int) []byte { return (&Places{ranks, "world.replaced3", 3}).encode() }
	want := &Places{[]int{0, 1, 4}, "world.replaced3", 3}
	if got, err := parsePlaces(want.encode(), p); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	long := &Places{want.Ranks, strings.Repeat("x", 5*nameMost), 3}
	if got, err := parsePlaces(long.encode(), p); err != nil || got.Name != long.Name[:nameMost] {
		t.Errorf("a name of %d bytes: %v, %v", len(long.Name), got, err)
	}
	for name, b := range map[string][]byte{
		"none": nil, "too few": text(0, 1), "too many": text(0, 1, 2, 3), "no place": text(0, 1, 5),
		"twice": text(1, 1, 2), "descending": text(1, 0, 2), "half a place": want.encode()[:11],
		"no count": want.encode()[:16], "a long name": append(long.encode(), 0),
	} {
		if got, err := parsePlaces(b, p); err == nil {
			t.Errorf("%s: %v is read", name, got)
		}
	}
}
