package launcher

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPolicy plays a job's end in steps of milliseconds and compares what is done with what should be.
func TestPolicy(t *testing.T) {
	exit := func(rank, code int) func(*policy, time.Time) action {
		return func(p *policy, now time.Time) action {
			return p.exited(now, Exit{Rank: rank, Pid: 100 + rank, Host: "h", Code: code}, false)
		}
	}
	unfinished := func(rank int) func(*policy, time.Time) action {
		return func(p *policy, now time.Time) action {
			return p.exited(now, Exit{Rank: rank, Pid: 100 + rank, Host: "h"}, true)
		}
	}
	killed := func(rank int, s syscall.Signal) func(*policy, time.Time) action {
		return func(p *policy, now time.Time) action {
			return p.exited(now, Exit{Rank: rank, Pid: 100 + rank, Host: "h", Signal: s}, true)
		}
	}
	abort := func(rank, code int, msg string) func(*policy, time.Time) action {
		return func(p *policy, now time.Time) action {
			return p.aborted(now, Exit{Rank: rank, Pid: 100 + rank, Host: "h"}, code, msg)
		}
	}
	sig := func(s syscall.Signal) func(*policy, time.Time) action {
		return func(p *policy, now time.Time) action { return p.signalled(now, s) }
	}
	timeout := func(p *policy, now time.Time) action { return p.timedOut(now, time.Minute) }
	type step struct {
		ms int
		do func(*policy, time.Time) action
	}
	const (
		stopped     = "; the job is stopped|250 terminated|500 killed"
		interrupted = "interrupt: passed on to the ranks; they are killed in 1s, or at once by another Ctrl-C"
		timedOut    = "0 say the job did not end within 1m0s: asking every rank for its goroutines (SIGQUIT), " +
			"then stopping it|0 quit|2000 killed"
	)
	for _, c := range []struct {
		name  string
		steps []step
		code  int
		want  string // what was done, with its time
	}{
		{"all well", []step{{1, exit(0, 0)}, {2, exit(1, 0)}}, 0, ""},
		{"exit code", []step{{0, exit(2, 3)}}, 3,
			"30 say rank 2 (pid 102 on host h) exited with code 3" + stopped},
		{"signal", []step{{0, killed(2, 9)}}, 137,
			"30 say rank 2 (pid 102 on host h) was killed by signal 9 (killed)" + stopped},
		{"no Finalize", []step{{0, unfinished(1)}}, 1,
			"30 say rank 1 (pid 101 on host h) exited with code 0 without calling Finalize" + stopped},
		{"first counts", []step{{0, exit(2, 3)}, {5, exit(1, 4)}, {260, killed(0, 15)}}, 3,
			"30 say rank 2 (pid 102 on host h) exited with code 3" + stopped},
		{"the death behind an error", []step{{0, exit(1, 1)}, {5, killed(2, 9)}, {6, killed(0, 11)}}, 137,
			"30 say rank 2 (pid 102 on host h) was killed by signal 9 (killed)" + stopped},
		{"the death behind an abort", []step{{0, abort(1, 1, "peer failed")}, {5, killed(2, 9)}}, 137,
			"30 say rank 2 (pid 102 on host h) was killed by signal 9 (killed)" + stopped},
		{"a death too late to be the cause", []step{{0, exit(1, 1)}, {60, killed(2, 11)}}, 1,
			"30 say rank 1 (pid 101 on host h) exited with code 1" + stopped},
		{"abort", []step{{0, abort(1, 7, "no\ndisk")}, {3, exit(1, 7)}}, 7,
			"30 say rank 1 (pid 101 on host h) called Abort with code 7: no disk" + stopped},
		{"abort with 256", []step{{0, abort(1, 256, "")}}, 1,
			"30 say rank 1 (pid 101 on host h) called Abort with code 256" + stopped},
		{"Ctrl-C", []step{{0, sig(2)}}, 130,
			"0 say " + interrupted + "|0 interrupt|1000 killed"},
		{"Ctrl-C twice", []step{{0, sig(2)}, {10, sig(2)}, {20, sig(2)}}, 130,
			"0 say " + interrupted + "|0 interrupt|10 killed|20 killed"},
		{"Ctrl-C, and the ranks fail of it", []step{{0, sig(2)}, {10, killed(0, 2)}, {11, exit(1, 1)}}, 130,
			"0 say " + interrupted + "|0 interrupt|1000 killed"},
		{"SIGTERM", []step{{0, sig(15)}}, 143,
			"0 say the job was stopped by signal 15 (terminated)|0 terminated|1000 killed"},
		{"Ctrl-C after a failure", []step{{0, exit(0, 3)}, {10, sig(2)}}, 3,
			"10 say rank 0 (pid 100 on host h) exited with code 3; the job is stopped|" +
				"10 say " + interrupted + "|10 interrupt|1010 killed"},
		{"timeout", []step{{0, timeout}}, 124,
			timedOut},
		{"timeout, and the ranks fail of it", []step{{0, timeout}, {10, exit(0, 2)}}, 124,
			timedOut},
		{"timeout after a failure", []step{{0, exit(0, 3)}, {10, timeout}}, 3,
			"30 say rank 0 (pid 100 on host h) exited with code 3" + stopped},
		{"recover, and ranks fail", []step{{0, func(p *policy, now time.Time) action {
			p.recover = true
			return exit(2, 3)(p, now)
		}}, {5, unfinished(1)}, {10, killed(0, 9)}, {20, exit(3, 0)}}, 3,
			"0 say rank 2 (pid 102 on host h) exited with code 3; the job goes on without it|" +
				"5 say rank 1 (pid 101 on host h) exited with code 0 without calling Finalize; " +
				"the job goes on without it|" +
				"10 say rank 0 (pid 100 on host h) was killed by signal 9 (killed); the job goes on without it"},
		{"recover, and one calls Abort", []step{{0, func(p *policy, now time.Time) action {
			p.recover = true
			return exit(2, 3)(p, now)
		}}, {5, abort(1, 7, "")}, {6, exit(0, 9)}}, 7,
			"0 say rank 2 (pid 102 on host h) exited with code 3; the job goes on without it|" +
				"35 say rank 1 (pid 101 on host h) called Abort with code 7; the job is stopped|" +
				"255 terminated|505 killed"},
	} {
		p := policy{killDelay: time.Second}
		begin := time.Unix(1000, 0)
		var done []string
		note := func(ms int, a action) {
			for _, m := range a.say {
				done = append(done, fmt.Sprintf("%d say %s", ms, m))
			}
			if a.signal != 0 {
				done = append(done, fmt.Sprintf("%d %v", ms, a.signal))
			}
		}
		for ms, steps := 0, c.steps; ms <= 3000; ms++ {
			now := begin.Add(time.Duration(ms) * time.Millisecond)
			for len(steps) > 0 && steps[0].ms == ms {
				note(ms, steps[0].do(&p, now))
				steps = steps[1:]
			}
			note(ms, p.tick(now))
		}
		if got := strings.Join(done, "|"); got != c.want || p.code != c.code {
			t.Errorf("%s: code %d, want %d\n got %s\nwant %s", c.name, p.code, c.code, got, c.want)
		}
	}
}
