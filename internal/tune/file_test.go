package tune

import (
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/tuned"
)

func lineOf(o string, least, most int64, ranks int, cpus, algorithm string) collectives.Line {
	return collectives.Line{Operation: o, LeastBytes: least, Bytes: most, LeastRanks: ranks/2 + 1, Ranks: ranks,
		Via: "shm", CPUs: cpus, Algorithm: algorithm}
}

// A run adds its lines to those of runs with other numbers of ranks, and to those for other CPUs or of a user. It
// replaces the lines of as many ranks whose sizes it has measured again.
func TestResultFile(t *testing.T) {
	byHand := collectives.Line{Operation: "barrier", Via: "any", CPUs: "any", Algorithm: "tree"}
	two, eight := lineOf("bcast", 1024, 1024, 2, "roomy", "shared"), lineOf("bcast", 1024, 1024, 8, "crowded", "shared")
	roomy := lineOf("bcast", 1024, 1024, 4, "roomy", "shared")
	again := lineOf("bcast", 1024, 4096, 4, "crowded", "chain")
	noise := lineOf("reduce", 1024, 1024, 4, "crowded", "chain")
	unmeasured := lineOf("reduce", 1<<20, 1<<20, 4, "crowded", "chain")
	old := &tuned.File{Version: tuned.Version, Host: tuned.Host{Ranks: 8, Transport: "shm"}, EagerMax: 4096,
		Collectives: []collectives.Line{byHand, two, roomy, again, noise, unmeasured, eight}}
	r := Result{Via: "shm", CPUs: "crowded", Host: tuned.Host{Ranks: 4, Transport: "shm", Date: "now"},
		First: []Cell{{Operation: "bcast", Bytes: 1024}, {Operation: "bcast", Bytes: 2048},
			{Operation: "reduce", Bytes: 1024}},
		Gains: []Gain{{Operation: "bcast", Bytes: 2048, To: "direct"}},
		Noisy: []Gain{{Operation: "reduce", Bytes: 1024, To: "direct"}}}
	found := lineOf("bcast", 2048, 2048, 4, "crowded", "direct")
	f, count := r.File(old)
	want := []collectives.Line{byHand, two, roomy, found, noise, unmeasured, eight}
	if !slices.Equal(f.Collectives, want) || f.EagerMax != 4096 || f.Host != r.Host || f.Version != tuned.Version {
		t.Errorf("%+v", f)
	}
	if count != (Earlier{Removed: 1, Kept: 2, Other: 4}) {
		t.Errorf("%+v", count)
	}
	if len(old.Collectives) != 7 || old.Collectives[3] != again {
		t.Errorf("the earlier file has changed: %+v", old.Collectives)
	}

	r.Gains, r.Noisy = nil, nil // all is measured again, and nothing gains
	f, count = r.File(old)
	if want := []collectives.Line{byHand, two, roomy, unmeasured, eight}; !slices.Equal(f.Collectives, want) ||
		count != (Earlier{Removed: 2, Kept: 1, Other: 4}) {
		t.Errorf("%+v of %+v", count, f.Collectives)
	}
	r.First, r.Host.Ranks, r.CPUs = nil, 16, "roomy" // nothing is measured
	if f, _ = r.File(old); !slices.Equal(f.Collectives, old.Collectives) {
		t.Errorf("%+v", f.Collectives)
	}
	if f, _ = r.File(nil); f.Collectives == nil || len(f.Collectives) != 0 {
		t.Errorf("%#v", f.Collectives)
	}
}

// A run that has measured the eager limit decides, also for the library's choice; a limit is for one transport.
func TestResultEagerMax(t *testing.T) {
	old := &tuned.File{Host: tuned.Host{Transport: "shm"}, EagerMax: 4096}
	for _, c := range []struct {
		r    Result
		want int64
	}{
		{Result{Host: tuned.Host{Transport: "shm"}}, 4096},
		{Result{Host: tuned.Host{Transport: "tcp"}}, 0},
		{Result{Host: tuned.Host{Transport: "shm"}, Eager: true}, 0},
		{Result{Host: tuned.Host{Transport: "shm"}, Eager: true, EagerMax: 8192}, 8192},
	} {
		if f, _ := c.r.File(old); f.EagerMax != c.want {
			t.Errorf("%+v: %d, want %d", c.r, f.EagerMax, c.want)
		}
	}
}
