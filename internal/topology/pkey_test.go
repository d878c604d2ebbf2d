package topology

import (
	"strings"
	"testing"
)

func TestParsePKey(t *testing.T) {
	for text, want := range map[string]uint16{"": 0, "8001": 0x8001, "0x8001": 0x8001, "0X7FFF": 0x7fff, "1": 1} {
		if k, err := ParsePKey(text); k != want || err != nil {
			t.Errorf("%q: %#x, %v; want %#x", text, k, err, want)
		}
	}
	for _, text := range []string{"0", "8000", "0x", "10001", "-1", "ffff ", "mlx5_0", "80_01"} {
		if k, err := ParsePKey(text); err == nil || !strings.Contains(err.Error(), text) ||
			!strings.Contains(err.Error(), "GORUN_VERBS_PKEY") {
			t.Errorf("%q: %#x, %v", text, k, err)
		}
	}
}

func TestChoosePKey(t *testing.T) {
	limited, full, one, oneLimited := PKey{0, 0x7fff}, PKey{3, 0xffff}, PKey{5, 0x8001}, PKey{1, 0x0001}
	for _, c := range []struct {
		table []PKey
		want  uint16
		got   PKey
		says  string
	}{
		{nil, 0, PKey{0, 0xffff}, ""},
		{nil, 0x8001, PKey{}, "lists no partitions"},
		{[]PKey{limited}, 0, limited, ""},
		{[]PKey{limited, oneLimited, full, one}, 0, full, ""},
		{[]PKey{limited, oneLimited, full, one}, 0x8001, one, ""},
		{[]PKey{limited, oneLimited, full, one}, 0x0001, one, ""},
		{[]PKey{limited, oneLimited}, 0x8001, oneLimited, ""},
		{[]PKey{limited, full}, 0x8001, PKey{}, "it is in [7fff (limited member) ffff]"},
	} {
		k, err := ChoosePKey(Port{PKeys: c.table}, c.want)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, %#x wanted: %v, %v; want %q", c.table, c.want, k, err, c.says)
			}
		} else if k != c.got || err != nil {
			t.Errorf("%v, %#x wanted: %v, %v; want %v", c.table, c.want, k, err, c.got)
		}
	}
}

// Packets pass in a partition that both are in, unless both are limited members.
func TestReaches(t *testing.T) {
	for _, c := range []struct {
		a, b   uint16
		passes bool
	}{{0xffff, 0xffff, true}, {0xffff, 0x7fff, true}, {0x7fff, 0x7fff, false}, {0xffff, 0x8001, false},
		{0x8001, 0x0001, true}} {
		x, y := PKey{Value: c.a}, PKey{Value: c.b}
		if x.Reaches(y) != c.passes || y.Reaches(x) != c.passes {
			t.Errorf("%v and %v: want %v", x, y, c.passes)
		}
	}
}
