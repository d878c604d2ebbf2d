package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/bind"
	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
)

// A process that takes the place of a rank that has died is for the user that rank: it has the rank's number, program
// and settings. Inside gorun it is a rank of a spawned job, whose number and ranks the user does not read.

// Again is what the ranks of a spawned job are that take the places of others.
type Again struct {
	Ranks  []AgainRank   // of each rank
	Spawn  int           // the number of the job whose ranks they are
	Place  place.Request // of that job
	Before int           // likewise
}

// AgainRank is a rank that is started again.
type AgainRank struct {
	Rank  int // its number in the job in which it was first
	Times int // how often it has been started again with this start, from 1 on
	Start int `json:"-"` // which of all starts of --respawn this is
	// Host is where it was first, as one of so many ranks there.
	Host             string
	Local, LocalSize int
}

// check refuses what gorun does not send.
func (a *Again) check(world int) error {
	switch {
	case a == nil:
		return nil
	case len(a.Ranks) != world:
		return fmt.Errorf("%d ranks start again in a job of %d", len(a.Ranks), world)
	case a.Before < 0 || a.Before > maxRanks || a.Spawn < 0:
		return fmt.Errorf("%d ranks before spawn %d, whose ranks start again", a.Before, a.Spawn)
	}
	for _, w := range a.Ranks {
		if w.Rank < 0 || w.Rank >= maxRanks || w.Times < 1 || w.LocalSize < 1 || w.LocalSize > maxRanks || w.Local < 0 ||
			w.Local >= w.LocalSize {
			return fmt.Errorf("rank %d, %d of %d on its host, starts again for the %dth time", w.Rank, w.Local, w.LocalSize,
				w.Times)
		}
	}
	return nil
}

// with returns a with all strings of bytes changed.
func (a *Again) with(change func(string) string) *Again {
	if a == nil {
		return nil
	}
	b := *a
	b.Ranks = slices.Clone(a.Ranks)
	for i := range b.Ranks {
		b.Ranks[i].Host = change(b.Ranks[i].Host)
	}
	return &b
}

// titled returns the end of a rank with what the user calls the rank.
func (j *Job) titled(e procs.Exit) procs.Exit {
	if e.Spawn = j.Spawn; j.Again != nil {
		w := &j.Again.Ranks[e.Rank]
		e.Spawn, e.Place, e.Again = j.Again.Spawn, w.Rank, w.Times
	}
	return e
}

// fileName is the beginning of the names of a rank's files.
func (j *Job) fileName(rank int) string {
	e := j.titled(procs.Exit{Rank: rank})
	name := fmt.Sprintf("rank.%d", e.Number())
	if e.Again != 0 {
		name += fmt.Sprintf(".again%d", e.Again)
	}
	return name
}

// origin is the run in which the ranks of this run were first.
func (r *run) origin() *run {
	if r.spawned != nil && r.spawned.origin != nil {
		return r.spawned.origin
	}
	return r
}

// startAgain makes of a spawned job one whose ranks are ranks of r.origin that start again. first is the number of the
// first of these starts.
func (r *run) startAgain(j *Job, takes []rankID, first int) {
	o := r.origin()
	a := &Again{Spawn: o.job.Spawn, Place: o.job.Place, Before: o.job.Before}
	for i, id := range takes {
		w := o.placeOf(id.rank)
		w.Times, w.Start = r.first().spawns.deaths.start(id), first+i
		a.Ranks = append(a.Ranks, w)
	}
	j.Again, j.Apps = a, o.appsOf(a.Ranks)
	j.OutputDir, j.PrintExits = o.job.OutputDir, r.first().job.PrintExits
}

// haveMet says that ranks have been started again.
func (s *spawned) haveMet() {
	r := s.run
	if r.job.Again == nil {
		return
	}
	for rank, w := range r.job.Again.Ranks {
		e := r.job.titled(procs.Exit{Rank: rank})
		r.first().spawns.deaths.met(e)
		host, was, why := r.hostOf(rank), r.first().spawns.meets(idOf(e)), ""
		if r.first().outOfSpares(host, was) {
			why = "; no spare is free"
		}
		r.say("%s has been started again on %s (start %d of --respawn %d)%s", e.Name(), host, w.Start, r.job.Respawn, why)
	}
}

// sayFailed says that the processes of a job do not take the places of ranks, unless the whole job ends.
func (s *spawned) sayFailed(j *Job, err error) {
	if !s.want.InPlaces() || s.ending {
		return
	}
	if err == errEnds {
		err = errors.New("the rank that has asked for it has ended")
	}
	if j.Again == nil {
		s.first.sayRefused(slices.Repeat([]rankID{noRank}, s.want.Ranks), err)
		return
	}
	for rank, w := range j.Again.Ranks {
		s.first.say("%s was not started again (start %d of --respawn %d): %v", j.titled(procs.Exit{Rank: rank}).Name(),
			w.Start, j.Respawn, err)
	}
}

// sayRefused says that Replace starts no processes, for which there is no job. Where the user does not want any, that
// was said at the end of each rank.
func (r *run) sayRefused(takes []rankID, err error) {
	if len(takes) == 0 || r.job.Respawn == 0 {
		return
	}
	what := fmt.Sprintf("%d %s", len(takes), plural(len(takes), "process"))
	if takes[0] != noRank {
		var names []string
		for _, id := range takes {
			names = append(names, procs.Exit{Rank: id.rank, Spawn: id.spawn}.Name())
		}
		what = someOf(names) + " again"
	}
	r.say("Replace has not started %s: %v", what, err)
}

// placeOf is where a rank was first.
func (r *run) placeOf(rank int) AgainRank {
	l := r.plan.Layout
	at := l.Order.HostOf(rank)
	w := AgainRank{Rank: rank, Host: l.Hosts[at].Name}
	for other, host := range l.Order.Ranks(r.plan.World) {
		if host != at {
			continue
		}
		if w.LocalSize++; other < rank {
			w.Local++
		}
	}
	return w
}

// appsOf are the programs of ranks that start again: their own, with the settings of each.
func (r *run) appsOf(ranks []AgainRank) (apps []App) {
	last := -1
	for i, w := range ranks {
		of := r.plan.Specs[w.Rank].App
		if i > 0 && of == last && ranks[i-1].Times == w.Times {
			apps[len(apps)-1].Ranks++
			continue
		}
		last = of
		app := r.job.Apps[of]
		app.Ranks, app.Env = 1, slices.Clone(app.Env)
		set := func(name, value string) {
			app.Env = slices.DeleteFunc(app.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
			app.Env = append(app.Env, name+"="+value)
		}
		variable := func(name string) string {
			return cmp.Or((&Job{Environ: app.Env}).variable(name), r.job.variable(name))
		}
		set(pmi.EnvSpawned, "1")
		if variable("GORUN_REPORT") != "" {
			set("GORUN_REPORT", "") // the report has the calls on the first world
		}
		if dir := variable("GORUN_CPUPROFILE"); dir != "" {
			set("GORUN_CPUPROFILE", filepath.Join(dir, fmt.Sprintf("again%d", w.Times)))
		}
		apps = append(apps, app)
	}
	return apps
}

// on is what a host has decided for a rank that starts there again; ok: it was there before.
func (a *Again) on(name string, host cpuset.Host, mode bind.Mode, rank int) (s hostSettings, ok bool) {
	if a == nil || a.Ranks[rank].Host != name {
		return s, false
	}
	w := &a.Ranks[rank]
	d := divide(host, mode, a.Place, a.Before, w.LocalSize)
	return d.of(w.Local), true
}
