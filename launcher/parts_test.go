package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
)

// hostOf makes a host: sockets x cores x threads, one NUMA node for each socket.
func hostOf(sockets, cores, threads int) cpuset.Host {
	var h cpuset.Host
	for s := range sockets {
		for c := range cores {
			for th := range threads {
				h.CPUs = append(h.CPUs, cpuset.CPU{ID: th*sockets*cores + s*cores + c, Core: c, Socket: s, Node: s})
			}
		}
	}
	return h
}

func TestAssign(t *testing.T) {
	if !procs.CanBind {
		t.Skip("nothing can be bound here")
	}
	ht := hostOf(1, 2, 2) // CPUs 0,2 are core 0; 1,3 are core 1
	limited := hostOf(1, 8, 1)
	limited.Quota = 2
	for _, c := range []struct {
		name string
		mode Bind
		host cpuset.Host
		n    int
		want string
	}{
		{"one rank has all", BindAuto, hostOf(1, 4, 1), 1, "[[0 1 2 3]]"},
		{"halves", BindAuto, hostOf(1, 4, 1), 2, "[[0 1] [2 3]]"},
		{"3 on 4", BindAuto, hostOf(1, 4, 1), 3, "[[0] [1] [2 3]]"},
		{"threads of a core together", BindAuto, ht, 2, "[[0 2] [1 3]]"},
		{"one thread each", BindAuto, ht, 4, "[[0] [2] [1] [3]]"},
		{"whole cores", BindAuto, hostOf(1, 4, 2), 3, "[[0 4] [1 5] [2 3 6 7]]"},
		{"whole cores of two sockets", BindAuto, hostOf(2, 4, 2), 3, "[[0 1 8 9] [2 3 4 10 11 12] [5 6 7 13 14 15]]"},
		{"more ranks than cores", BindAuto, hostOf(1, 4, 2), 5, "[[0] [4] [1 5] [2 6] [3 7]]"},
		{"two ranks on three threads", BindAuto, hostOf(1, 1, 3), 2, "[[0] [1 2]]"},
		{"ranks outnumber", BindAuto, ht, 5, "[]"},
		{"quota", BindAuto, limited, 3, "[]"},
		{"quota fits", BindAuto, limited, 2, "[[0 1 2 3] [4 5 6 7]]"},
		{"none", BindNone, ht, 2, "[]"},
		{"core", BindCore, ht, 2, "[[0 2] [1 3]]"},
		{"core, few ranks", BindCore, hostOf(2, 2, 1), 2, "[[0] [1]]"},
		{"core, outnumbered", BindCore, ht, 4, "[[0 2] [0 2] [1 3] [1 3]]"},
		{"numa", BindNUMA, hostOf(2, 2, 1), 4, "[[0 1] [0 1] [2 3] [2 3]]"},
		{"numa, one rank", BindNUMA, hostOf(2, 2, 1), 1, "[[0 1]]"},
		{"socket", BindSocket, hostOf(2, 2, 2), 3, "[[0 4 1 5] [0 4 1 5] [2 6 3 7]]"},
		{"l3cache", BindL3, caches(), 3, "[[0 1] [2 3] [4 5]]"},
		{"l3cache, one rank", BindL3, caches(), 1, "[[0 1]]"},
		{"hwthread", BindThread, ht, 3, "[[0] [2] [1]]"},
		{"hwthread, outnumbered", BindThread, ht, 5, "[[0] [0] [2] [1] [3]]"},
	} {
		if got := fmt.Sprint(assign(c.mode, place.Request{}, c.host, c.n)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	// However odd the host: no CPU has two ranks, and a core is shared only by ranks that have nothing else.
	for _, host := range []cpuset.Host{hostOf(2, 4, 2), hostOf(1, 2, 4), hybrid(), masked()} {
		for n := 1; n <= len(host.CPUs); n++ {
			checkAuto(t, host, assign(BindAuto, place.Request{}, host, n))
		}
	}
	if share := shareOf(limited, 2, 4); share != 1 {
		t.Errorf("a quota of 2 CPUs for 2 ranks gives each GOMAXPROCS=%d", share)
	}
	if share := shareOf(ht, 2, 2); share != 0 {
		t.Errorf("without a quota GOMAXPROCS=%d is set", share)
	}
	// However many ranks and CPUs: blocks are disjoint, complete and even.
	for m := 1; m <= 17; m++ {
		for n := 1; n <= m; n++ {
			sets := assign(BindAuto, place.Request{}, hostOf(1, m, 1), n)
			seen := map[int]bool{}
			for _, s := range sets {
				if len(s) < m/n || len(s) > (m+n-1)/n {
					t.Fatalf("%d ranks on %d CPUs: %v", n, m, sets)
				}
				for _, id := range s {
					seen[id] = true
				}
			}
			if len(sets) != n || len(seen) != m {
				t.Fatalf("%d ranks on %d CPUs: %v", n, m, sets)
			}
		}
	}
}

// --map-by and --rank-by on one host.
func TestAssignMapped(t *testing.T) {
	if !procs.CanBind {
		t.Skip("nothing can be bound here")
	}
	two := hostOf(2, 4, 1) // CPUs 0-3 are node 0, 4-7 are node 1
	for _, c := range []struct {
		name string
		mode Bind
		q    place.Request
		host cpuset.Host
		n    int
		want string
	}{
		{"core", BindAuto, place.Request{MapBy: place.Core}, two, 3, "[[0] [1] [2]]"},
		{"core, all threads", BindAuto, place.Request{MapBy: place.Core}, hostOf(1, 2, 2), 2, "[[0 2] [1 3]]"},
		{"core, more ranks than cores", BindAuto, place.Request{MapBy: place.Core}, hostOf(1, 2, 2), 3, "[[0] [2] [1 3]]"},
		{"core, more ranks than CPUs", BindAuto, place.Request{MapBy: place.Core}, hostOf(1, 2, 2), 5, "[]"},
		{"two cores", BindAuto, place.Request{MapBy: place.Core, PE: 2}, two, 3, "[[0 1] [2 3] [4 5]]"},
		{"two cores, by slot", BindAuto, place.Request{PE: 2}, two, 3, "[[0 1] [2 3] [4 5]]"},
		{"three cores do not fit", BindAuto, place.Request{PE: 3}, two, 3, "[]"},
		{"three cores, shared", BindCore, place.Request{PE: 3}, two, 3, "[[0 1 2] [3 4 5] [0 6 7]]"},
		{"numa", BindAuto, place.Request{MapBy: place.NUMA}, two, 4, "[[0 1] [4 5] [2 3] [6 7]]"},
		{"numa, odd", BindAuto, place.Request{MapBy: place.NUMA}, two, 3, "[[0 1] [4 5 6 7] [2 3]]"},
		{"numa, one rank", BindAuto, place.Request{MapBy: place.NUMA}, two, 1, "[[0 1 2 3]]"},
		{"numa, whole nodes", BindNUMA, place.Request{MapBy: place.NUMA}, two, 3, "[[0 1 2 3] [4 5 6 7] [0 1 2 3]]"},
		{"numa, a core each", BindCore, place.Request{MapBy: place.NUMA}, two, 3, "[[0] [4] [1]]"},
		{"numa, two cores", BindAuto, place.Request{MapBy: place.NUMA, PE: 2}, two, 4, "[[0 1] [4 5] [2 3] [6 7]]"},
		{"numa, two cores do not fit", BindAuto, place.Request{MapBy: place.NUMA, PE: 3}, two, 3, "[]"},
		{"numa, numbered by core", BindAuto, place.Request{MapBy: place.NUMA, RankBy: place.Core}, two, 4,
			"[[0 1] [2 3] [4 5] [6 7]]"},
		{"core, numbered by numa", BindAuto, place.Request{MapBy: place.Core, RankBy: place.NUMA}, two, 6,
			"[[0] [4] [1] [5] [2] [3]]"},
		{"socket", BindAuto, place.Request{MapBy: place.Socket}, two, 3, "[[0 1] [4 5 6 7] [2 3]]"},
		{"socket, whole ones", BindSocket, place.Request{MapBy: place.Socket}, two, 3,
			"[[0 1 2 3] [4 5 6 7] [0 1 2 3]]"},
		{"l3cache", BindAuto, place.Request{MapBy: place.L3}, caches(), 5, "[[0] [2 3] [4 5] [6 7] [1]]"},
		{"l3cache, a core each", BindCore, place.Request{MapBy: place.L3}, caches(), 5, "[[0] [2] [4] [6] [1]]"},
		{"l3cache, whole sockets", BindSocket, place.Request{MapBy: place.L3}, caches(), 4,
			"[[0 1 2 3] [0 1 2 3] [4 5 6 7] [4 5 6 7]]"},
		{"l3cache, numbered by socket", BindAuto, place.Request{MapBy: place.L3, RankBy: place.Socket}, caches(), 4,
			"[[0 1] [4 5] [2 3] [6 7]]"},
		{"hwthread", BindAuto, place.Request{MapBy: place.Thread}, hostOf(1, 2, 2), 3, "[[0] [2] [1]]"},
		{"hwthread, numbered by core", BindAuto, place.Request{MapBy: place.Thread, RankBy: place.Core},
			hostOf(1, 2, 2), 4, "[[0] [2] [1] [3]]"},
		{"none", BindNone, place.Request{MapBy: place.Core, RankBy: place.Core, PE: 2}, two, 2, "[]"},
	} {
		if got := fmt.Sprint(assign(c.mode, c.q, c.host, c.n)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	// Whatever is asked for: each rank has CPUs of this host, and auto gives no CPU twice.
	for _, host := range []cpuset.Host{hostOf(2, 4, 2), hostOf(3, 1, 4), hybrid(), masked(), caches()} {
		for i := range 5 * len(Binds) {
			q := place.Request{PE: i % 5}
			if testing.Short() && q.PE%2 > 0 {
				continue
			}
			for _, q.MapBy = range append(place.Units, "") {
				for _, q.RankBy = range place.Units {
					for n := 1; n <= len(host.CPUs)+1; n++ {
						checkMapped(t, Binds[i/5], q, host, n)
					}
				}
			}
		}
	}
}

func checkMapped(t *testing.T, mode Bind, q place.Request, host cpuset.Host, n int) {
	t.Helper()
	sets := assign(mode, q, host, n)
	if sets == nil && (mode == BindAuto || mode == BindNone) {
		return
	}
	used := map[int]bool{}
	for _, s := range sets {
		for _, id := range s {
			is := slices.ContainsFunc(host.CPUs, func(c cpuset.CPU) bool { return c.ID == id })
			if !is || mode == BindAuto && used[id] {
				t.Fatalf("%s %+v, %d ranks: %v", mode, q, n, sets)
			}
			used[id] = true
		}
		if len(s) == 0 {
			t.Fatalf("%s %+v, %d ranks: %v", mode, q, n, sets)
		}
	}
	if len(sets) != n {
		t.Fatalf("%s %+v: %d sets for %d ranks", mode, q, len(sets), n)
	}
}

// hybrid has two cores with one thread and one with three.
func hybrid() (h cpuset.Host) {
	for id, core := range []int{0, 1, 2, 2, 2} {
		h.CPUs = append(h.CPUs, cpuset.CPU{ID: id, Core: core})
	}
	return h
}

// caches has two sockets with two third-level caches of two cores each.
func caches() (h cpuset.Host) {
	for id := range 8 {
		h.CPUs = append(h.CPUs, cpuset.CPU{ID: id, Core: id % 4, Socket: id / 4, Node: id / 4, L3: id / 2 * 2})
	}
	return h
}

// masked may use one thread of its first core only.
func masked() cpuset.Host {
	h := hostOf(1, 3, 2)
	h.CPUs = h.CPUs[1:]
	return h
}

func checkAuto(t *testing.T, host cpuset.Host, sets [][]int) {
	t.Helper()
	core := map[int]int{}
	for _, c := range host.CPUs {
		core[c.ID] = c.Socket<<16 | c.Core
	}
	used, sharers := map[int]bool{}, map[int][]int{} // core -> ranks
	for rank, s := range sets {
		if len(s) == 0 {
			t.Errorf("rank %d has no CPU: %v", rank, sets)
		}
		for _, id := range s {
			if used[id] {
				t.Errorf("CPU %d has two ranks: %v", id, sets)
			}
			used[id] = true
			if c := core[id]; !slices.Contains(sharers[c], rank) {
				sharers[c] = append(sharers[c], rank)
			}
		}
	}
	for c, ranks := range sharers {
		for _, rank := range ranks {
			elsewhere := func(id int) bool { return core[id] != c }
			if len(ranks) > 1 && slices.ContainsFunc(sets[rank], elsewhere) {
				t.Errorf("ranks %v share core %d, and rank %d has another: %v", ranks, c, rank, sets)
			}
		}
	}
	if len(used) != len(host.CPUs) {
		t.Errorf("%d of %d CPUs are used: %v", len(used), len(host.CPUs), sets)
	}
}

func TestDescribeBinding(t *testing.T) {
	p := &Plan{Host: "h", CPUs: hostOf(2, 2, 1)}
	for _, c := range []struct {
		cpus []int
		want string
	}{
		{nil, "rank 0 on host h is not bound: it may use CPUs 0-3"},
		{[]int{1}, "rank 0 on host h is bound to CPU 1 (core 0.1, NUMA node 0)"},
		{[]int{1, 2, 3}, "rank 0 on host h is bound to CPUs 1-3 (cores 0.1,1.0,1.1, NUMA nodes 0,1)"},
	} {
		if got := p.describe(&procs.Spec{CPUs: c.cpus}); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"a": "a", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "-x=/y:z": "-x=/y:z", "$X": "'$X'",
	} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// Many small jobs in one process leave no descriptor, goroutine or process behind.
func TestNoLeaks(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	run := func(script string, want int) {
		j := &Job{
			Apps:    []App{{Ranks: 3, Path: "/bin/sh", Name: "sh", Args: []string{"-c", script}}},
			Options: Options{StdinFor: "all", TagOutput: true},
			Environ: os.Environ(), Stdin: null, Stdout: null, Stderr: null,
		}
		if code := j.Run(); code != want {
			t.Errorf("%q: exit code %d, want %d", script, code, want)
		}
	}
	run("exit 0", 0)
	before := leak.Take()
	rounds := 5
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		run("echo x", 0)
		run("exit 3", 3)
		run("test $PMI_RANK = 1 && kill -9 $$; sleep 100", 137)
	}
	j := &Job{Apps: []App{{Ranks: 2, Path: "/nonexistent", Name: "x"}}, Stdin: null, Stdout: null, Stderr: null}
	if code := j.Run(); code != CodeNotFound {
		t.Errorf("a program that is not there: exit code %d", code)
	}
	if err := before.Check(time.Minute); err != nil {
		t.Error(err)
	}
}

// A host that answers and falls silent before it has started a rank may lie behind a smaller MTU; the error says so.
func TestSilentWhileStarting(t *testing.T) {
	silent := frames.Silence(30 * time.Second)
	for _, tc := range []struct {
		err     error
		started bool
		mtu     bool
	}{{silent, false, true}, {silent, true, false}, {frames.ErrEnded, false, false}} {
		err := whileStarting(tc.err, tc.started)
		if strings.Contains(err.Error(), "MTU") != tc.mtu || !errors.Is(err, tc.err) {
			t.Errorf("%v, started %v: %v", tc.err, tc.started, err)
		}
	}
}
