package launcher

import (
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
)

// cpusOf is a host with so many CPUs.
func cpusOf(n int) (host cpuset.Host) {
	for i := range n {
		host.CPUs = append(host.CPUs, cpuset.CPU{ID: i, Core: i})
	}
	return host
}

// runOf is a run of a job that is planned, and has not begun.
func runOf(t *testing.T, j *Job, host cpuset.Host) *run {
	t.Helper()
	p, err := j.plan(host)
	if err != nil {
		t.Fatal(err)
	}
	return j.newRun(p)
}

// askAgain is the request of a rank that has these ranks of the world replaced.
func askAgain(t *testing.T, ranks ...int) pmi.Spawn {
	t.Helper()
	q := pmi.Spawn{Ranks: len(ranks), Dead: ranks}
	if err := q.Keep(pmi.PlacesKey, nil); err != nil {
		t.Fatal(err)
	}
	return q
}

// jobFor is the job that rank 0 has asked for.
func jobFor(t *testing.T, r *run, q pmi.Spawn) *Job {
	t.Helper()
	takes, err := r.placesOf(q)
	var j *Job
	if err == nil {
		j, err = (&spawned{first: r, want: q}).prepare(r, 0, takes)
	}
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// A rank that starts again on its host has the program, the settings and the CPUs that it had.
func TestAgainIsAsBefore(t *testing.T) {
	own := func(kv string) bool {
		return slices.ContainsFunc([]string{pmi.EnvRank, pmi.EnvSize, pmi.EnvSpawned}, func(name string) bool {
			return strings.HasPrefix(kv, name+"=")
		})
	}
	// Ranks that outnumber CPUs have GOMAXPROCS, and are lazy if they are many, and the others are bound.
	for _, c := range []struct{ cpus, more int }{{2, 0}, {2, 5}, {16, 0}} {
		j := &Job{Environ: []string{"A=1", "GORUN_CPUPROFILE=/p"}, Apps: []App{
			{Ranks: 1, Path: "/bin/true", Name: "master", Args: []string{"-m"}},
			{Ranks: 3 + c.more, Path: "/bin/false", Name: "worker", Dir: "/", Env: []string{"A=2"}},
		}}
		j.Recover, j.Respawn, j.OutputDir = true, 5, "/od"
		r := runOf(t, j, cpusOf(c.cpus))
		for _, ranks := range [][]int{{2}, {0, 3}, {1, 2}} {
			k := jobFor(t, r, askAgain(t, ranks...))
			p, err := k.plan(cpusOf(c.cpus))
			if err != nil {
				t.Fatal(err)
			}
			for i, rank := range ranks {
				was, is := r.plan.Specs[rank], p.Specs[i]
				rid := func(env []string) []string {
					env = slices.DeleteFunc(slices.Clone(env), own)
					env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "GORUN_CPUPROFILE=") })
					slices.Sort(env)
					return env
				}
				if was.Path != is.Path || !slices.Equal(was.Argv, is.Argv) || was.Dir != is.Dir ||
					!slices.Equal(was.CPUs, is.CPUs) || !slices.Equal(rid(was.Env), rid(is.Env)) ||
					was.Lazy != (c.more > 0) || is.Lazy != was.Lazy {
					t.Errorf("%d CPUs, rank %d of %v: was\n%+v\nis\n%+v", c.cpus, rank, ranks, was, is)
				}
				e := k.titled(procs.Exit{Rank: i})
				if e.Number() != rank || e.Name() != "rank "+string(rune('0'+rank)) {
					t.Errorf("rank %d is called %s", rank, e.Name())
				}
			}
			if k.OutputDir != "/od" {
				t.Errorf("the output goes to %s", k.OutputDir)
			}
			again := k.newRun(p) // what such a rank spawns has the folder of any Spawn
			again.spawned = &spawned{first: r, origin: r}
			child, err := (&spawned{first: r, want: pmi.Spawn{Ranks: 1}}).prepare(again, 0, nil)
			folder := folderOf(r.spawns.number)
			if err != nil || child.OutputDir != "/od/"+folder ||
				!slices.Contains(child.Apps[0].Env, "GORUN_CPUPROFILE=/p/"+folder) {
				t.Errorf("%+v, %v", child, err)
			}
		}
		if name := (&Job{Again: &Again{Ranks: []AgainRank{{Rank: 2, Times: 2}}}}).fileName(0); name != "rank.2.again2" {
			t.Error(name)
		}
	}
}

// Ranks of a job on several hosts know where they were. What a process asks for that is none of the job's is started as
// by Spawn.
func TestAgainOnHosts(t *testing.T) {
	j := &Job{Options: Options{Respawn: 1}, Apps: []App{{Ranks: 5, Path: "/bin/true", Name: "true"}},
		Hosts: []place.Host{{Name: "again-a", Slots: 2}, {Name: "again-b", Slots: 3}}}
	r := runOf(t, j, cpusOf(2))
	if w := r.placeOf(3); w.Rank != 3 || w.Host != "again-b" || w.Local != 1 || w.LocalSize != 3 {
		t.Errorf("%+v", w)
	}
	unknown := askAgain(t, 1)
	unknown.Dead = nil
	if jobFor(t, r, unknown).Again != nil {
		t.Error("a rank that is not known starts again")
	}
	for _, bad := range []*Again{{}, {Ranks: []AgainRank{{Rank: -1, Times: 1, LocalSize: 1}}},
		{Ranks: []AgainRank{{Times: 1, Local: 1, LocalSize: 1}}}, {Ranks: []AgainRank{{LocalSize: 1}}},
		{Ranks: []AgainRank{{Times: 1, LocalSize: 1}}, Before: -1}} {
		if bad.check(1) == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
