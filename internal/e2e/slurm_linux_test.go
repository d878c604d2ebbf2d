package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
		if cmd.ProcessState.ExitCode() == 77 && (os.Getuid() != 0 || !proc.Installed("slurmctld")) {
			t.Skipf("no cluster can be made here: %s", complaint.String())
		}
		t.Fatalf("%v\n%s", cmd.ProcessState, complaint.String())
	}
	c := &cluster{t, "SLURM_CONF=" + base + "/slurm.conf", srun}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.state(base))
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, complaint.String())
		}
		os.RemoveAll(base)
	})
	return c
}

// state is what there is to see of a cluster in which a test has failed: nodes, jobs, and the ends of the logs in base.
func (c *cluster) state(base string) string {
	show := exec.Command("sh", "-c", `for what in nodes jobs steps; do timeout 10 scontrol -o show $what; done
		tail -n 40 "$0"/log/slurm*.log`, base)
	show.Env = append(os.Environ(), c.conf)
	out, err := show.CombinedOutput()
	return fmt.Sprintf("the cluster: %v\n%s", err, out)
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
	t.Run("gorun in an allocation", func(t *testing.T) { c.allocated(t) })
}

// gorun starts gorun in an allocation of three nodes and six tasks. Its flags follow those of salloc, after "--".
func (c *cluster) gorun(role string, args ...string) *job {
	c.t.Helper()
	salloc := proc.RequireProgram(c.t, "salloc", "slurm-client")
	own, gorun := slices.Index(args, "--"), proc.Alias(c.t, proc.Gorun(c.t))
	args = slices.Concat([]string{"-Q", "-N3", "-n6"}, args[:own], []string{gorun}, args[own+1:],
		[]string{program(c.t, "")})
	j := start(c.t, spec{bare: true, prog: salloc, role: role, env: []string{c.conf}, args: args})
	j.launcher, j.bare = gorun, false // agents have nothing of the job in their environment
	return j
}

// run runs a command of Slurm.
func (c *cluster) run(words ...string) string {
	c.t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), c.conf)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%q: %v\n%s", words, err, out)
	}
	return string(out)
}

// over waits for the end of all that a job has, and of its steps.
func (c *cluster) over(j *job) *job {
	c.t.Helper()
	proc.Eventually(c.t, "the end of the job", func() bool { return len(j.processes()) == 0 })
	j.end()
	proc.Eventually(c.t, "the end of the step", func() bool { return c.run("squeue", "-h", "-s", "-o", "%i") == "" })
	return j
}

// signal sends a signal to one process of a job: gorun, an agent, or srun.
func (j *job) signal(s syscall.Signal, ok func(args []string) bool) {
	j.t.Helper()
	for _, p := range j.processes() {
		if ok(p.Args()) {
			syscall.Kill(p.PID, s)
			return
		}
	}
	j.t.Error("the process is not found")
}

func isGorun(args []string) bool {
	return filepath.Base(args[0]) == "gorun" && len(args) > 1 && args[1] == "--kill-delay"
}
func isAgent(args []string) bool { return len(args) > 1 && args[1] == "__agent" }
func isSrun(args []string) bool  { return slices.Contains(args, "--overlap") }

// allocated: gorun finds the allocation, runs ranks on all of its hosts, and leaves no step and no process behind.
func (c *cluster) allocated(t *testing.T) {
	c = &cluster{t, c.conf, c.srun}
	c.over(c.gorun("exchange", "--", "-n", "6", "--display-map")).wait(0).exchanges(6).
		says(`^gorun: host n1 has ranks 0-3$`, `^gorun: host n3 has rank 5$`)
	c.gorun("join", "--", "-n", "2").wait(2).
		says(`2 of the 3 hosts of this Slurm allocation would get no rank \(n2,n3\)`)
	if !testing.Short() {
		c.over(c.gorun("exchange", "--")).wait(0).exchanges(6) // as many as there are tasks
		c.over(c.gorun("exchange", "--", "-H", "n2,n3")).wait(0).exchanges(2)
		c.gorun("join", "--", "-H", "n1,n4").wait(2).says(`host n4 is not in this Slurm allocation, which has n1,n2,n3`)
		c.over(c.gorun("abort, others away", "--")).wait(7)
		c.over(c.gorun("replace in an allocation", "--", "-H", "n2,n3", "--respawn", "1")).wait(0).
			says(`^rank 1 goes on, new: true, on n3$`, `^rank 0 goes on, new: false, on n2$`)
		c.onThePage(t)
	}
	for _, e := range endsInAllocation {
		if testing.Short() && !e.short {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			c := &cluster{t, c.conf, c.srun}
			j := c.gorun("sleep", append(e.salloc, "--job-name=mine", "--", "--kill-delay", "1s")...)
			proc.Eventually(t, "the ranks", func() bool { return j.count(`^ready$`) == 6 })
			e.do(c, j)
			c.over(j)
			j.nothingLeft()
			j.says(e.says)
		})
	}
}

// onThePage runs the commands of the page about launching in its part on Slurm.
func (c *cluster) onThePage(t *testing.T) {
	page, root := proc.CheckoutText(t, "docs/launching.md")
	found := 0
	for line := range strings.Lines(page) {
		command, ok := strings.CutPrefix(line, "    salloc ")
		if !ok {
			continue
		}
		found++
		command, _, _ = strings.Cut(command, "#")
		words := strings.Fields(command)
		words[slices.Index(words, "gorun")] = proc.Gorun(t)
		cmd := exec.Command("salloc", append([]string{"-Q"}, words...)...)
		cmd.Env, cmd.Dir = append(os.Environ(), c.conf), root
		if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	if found < 4 {
		t.Errorf("%d commands found", found)
	}
}

// endsInAllocation are what ends a job of gorun in an allocation, and what gorun says then.
var endsInAllocation = []struct {
	name   string
	salloc []string // flags
	do     func(c *cluster, j *job)
	says   string
	short  bool
}{
	{"scancel", nil, func(c *cluster, _ *job) { c.run("scancel", "--name=mine") },
		`STEP .* CANCELLED|stopped by signal 15`, false},
	{"scancel after salloc -K", []string{"-K"}, func(c *cluster, _ *job) { c.run("scancel", "--name=mine") },
		`STEP .* CANCELLED|stopped by signal 15`, false},
	{"scancel of the step", nil, func(c *cluster, _ *job) {
		c.run("scancel", strings.TrimSpace(c.run("squeue", "-h", "-s", "-o", "%i")))
	}, `STEP .* CANCELLED`, false},
	{"Ctrl-C", nil, func(_ *cluster, j *job) { j.signal(syscall.SIGINT, isGorun) }, `^gorun: interrupt`, false},
	{"gorun killed", nil, func(_ *cluster, j *job) { j.signal(syscall.SIGKILL, isGorun) }, `^ready$`, true},
	{"an agent killed", nil, func(_ *cluster, j *job) { j.signal(syscall.SIGKILL, isAgent) },
		`^gorun: (host n\d is lost|rank \d .* was killed)`, false},
	{"srun killed", nil, func(_ *cluster, j *job) { j.signal(syscall.SIGKILL, isSrun) },
		`^gorun: (host n\d is lost|rank \d .* was killed)`, false},
	{"a rank killed", nil, func(_ *cluster, j *job) {
		for _, p := range j.processes() {
			if slices.Contains(p.Env(), "PMI_RANK=5") {
				syscall.Kill(p.PID, syscall.SIGKILL)
			}
		}
	},
		`^gorun: rank 5 .*was killed by signal 9`, false},
	{"time limit", []string{"--time=1"}, func(_ *cluster, j *job) { j.end() }, `DUE TO TIME LIMIT|stopped by signal 15`, false},
}

// A node that is gone with all of its processes ends the job on the others.
func TestSlurmNodeCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("TestAgents of cmd/gorun loses agents in the short form")
	}
	t.Parallel()
	c := slurmUp(t, "3")
	j := c.gorun("sleep", "--")
	proc.Eventually(t, "the ranks", func() bool { return j.count(`^ready$`) == 6 })
	slurmd := proc.List(func(p proc.Info) bool {
		return slices.Contains(p.Env(), c.conf) && slices.Contains(p.Args(), "-N") && slices.Contains(p.Args(), "n3")
	})
	if len(slurmd) != 1 {
		t.Fatal(slurmd)
	}
	node := slurmd[0].Namespace("uts")
	for _, p := range proc.List(func(p proc.Info) bool { return p.Namespace("uts") == node }) {
		syscall.Kill(p.PID, syscall.SIGKILL)
	}
	j.end()
	proc.Eventually(t, "the end of the job", func() bool { return len(j.processes()) == 0 })
	j.says(`^gorun: host n3 is lost`)
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
