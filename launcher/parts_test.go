package launcher

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
)

func TestDescribeBinding(t *testing.T) {
	p := &Plan{Host: "h"}
	for i := range 4 {
		p.CPUs.CPUs = append(p.CPUs.CPUs, cpuset.CPU{ID: i, Core: i % 2, Socket: i / 2, Node: i / 2})
	}
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

// The ranks of a spawned job are not bound, and outnumber the CPUs together with the ranks that were there before.
func TestPlanOfASpawnedJob(t *testing.T) {
	host := cpuset.Host{}
	for i := range 4 {
		host.CPUs = append(host.CPUs, cpuset.CPU{ID: i, Core: i})
	}
	for _, c := range []struct {
		ranks, before int
		bound, over   bool
		cpus          string
	}{{2, 0, procs.CanBind, false, "4"}, {2, 2, false, false, "2"}, {2, 3, false, true, "1"}, {2, 9, false, true, "1"},
		{1, 3, false, false, "1"}, {1, 4, false, true, "1"}} {
		j := &Job{Apps: []App{{Ranks: c.ranks, Path: "/bin/true", Name: "true"}}, Before: c.before}
		p, err := j.plan(host)
		if err != nil {
			t.Fatal(err)
		}
		env := pmi.EnvCPUs + "=" + c.cpus
		if s := p.Specs[c.ranks-1]; p.Over != c.over || (s.CPUs != nil) != c.bound || !slices.Contains(s.Env, env) {
			t.Errorf("%d ranks before: over %v, bound to %v, %q", c.before, p.Over, s.CPUs, s.Env)
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

// The error of a rank that the host has no room for says what to do.
func TestRankThatTheHostHasNoRoomFor(t *testing.T) {
	for errno, advice := range map[syscall.Errno]string{syscall.EMFILE: "ulimit -n", syscall.ENFILE: "ulimit -n",
		syscall.EAGAIN: "ulimit -u", syscall.ENOMEM: "ulimit -u", syscall.ENOENT: "no such file"} {
		failed := &os.PathError{Op: "fork/exec", Path: "/bin/solve", Err: errno}
		err := (&Job{}).wrapStart(&procs.Spec{Rank: 3, Path: "/bin/solve"}, failed)
		if text := err.Error(); !strings.Contains(text, "rank 3 cannot be started: /bin/solve") ||
			!strings.Contains(text, advice) {
			t.Errorf("%v: %s", errno, text)
		}
	}
}
