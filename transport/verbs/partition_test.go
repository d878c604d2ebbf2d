//go:build verbs && !guest && linux && cgo

package verbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

// newEndIn is an end whose port is in these partitions, with a wish.
func newEndIn(t *testing.T, rank int, keys, wish string) *end {
	t.Helper()
	t.Setenv("SOFTHCA_PKEYS", keys)
	return newEnd(t, rank, 2, func(o *Options) { o.Partition = wish })
}

// Queue pairs are in the partition that was asked for, and without a wish in one by which the port is a full member;
// the software HCA passes nothing between others.
func TestPartition(t *testing.T) {
	needSoft(t)
	watchdog(t)
	for _, c := range []struct{ keys, wish, theirs, theirWish, ours, says string }{
		{"ffff", "", "7fff,ffff", "", "ffff", ""},
		{"7fff,8001", "", "8001", "", "8001", ""},
		{"ffff,8001", "0x1", "8002,0001", "8001", "8001", ""},
		{"7fff", "", "ffff", "", "7fff (limited member)", ""},
		{"7fff", "", "7fff", "", "7fff (limited member)",
			"is in partition 7fff (limited member), this rank in 7fff (limited member)"},
		{"8001,8002", "8001", "8001,8002", "8002", "8001", "is in partition 8002, this rank in 8001"},
	} {
		a, b := newEndIn(t, 0, c.keys, c.wish), newEndIn(t, 1, c.theirs, c.theirWish)
		if got := a.at.pkey.String(); got != c.ours {
			t.Errorf("of %s, %q was wished: %s, want %s", c.keys, c.wish, got, c.ours)
		}
		if c.says != "" {
			if err := connectError(t, a, b); !strings.Contains(err, c.says) ||
				!strings.Contains(err, "GORUN_VERBS_PKEY") {
				t.Errorf("%s and %s: %q, want %q", c.keys, c.theirs, err, c.says)
			}
			continue
		}
		ab, ba := a.link(b), b.link(a)
		talk(ab, b)
		talk(ba, a)
	}
}

// A partition that no port is in: the error says which there are.
func TestNoPartition(t *testing.T) {
	needSoft(t)
	t.Setenv("SOFTHCA_PKEYS", "7fff,8001")
	for wish, says := range map[string]string{"8002": "GORUN_VERBS_PKEY=8002; it is in [7fff (limited member) 8001]",
		"x": "hexadecimal"} {
		opt := options(t, 0, 2, func(string, ...any) {})
		opt.Partition = wish
		if _, err := New(opt); !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("GORUN_VERBS_PKEY=%s: %v, want %q", wish, err, says)
		}
	}
}
