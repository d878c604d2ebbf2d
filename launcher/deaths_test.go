package launcher

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/procs"
)

// The exit code is of the first rank that has ended badly, unless a later process of the rank has met the others.
func TestDeathsAndStarts(t *testing.T) {
	one, other := procs.Exit{Rank: 1}, procs.Exit{Rank: 2}
	again := func(e procs.Exit, times int) procs.Exit {
		e.Rank, e.Place, e.Again = 0, e.Rank, times // in a job of its own
		return e
	}
	spawned := procs.Exit{Rank: 1, Spawn: 1}
	type step func(d *deaths)
	died := func(e procs.Exit, code int) step { return func(d *deaths) { d.died(e, code) } }
	start := func(e procs.Exit) step { return func(d *deaths) { d.take(1); d.start(idOf(e)) } }
	met := func(e procs.Exit, times int) step { return func(d *deaths) { d.met(again(e, times)) } }
	const well = "all ranks that died were started again, and the job has ended well: "
	badly := func(code, of string) string {
		return "the exit code is " + code + ": the first rank that ended badly and was not started again is " + of
	}
	for name, c := range map[string]struct {
		most  int
		steps []step
		code  int
		says  string
		next  string // of a rank that dies now
	}{
		"none": {most: 2, next: "; the job goes on, and Replace may start it again (--respawn: 2 of 2 starts left)"},
		"without --respawn": {steps: []step{died(one, 137), died(other, 3)}, code: 137,
			next: "; the job goes on without it"},
		"one": {most: 1, steps: []step{died(one, 137), start(one), met(one, 1)}, says: well + "rank 1",
			next: "; the job goes on without it: no start of --respawn 1 is left"},
		"not replaced": {most: 2, steps: []step{died(one, 137), died(other, 3), start(other), met(other, 1)}, code: 137,
			says: badly("137", "rank 1")},
		"two not replaced": {most: 2, steps: []step{died(one, 137), died(other, 3)}, code: 137,
			says: badly("137", "rank 1; so did rank 2")},
		"twice": {most: 5, steps: []step{died(one, 137), start(one), met(one, 1), died(again(one, 1), 139), start(one),
			met(one, 2), died(other, 1), start(other), met(other, 1)}, says: well + "rank 1 (2 times), rank 2"},
		"the second death is not replaced": {most: 5, steps: []step{died(one, 137), start(one), met(one, 1),
			died(again(one, 1), 139)}, code: 139, says: badly("139", "rank 1")},
		"exits with a code at the end": {most: 5, steps: []step{died(one, 137), start(one), met(one, 1),
			died(again(one, 1), 5)}, code: 5, says: badly("5", "rank 1")},
		"a start in vain": {most: 5, steps: []step{died(one, 137), start(one)}, code: 137, says: badly("137", "rank 1")},
		"one that was started in vain ends after the next": {most: 5, steps: []step{died(one, 137), start(one), met(one, 1),
			start(one), met(one, 2), died(again(one, 1), 1)}, says: well + "rank 1 (2 times)"},
		"a rank of Spawn": {most: 5, steps: []step{died(spawned, 9), start(one), met(one, 1)}, code: 9,
			says: badly("9", "rank 1 of spawn 1")},
		"a rank of Spawn, replaced": {most: 5, steps: []step{died(spawned, 9), start(spawned), met(spawned, 1)},
			says: well + "rank 1 of spawn 1"},
		"one that had returned": {most: 1, steps: []step{start(one), met(one, 1)}},
		"a host":                {steps: []step{func(d *deaths) { d.hostLost("x") }}, code: 1},
		"a host, whose rank is replaced": {most: 3, steps: []step{func(d *deaths) { d.hostLost("x") }, died(one, 1),
			start(one), met(one, 1)}, says: well + "rank 1"},
	} {
		d := &deaths{most: c.most}
		for _, s := range c.steps {
			s(d)
		}
		if d.code() != c.code || d.summary() != c.says {
			t.Errorf("%s: code %d, %q, want %d, %q", name, d.code(), d.summary(), c.code, c.says)
		}
		if next := d.goesOn("it"); c.next != "" && next != c.next {
			t.Errorf("%s: %q, want %q", name, next, c.next)
		}
	}
}

// What ends the job gives it its code, whatever ranks have died and been replaced before.
func TestCodeOfAnEndAfterDeaths(t *testing.T) {
	now := time.Unix(1000, 0)
	p := policy{recover: true, deaths: &deaths{most: 1}}
	a := p.exited(now, rankEnd{Exit: procs.Exit{Rank: 1, Pid: 7, Host: "h", Signal: syscall.SIGKILL}, unfinished: true})
	want := "rank 1 (pid 7 on host h) was killed by signal 9 (killed); the job goes on, and Replace may start it again " +
		"(--respawn: 1 of 1 starts left)"
	if len(a.say) != 1 || a.say[0] != want || a.gone != 2 || p.result() != 137 {
		t.Errorf("%+v, code %d", a, p.result())
	}
	p.deaths.start(rankID{rank: 1})
	p.deaths.met(procs.Exit{Place: 1, Again: 1})
	if p.result() != 0 {
		t.Errorf("the rank is there again, and the code is %d", p.result())
	}
	p.aborted(now, abortCall{by: procs.Exit{Rank: 0}, code: 7})
	if p.result() != 7 {
		t.Errorf("after Abort the code is %d", p.result())
	}
}

// Runs that have ranks on one host say once that it is lost.
func TestHostIsLostOnce(t *testing.T) {
	d := &deaths{most: 2}
	if !d.hostLost("host a is lost") || d.hostLost("host a is lost") || !d.hostLost("host b is lost") {
		t.Error("not once")
	}
	if got := d.goesOn("its ranks"); !strings.HasPrefix(got, "; the job goes on, and Replace may start its ranks again") {
		t.Error(got)
	}
}

// Ranks may ask for the start of a rank before gorun has heard of its end. That start is not said to be missing.
func TestDeathIsHeardAfterItsStart(t *testing.T) {
	d := &deaths{most: 1}
	d.take(1)
	d.start(rankID{rank: 1})
	const starts, none = "; the job goes on, and Replace starts it again",
		"; the job goes on without it: no start of --respawn 1 is left"
	for _, c := range []struct {
		e    procs.Exit
		want string
	}{{procs.Exit{Rank: 1}, starts}, {procs.Exit{Rank: 2}, none}, {procs.Exit{Place: 1, Again: 1}, none}} {
		if got := d.goesOnWithout(c.e); got != c.want {
			t.Errorf("%+v: %q, want %q", c.e, got, c.want)
		}
	}
}
