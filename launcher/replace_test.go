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
	r := &run{job: j, plan: plan, mailbox: newMailbox(), ranks: map[int]*rankState{}}
	for rank := range plan.World {
		r.ranks[rank] = newRankState("")
	}
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

// startsAgain is a job whose processes become ranks.
func startsAgain(number int, ranks ...rankID) *Job {
	j := &Job{Apps: []App{{Ranks: len(ranks)}}, Spawn: number, Again: &Again{Spawn: ranks[0].spawn}}
	for _, id := range ranks {
		j.Again.Ranks = append(j.Again.Ranks, AgainRank{Rank: id.rank, Times: 1})
	}
	return j
}

// A spare on which no rank of the host runs for which it stood, since their start has failed, is for another lost host.
// One to which ranks return in the same call is not free.
func TestSpareIsFreeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		spares string
		dead   []int
		want   string
	}{
		"one spare":                  {"s", []int{3}, "s"},
		"another one is free":        {"s,u", []int{3}, "u"},
		"the ranks there come again": {"s", []int{3, 1}, "a s"},
	} {
		r := onHosts(t, "a:1,b:2,c:1", c.spares)
		r.spawns.lose("b")
		r.rankGone(1)
		r.rankGone(2)
		if got := r.settled(t, 1, 1, 2); got != "s s" {
			t.Fatalf("%s: at first %s", name, got)
		}
		r.spawns.dismiss(startsAgain(1, rankID{0, 1}, rankID{0, 2}))
		r.spawns.lose("c")
		r.rankGone(3)
		if got := r.settled(t, 2, c.dead...); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// gorun says of a rank that it could not start on a spare.
func TestOutOfSpares(t *testing.T) {
	some, none := onHosts(t, "a:2,b:2", "s,u"), onHosts(t, "a:2,b:2", "")
	for host, want := range map[string]bool{"a": true, "b": false, "s": false, "u": false} {
		if some.outOfSpares(host, "b") != want || none.outOfSpares(host, "b") {
			t.Errorf("a rank of b starts on %s: with spares %v, without %v", host, !want, none.outOfSpares(host, "b"))
		}
	}
}

// A rank that has moved before, since no spare was free then, and starts on the host where it was, needs no spare.
func TestMovedRankNeedsNoSpare(t *testing.T) {
	r := onHosts(t, "a:1,b:1,c:1", "s")
	settle := func(number, dead int, want string) {
		t.Helper()
		if got := r.settled(t, number, dead); got != want {
			t.Fatalf("rank %d starts on %s, want %s", dead, got, want)
		}
	}
	r.spawns.lose("b")
	r.rankGone(1)
	settle(1, 1, "s")
	if was := r.spawns.meets(rankID{0, 1}); was != "b" {
		t.Errorf("rank 1 was on %q", was)
	}
	r.spawns.lose("c")
	r.rankGone(2)
	settle(2, 2, "a") // a start that fails
	r.spawns.dismiss(startsAgain(2, rankID{0, 2}))
	for i, host := range []string{"c", "a"} { // to a, as no spare is free; then on a again
		settle(3+i, 2, "a")
		was := r.spawns.meets(rankID{0, 2})
		if was != host || r.outOfSpares("a", was) != (i == 0) {
			t.Errorf("rank 2 was on %q, out of spares: %v", was, r.outOfSpares("a", was))
		}
		r.spawns.dismiss(startsAgain(3+i, rankID{0, 2}))
	}
}

// What a start may take counts from the request on, and half of it is left for the processes.
func TestPatienceOfAStart(t *testing.T) {
	for waited, want := range map[time.Duration]time.Duration{0: 60, 20: 40, 50: 30, 100: 30} {
		s := &spawned{want: pmi.Spawn{Ranks: 1, Limit: time.Minute, Meet: true}, asked: time.Now().Add(-waited * time.Second)}
		s.joins = s.want.Joins()
		if got := s.patience().Round(time.Second); got != want*time.Second {
			t.Errorf("after %ds: %v, want %ds", waited, got, want)
		}
		if s.joins--; s.patience() != time.Minute {
			t.Errorf("to meet, after %ds: %v", waited, s.patience())
		}
	}
}

// A host that is lost later takes its new ranks along, and the ranks of one host stay together in several calls.
func TestPlacesOfReplacedAgain(t *testing.T) {
	r := onHosts(t, "a:2,b:2,c:1", "s,u")
	say := func(number int, want string, dead ...int) {
		t.Helper()
		for _, rank := range dead {
			r.ranks[rank] = newRankState("") // of the process that has the place
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
	if l := &r.spawns.roster; l.unlessEnded([]rankID{{0, 3}}) == nil {
		t.Error("the process of call 2 has not ended")
	}
	r.spawns.dismiss(startsAgain(2, rankID{0, 3}))
	if l := &r.spawns.roster; l.unlessEnded([]rankID{{0, 3}}) != nil {
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
		takes := []rankID{{0, 1}}
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
	if err != nil || !slices.Equal(takes, []rankID{noRank, noRank}) {
		t.Errorf("%v, %v", takes, err)
	}
	if hosts, at, err := r.settle(takes, 1); fmt.Sprint(hosts, at, err) != "[{b 0} {a 0}] [0 1] <nil>" {
		t.Errorf("%v %v %v", hosts, at, err)
	}
	// A rank that has a place asks in the name of the world of that; a rank that Spawn has started, of its own.
	of := func(s *spawned, world int) *run {
		return &run{job: &Job{Spawn: s.number}, spawned: s, plan: &Plan{World: world}}
	}
	child := of(&spawned{first: r, number: 5}, 3)
	in := of(&spawned{first: r, number: 6, origin: child}, 1)
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
	s := &spawned{first: r, number: 1, joins: 2, want: pmi.Spawn{Ranks: 1}, answer: func(e error) { err = e }}
	s.run = (&Job{Options: r.job.Options, Spawn: 1}).newRun(&Plan{World: 1})
	s.run.spawned, s.run.streams, s.run.log, s.run.policy.deaths = s, r.streams, logger("", nil), &r.spawns.deaths
	s.run.ranks[0], s.run.alive = &rankState{host: "b", started: true, gone: make(chan struct{})}, 1
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

// A job that is started does not keep what answers the rank that has asked, which keeps the run of that rank.
func TestLastAnswerIsForgotten(t *testing.T) {
	for name, last := range map[string]func(s *spawned){
		"started": func(s *spawned) { s.joined(1); s.joined(0) },
		"at once": func(s *spawned) { s.joined(0) },
		"failed":  func(s *spawned) { s.joined(1); s.reply(errEnds) },
	} {
		r, answers := onHosts(t, "a:1", ""), 0
		s := &spawned{first: r, joins: 2, run: r, answer: func(error) { answers++ }, answered: make(chan struct{})}
		if last(s); s.answer != nil || !isClosed(s.answered) || answers != 2 {
			t.Errorf("%s: %d answers", name, answers)
		}
		s.reply(nil)
	}
}

// Ranks that start in places of ranks that are not known count as others do.
func TestStartsOfUnknownRanksCount(t *testing.T) {
	r := onHosts(t, "a:2,b:2", "")
	r.spawns.deaths.most = 3
	heard(r)
	start := func(q pmi.Spawn) error {
		takes, err := r.placesOf(q)
		if err == nil {
			_, err = (&spawned{first: r, want: q}).prepare(r, 0, takes)
		}
		return err
	}
	unknown := askAgain(t, 0, 0)
	unknown.Dead = nil
	if err := start(unknown); err != nil {
		t.Fatal(err)
	}
	if got := r.spawns.deaths.goesOn("it"); !strings.Contains(got, "1 of 3 starts left") {
		t.Error(got)
	}
	if err := start(askAgain(t, 1, 2)); !errors.Is(err, pmi.ErrNoSpawn) {
		t.Errorf("two more ranks start: %v", err)
	}
	if err := start(askAgain(t, 1)); err != nil {
		t.Error(err)
	}
	if got := r.spawns.deaths.goesOn("it"); !strings.Contains(got, "no start of --respawn 3 is left") {
		t.Error(got)
	}
	// They are ranks of a job of their own, which load their hosts.
	if r.spawns.holders[rankID{0, 1}].job != 2 {
		t.Errorf("%+v", r.spawns.holders[rankID{0, 1}])
	}
}

// The user reads why Replace has started no ranks.
func TestReplaceSaysWhyNot(t *testing.T) {
	for want, c := range map[string]struct {
		respawn int
		lost    string
		unknown bool
		dead    []int
	}{
		"gorun: Replace has not started rank 1, rank 3 again: the launcher starts no more ranks: the starts of --respawn 1 " +
			"do not suffice: ranks to start now: 2, started before: 0; give more, or call Shrink\n": {
			respawn: 1, dead: []int{1, 3}},
		"gorun: Replace has not started 2 processes: the launcher starts no more ranks: the starts of --respawn 1 do not " +
			"suffice: ranks to start now: 2, started before: 0; give more, or call Shrink\n": {
			respawn: 1, unknown: true, dead: []int{1, 3}},
		"gorun: Replace has not started rank 3 again: all hosts of the job are lost\n": {
			respawn: 9, lost: "a b", dead: []int{3}},
		"": {respawn: 0, dead: []int{3}}, // the line about its death says so
	} {
		r := onHosts(t, "a:2,b:2", "")
		r.job.Respawn, r.spawns.deaths.most = c.respawn, c.respawn
		said := heard(r)
		for _, host := range strings.Fields(c.lost) {
			r.spawns.lose(host)
		}
		for _, rank := range c.dead {
			r.rankGone(rank)
		}
		q := askAgain(t, c.dead...)
		if c.unknown {
			q.Dead = nil
		}
		var err error
		go r.spawn(0, q, func(e error) { err = e })
		(<-r.posts)()
		if got := said(); got != want || err == nil {
			t.Errorf("%q, want %q; the error: %v", got, want, err)
		}
	}
}

// A rank that asks for others, and dies while Replace waits for hosts, uses up no start.
func TestDeadRankUsesUpNoStart(t *testing.T) {
	r := onHosts(t, "a:2,b:2", "")
	r.rankGone(3)
	r.rankGone(0)
	var err error
	go r.spawn(0, askAgain(t, 3), func(e error) { err = e })
	(<-r.posts)()
	if err != errEnds || r.spawns.deaths.starts != 0 {
		t.Errorf("%v, and %d starts", err, r.spawns.deaths.starts)
	}
}

// The user also reads why where the job of the new ranks cannot be planned, here since a folder is gone.
func TestReplaceSaysThatPlanFails(t *testing.T) {
	r := runOf(t, &Job{Options: Options{Recover: true, Respawn: 2},
		Apps: []App{{Ranks: 3, Path: "/bin/true", Name: "true"}}}, cpusOf(4))
	r.job.Apps[0].Dir = "/nowhere"
	for want, q := range map[string]pmi.Spawn{
		"gorun: rank 2 was not started again (start 1 of --respawn 2): --wdir /nowhere: no such file or " +
			"directory\n": askAgain(t, 2),
		"gorun: Replace has not started 1 process: mpi.SpawnDir, which names a folder of each host: /nowhere: no such file " +
			"or directory\n": {Ranks: 1, Keys: askAgain(t, 2).Keys},
		"": {Ranks: 1}, // of Spawn: the program has the error
	} {
		said := heard(r)
		var answer error
		s := &spawned{first: r, want: q, joins: 2, answer: func(err error) { answer = err }}
		takes, err := r.placesOf(q)
		var j *Job
		if err == nil {
			j, err = s.prepare(r, 0, takes)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.supervise(j)
		if got := said(); got != want || answer == nil {
			t.Errorf("%q, want %q; the answer: %v", got, want, answer)
		}
		r.spawns.deaths.starts = 0
	}
}

// A Replace of ranks that are not known is not called Spawn.
func TestSlowReplaceIsNamed(t *testing.T) {
	r := runOf(t, &Job{Apps: []App{{Ranks: 2, Path: "/bin/true", Name: "true"}}}, cpusOf(4))
	said := heard(r)
	for _, q := range []pmi.Spawn{{Ranks: 1, Keys: askAgain(t, 0).Keys, Meet: true}, {Ranks: 1, Meet: true}} {
		s := &spawned{first: r, want: q, joins: 1, run: r}
		s.isSlow(1)
	}
	want := "gorun: Replace waits: for 10s not all of the 1 process of true have met the ranks that called Replace\n" +
		"gorun: Spawn waits: for 10s not all of the 1 process of true have met the ranks that called Spawn\n"
	if got := said(); got != want {
		t.Errorf("%q, want %q", got, want)
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
		r.ranks[rank] = &rankState{host: host, started: true, gone: make(chan struct{})}
	}
	r.alive = len(r.ranks)
	c := &child{fleet: &fleet{run: r, start: startMessage{Options: r.job.Options}}, ranks: []int{0, 1, 2}}
	c.rankEnded(exitedMessage{Rank: 1, Lost: true, Err: errHostLost.Error()})
	if host := r.settled(t, 1, 1); host != "s" {
		t.Errorf("it starts on %s", host)
	}
}
