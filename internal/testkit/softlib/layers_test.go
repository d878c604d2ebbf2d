package softlib

import (
	"slices"
	"testing"
)

func TestClimbs(t *testing.T) {
	objects := map[string]object{
		"low.c":  {defines: []string{"low"}, uses: []string{"high", "malloc"}},
		"high.c": {defines: []string{"high"}, uses: []string{"low"}},
	}
	got := climbs([]string{"low.c", "high.c"}, objects)
	if want := []string{"low.c uses high of high.c, which is above it"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
