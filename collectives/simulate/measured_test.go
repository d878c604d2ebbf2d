package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
)

func algorithm(t testing.TB, o collectives.Operation, name string) *collectives.Algorithm {
	t.Helper()
	a, err := collectives.Find(o, name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// calls are what a benchmark would have measured on a machine that is a model: on two ranks of a host, on two hosts,
// and on two hosts of two ranks.
func calls(t testing.TB, truth *Model) (all []Measured) {
	t.Helper()
	between := algorithm(t, collectives.Barrier, "two_level")
	for _, at := range [][2]int{{2, 2}, {2, 1}, {4, 2}} {
		for _, bytes := range []int64{8, 32 << 10, 4 << 20} {
			one := Measured{Algorithm: algorithm(t, collectives.Bcast, "binomial"), Ranks: at[0], PerHost: at[1],
				Bytes: bytes, Alone: at[0] == 2}
			all = append(all, one)
			for _, o := range []collectives.Operation{collectives.Allreduce, collectives.Alltoall} {
				for _, a := range collectives.Algorithms(o) {
					m := Measured{Algorithm: a, Between: between, Ranks: at[0], PerHost: at[1], Bytes: bytes,
						Seconds: 1}
					if m.check() == nil {
						all = append(all, m)
					}
				}
			}
		}
	}
	for i := range all {
		s, err := all[i].Predict(truth)
		if err != nil {
			t.Fatal(err)
		}
		all[i].Seconds = s
	}
	return all
}

// other is a machine far from Testbed, which a fit starts from.
func other() Model {
	m := Testbed
	m.Host.Latency *= 2.5
	m.Host.Overhead *= 0.6
	m.Host.Touch *= 0.5
	m.Network.Latency *= 3
	m.Network.Overhead *= 0.4
	m.Network.Touch *= 2
	m.Combine *= 0.4
	m.Switch *= 3
	m.Spill *= 1.5
	return m
}

// identified are the parameters that the calls determine: each is the greater part of some call's time. Latency and
// overhead between hosts determine less than their sum: a call has both.
var identified = []string{"Host.Touch", "Network.Touch", "Combine", "Switch", "Spill"}

func checkFit(t *testing.T, truth, fitted *Model, within float64) {
	t.Helper()
	check := func(name string, got, want float64) {
		if math.Abs(math.Log(got/want)) > within {
			t.Errorf("%s is fitted as %v, and is %v", name, got, want)
		}
	}
	for _, p := range parameters {
		if slices.Contains(identified, p.name) {
			check(p.name, *p.of(fitted), *p.of(truth))
		}
	}
	message := func(m *Model) float64 { return 2*m.Network.Overhead + m.Network.Latency }
	check("a message", message(fitted), message(truth))
}

// medianError is the median factor by which a model is off.
func medianError(t *testing.T, m *Model, runs []Measured) float64 {
	t.Helper()
	all, err := Compare(m, runs)
	if err != nil {
		t.Fatal(err)
	}
	return Sum(all).Error
}

// What a fit finds of times that a model has made is that model.
func TestFit(t *testing.T) {
	truth := other()
	runs := calls(t, &truth)
	if off := medianError(t, &Testbed, runs); off < 1.2 {
		t.Fatalf("the fit begins %v from its end", off)
	}
	fitted, _, err := Fit(Testbed, runs)
	if err != nil {
		t.Fatal(err)
	}
	checkFit(t, &truth, &fitted, 0.1)
	if off := medianError(t, &fitted, runs); off > 1.02 {
		t.Errorf("the fitted model is off by %v", off)
	}
	again, _, err := Fit(Testbed, runs)
	if err != nil || again != fitted {
		t.Errorf("a second fit finds %+v, %v; the first %+v", again, err, fitted)
	}
}

// The same with times that are wrong by up to a fifth.
func TestFitWithNoise(t *testing.T) {
	truth := other()
	runs := calls(t, &truth)
	exact := slices.Clone(runs)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range runs {
		runs[i].Seconds *= math.Exp(0.2 * (2*random.Float64() - 1))
	}
	fitted, _, err := Fit(Testbed, runs)
	if err != nil {
		t.Fatal(err)
	}
	checkFit(t, &truth, &fitted, 0.5)
	if off := medianError(t, &fitted, exact); off > 1.07 {
		t.Errorf("the fitted model is off by %v", off)
	}
}

// A parameter that no measured call depends on is named, and stays.
func TestFitNamesWhatDoesNotMatter(t *testing.T) {
	truth := other()
	runs := slices.DeleteFunc(calls(t, &truth), func(m Measured) bool { return m.PerHost != m.Ranks })
	fitted, without, err := Fit(Testbed, runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Network.Latency", "Network.Overhead", "Network.Touch", "Switch"} {
		if !slices.Contains(without, name) {
			t.Errorf("%s is not named: %v", name, without)
		}
	}
	if slices.Contains(without, "Host.Overhead") || fitted.Network != Testbed.Network ||
		fitted.Switch != Testbed.Switch {
		t.Errorf("%v do not matter; %+v", without, fitted)
	}
	if _, _, err := Fit(Testbed, nil); err == nil {
		t.Error("a fit to nothing")
	}
	if _, _, err := Fit(Model{}, runs); err == nil {
		t.Error("a fit from an impossible model")
	}
}

// The order is compared: a machine on which the slow are fast is not the model's.
func TestCompare(t *testing.T) {
	runs := calls(t, &Testbed)
	all, err := Compare(&Testbed, runs)
	if err != nil {
		t.Fatal(err)
	}
	v := Sum(all)
	if v.Runs != len(runs) || v.Near != v.Runs || v.Pairs == 0 || v.Agree != v.Pairs || v.Right != v.Choices {
		t.Errorf("of a model and itself: %+v", v)
	}
	for i := range runs {
		runs[i].Seconds = 1 / runs[i].Seconds
	}
	all, err = Compare(&Testbed, runs)
	if err != nil {
		t.Fatal(err)
	}
	if v = Sum(all); v.Pairs == 0 || v.Agree != 0 || v.Near > v.Runs/4 || v.Right == v.Choices {
		t.Errorf("of a model and its opposite: %+v", v)
	}
	for _, c := range all {
		for k := 1; k < len(c.Entries); k++ {
			if c.Entries[k].Seconds < c.Entries[k-1].Seconds {
				t.Errorf("%v of %d bytes is not in the measured order", c.Operation, c.Bytes)
			}
		}
		if len(c.Differ) != c.Pairs-c.Agree {
			t.Errorf("%v of %d bytes: of %d pairs %d agree and %d differ", c.Operation, c.Bytes, c.Pairs, c.Agree,
				len(c.Differ))
		}
		if c.Pairs > 0 && c.Loss < Close {
			t.Errorf("%v of %d bytes: what the model takes is last, and costs %v", c.Operation, c.Bytes, c.Loss)
		}
	}
}

// What can be computed by hand of ranks that share a processor, of bytes that processors move, and of calls one after
// the other.
func TestByHandOfMeasured(t *testing.T) {
	m := Testbed
	m.Cores = 1
	h, n := m.Host, m.Network
	alone := func(ranks, perHost int, bytes int64) *Measured {
		return &Measured{Algorithm: algorithm(t, collectives.Bcast, "binomial"), Ranks: ranks, PerHost: perHost,
			Bytes: bytes, Alone: true}
	}
	own := m
	own.Cores, own.OneMachine = 0, false
	spilled := own
	spilled.Cache, spilled.Spill = 100, 3
	near := n.Latency + m.Hop
	barrier := &Measured{Algorithm: algorithm(t, collectives.Barrier, "dissemination"), Ranks: 2, PerHost: 1}
	between := &Measured{Algorithm: algorithm(t, collectives.Allreduce, "doubling"), Between: barrier.Algorithm,
		Ranks: 2, PerHost: 1, Bytes: 8}
	for _, c := range []struct {
		name  string
		call  *Measured
		model *Model
		want  float64
	}{
		// The sender comes to the processor, sends, and gives it up; the receiver comes to it, and the message is
		// there.
		{"one processor", alone(2, 2, 8), &m, 2*m.Switch + 2*(h.Overhead+8/h.Touch)},
		{"a processor each", alone(2, 2, 8), &own, 2*(h.Overhead+8/h.Touch) + h.Latency},
		{"eager bytes over the network, moved by both", alone(2, 1, 3000), &own,
			2*n.Overhead + 2*3000/n.Touch + 3000/n.Rate + near},
		{"eager bytes inside a host, from far away", alone(2, 2, 3000), &spilled,
			2*h.Overhead + 3*2*3000/h.Touch + h.Latency},
		{"long, inside a host: a half each", alone(2, 2, 100e3), &own, 3*h.Overhead + 3*h.Latency + 100e3/h.Rate/2},
		{"barriers one after the other", barrier, &own, 2*n.Overhead + near},
		// Both ranks leave the barrier at once.
		{"a mean over the ranks", between, &own, 2*(n.Overhead+8/n.Touch) + 8/n.Rate + near + 8/m.Combine},
	} {
		got, err := c.call.Predict(c.model)
		if err != nil || math.Abs(got-c.want) > 1e-3*c.want {
			t.Errorf("%s: %v s, %v; not %v s", c.name, got, err, c.want)
		}
	}
}

// Inside a host, bytes that the sender has written in the call take longer, and share the host's memory.
func TestFresh(t *testing.T) {
	seconds := func(o collectives.Operation, name string, ranks int, fresh, memory float64) float64 {
		m := Roomy
		m.Fresh, m.Memory = fresh, memory
		j := job(t, o, name, ranks, ranks, 1<<20)
		j.Model = &m
		return run(t, j).Seconds
	}
	much, little := 1e15, 5e9
	for _, c := range []struct {
		operation collectives.Operation
		name      string
		ranks     int
		fresh     bool
	}{
		{collectives.Bcast, "binomial", 2, false},
		{collectives.Bcast, "knomial", 4, false},     // all from the root
		{collectives.Bcast, "binomial", 16, true},    // some from a rank that has received
		{collectives.Alltoall, "pairwise", 8, false}, // from the caller's memory
		{collectives.Allgather, "ring", 8, true},
	} {
		plain, fresh := seconds(c.operation, c.name, c.ranks, 1, much), seconds(c.operation, c.name, c.ranks, 2, much)
		if c.fresh != (fresh > 1.3*plain) || !c.fresh && fresh != plain {
			t.Errorf("%v:%s on %d ranks takes %v s, and %v if fresh bytes take twice as long", c.operation, c.name,
				c.ranks,
				plain, fresh)
		}
		if slow := seconds(c.operation, c.name, c.ranks, 1, little); c.fresh != (slow > 1.3*plain) {
			t.Errorf("%v:%s on %d ranks takes %v s, and %v where memory is slow", c.operation, c.name, c.ranks, plain,
				slow)
		}
	}
}

// Processors are a host's, or all hosts'.
func TestProcessors(t *testing.T) {
	on := func(cores int, one bool) float64 {
		m := Ethernet
		m.Cores, m.OneMachine, m.Switch = cores, one, 1e-6
		j := job(t, collectives.Allreduce, "doubling", 8, 4, 1<<20)
		j.Model = &m
		return run(t, j).Seconds
	}
	many, four, two, machine := on(64, false), on(4, false), on(2, false), on(2, true)
	if many != four || !(four < two && two < machine) {
		t.Errorf("on 64, 4, 2 processors a host, and on 2 in all: %v, %v, %v, %v s", many, four, two, machine)
	}
}

const line = `{"program":%q,"key":"Size","size":%d,"ranks":4,"per_host":2,"transport":"shm+tcp","collectives":%q,` +
	`"values":{%q:%v}}` + "\n"

func TestRead(t *testing.T) {
	const both = "barrier:two_level,allreduce:ring,bcast:chain"
	var text strings.Builder
	for _, us := range []float64{30, 10, 20} {
		fmt.Fprintf(&text, line, "allreduce", 64, both, "Avg Latency(us)", us)
	}
	fmt.Fprintf(&text, line, "collective", 64, both, "bcast(us)", 5)
	fmt.Fprintf(&text, line, "barrier", 4, "barrier:tree", "Avg Latency(us)", 7)
	fmt.Fprint(&text, `{"program":"latency","size":8,"ranks":2,"transport":"tcp","values":{"Avg Latency(us)":9,`+
		`"Max Latency(us)":90}}`+"\n\n")
	for _, bad := range []struct{ program, choice, head, value string }{
		{"allreduce", "", "Avg Latency(us)", "1"},
		{"allreduce", "allreduce:ring", "Avg Latency(us)", "1"},
		{"allreduce", "allreduce:circle", "Avg Latency(us)", "1"},
		{"allreduce", both, "Avg Latency(us)", "-1"},
		{"allreduce", both, "Avg Latency(us)", `"fast"`},
		{"iallreduce", both, "Avg Latency(us)", "1"},
		{"neighbor_alltoall", "barrier:tree,neighbor_alltoall:linear", "Avg Latency(us)", "1"},
	} {
		fmt.Fprintf(&text, line, bad.program, 64, bad.choice, bad.head, bad.value)
	}
	runs, left, err := Read(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	between := algorithm(t, collectives.Barrier, "two_level")
	want := []Measured{
		{Algorithm: algorithm(t, collectives.Allreduce, "ring"), Between: between, Ranks: 4, PerHost: 2, Bytes: 64,
			Seconds: 10e-6},
		{Algorithm: algorithm(t, collectives.Bcast, "chain"), Between: between, Ranks: 4, PerHost: 2, Bytes: 64,
			Seconds: 5e-6},
		{Algorithm: algorithm(t, collectives.Barrier, "tree"), Ranks: 4, PerHost: 2, Seconds: 7e-6},
		{Algorithm: algorithm(t, collectives.Bcast, "binomial"), Alone: true, Ranks: 2, PerHost: 1, Bytes: 8,
			Seconds: 9e-6},
	}
	for i := range runs {
		runs[i].Seconds = math.Round(runs[i].Seconds*1e9) / 1e9
	}
	if !slices.Equal(runs, want) {
		t.Errorf("%+v\nnot\n%+v", runs, want)
	}
	reasons := []string{"names no algorithm", "names no barrier", `no algorithm "circle"`, "a time of",
		"must be a number", `no operation "iallreduce"`, "depends on a graph"}
	if len(left) != len(reasons) {
		t.Fatalf("%d lines are left out, not %d: %v", len(left), len(reasons), left)
	}
	for i, reason := range reasons {
		if !strings.Contains(left[i].Error(), reason) {
			t.Errorf("%v; want %s", left[i], reason)
		}
	}
	_, _, err = Read(strings.NewReader("# OSU MPI Latency Test\n"))
	if err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("what is no JSON: %v", err)
	}
}

// Whatever a file says, what is read of it can be predicted.
func FuzzRead(f *testing.F) {
	f.Add(fmt.Sprintf(line, "allreduce", 64, "barrier:tree,allreduce:ring", "Avg Latency(us)", "3"))
	f.Add(fmt.Sprintf(line, "collective", 1<<30, "barrier:tree,alltoall:bruck", "alltoall(us)", "1e9"))
	f.Add(fmt.Sprintf(line, "reduce_scatter", 64, "barrier:tree,reduce_scatter:halving", "Avg Latency(us)", "3"))
	f.Add(fmt.Sprintf(line, "latency", 0, "", "Avg Latency(us)", "3"))
	f.Fuzz(func(t *testing.T, text string) {
		runs, _, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		for i := range runs {
			if runs[i].job(&Testbed).work() > 1<<12 {
				continue // it ends too, and takes a while
			}
			if s, err := runs[i].Predict(&Testbed); err != nil || !(s >= 0) || math.IsInf(s, 0) {
				t.Errorf("%+v: %v, %v", runs[i], s, err)
			}
		}
	})
}
