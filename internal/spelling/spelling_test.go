package spelling

import (
	"slices"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "axc", 1},
		{"abc", "ab", 1}, {"kitten", "sitting", 3}} {
		if d := distance(c.a, c.b); d != c.want {
			t.Errorf("%q %q: %d, want %d", c.a, c.b, d, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	words := slices.Values([]string{"timeout", "stdin", "np", "timeouts"})
	for _, c := range []struct {
		name string
		most int
		want string
	}{{"timeuot", 1, "timeout"}, {"timeout", 0, "timeout"}, {"timeoutss", 2, "timeouts"},
		{"tmeuot", 1, ""}, {"stdni", 3, "stdin"}} {
		if got := Nearest(c.name, words, c.most); got != c.want {
			t.Errorf("%q within %d: %q, want %q", c.name, c.most, got, c.want)
		}
	}
}
