package netns

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// ring is a rank that publishes a value, reads its neighbour's, and does what GORUN_TEST_THEN says.
func ring() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pmi.Join(ctx)
	if err != nil {
		return err
	}
	if err := c.Put(ctx, fmt.Sprint("v", c.Rank()), bytes.Repeat([]byte{byte(c.Rank())}, 2000)); err != nil {
		return err
	}
	if err := c.Fence(ctx); err != nil {
		return err
	}
	next := (c.Rank() + 1) % c.Size()
	if v, err := c.Get(ctx, fmt.Sprint("v", next)); err != nil || len(v) != 2000 || v[0] != byte(next) {
		return fmt.Errorf("rank %d has %d bytes of rank %d: %w", c.Rank(), len(v), next, err)
	}
	name, _ := os.Hostname()
	fmt.Printf("rank %d of %d on %s local %s/%s secret %d\n", c.Rank(), c.Size(), name,
		os.Getenv(pmi.EnvLocalRank), os.Getenv(pmi.EnvLocalSize), len(c.Secret()))
	switch then := os.Getenv("GORUN_TEST_THEN"); {
	case then == "wait":
		<-c.Lost()
		fmt.Println("lost")
		os.Exit(5)
	case then == "abort" && c.Rank() == 1:
		c.Abort(7, "")
		return proc.AwaitEnd()
	case then == "exit" && c.Rank() == 1:
		os.Exit(3)
	case then == "abort", then == "exit":
		return proc.AwaitEnd()
	case then == "leave":
		return nil
	}
	if err := c.Fence(ctx); err != nil {
		return err
	}
	return c.Finalize(ctx)
}

func start(t *testing.T, h *Hosts, job Job, then string, env ...string) *Running {
	t.Helper()
	job.Program, job.Env = os.Args[0], append([]string{proc.RoleVar + "=ring", "GORUN_TEST_THEN=" + then}, env...)
	r, err := h.Run(job)
	must(t, err)
	return r
}

func waitCodes(t *testing.T, r *Running) []int {
	t.Helper()
	over := time.AfterFunc(2*patience, r.Stop) // a hang is a failure
	defer over.Stop()
	return r.Wait()
}

func TestJob(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	for _, pin := range []bool{false, true} {
		r := start(t, h, Job{PerHost: []int{2, 1}, Pin: pin}, "")
		codes := waitCodes(t, r)
		if !slices.Equal(codes, []int{0, 0, 0}) || r.Code() != 0 {
			t.Errorf("codes %v, %d", codes, r.Code())
		}
		for i, want := range []string{"rank 0 of 3 on h1 local 0/2 secret 32\n", "rank 1 of 3 on h1 local 1/2 secret 32\n",
			"rank 2 of 3 on h2 local 0/1 secret 32\n"} {
			if got := r.Output(i); got != want {
				t.Errorf("rank %d printed %q, want %q", i, got, want)
			}
		}
	}
}

// A rank that is pinned has a core of its own, or where there are too few those of its host; no two hosts share one, if
// there is one for each.
func TestCores(t *testing.T) {
	n := len(cpuset.Read().CPUs)
	taken := map[string]bool{}
	for rank := range n {
		taken[cores(rank, n, 0, 1)] = true
	}
	if len(taken) != n {
		t.Errorf("%d ranks have %v", n, taken)
	}
	for hosts := 1; hosts <= n; hosts++ {
		by := map[int]int{} // the host of each core
		for rank := range 2 * n * hosts {
			host := rank / (2 * n)
			ids, err := cpuset.ParseList(cores(rank, 2*n*hosts, host, hosts))
			if err != nil || len(ids) != n/hosts {
				t.Errorf("a rank of %d hosts has cores %v of %d: %v", hosts, ids, n, err)
			}
			for _, id := range ids {
				if by[id] != 0 && by[id] != host+1 {
					t.Errorf("hosts %d and %d of %d share core %d", by[id]-1, host, hosts, id)
				}
				by[id] = host + 1
			}
		}
	}
}

func TestJobFails(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	for then, want := range map[string]int{"abort": 7, "exit": 3} {
		r := start(t, h, Job{}, then)
		codes := waitCodes(t, r)
		if r.Code() != want || codes[0] != 128+9 {
			t.Errorf("%s: codes %v, %d: %s", then, codes, r.Code(), r.Output(0)+r.Output(1))
		}
	}
	r := start(t, h, Job{}, "leave")
	if codes := waitCodes(t, r); !slices.Equal(codes, []int{1, 1}) || !strings.Contains(r.Output(0), "without Finalize") {
		t.Errorf("left without Finalize: %v %s", codes, r.Output(0))
	}
}

func TestJobWrongKey(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	r := start(t, h, Job{}, "", pmi.EnvKey+"="+strings.Repeat("A", 43))
	codes := waitCodes(t, r)
	if slices.Contains(codes, 0) || !strings.Contains(r.Output(0)+r.Output(1), "has another secret") {
		t.Errorf("codes %v: %s", codes, r.Output(0)+r.Output(1))
	}
}

func await(t *testing.T, r *Running, rank int, text string) {
	t.Helper()
	proc.Eventually(t, fmt.Sprintf("rank %d to print %q", rank, text),
		func() bool { return strings.Contains(r.Output(rank), text) })
}

// A rank whose link is down stops itself, and the launcher counts it as gone; the other goes on.
func TestJobLinkDown(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	r := start(t, h, Job{Grace: -1, PeerTimeout: 3 * time.Second}, "wait")
	await(t, r, 0, "rank 0")
	await(t, r, 1, "rank 1")
	must(t, h.LinkDown(2))
	select {
	case <-r.Ended(1):
	case <-time.After(patience):
		t.Fatal("the rank beyond the dead link has not stopped itself")
	}
	if !strings.Contains(r.Output(1), "lost") || strings.Contains(r.Output(0), "lost") {
		t.Errorf("rank 0: %q, rank 1: %q", r.Output(0), r.Output(1))
	}
	r.Kill(0)
	if codes := waitCodes(t, r); !slices.Equal(codes, []int{128 + 9, 5}) {
		t.Errorf("codes %v", codes)
	}
}

func TestJobPid(t *testing.T) {
	t.Parallel()
	h := Up(t, 1)
	r := start(t, h, Job{Grace: -1}, "wait")
	pid, err := r.Pid(0)
	must(t, err)
	await(t, r, 0, "rank 0")
	if p, lives := proc.Lookup(pid); !lives || p.Args()[0] != os.Args[0] {
		t.Errorf("process %d is %v", pid, p)
	}
	must(t, h.Close()) // with the job running
	ends(t, pid)
}
