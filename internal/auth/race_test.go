package auth

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Times are those of a clock of the test's own, which stands still while anything runs.
func TestRace(t *testing.T) {
	const late = 2 * stagger
	no := errors.New("no")
	type step struct { // of one address
		takes time.Duration
		err   error
		deaf  bool // to the end of its context
	}
	for name, c := range map[string]struct {
		steps   []step
		cancel  time.Duration // 0: not at all
		want    int           // the winner; -1: none
		took    time.Duration
		dropped []int
		tried   int
	}{
		"the first":              {[]step{{}, {}}, 0, 0, 0, nil, 1},
		"one that fails at once": {[]step{{err: no}, {err: no}, {}}, 0, 2, 0, nil, 3},
		"one that is slow":       {[]step{{takes: time.Hour}, {takes: 1}}, 0, 1, stagger + 1, nil, 2},
		"two that win":           {[]step{{takes: late, deaf: true}, {}}, 0, 1, late, []int{0}, 2},
		"no other begins after one has won": {[]step{{takes: 3 * stagger, deaf: true}, {}, {}}, 0, 1, 3 * stagger,
			[]int{0}, 2},
		"all fail":                       {[]step{{takes: 1, err: no}, {err: no}}, 0, -1, 1, nil, 2},
		"the caller gives up":            {[]step{{takes: time.Hour}, {}}, 1, -1, 1, nil, 1},
		"given up, and one wins at last": {[]step{{takes: late, deaf: true}, {}}, 1, 0, late, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				began := time.Now()
				var dropped []int
				got, won, errs := Race(ctx, len(c.steps), func(trying context.Context, i int) (int, error) {
					s := c.steps[i]
					over := trying.Done()
					if s.deaf {
						over = nil
					}
					select {
					case <-time.After(s.takes):
						return i, s.err
					case <-over:
						return 0, trying.Err()
					}
				}, func(i int) { dropped = append(dropped, i) })
				if !won {
					got = -1
				}
				if took := time.Since(began); got != c.want || took != c.took || !slices.Equal(dropped, c.dropped) ||
					len(errs) != c.tried {
					t.Errorf("%d has won after %v, %v were dropped, errors %v", got, took, dropped, errs)
				}
				if !won && slices.Contains(errs, nil) {
					t.Errorf("errors %v", errs)
				}
			})
		})
	}
}
