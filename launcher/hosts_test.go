package launcher

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/procs"
)

func TestIsHere(t *testing.T) {
	for _, c := range []struct {
		name, here string
		want       bool
	}{
		{"localhost", "a", true}, {"LOCALHOST", "a", true}, {"127.0.0.1", "a", true}, {"127.3.2.1", "a", true},
		{"::1", "a", true}, {"a", "a", true}, {"A", "a", true}, {"a.cluster", "a", true}, {"a", "a.cluster", true},
		{"a.cluster", "a.cluster", true}, {"a.other", "a.cluster", false}, {"b", "a", false}, {"ab", "a", false},
		{"10.0.0.1", "a", false}, {"b.cluster", "a.cluster", false}, {"", "a", false},
	} {
		if isHere(c.name, c.here) != c.want {
			t.Errorf("on %s: %q is here: %v", c.here, c.name, !c.want)
		}
	}
}

// layOut places the ranks of a job on a host that calls itself me.
func layOut(j *Job) (*place.Layout, error) {
	c, err := j.choose("me")
	if err != nil {
		return nil, err
	}
	return j.layOut(&c)
}

// What a job in an allocation has: the hosts that Slurm names, as it names them, with their slots.
func TestAllocation(t *testing.T) {
	for _, c := range []struct {
		env, hosts, here string
		shell            bool
		want             string
		ranks            int
	}{
		{"SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=4,1", "", "me", false, "{[{n1 4} {n2 1}] me true}", 5},
		{"SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=4,1", "", "n2.cluster", false, "{[{n1 4} {n2 1}] n2 true}", 5},
		{"SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=4,1 SLURMD_NODENAME=n1", "", "me", true,
			"{[{n1 4} {n2 1}] n1 false}", 5},
		{"SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=4,1", "n1.cluster", "me", false, "{[{n1 4}] me true}", 4},
		{"SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=4,1", "n2:3,N1", "me", false, "{[{n2 3} {n1 4}] me true}", 7},
		{"SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=4,1", "localhost", "n1", false, "{[{n1 0}] n1 true}", 1},
		{"SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=4,1", "127.0.0.1,n2", "n1", false,
			"{[{n1 4} {n2 1}] n1 true}", 5},
		{"", "", "me", false, "{[{me 0}] me false}", 1},
	} {
		j := Job{Environ: strings.Fields(c.env)}
		if c.hosts != "" {
			j.Hosts, _ = place.List("-H", c.hosts)
		}
		if c.shell {
			j.Agents.Shell = []string{"ssh"}
		}
		got, err := j.choose(c.here)
		if fmt.Sprint(struct {
			hosts []place.Host
			here  string
			slurm bool
		}{got.hosts, got.here, got.slurm}) != c.want || err != nil || j.Place.All(got.hosts) != c.ranks {
			t.Errorf("%+v: %v (%v)", c, got, err)
		}
	}
}

// Ranks on the other hosts of an allocation have what Slurm says of it, and what it says there of the host.
func TestEnvironmentInAllocation(t *testing.T) {
	gorun := []string{"A=1", "SLURM_JOB_ID=7", "SLURM_JOB_NAME=x", "SLURM_NODEID=0", "SLURMD_NODENAME=n1", "TMPDIR=/a"}
	host := []string{"B=1", "SLURM_JOB_ID=7", "SLURM_NODEID=1", "SLURMD_NODENAME=n2"}
	want := "[A=1 SLURM_JOB_NAME=x SLURM_JOB_ID=7 SLURM_NODEID=1 SLURMD_NODENAME=n2]"
	if got := fmt.Sprint(procs.EnvironOn(gorun, host)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	host[1] = "SLURM_JOB_ID=8"
	want = "[A=1 SLURM_JOB_ID=8 SLURM_NODEID=1 SLURMD_NODENAME=n2]"
	if got := fmt.Sprint(procs.EnvironOn(gorun, host)); got != want {
		t.Errorf("in another allocation: %s, want %s", got, want)
	}
}

// Which jobs are started, and what the others are told.
func TestLayOut(t *testing.T) {
	unused := []place.Host{{Name: "me", Slots: 4}, {Name: "b", Slots: 4}}
	here := []place.Host{{Name: "localhost"}}
	slurm := []string{"SLURM_JOB_NODELIST=n[1-3]", "SLURM_TASKS_PER_NODE=2(x3)"}
	for name, c := range map[string]struct {
		job  Job
		want string // in the error; "": there is none
	}{
		"nothing said":           {Job{}, ""},
		"this host":              {Job{Hosts: []place.Host{{Name: "localhost", Slots: 4}}}, ""},
		"this host by two names": {Job{Hosts: []place.Host{{Name: "me"}, {Name: "127.0.0.1"}}}, ""},
		"too few slots":          {Job{Hosts: []place.Host{{Name: "me", Slots: 1}}}, ""},
		"another host":           {Job{Hosts: []place.Host{{Name: "b"}}}, ""},
		"an unused host": {Job{Hosts: unused},
			"1 of the 2 hosts would get no rank (b): --map-by node deals them to all, --ppn 2"},
		"an unused host is meant": {Job{Hosts: unused, Options: Options{AllowUnused: true}}, ""},
		"ppn":                     {Job{Options: Options{Place: place.Request{PerHost: 4}}}, ""},
		"ppn does not fit": {Job{Options: Options{Place: place.Request{PerHost: 2}}},
			"4 ranks with 2 on each host need 2 hosts, and there is 1"},
		"an allocation, part of which is unused": {Job{Environ: slurm},
			"1 of the 3 hosts of this Slurm allocation would get no rank (n3)"},
		"in an allocation, here":   {Job{Environ: slurm, Hosts: here}, ""},
		"in an allocation, a part": {Job{Environ: slurm, Hosts: []place.Host{{Name: "n2"}}}, ""},
		"outside": {Job{Environ: slurm, Hosts: []place.Host{{Name: "n2"}, {Name: "n4"}}},
			"host n4 is not in this Slurm allocation, which has n1,n2,n3"},
		"twice by two names": {Job{Environ: slurm, Hosts: []place.Host{{Name: "n2"}, {Name: "n2.cluster"}}},
			"host n2 is named twice, once as n2.cluster: name it once"},
		"in part here": {Job{Environ: slurm, Hosts: append(here, place.Host{Name: "n2"})},
			"host me is not in this Slurm"},
		"outside, by another way": {Job{Environ: slurm, Hosts: []place.Host{{Name: "n4"}},
			Agents: Agents{Shell: []string{"ssh"}}}, ""},
		"one host, another":     {Job{Environ: []string{"SLURM_JOB_NODELIST=n1"}}, ""},
		"one host, this":        {Job{Environ: []string{"SLURM_JOB_NODELIST=me"}}, ""},
		"one host, by its node": {Job{Environ: []string{"SLURM_JOB_NODELIST=n1", "SLURMD_NODENAME=n1"}}, ""},
		"a step on one host":    {Job{Environ: append(slurm, "SLURM_NODELIST=n1", "SLURM_STEP_NODELIST=n1")}, "(n3)"},
		"broken, but here":      {Job{Environ: []string{"SLURM_JOB_NODELIST=n[1-"}, Hosts: here}, ""},
		"a broken allocation": {Job{Environ: []string{"SLURM_JOB_NODELIST=n[1-"}},
			"SLURM_JOB_NODELIST, column 5: a number is"},
		"an empty one": {Job{Environ: []string{"SLURM_JOB_NODELIST="}}, ""},
	} {
		c.job.Apps = []App{{Ranks: 4}}
		l, err := layOut(&c.job)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil && (len(l.Hosts) != 1 || l.Counts[0] != 4) {
			t.Errorf("%s: %+v", name, l)
		}
	}
	for names, want := range map[string]bool{"me": true, "b": false, "me,b": false} {
		hosts, _ := place.List("-H", names)
		job := Job{Apps: []App{{Ranks: 4}}, Hosts: hosts}
		if l, err := layOut(&job); err != nil || onlyHere(l, "me") != want {
			t.Errorf("%s: %+v (%v)", names, l, err)
		}
	}
	many := Job{Apps: []App{{Ranks: 1}}}
	for i := range 20 {
		many.Hosts = append(many.Hosts, place.Host{Name: "n" + strings.Repeat("x", i)})
	}
	if _, err := layOut(&many); err == nil || !strings.Contains(err.Error(), ",nxxxxxxxx,...)") {
		t.Error(err)
	}
}

// A dry run places 10,000 ranks on 100 hosts.
func TestDescribeManyHosts(t *testing.T) {
	hosts, err := place.List("-H", "n[001-100]:100")
	if err != nil {
		t.Fatal(err)
	}
	job := Job{Apps: []App{{Ranks: 10_000, Path: os.Args[0], Name: "x"}}, Hosts: hosts}
	for unit, want := range map[place.Unit]string{
		place.Slot: "\nhost n100 has ranks 9900-9999\n", place.Node: "\nhost n100 has ranks 99,199,",
	} {
		job.Place.MapBy = unit
		var b strings.Builder
		if err := job.Describe(&b, nil); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if !strings.HasPrefix(text, "10000 ranks on 100 hosts\nhost n001 has ranks ") || !strings.Contains(text, want) {
			t.Errorf("%s: %.2000s", unit, text)
		}
	}
	if err := new(Job).Describe(new(strings.Builder), nil); err == nil {
		t.Error("a job without ranks was described")
	}
}

// Which hosts are spares: the named ones, which are no hosts then, and nodes of an allocation that the user has kept.
func TestSpares(t *testing.T) {
	slurm := []string{"SLURM_JOB_NODELIST=n[1-3]", "SLURM_TASKS_PER_NODE=2(x3)"}
	for _, c := range []struct {
		env           []string
		hosts, spares string
		respawn       int
		want          string // the hosts and the spares, or what the error has
	}{
		{nil, "a:2,b:3,c", "b", 1, "[{a 2} {c 0}] [{b 3}]"},
		{nil, "a:2,b:3", "b:1", 1, "[{a 2}] [{b 1}]"},
		{nil, "a,B.cluster:4,c", "b,s:2", 1, "[{a 0} {c 0}] [{B.cluster 4} {s 2}]"},
		{nil, "me,b", "localhost", 1, "[{b 0}] [{me 0}]"},
		{nil, "a,b", "b,a", 1, "all hosts are spares (b,a)"},
		{nil, "a,b", "s", 0, "--respawn N"},
		{slurm, "", "", 0, "[{n1 2} {n2 2} {n3 2}] []"},
		{slurm, "n2", "", 0, "[{n2 2}] []"},
		{slurm, "n2", "", 1, "[{n2 2}] [{n1 2} {n3 2}]"},
		{slurm, "", "n1.cluster", 1, "[{n2 2} {n3 2}] [{n1 2}]"},
		{slurm, "n1", "n3:1", 1, "[{n1 2}] [{n3 1} {n2 2}]"},
		{slurm, "", "n4", 1, "--spares: host n4 is not in this Slurm allocation"},
	} {
		j := Job{Environ: c.env, Options: Options{Respawn: c.respawn}}
		if c.hosts != "" {
			j.Hosts, _ = place.List("-H", c.hosts)
		}
		if c.spares != "" {
			j.Spares, _ = place.List("--spares", c.spares)
		}
		got, err := j.choose("me")
		text := fmt.Sprint(got.hosts, " ", got.spares)
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%+v: %s", c, text)
		}
	}
}
