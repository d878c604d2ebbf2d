package e2e

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// cluster is a Slurm of its own, with nodes n1, n2, ...
type cluster struct {
	t    *testing.T
	conf string // SLURM_CONF=...
	srun string
}

// slurmUp makes a cluster for a test and removes it at its end, also if the test binary is killed.
func slurmUp(t *testing.T, nodes string) *cluster {
	t.Helper()
	srun := proc.RequireProgram(t, "srun", "slurm-client")
	script, err := proc.CheckoutFile("scripts/slurm")
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp("", "slurm-") // not TempDir: munged wants a folder whose parents others cannot write
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, "up", "-hold", nodes, base)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	word, _ := bufio.NewReader(out).ReadString('\n')
	if word != "up\n" {
		cmd.Wait()
		os.RemoveAll(base)
		if cmd.ProcessState.ExitCode() == 77 && (os.Getuid() != 0 || os.Getenv(proc.RequirePeers) == "") {
			t.Skipf("no cluster can be made here: %s", complaint.String())
		}
		t.Fatalf("%v\n%s", cmd.ProcessState, complaint.String())
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, complaint.String())
		}
		os.RemoveAll(base)
	})
	return &cluster{t, "SLURM_CONF=" + base + "/slurm.conf", srun}
}

// start starts a job by srun; flags are srun's.
func (c *cluster) start(role string, env []string, flags ...string) *job {
	c.t.Helper()
	j := start(c.t, spec{bare: true, prog: c.srun, role: role, env: append(env, c.conf),
		args: append(flags, program(c.t, ""))})
	j.patient = true // srun does not wait for processes that it has killed on other nodes
	return j
}

// Ranks that srun starts, with each of its ways to find each other, and what ends them.
func TestSlurm(t *testing.T) {
	t.Parallel()
	c := slurmUp(t, "3")
	for _, mpi := range []string{"pmi2", "none", "pmix"} { // this binary has no PMIx, so pmix is as none
		t.Run(mpi, func(t *testing.T) {
			c := &cluster{t, c.conf, c.srun}
			c.start("exchange", []string{"GORUN_LOG=debug"}, "--mpi="+mpi, "-N3", "-n6").wait(0).exchanges(6).
				says(`this rank has joined: launcher=slurm`)
			c.start("join", nil, "--mpi="+mpi, "-N1", "-n1").wait(0).says(`^rank 0 of 1$`)
		})
	}
	t.Run("cyclic", func(t *testing.T) {
		if testing.Short() {
			t.Skip("the long form deals the ranks in turn too")
		}
		c := &cluster{t, c.conf, c.srun}
		c.start("exchange", nil, "--mpi=none", "-N3", "-n6", "--distribution=cyclic").wait(0).exchanges(6)
	})
	t.Run("with PMIx", func(t *testing.T) {
		if testing.Short() {
			t.Skip("TestUnderOpenMPI runs the same client")
		}
		j := start(t, spec{bare: true, prog: c.srun, role: "exchange", env: []string{"GORUN_LOG=debug", c.conf},
			args: []string{"--mpi=pmix", "-N3", "-n6", withPMIx(t)}})
		j.wait(0).exchanges(6).says(`this rank has joined: launcher=pmix`)
	})
	t.Run("ends", c.ends)
	t.Run("without munge", func(t *testing.T) {
		c := &cluster{t, c.conf, c.srun}
		c.start("join", []string{"PATH=/nowhere"}, "--mpi=none", "-N2", "-n2").wait(3).
			says(`^unavailable true: mpi: Init: .*munge.* executable file not found .*srun --mpi=pmi2, or have munge`)
	})
	t.Run("a rank that never comes", func(t *testing.T) {
		if testing.Short() {
			t.Skip("TestMissing of internal/bootstrap/rank0 is the short form")
		}
		c := &cluster{t, c.conf, c.srun}
		j := c.start("one missing", []string{"GORUN_TIMEOUT=2s"}, "--mpi=none", "-N2", "-n3")
		j.wait(3).says(`^unavailable true: .*1 of 3 ranks have not joined \(2\)`)
	})
	t.Run("gorun in an allocation", func(t *testing.T) {
		salloc := proc.RequireProgram(t, "salloc", "slurm-client")
		j := start(t, spec{bare: true, prog: salloc, role: "join", env: []string{c.conf},
			args: []string{"-N3", "-n6", proc.Gorun(t), "-n", "6", "hostname"}})
		j.wait(2).says(`this Slurm allocation has 3 hosts \(n1,n2,n3\)`)
		if j.out.String() != "" {
			t.Errorf("ranks were started:\n%s", j.out.String())
		}
	})
}

// ends: every rank ends, whatever ends one of them. With --mpi=none the ranks see to that, with pmi2 srun -K does.
func (c *cluster) ends(t *testing.T) {
	c = &cluster{t, c.conf, c.srun}
	c.start("abort, others away", nil, "--mpi=none", "-N3", "-n5").wait(7)
	c.start("error", nil, "--mpi=none", "-N2", "-n4").wait(1).says(`rank 1: the input makes no sense`)
	c.start("no finalize", nil, "--mpi=none", "-N2", "-n3").wait(1)
	sleepers := func(flags ...string) *job {
		j := c.start("sleep", nil, append(flags, "-N3", "-n3", "--job-name=sleepers")...)
		proc.Eventually(t, "the ranks", func() bool { return j.count(`^ready$`) == 3 })
		return j
	}
	over := func(j *job) {
		j.end()
		j.nothingLeft()
	}
	for _, victim := range []string{"0", "2"} {
		j := sleepers("--mpi=none")
		j.killRank(victim)
		over(j)
	}
	j := sleepers("--mpi=none")
	cancel := exec.Command("scancel", "--name=sleepers")
	cancel.Env = append(os.Environ(), c.conf)
	if out, err := cancel.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	over(j)
	if testing.Short() {
		return
	}
	c.start("abort, others away", nil, "--mpi=pmi2", "-N3", "-n5").wait(137) // Slurm's code for that
	c.start("error", nil, "--mpi=pmi2", "-N2", "-n4", "-K").end()
	j = sleepers("--mpi=pmi2", "-K")
	j.killRank("1")
	over(j)
	j = sleepers("--mpi=none", "--time=1") // Slurm counts in minutes, and looks twice a minute
	for end := time.Now().Add(5 * time.Minute); len(j.processes()) > 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	if left := j.processes(); len(left) > 0 {
		t.Errorf("the time limit is over and these live: %v", left)
	}
	j.end()
}

// killRank kills a rank of srun's.
func (j *job) killRank(rank string) {
	j.t.Helper()
	for _, p := range j.processes() {
		if slices.Contains(p.Env(), "SLURM_PROCID="+rank) {
			syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
}

func init() {
	roles["one missing"] = func() error {
		if os.Getenv("SLURM_PROCID") == "2" {
			time.Sleep(4 * time.Second) // longer than the patience of the others, who end
			return nil
		}
		return join()
	}
}
