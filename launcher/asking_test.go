package launcher

import (
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/waits"
)

// The table has the last process of each rank in its place, and the ranks of each Spawn by themselves.
func TestTableOfSeveralRuns(t *testing.T) {
	r := &run{job: &Job{}}
	at := func(spawn, rank, times int, note string) row {
		return row{rankID{spawn, rank}, times, waits.Rank{Rank: rank, Again: times > 0, Host: "h",
			Account: waits.Account{Note: note}}}
	}
	got := r.table([]row{at(0, 0, 0, "computes"), at(0, 1, 0, "has ended"), at(0, 2, 0, "computes"),
		at(1, 0, 0, "sleeps"), at(0, 1, 1, "has ended"), at(0, 1, 2, "computes"), at(1, 1, 1, "reads")})
	want := []string{"ranks 0-2 (1 started again): computes", "the ranks of spawn 1, numbered as in their world:",
		"rank 0: sleeps", "rank 1 (started again): reads"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The watch for jobs that stand does not look again while ranks of a spawned job have not answered.
func TestOneLookAtATime(t *testing.T) {
	of := func(j *Job) *run {
		r := &run{job: j, plan: &Plan{World: 2}, mailbox: newMailbox(), ranks: map[int]*rankState{}}
		for rank := range r.plan.World {
			r.ranks[rank] = &rankState{host: "a", started: true, ended: true}
		}
		return r
	}
	r, again := of(&Job{Options: Options{Respawn: 1, Stall: Stall{Limit: time.Hour}}}), of(&Job{Spawn: 1})
	r.spawns.all = []*spawned{{first: r, number: 1, run: again, begun: true}}
	r.beginWatch()
	for look := 1; look < 3; look++ {
		r.watchTurn()
		r.watchTurn()
		if r.asking.last != look {
			t.Fatalf("%d looks have begun, want %d", r.asking.last, look)
		}
		(<-again.posts)() // it answers
		(<-r.posts)()     // which ends the look
	}
}

// Accounts of the messages of several worlds do not go together.
func TestAccountsOfOneReplace(t *testing.T) {
	at := func(spawn, rank, times int, world string) row {
		return row{rankID{spawn, rank}, times, waits.Rank{Account: waits.Account{World: world}}}
	}
	for name, c := range map[string]struct {
		rows []row
		want int // accounts
	}{
		"all are in it":            {[]row{at(0, 0, 0, "w"), at(0, 1, 0, ""), at(0, 1, 1, "w")}, 2},
		"next to a spawned rank":   {[]row{at(0, 0, 0, "w"), at(0, 1, 1, "w"), at(1, 0, 0, "")}, 2},
		"one has not met them":     {[]row{at(0, 0, 0, "w"), at(0, 1, 1, "")}, 0},
		"one is not there again":   {[]row{at(0, 0, 0, "w"), at(0, 1, 0, "")}, 0},
		"one is in the one before": {[]row{at(0, 0, 0, "w"), at(0, 1, 1, "v"), at(0, 2, 1, "w")}, 0},
	} {
		if got := ofOneReplace(c.rows); len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
