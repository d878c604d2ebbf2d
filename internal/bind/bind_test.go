package bind

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/place"
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
	ht := hostOf(1, 2, 2) // CPUs 0,2 are core 0; 1,3 are core 1
	limited := hostOf(1, 8, 1)
	limited.Quota = 2
	for _, c := range []struct {
		name string
		mode Mode
		host cpuset.Host
		n    int
		want string
	}{
		{"one rank has all", Auto, hostOf(1, 4, 1), 1, "[[0 1 2 3]]"},
		{"halves", Auto, hostOf(1, 4, 1), 2, "[[0 1] [2 3]]"},
		{"3 on 4", Auto, hostOf(1, 4, 1), 3, "[[0] [1] [2 3]]"},
		{"threads of a core together", Auto, ht, 2, "[[0 2] [1 3]]"},
		{"one thread each", Auto, ht, 4, "[[0] [2] [1] [3]]"},
		{"whole cores", Auto, hostOf(1, 4, 2), 3, "[[0 4] [1 5] [2 3 6 7]]"},
		{"whole cores of two sockets", Auto, hostOf(2, 4, 2), 3, "[[0 1 8 9] [2 3 4 10 11 12] [5 6 7 13 14 15]]"},
		{"more ranks than cores", Auto, hostOf(1, 4, 2), 5, "[[0] [4] [1 5] [2 6] [3 7]]"},
		{"two ranks on three threads", Auto, hostOf(1, 1, 3), 2, "[[0] [1 2]]"},
		{"ranks outnumber", Auto, ht, 5, "[]"},
		{"quota", Auto, limited, 3, "[]"},
		{"quota fits", Auto, limited, 2, "[[0 1 2 3] [4 5 6 7]]"},
		{"none", None, ht, 2, "[]"},
		{"core", Core, ht, 2, "[[0 2] [1 3]]"},
		{"core, few ranks", Core, hostOf(2, 2, 1), 2, "[[0] [1]]"},
		{"core, outnumbered", Core, ht, 4, "[[0 2] [0 2] [1 3] [1 3]]"},
		{"numa", NUMA, hostOf(2, 2, 1), 4, "[[0 1] [0 1] [2 3] [2 3]]"},
		{"numa, one rank", NUMA, hostOf(2, 2, 1), 1, "[[0 1]]"},
		{"socket", Socket, hostOf(2, 2, 2), 3, "[[0 4 1 5] [0 4 1 5] [2 6 3 7]]"},
		{"l3cache", L3, caches(), 3, "[[0 1] [2 3] [4 5]]"},
		{"l3cache, one rank", L3, caches(), 1, "[[0 1]]"},
		{"hwthread", Thread, ht, 3, "[[0] [2] [1]]"},
		{"hwthread, outnumbered", Thread, ht, 5, "[[0] [0] [2] [1] [3]]"},
	} {
		if got := fmt.Sprint(Assign(c.mode, place.Request{}, c.host, c.n)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	// However odd the host: no CPU has two ranks, and a core is shared only by ranks that have nothing else.
	for _, host := range []cpuset.Host{hostOf(2, 4, 2), hostOf(1, 2, 4), hybrid(), masked()} {
		for n := 1; n <= len(host.CPUs); n++ {
			checkAuto(t, host, Assign(Auto, place.Request{}, host, n))
		}
	}
	if share := Share(limited, 2, 4); share != 1 {
		t.Errorf("a quota of 2 CPUs for 2 ranks gives each GOMAXPROCS=%d", share)
	}
	if share := Share(ht, 2, 2); share != 0 {
		t.Errorf("without a quota GOMAXPROCS=%d is set", share)
	}
	// However many ranks and CPUs: blocks are disjoint, complete and even.
	for m := 1; m <= 17; m++ {
		for n := 1; n <= m; n++ {
			sets := Assign(Auto, place.Request{}, hostOf(1, m, 1), n)
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
	two := hostOf(2, 4, 1) // CPUs 0-3 are node 0, 4-7 are node 1
	for _, c := range []struct {
		name string
		mode Mode
		q    place.Request
		host cpuset.Host
		n    int
		want string
	}{
		{"core", Auto, place.Request{MapBy: place.Core}, two, 3, "[[0] [1] [2]]"},
		{"core, all threads", Auto, place.Request{MapBy: place.Core}, hostOf(1, 2, 2), 2, "[[0 2] [1 3]]"},
		{"core, more ranks than cores", Auto, place.Request{MapBy: place.Core}, hostOf(1, 2, 2), 3, "[[0] [2] [1 3]]"},
		{"core, more ranks than CPUs", Auto, place.Request{MapBy: place.Core}, hostOf(1, 2, 2), 5, "[]"},
		{"two cores", Auto, place.Request{MapBy: place.Core, PE: 2}, two, 3, "[[0 1] [2 3] [4 5]]"},
		{"two cores, by slot", Auto, place.Request{PE: 2}, two, 3, "[[0 1] [2 3] [4 5]]"},
		{"three cores do not fit", Auto, place.Request{PE: 3}, two, 3, "[]"},
		{"three cores, shared", Core, place.Request{PE: 3}, two, 3, "[[0 1 2] [3 4 5] [0 6 7]]"},
		{"numa", Auto, place.Request{MapBy: place.NUMA}, two, 4, "[[0 1] [4 5] [2 3] [6 7]]"},
		{"numa, odd", Auto, place.Request{MapBy: place.NUMA}, two, 3, "[[0 1] [4 5 6 7] [2 3]]"},
		{"numa, one rank", Auto, place.Request{MapBy: place.NUMA}, two, 1, "[[0 1 2 3]]"},
		{"numa, whole nodes", NUMA, place.Request{MapBy: place.NUMA}, two, 3, "[[0 1 2 3] [4 5 6 7] [0 1 2 3]]"},
		{"numa, a core each", Core, place.Request{MapBy: place.NUMA}, two, 3, "[[0] [4] [1]]"},
		{"numa, two cores", Auto, place.Request{MapBy: place.NUMA, PE: 2}, two, 4, "[[0 1] [4 5] [2 3] [6 7]]"},
		{"numa, two cores do not fit", Auto, place.Request{MapBy: place.NUMA, PE: 3}, two, 3, "[]"},
		{"numa, numbered by core", Auto, place.Request{MapBy: place.NUMA, RankBy: place.Core}, two, 4,
			"[[0 1] [2 3] [4 5] [6 7]]"},
		{"core, numbered by numa", Auto, place.Request{MapBy: place.Core, RankBy: place.NUMA}, two, 6,
			"[[0] [4] [1] [5] [2] [3]]"},
		{"socket", Auto, place.Request{MapBy: place.Socket}, two, 3, "[[0 1] [4 5 6 7] [2 3]]"},
		{"socket, whole ones", Socket, place.Request{MapBy: place.Socket}, two, 3,
			"[[0 1 2 3] [4 5 6 7] [0 1 2 3]]"},
		{"l3cache", Auto, place.Request{MapBy: place.L3}, caches(), 5, "[[0] [2 3] [4 5] [6 7] [1]]"},
		{"l3cache, a core each", Core, place.Request{MapBy: place.L3}, caches(), 5, "[[0] [2] [4] [6] [1]]"},
		{"l3cache, whole sockets", Socket, place.Request{MapBy: place.L3}, caches(), 4,
			"[[0 1 2 3] [0 1 2 3] [4 5 6 7] [4 5 6 7]]"},
		{"l3cache, numbered by socket", Auto, place.Request{MapBy: place.L3, RankBy: place.Socket}, caches(), 4,
			"[[0 1] [4 5] [2 3] [6 7]]"},
		{"hwthread", Auto, place.Request{MapBy: place.Thread}, hostOf(1, 2, 2), 3, "[[0] [2] [1]]"},
		{"hwthread, numbered by core", Auto, place.Request{MapBy: place.Thread, RankBy: place.Core},
			hostOf(1, 2, 2), 4, "[[0] [2] [1] [3]]"},
		{"none", None, place.Request{MapBy: place.Core, RankBy: place.Core, PE: 2}, two, 2, "[]"},
	} {
		if got := fmt.Sprint(Assign(c.mode, c.q, c.host, c.n)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	// Whatever is asked for: each rank has CPUs of this host, and auto gives no CPU twice.
	for _, host := range []cpuset.Host{hostOf(2, 4, 2), hostOf(3, 1, 4), hybrid(), masked(), caches()} {
		for i := range 5 * len(Modes) {
			q := place.Request{PE: i % 5}
			if testing.Short() && q.PE%2 > 0 {
				continue
			}
			for _, q.MapBy = range append(place.Units, "") {
				for _, q.RankBy = range place.Units {
					for n := 1; n <= len(host.CPUs)+1; n++ {
						checkMapped(t, Modes[i/5], q, host, n)
					}
				}
			}
		}
	}
}

func checkMapped(t *testing.T, mode Mode, q place.Request, host cpuset.Host, n int) {
	t.Helper()
	sets := Assign(mode, q, host, n)
	if sets == nil && (mode == Auto || mode == None) {
		return
	}
	used := map[int]bool{}
	for _, s := range sets {
		for _, id := range s {
			is := slices.ContainsFunc(host.CPUs, func(c cpuset.CPU) bool { return c.ID == id })
			if !is || mode == Auto && used[id] {
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
