package auth

import (
	"context"
	"time"
)

// stagger is how long an address is given before the next one is tried as well (RFC 8305 says 250 ms for the
// internet; processes of a job are nearer to each other).
const stagger = 100 * time.Millisecond

// Race calls try for the numbers of n addresses in their order, each a while after the one before or at once if that
// has failed. The first that succeeds wins; the context of the others ends then, and what they still return is dropped.
// It returns when all calls have. If no call has won, errs has the errors of the calls, the first of them first; there
// are fewer than n if ctx has ended before.
func Race[T any](ctx context.Context, n int, try func(trying context.Context, i int) (T, error),
	drop func(T)) (winner T, won bool, errs []error) {
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		i     int
		value T
		err   error
	}
	results := make(chan result)
	running := 0
	start := func() {
		i := len(errs)
		errs = append(errs, nil)
		running++
		go func() {
			value, err := try(trying, i)
			results <- result{i, value, err}
		}()
	}
	wait := time.NewTimer(0)
	defer wait.Stop()
	for running > 0 || !won && len(errs) < n && ctx.Err() == nil {
		select {
		case <-wait.C:
			// Nothing more is begun once an address has won or the caller has given up.
			if !won && len(errs) < n && ctx.Err() == nil {
				start()
				wait.Reset(stagger)
			}
		case r := <-results:
			running--
			switch {
			case r.err != nil:
				errs[r.i] = r.err
				wait.Reset(0)
			case won:
				drop(r.value)
			default:
				winner, won = r.value, true
				cancel()
			}
		}
	}
	return winner, won, errs
}
