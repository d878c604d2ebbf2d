package launcher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/procs"
)

// TestPolicy plays a job's end in steps of milliseconds and compares what is done with what should be.
func TestPolicy(t *testing.T) {
	exit := func(rank, code int) func(*policy, time.Time) action {
		return func(p *policy, now time.Time) action {
			return p.exited(now, rankEnd{Exit: procs.Exit{Rank: rank, Pid: 100 + rank, Host: "h", Code: code}})
		}
	}
	unfinished := func(rank int) func(*policy, time.Time) action {
		return func(p *policy, now time.Time) action {
			return p.exited(now, rankEnd{Exit: procs.Exit{Rank: rank, Pid: 100 + rank, Host: "h"}, unfinished: true})
		}
	}
	killed := func(rank int, s syscall.Signal) func(*policy, time.Time) action {
		return func(p *policy, now time.Time) action {
			return p.exited(now, rankEnd{Exit: procs.Exit{Rank: rank, Pid: 100 + rank, Host: "h", Signal: s},
				unfinished: true})
		}
	}
	abort := func(rank, code int, msg string) func(*policy, time.Time) action {
		return func(p *policy, now time.Time) action {
			return p.aborted(now, abortCall{procs.Exit{Rank: rank, Pid: 100 + rank, Host: "h"}, code, msg, false})
		}
	}
	follow := func(rank int) func(*policy, time.Time) action {
		return func(p *policy, now time.Time) action {
			return p.aborted(now, abortCall{procs.Exit{Rank: rank, Pid: 100 + rank, Host: "h"}, 1, "peer gone", true})
		}
	}
	after := func(rank, code int) func(*policy, time.Time) action { // it has heard of another rank's end
		return func(p *policy, now time.Time) action {
			return p.exited(now, rankEnd{procs.Exit{Rank: rank, Pid: 100 + rank, Host: "h", Code: code}, true, true})
		}
	}
	agent := func(p *policy, now time.Time) action { return p.agentStopped(now, errors.New("agent stopped"), 143) }
	lost := func(p *policy, now time.Time) action { return p.hostLost(now, errors.New("host x is lost")) }
	inStep := func(p *policy, _ time.Time) action {
		p.step = true
		return action{}
	}
	noStart := func(p *policy, now time.Time) action {
		return p.cannotStart(errors.New("rank 9 cannot be started"), 127)
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
		// gone is the end of the others after a failure at 0, before the cause is said.
		gone        = "250 terminated|500 killed|end say "
		interrupted = "interrupt: passed on to the ranks; they are killed in 1s, or at once by another Ctrl-C"
		timedOut    = "0 say the job did not end within 1m0s: asking every rank what it does, " +
			"then stopping it|3000 terminated|3250 killed|end say the job did not end within 1m0s"
	)
	for _, c := range []struct {
		name  string
		steps []step
		code  int
		want  string // what was done, with its time
	}{
		{"all well", []step{{1, exit(0, 0)}, {2, exit(1, 0)}}, 0, ""},
		{"exit code", []step{{0, exit(2, 3)}}, 3,
			gone + "rank 2 (pid 102 on host h) exited with code 3; the job is stopped"},
		{"signal", []step{{0, killed(2, 9)}}, 137,
			gone + "rank 2 (pid 102 on host h) was killed by signal 9 (killed); the job is stopped"},
		{"no Finalize", []step{{0, unfinished(1)}}, 1,
			gone + "rank 1 (pid 101 on host h) exited with code 0 without calling Finalize; the job is stopped"},
		{"first counts", []step{{0, exit(2, 3)}, {5, exit(1, 4)}, {260, killed(0, 15)}}, 3,
			gone + "rank 2 (pid 102 on host h) exited with code 3; the job is stopped"},
		{"the death behind an error", []step{{0, exit(1, 1)}, {5, killed(2, 9)}, {6, killed(0, 11)}}, 137,
			gone + "rank 2 (pid 102 on host h) was killed by signal 9 (killed); the job is stopped"},
		{"the death behind an abort", []step{{0, abort(1, 1, "peer failed")}, {5, killed(2, 9)}}, 137,
			gone + "rank 2 (pid 102 on host h) was killed by signal 9 (killed); the job is stopped"},
		{"a death too late to be the cause", []step{{0, exit(1, 1)}, {60, killed(2, 11)}}, 1,
			gone + "rank 1 (pid 101 on host h) exited with code 1; the job is stopped"},
		{"abort", []step{{0, abort(1, 7, "no\ndisk")}, {3, exit(1, 7)}}, 7,
			"250 terminated|500 killed|end rank 1 on h: no disk"},
		{"abort with 256", []step{{0, abort(1, 256, "")}}, 1,
			gone + "rank 1 (pid 101 on host h) called Abort with code 256; the job is stopped"},
		{"Ctrl-C", []step{{0, sig(2)}}, 130,
			"0 say " + interrupted + "|0 interrupt|1000 killed"},
		{"Ctrl-C twice", []step{{0, sig(2)}, {10, sig(2)}, {20, sig(2)}}, 130,
			"0 say " + interrupted + "|0 interrupt|10 killed|20 killed"},
		{"Ctrl-C, and the ranks fail of it", []step{{0, sig(2)}, {10, killed(0, 2)}, {11, exit(1, 1)}}, 130,
			"0 say " + interrupted + "|0 interrupt|1000 killed"},
		{"SIGTERM", []step{{0, sig(15)}}, 143,
			"0 say the job was stopped by signal 15 (terminated)|0 terminated|1000 killed"},
		{"SIGQUIT, and the ranks are asked", []step{{0, sig(3)}, {10, exit(0, 2)}}, 131,
			"3000 terminated|3250 killed|end say the job was stopped by signal 3 (quit)"},
		{"SIGQUIT, and the ranks have answered", []step{{0, sig(3)}, {100, (*policy).asked}}, 131,
			"100 terminated|350 killed|end say the job was stopped by signal 3 (quit)"},
		{"SIGQUIT, and Ctrl-C before they answer", []step{{0, sig(3)}, {100, sig(2)}, {200, (*policy).asked}}, 131,
			"100 say " + interrupted + "|100 interrupt|1100 killed|end say the job was stopped by signal 3 (quit)"},
		{"no rank can move", []step{{0, func(p *policy, now time.Time) action {
			return p.stalled(now, 10*time.Second)
		}}}, 125, "0 terminated|250 killed|end say no rank could move for 10s (--stall abort); the job is stopped"},
		{"Ctrl-C after a failure", []step{{0, exit(0, 3)}, {10, sig(2)}}, 3,
			"10 say " + interrupted + "|10 interrupt|1010 killed|" +
				"end say rank 0 (pid 100 on host h) exited with code 3; the job is stopped"},
		{"timeout", []step{{0, timeout}}, 124,
			timedOut},
		{"timeout, and the ranks fail of it", []step{{0, timeout}, {10, exit(0, 2)}}, 124,
			timedOut},
		{"timeout after a failure", []step{{0, exit(0, 3)}, {10, timeout}}, 3,
			gone + "rank 0 (pid 100 on host h) exited with code 3; the job is stopped"},
		{"recover, and ranks fail", []step{{0, func(p *policy, now time.Time) action {
			p.recover, p.deaths = true, &deaths{}
			return exit(2, 3)(p, now)
		}}, {5, unfinished(1)}, {10, killed(0, 9)}, {20, exit(3, 0)}}, 3,
			"0 say rank 2 (pid 102 on host h) exited with code 3; the job goes on without it|" +
				"5 say rank 1 (pid 101 on host h) exited with code 0 without calling Finalize; " +
				"the job goes on without it|" +
				"10 say rank 0 (pid 100 on host h) was killed by signal 9 (killed); the job goes on without it"},
		{"recover, and one calls Abort", []step{{0, func(p *policy, now time.Time) action {
			p.recover, p.deaths = true, &deaths{}
			return exit(2, 3)(p, now)
		}}, {5, abort(1, 7, "")}, {6, exit(0, 9)}}, 7,
			"0 say rank 2 (pid 102 on host h) exited with code 3; the job goes on without it|" +
				"255 terminated|505 killed|" +
				"end say rank 1 (pid 101 on host h) called Abort with code 7; the job is stopped"},
		{"errors of several ranks", []step{{0, abort(1, 1, "no\ndisk")}, {3, abort(2, 1, "no file")},
			{100, abort(3, 1, "no disk")}, {110, exit(2, 1)}, {260, abort(4, 1, "ended by SIGTERM")}}, 1,
			"3 rank 2 on h: no file|250 terminated|500 killed|end rank 1 on h: no disk"},
		{"one error of several calls", []step{{0, abort(1, 1, "mpi: Bcast: they differ")},
			{3, abort(2, 1, "mpi: Barrier: they differ")}, {4, abort(3, 1, "mpi: Recv from rank 0: they differ")},
			{5, abort(4, 1, "mpi: Bcast: no memory")}}, 1, "4 rank 3 on h: mpi: Recv from rank 0: they differ|" +
			"5 rank 4 on h: mpi: Bcast: no memory|250 terminated|500 killed|end rank 1 on h: mpi: Bcast: they differ"},
		{"one error of a call that one rank has made", []step{{0, abort(1, 1, "mpi: Replace on world: no host is left")},
			{3, abort(2, 1, "mpi: Replace on world.dup: rank 1: no host is left")},
			{4, abort(3, 1, "mpi: Replace on world: rank 1: no memory")}}, 1, "4 rank 3 on h: mpi: Replace on world: rank 1: " +
			"no memory|250 terminated|500 killed|end rank 1 on h: mpi: Replace on world: no host is left"},
		{"a consequence before the exit", []step{{0, follow(1)}, {5, after(1, 1)}, {700, exit(2, 3)}}, 3,
			"950 terminated|1200 killed|end say rank 2 (pid 102 on host h) exited with code 3; the job is stopped"},
		{"a consequence before the end without Finalize", []step{{0, follow(1)}, {1, follow(0)}, {2, after(0, 1)},
			{3, unfinished(2)}}, 1, "253 terminated|503 killed|" +
			"end say rank 2 (pid 102 on host h) exited with code 0 without calling Finalize; the job is stopped"},
		{"a consequence before the death", []step{{0, follow(1)}, {100, killed(2, 9)}, {101, killed(0, 11)}}, 137,
			"350 terminated|600 killed|end say rank 2 (pid 102 on host h) was killed by signal 9 (killed); the job is stopped"},
		{"a consequence before the error", []step{{0, follow(1)}, {100, abort(2, 5, "diverged")}, {101, exit(2, 5)},
			{102, after(1, 1)}, {103, follow(3)}}, 5, "350 terminated|600 killed|end rank 2 on h: diverged"},
		{"a consequence before the loss of a host", []step{{0, follow(1)}, {1, after(1, 1)}, {2900, lost}}, 1,
			"3150 terminated|3400 killed|end say host x is lost; the job is stopped"},
		{"a consequence before a rank that cannot be started", []step{{0, follow(1)}, {100, noStart}}, 127,
			"100 killed|end say rank 9 cannot be started"},
		{"a Slurm step that ends", []step{{0, killed(0, 15)}, {5, agent}, {6, killed(1, 15)}, {7, agent}}, 143,
			"256 terminated|506 killed|end say agent stopped; the job is stopped"},
		{"a Slurm step that ends since an agent was killed", []step{{0, agent}, {1, killed(0, 15)}, {100, lost}}, 1,
			"251 terminated|501 killed|end say host x is lost; the job is stopped"},
		{"an error, and an agent is stopped", []step{{0, exit(0, 3)}, {5, agent}}, 3,
			gone + "rank 0 (pid 100 on host h) exited with code 3; the job is stopped"},
		{"an error and its consequences", []step{{0, abort(2, 5, "diverged")}, {1, follow(1)}, {2, after(1, 1)},
			{3, follow(0)}}, 5, "250 terminated|500 killed|end rank 2 on h: diverged"},
		{"consequences of no end", []step{{0, follow(1)}, {1, after(1, 1)}, {2, follow(0)}, {3, after(0, 1)}}, 1,
			"3001 terminated|3251 killed|end rank 1 on h: peer gone"},
		{"an exit after another's end, before that", []step{{0, after(1, 1)}, {5, after(0, 1)}, {700, exit(2, 3)},
			{701, after(3, 1)}}, 3, "950 terminated|1200 killed|" +
			"end say rank 2 (pid 102 on host h) exited with code 3; the job is stopped"},
		{"an exit after another's end, before the loss of a host", []step{{0, after(1, 1)}, {2900, lost}}, 1,
			"3150 terminated|3400 killed|end say host x is lost; the job is stopped"},
		{"an exit after no other end", []step{{0, after(1, 1)}, {2, after(0, 2)}}, 1,
			"3001 terminated|3251 killed|" +
				"end say rank 1 (pid 101 on host h) exited with code 1; the job is stopped"},
		{"a Slurm step whose host is lost, which kills the others", []step{{0, inStep}, {1, killed(1, 9)}, {100, lost}}, 1,
			"252 terminated|502 killed|end say host x is lost; the job is stopped"},
		{"a rank of a Slurm step that is killed", []step{{0, inStep}, {1, killed(1, 9)}, {300, lost}}, 137,
			"252 terminated|502 killed|end say rank 1 (pid 101 on host h) was killed by signal 9 (killed); the job is stopped"},
		{"recover, and one exits after another's end", []step{{0, func(p *policy, now time.Time) action {
			p.recover, p.deaths = true, &deaths{}
			return after(2, 3)(p, now)
		}}}, 3, "0 say rank 2 (pid 102 on host h) exited with code 3; the job goes on without it"},
		{"recover, and one decides to end", []step{{0, func(p *policy, now time.Time) action {
			p.recover, p.deaths = true, &deaths{}
			return exit(2, 3)(p, now)
		}}, {5, follow(1)}, {6, after(0, 9)}}, 1,
			"0 say rank 2 (pid 102 on host h) exited with code 3; the job goes on without it|" +
				"255 terminated|505 killed|end rank 1 on h: peer gone"},
	} {
		p := policy{killDelay: time.Second}
		begin := time.Unix(1000, 0)
		var done []string
		over := false
		note := func(when any, a action) {
			for _, m := range a.say {
				done = append(done, fmt.Sprintf("%v say %s", when, m))
			}
			for _, m := range a.print {
				done = append(done, fmt.Sprintf("%v %s", when, m))
			}
			if a.signal != 0 {
				done = append(done, fmt.Sprintf("%v %v", when, a.signal))
			}
			over = over || a.signal == syscall.SIGKILL
		}
		for ms, steps := 0, c.steps; ms <= 4000 && (!over || len(steps) > 0); ms++ {
			now := begin.Add(time.Duration(ms) * time.Millisecond)
			for len(steps) > 0 && steps[0].ms == ms {
				note(ms, steps[0].do(&p, now))
				steps = steps[1:]
			}
			note(ms, p.tick(now))
		}
		note("end", p.last())
		if got := strings.Join(done, "|"); got != c.want || p.result() != c.code {
			t.Errorf("%s: code %d, want %d\n got %s\nwant %s", c.name, p.result(), c.code, got, c.want)
		}
	}
}

// Ranks hear of the end of one of them and call Abort or exit, in any order with what gorun hears of that end: the rank
// whose end was the first is blamed, and the exit code is that rank's.
func TestPolicyInterleavings(t *testing.T) {
	const culprit, ranks = 2, 4
	ends := map[string]struct {
		of   []func(p *policy, now time.Time) action
		code int
		say  string
	}{
		"exit": {[]func(*policy, time.Time) action{
			func(p *policy, now time.Time) action {
				return p.exited(now, rankEnd{Exit: procs.Exit{Rank: culprit, Code: 3}, unfinished: true})
			},
		}, 3, "exited with code 3"},
		"no Finalize": {[]func(*policy, time.Time) action{
			func(p *policy, now time.Time) action {
				return p.exited(now, rankEnd{Exit: procs.Exit{Rank: culprit}, unfinished: true})
			},
		}, 1, "exited with code 0 without calling Finalize"},
		"killed": {[]func(*policy, time.Time) action{
			func(p *policy, now time.Time) action {
				return p.exited(now, rankEnd{Exit: procs.Exit{Rank: culprit, Signal: 9}, unfinished: true})
			},
		}, 137, "was killed by signal 9"},
		"error": {[]func(*policy, time.Time) action{
			func(p *policy, now time.Time) action {
				return p.aborted(now, abortCall{by: procs.Exit{Rank: culprit}, code: 7, message: "diverged"})
			},
			func(p *policy, now time.Time) action {
				return p.exited(now, rankEnd{Exit: procs.Exit{Rank: culprit, Code: 7}, unfinished: true})
			},
		}, 7, "diverged"},
	}
	// walk takes the next event of any rank, until none is left.
	type events = map[int][]func(p *policy, now time.Time) action
	var walk func(left events, taken []int, check func(order []int))
	walk = func(left events, taken []int, check func(order []int)) {
		all := true
		for rank := range ranks {
			if n := len(left[rank]); n > 0 {
				all = false
				rest := maps.Clone(left)
				rest[rank] = left[rank][1:]
				walk(rest, append(slices.Clip(taken), rank), check)
			}
		}
		if all {
			check(taken)
		}
	}
	for name, end := range ends {
		all := events{culprit: end.of}
		for rank := range ranks {
			if rank != culprit {
				all[rank] = []func(*policy, time.Time) action{
					func(p *policy, now time.Time) action {
						return p.aborted(now, abortCall{by: procs.Exit{Rank: rank}, code: 1, message: "gone",
							consequence: true})
					},
					func(p *policy, now time.Time) action {
						return p.exited(now, rankEnd{procs.Exit{Rank: rank, Code: 1}, true, true})
					},
				}
				if rank == 0 { // os.Exit
					all[rank] = all[rank][1:]
				}
			}
		}
		walk(all, nil, func(order []int) {
			for _, step := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
				p, now, next := policy{killDelay: time.Second}, time.Unix(1000, 0), map[int]int{}
				var said []string
				note := func(a action) { said = append(append(said, a.say...), a.print...) }
				for _, rank := range order {
					if p.phase < killing { // else gorun has ended the rank before that
						note(all[rank][next[rank]](&p, now))
					}
					next[rank]++
					for range step / time.Millisecond {
						now = now.Add(time.Millisecond)
						if p.phase < killing {
							note(p.tick(now))
						}
					}
				}
				note(p.last())
				if len(said) != 1 || !strings.Contains(said[0], end.say) || p.code != end.code {
					t.Fatalf("%s, events of ranks %v, %v apart: code %d, said %q", name, order, step, p.code, said)
				}
			}
		})
	}
}

// A user hears the cause although the ranks cannot be killed, and once more at the end.
func TestPolicyOfALongEnd(t *testing.T) {
	p, now := policy{}, time.Unix(1000, 0)
	p.exited(now, rankEnd{Exit: procs.Exit{Rank: 1, Code: 3}})
	var said []string
	for range 10000 {
		now = now.Add(time.Millisecond)
		said = append(said, p.tick(now).say...)
	}
	said = append(said, p.last().say...)
	if len(said) != 2 || said[0] == said[1] ||
		!strings.HasSuffix(said[0]+stopped, said[1]) {
		t.Errorf("said %q", said)
	}
}
