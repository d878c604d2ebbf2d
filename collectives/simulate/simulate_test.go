package simulate

import (
	"math"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
)

func job(t testing.TB, o collectives.Operation, name string, ranks, perHost int, bytes int64) *Job {
	t.Helper()
	a, err := collectives.Find(o, name)
	if err != nil {
		t.Fatal(err)
	}
	return &Job{Algorithm: a, Model: &Cluster, Params: collectives.Params{Size: ranks, Count: bytes, ElemSize: 1,
		Commutative: true, Hosts: collectives.Blocks{Ranks: ranks, PerHost: perHost}}}
}

func run(t testing.TB, j *Job) Result {
	t.Helper()
	r, err := j.Run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What can be computed by hand.
func TestByHand(t *testing.T) {
	n, h := Cluster.Network, Cluster.Host
	near := n.Latency + Cluster.Hop
	for _, c := range []struct {
		name string
		j    *Job
		want float64
	}{
		{"one message inside a host", job(t, collectives.Bcast, "binomial", 2, 2, 1000),
			2*h.Overhead + h.Latency + 1000/h.Rate},
		{"one message between hosts", job(t, collectives.Bcast, "binomial", 2, 1, 1000),
			2*n.Overhead + near + 1000/n.Rate},
		{"one that waits for its receive", job(t, collectives.Bcast, "binomial", 2, 1, 1<<20),
			2*n.Overhead + 3*near + (1<<20)/n.Rate},
		{"three rounds of a barrier", job(t, collectives.Barrier, "dissemination", 8, 1, 0),
			3 * (2*n.Overhead + near)},
	} {
		got := run(t, c.j).Seconds
		if math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v s, not %v", c.name, got, c.want)
		}
	}
}

// Messages that share something wait for each other: the NIC of a host, and the uplinks of a leaf switch.
func TestShared(t *testing.T) {
	const bytes = 1 << 20
	alone := run(t, job(t, collectives.Alltoall, "pairwise", 2, 1, bytes)).Seconds
	shared := run(t, job(t, collectives.Alltoall, "pairwise", 2*16, 16, bytes)).Seconds
	if least := 16 * 16 * bytes / Cluster.Network.Rate; shared < least {
		t.Errorf("32 ranks on two hosts exchange in %v s what their NICs carry in %v s", shared, least)
	}
	if alone > bytes/Cluster.Network.Rate+bytes/Cluster.Copy+10e-6 {
		t.Errorf("two ranks exchange in %v s", alone)
	}
	tapered := Cluster
	tapered.Taper = 8
	j := job(t, collectives.Alltoall, "pairwise", 2*Cluster.Leaf, 1, bytes)
	full := run(t, j).Seconds
	if j.Model = &tapered; run(t, j).Seconds < 2*full {
		t.Error("uplinks with an eighth of the rate do not take twice as long")
	}
}

// Every algorithm ends, at many ranks, with the same figures each time.
func TestEvery(t *testing.T) {
	for o := collectives.Barrier; o < collectives.NeighborAllgather; o++ {
		for _, a := range collectives.Algorithms(o) {
			for _, ranks := range []int{1, 2, 31, 64} {
				j := &Job{Algorithm: a, Model: &Ethernet, Params: collectives.Params{Size: ranks, Count: 5000, ElemSize: 8,
					Commutative: true, Hosts: collectives.Blocks{Ranks: ranks, PerHost: 5}}}
				if counted(o) || a.Fits(&j.Params) != nil {
					continue
				}
				one, two := run(t, j), run(t, j)
				if one != two {
					t.Errorf("%v: %+v, then %+v", a, one, two)
				}
				if ranks > 1 && (one.Seconds <= 0 || one.Messages == 0 || one.Most == 0) {
					t.Errorf("%v on %d ranks: %+v", a, ranks, one)
				}
			}
		}
	}
}

// counted reports whether an operation needs counts for each rank.
func counted(o collectives.Operation) bool {
	switch o {
	case collectives.Gatherv, collectives.Scatterv, collectives.Allgatherv, collectives.Alltoallv,
		collectives.Alltoallw, collectives.ReduceScatter:
		return true
	}
	return false
}

// The field's order of algorithms: few rounds for what is short, few bytes for what is long.
func TestOrder(t *testing.T) {
	for _, c := range []struct {
		o              collectives.Operation
		bytes          int64
		faster, slower string
	}{
		{collectives.Allreduce, 8, "doubling", "ring"},
		{collectives.Allreduce, 64 << 20, "ring", "doubling"},
		{collectives.Allreduce, 64 << 20, "rabenseifner", "tree"},
		{collectives.Allreduce, 8, "two_level", "tree"},
		{collectives.Bcast, 8, "binomial", "chain"},
		{collectives.Bcast, 64 << 20, "scatter_ring", "binomial"},
		{collectives.Allgather, 8, "bruck", "ring"},
		{collectives.Alltoall, 8, "bruck", "pairwise"},
		{collectives.Alltoall, 1 << 20, "pairwise", "bruck"},
		{collectives.Scan, 8, "doubling", "chain"},
	} {
		fast := run(t, job(t, c.o, c.faster, 64, 8, c.bytes)).Seconds
		slow := run(t, job(t, c.o, c.slower, 64, 8, c.bytes)).Seconds
		if fast >= slow {
			t.Errorf("%v of %d bytes: %s takes %v s, %s %v s", c.o, c.bytes, c.faster, fast, c.slower, slow)
		}
	}
}

// A million ranks.
func TestMillion(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute and 2 GiB")
	}
	r := run(t, job(t, collectives.Allreduce, "doubling", 1<<20, 64, 8))
	if r.Most != 40 || r.Rounds != 20 || r.Messages != 20<<20 {
		t.Errorf("%+v", r)
	}
	t.Logf("%+v", r)
}
