package launcher

import (
	"os"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/place"
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

// Which jobs are started, and what the others are told.
func TestLayOut(t *testing.T) {
	unused := []place.Host{{Name: "me", Slots: 4}, {Name: "b", Slots: 4}}
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
			"1 of the 2 hosts would get no rank (b): --map-by node deals them to all, -ppn 2"},
		"an unused host is meant": {Job{Hosts: unused, AllowUnused: true}, ""},
		"ppn":                     {Job{Place: place.Request{PerHost: 4}}, ""},
		"ppn does not fit":        {Job{Place: place.Request{PerHost: 2}}, "4 ranks with 2 on each host need 2 hosts, and there is 1"},
		"an allocation": {Job{Environ: slurm}, "this Slurm allocation has 3 hosts (n1,n2,n3), and gorun starts ranks on " +
			"its own only, which is me: start them with srun --mpi=pmi2 -n 4 and the program, or say -H localhost"},
		"in an allocation, here": {Job{Environ: slurm, Hosts: []place.Host{{Name: "localhost"}}}, ""},
		"it is meant":            {Job{Environ: slurm, AllowUnused: true}, ""},
		"one host, another":      {Job{Environ: []string{"SLURM_JOB_NODELIST=n1"}}, "this Slurm allocation has 1 host (n1)"},
		"one host, this":         {Job{Environ: []string{"SLURM_JOB_NODELIST=me"}}, ""},
		"one host, by its node":  {Job{Environ: []string{"SLURM_JOB_NODELIST=n1", "SLURMD_NODENAME=n1"}}, ""},
		"many, by their node":    {Job{Environ: append(slurm, "SLURMD_NODENAME=n1")}, "this Slurm allocation has 3 hosts"},
		"a step on one host":     {Job{Environ: append(slurm, "SLURM_NODELIST=n1", "SLURM_STEP_NODELIST=n1")}, "has 3 hosts"},
		"a broken allocation": {Job{Environ: []string{"SLURM_JOB_NODELIST=n[1-"}},
			"SLURM_JOB_NODELIST, column 5: a number is"},
		"an empty one": {Job{Environ: []string{"SLURM_JOB_NODELIST="}}, ""},
	} {
		c.job.Apps = []App{{Ranks: 4}}
		l, err := c.job.layOut("me")
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
		if l, err := job.layOut("me"); err != nil || onlyHere(l, "me") != want {
			t.Errorf("%s: %+v (%v)", names, l, err)
		}
	}
	many := Job{Apps: []App{{Ranks: 1}}}
	for i := range 20 {
		many.Hosts = append(many.Hosts, place.Host{Name: "n" + strings.Repeat("x", i)})
	}
	if _, err := many.layOut("me"); err == nil || !strings.Contains(err.Error(), ",nxxxxxxxx,...)") {
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
