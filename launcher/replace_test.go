package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/stdio"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// onHosts is a run of a job whose ranks run on the hosts of a list, with some spares.
func onHosts(t *testing.T, hosts, spares string) *run {
	t.Helper()
	j := &Job{Options: Options{Respawn: 100, Recover: true}}
	var err error
	if j.Hosts, err = place.List("-H", hosts); err == nil && spares != "" {
		j.Spares, err = place.List("--spares", spares)
	}
	for _, h := range j.Hosts {
		j.Apps = append(j.Apps, App{Ranks: h.Slots})
	}
	var plan *Plan
	if err == nil {
		plan, err = j.Plan()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &run{job: j, plan: plan, mailbox: newMailbox()}
	r.enroll()
	return r
}

// settled has ranks replaced, and returns the hosts of the new ones.
func (r *run) settled(t *testing.T, number int, dead ...int) string {
	t.Helper()
	takes, err := r.placesOf(pmi.Spawn{Ranks: len(dead), Dead: dead, Keys: []pmi.Pair{{Key: pmi.PlacesKey}}})
	if err != nil {
		t.Fatal(err)
	}
	hosts, at, err := r.settle(takes, number)
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, i := range at {
		names = append(names, hosts[i].Name)
	}
	return strings.Join(names, " ")
}

// A rank starts again on the host of the dead one; if that is lost, on a spare; else where the fewest ranks are.
func TestPlacesOfReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		hosts, spares string
		lost          string
		dead          []int
		want          string
	}{
		"its host":                 {"a:2,b:2,c:2", "", "", []int{1, 2, 5}, "a b c"},
		"its host, with a spare":   {"a:2,b:2", "s", "", []int{3}, "b"},
		"in the order of places":   {"a:2,b:2,c:2", "", "", []int{5, 0, 3}, "c a b"},
		"a spare":                  {"a:2,b:2", "s", "b", []int{2, 3}, "s s"},
		"the first spare":          {"a:2,b:2", "s,u", "b", []int{2, 3}, "s s"},
		"a spare for each host":    {"a:1,b:2,c:2", "s,u", "b c", []int{1, 3, 2, 4}, "s u s u"},
		"spares with slots":        {"a:1,b:3", "s:1,u:2", "b", []int{1, 2, 3}, "s u u"},
		"a spare that is lost":     {"a:2,b:2", "s,u", "b s", []int{2, 3}, "u u"},
		"too few spares":           {"a:1,b:2,c:2", "s", "b c", []int{1, 2, 3, 4}, "s s a a"},
		"no spare":                 {"a:1,b:3,c:2", "", "c", []int{4, 5}, "a a"},
		"no spare, and evenly":     {"a:1,b:1,c:2", "", "c", []int{2, 3}, "a b"},
		"one there, one elsewhere": {"a:2,b:2", "s", "b", []int{0, 3}, "a s"},
		"nowhere":                  {"a:2,b:2", "s", "a b s", []int{3}, "all hosts of the job are lost"},
	} {
		r := onHosts(t, c.hosts, c.spares)
		for _, host := range strings.Fields(c.lost) {
			r.spawns.lose(host)
		}
		for _, rank := range c.dead {
			r.rankGone(rank)
		}
		if got := r.settled(t, 1, c.dead...); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A host that is lost later takes its new ranks along, and the ranks of one host stay together in several calls.
func TestPlacesOfReplacedAgain(t *testing.T) {
	r := onHosts(t, "a:2,b:2,c:1", "s,u")
	say := func(number int, want string, dead ...int) {
		t.Helper()
		for _, rank := range dead {
			r.rankGone(rank)
		}
		if got := r.settled(t, number, dead...); got != want {
			t.Errorf("call %d: %s, want %s", number, got, want)
		}
	}
	r.spawns.lose("b")
	say(1, "s", 2)
	say(2, "s", 3)
	r.spawns.lose("c")
	say(3, "u", 4)
	// The process that had the rank before is no more asked about.
	if l := &r.spawns.roster; l.unlessEnded([]worldRank{{0, 3}}) == nil {
		t.Error("the process of call 2 has not ended")
	}
	s := &spawned{outer: r, number: 2, takes: []worldRank{{0, 3}}, want: pmi.Spawn{Ranks: 1}}
	r.spawns.dismiss(s)
	if l := &r.spawns.roster; l.unlessEnded([]worldRank{{0, 3}}) != nil {
		t.Error("the process of call 2 has ended")
	}
	r.spawns.lose("s")
	say(4, "u", 3)
}

// gorun waits until it knows of a death itself: a host that is about to be found lost is not used.
func TestReplacementAwaitsDeath(t *testing.T) {
	r := onHosts(t, "a:1,b:1", "s")
	settled := make(chan string)
	ask := func(limit time.Duration) {
		takes := []worldRank{{0, 1}}
		r.awaitEnds(takes, limit)
		hosts, _, _ := r.settle(takes, 1)
		settled <- hosts[0].Name
	}
	go ask(time.Hour)
	l := &r.spawns.roster
	proc.Eventually(t, "a wait for the death", func() bool {
		select {
		case host := <-settled:
			t.Fatalf("it starts on %s, and gorun has heard of no death", host)
		default:
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.changed != nil
	})
	r.rankGone(0) // another one
	r.spawns.lose("b")
	if host := <-settled; host != "s" {
		t.Errorf("it starts on %s", host)
	}
	go ask(time.Nanosecond) // not for ever: the ranks may not reach each other
	if host := <-settled; host != "s" {
		t.Errorf("it starts on %s", host)
	}
}

// A request that makes no sense is an error. Ranks that are not named start where the fewest are.
func TestPlacesHostile(t *testing.T) {
	r := onHosts(t, "a:2,b:2", "s")
	key := []pmi.Pair{{Key: pmi.PlacesKey}}
	for want, q := range map[string]pmi.Spawn{
		"dead rank 4 of a world of 4 ranks": {Ranks: 1, Dead: []int{4}, Keys: key},
		"take no places":                    {Ranks: 1, Dead: []int{0}},
	} {
		if _, err := r.placesOf(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	r.rankGone(2)
	takes, err := r.placesOf(pmi.Spawn{Ranks: 2, Keys: key})
	if err != nil || !slices.Equal(takes, []worldRank{noRank, noRank}) {
		t.Errorf("%v, %v", takes, err)
	}
	if hosts, at, err := r.settle(takes, 1); fmt.Sprint(hosts, at, err) != "[{b 0} {a 0}] [0 1] <nil>" {
		t.Errorf("%v %v %v", hosts, at, err)
	}
	// A rank that has a place asks in the name of the world of that; a rank that Spawn has started, of its own.
	of := func(s *spawned, world int) *run {
		return &run{job: r.job, spawned: s, plan: &Plan{World: world}}
	}
	child := of(&spawned{outer: r, number: 5}, 3)
	in := of(&spawned{outer: child, number: 6, takes: []worldRank{{5, 2}}}, 1)
	for _, c := range []struct {
		r    *run
		dead int
		want string
	}{{r, 3, "[{0 3}]"}, {child, 2, "[{5 2}]"}, {in, 2, "[{5 2}]"}, {in, 3, "[]"}} {
		takes, _ := c.r.placesOf(pmi.Spawn{Ranks: 1, Dead: []int{c.dead}, Keys: key})
		if got := fmt.Sprint(takes); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// heard returns what a run and its spawned jobs say from now on. It is called once.
func heard(r *run) (said func() string) {
	var text strings.Builder
	o := stdio.NewOutlet(&text, false, nil)
	r.streams = stdio.NewTo(o, o)
	return func() string {
		o.Flush()
		return text.String()
	}
}

// A Spawn that fails since a host is lost is an error of the rank that has asked. The job has no code of it.
func TestHostIsLostInSpawn(t *testing.T) {
	r := onHosts(t, "a:1,b:1", "")
	heard(r)
	r.policy = policy{recover: true, deaths: &r.spawns.deaths}
	var err error
	s := &spawned{outer: r, number: 1, joins: 2, want: pmi.Spawn{Ranks: 1}, answer: func(e error) { err = e }}
	s.run = (&Job{Options: r.job.Options, Spawn: 1}).newRun(&Plan{World: 1})
	s.run.spawned, s.run.streams, s.run.log, s.run.policy.deaths = s, r.streams, logger("", nil), &r.spawns.deaths
	s.run.ranks[0], s.run.alive = &rankState{host: "b", started: true}, 1
	s.run.hostLost(errors.New("host b is lost"))
	s.run.remoteLost(0)
	if err == nil || err.Error() != "host b is lost" {
		t.Errorf("Spawn is answered: %v", err)
	}
	if code := r.policy.result(); code != 0 {
		t.Errorf("the job has exit code %d", code)
	}
	if !r.spawns.isLost("b") {
		t.Error("the host may be used again")
	}
}

// The head of a tree hears from an agent that a host below that is lost.
func TestHostBelowAgentIsLost(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r := onHosts(t, "a:1,b:2", "s")
	r.streams, r.log, r.timer = stdio.New(null, null), logger("", null), time.NewTimer(time.Hour)
	r.policy = policy{recover: true, deaths: &r.spawns.deaths}
	r.ranks = map[int]*rankState{}
	for rank, host := range []string{"a", "b", "b"} {
		r.ranks[rank] = &rankState{host: host, started: true}
	}
	r.alive = len(r.ranks)
	c := &child{fleet: &fleet{run: r, start: startMessage{Options: r.job.Options}}, ranks: []int{0, 1, 2}}
	c.rankEnded(exitedMessage{Rank: 1, Lost: true, Err: errHostLost.Error()})
	if host := r.settled(t, 1, 1); host != "s" {
		t.Errorf("it starts on %s", host)
	}
}
