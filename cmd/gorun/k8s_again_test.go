package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/k8s"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/launcher"
)

// respawning is a job of two pods with two ranks each, which may be started again.
func respawning(t *testing.T, flags ...string) *pods {
	t.Helper()
	return newPods(t, 2, append([]string{"-n", "4", "--ppn", "2", "--respawn", "8"}, flags...)...)
}

// startAs starts a pod whose ranks can say in which pod they are.
func (p *pods) startAs(index int, words ...string) *pod {
	p.t.Helper()
	o := p.command(index, words...)
	o.cmd.Env = append(o.cmd.Env, fmt.Sprintf("HOSTNAME=job-%d", index))
	return o.start()
}

// hears waits until a pod has said something.
func (o *pod) hears(text string) *pod {
	o.t.Helper()
	proc.Eventually(o.t, "pod to say "+text, func() bool { return strings.Contains(o.err.String(), text) })
	return o
}

func makeFile(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (o *pod) prints(lines ...string) {
	o.t.Helper()
	if got, want := sorted(o.out.String()), sorted(strings.Join(lines, "\n")+"\n"); got != want {
		o.t.Errorf("pod %d prints\n%s\nwant\n%s", o.index, got, want)
	}
}

// agents are the processes of a job that are gorun's agents.
func (p *pods) agents() []proc.Info {
	return proc.List(func(q proc.Info) bool {
		return len(q.Args()) > 1 && q.Args()[1] == "__agent" && slices.Contains(q.Env(), markVar+"="+p.mark)
	})
}

// A pod dies with its ranks and comes again; new ranks start there.
func TestPodComesAgain(t *testing.T) {
	t.Parallel()
	words := []string{"join", "2:sleep", "3:sleep", "0:replace=2,3", "finalize"}
	for name, end := range map[string]func(o *pod){
		"pod killed":     func(o *pod) { o.cmd.Process.Kill() },
		"pod terminated": func(o *pod) { o.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := respawning(t)
			head, first := p.startAs(0, words...), p.startAs(1, words...)
			proc.Eventually(t, "the ranks", func() bool { return strings.Count(head.out.String(), "ready\n") == 2 })
			end(first)
			if code := launcher.CodeAgain; name == "pod killed" {
				first.wait(-1)
			} else {
				first.wait(code)
			}
			head.hears("host job-1 is lost: ")
			second := p.startAs(1, words...)
			head.wait(0).says("host job-1 is there again", "rank 2 has been started again on job-1",
				"rank 3 has been started again on job-1", "all ranks that died were started again")
			second.wait(0)
			head.prints("ready", "ready", "new rank 0 on job-1", "new rank 1 on job-1")
			p.gone()
		})
	}
}

// A rank of a pod that lives starts again in that pod, more than once.
func TestRankStartsAgainInItsPod(t *testing.T) {
	t.Parallel()
	p := respawning(t)
	words := []string{"join", "3:kill=9", "0:replace=3", "0:replace=3", "finalize"}
	head, other := p.startAs(0, words...), p.startAs(1, words...)
	head.wait(0).prints("new rank 0 on job-1", "new rank 0 on job-1")
	other.wait(0)
	p.gone()
}

// Spawn starts ranks in the pods of such a job.
func TestSpawnInPods(t *testing.T) {
	t.Parallel()
	p := respawning(t)
	words := []string{"join", "0:spawn=exec " + p.gorun, "fence", "finalize"}
	head, other := p.startAs(0, words...), p.startAs(1, words...)
	head.wait(0)
	other.wait(0)
	if got := head.out.String(); !strings.HasPrefix(got, "new rank 0 on job-") {
		t.Errorf("the spawned rank prints %q", got)
	}
	p.gone()
}

// A pod that is lost again comes again, also where it had no ranks.
func TestPodComesAgainTwice(t *testing.T) {
	t.Parallel()
	p := respawning(t)
	words := []string{"join", "2:sleep", "3:sleep", "0:replace=2,3", "0:sleep", "finalize"}
	head, other := p.startAs(0, words...), p.startAs(1, words...)
	proc.Eventually(t, "the ranks", func() bool { return strings.Count(head.out.String(), "ready\n") == 2 })
	for times := 1; times <= 3; times++ {
		other.cmd.Process.Kill()
		other.wait(-1)
		other = p.startAs(1, words...)
		proc.Eventually(t, "the return", func() bool {
			return strings.Count(head.err.String(), "host job-1 is there again") == times
		})
		head.hears("rank 3 has been started again on job-1")
		if n := strings.Count(head.err.String(), "host job-1 is lost: "); n != times {
			t.Errorf("%d losses were said, want %d:\n%s", n, times, head.err.String())
		}
	}
	head.cmd.Process.Signal(syscall.SIGTERM)
	head.wait(143)
	other.wait(0)
	p.gone()
}

// When no pod comes, the ranks start in another one.
func TestPodDoesNotComeAgain(t *testing.T) {
	t.Parallel()
	p := respawning(t, "--host-timeout", "3s")
	words := []string{"join", "2:sleep", "3:sleep", "0:replace=2,3", "finalize"}
	head, other := p.startAs(0, words...), p.startAs(1, words...)
	proc.Eventually(t, "the ranks", func() bool { return strings.Count(head.out.String(), "ready\n") == 2 })
	other.cmd.Process.Kill()
	head.wait(0).says("no pod has come again for host job-1 within 3s", "--host-timeout",
		"rank 2 has been started again on ")
	head.prints("ready", "ready", "new rank 0 on job-0", "new rank 1 on job-0")
	other.wait(-1)
	p.gone()
}

// The index of a pod that is there is not given to another one: that waits, and is told why.
func TestPodHasATwin(t *testing.T) {
	t.Parallel()
	p := respawning(t, "-x", "GORUN_PEER_TIMEOUT=1s")
	words := []string{"join", "sleep"}
	head, pod := p.startAs(0, words...), p.startAs(1, words...)
	proc.Eventually(t, "the ranks", func() bool { return strings.Count(head.out.String(), "ready\n") == 4 })
	p.startAs(1, words...).wait(launcher.CodeAgain).says(`host \"job-1\" has an agent already`)
	head.cmd.Process.Signal(syscall.SIGTERM)
	head.wait(143)
	pod.wait(0)
	if said := head.err.String(); strings.Contains(said, "job-1 is lost") || strings.Contains(said, "is there again") {
		t.Errorf("the head says\n%s", said)
	}
	p.gone()
}

// A pod that has come before the head knows of the loss of the old one waits until then. The old one, which lives, ends
// its ranks and is not let in again.
func TestPodComesEarly(t *testing.T) {
	t.Parallel()
	p := respawning(t, "-x", "GORUN_PEER_TIMEOUT=5s")
	lost := filepath.Join(t.TempDir(), "lost")
	words := []string{"join", "2:sleep", "3:sleep", "0:await=" + lost, "0:replace=2,3", "finalize"}
	head, old := p.startAs(0, words...), p.startAs(1, words...)
	proc.Eventually(t, "the ranks", func() bool { return strings.Count(head.out.String(), "ready\n") == 2 })
	stopped := []int{old.cmd.Process.Pid}
	for _, a := range p.agents() {
		if slices.Contains(a.Env(), envIndex+"=1") {
			stopped = append(stopped, a.PID)
		}
	}
	for _, pid := range stopped {
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	second := p.startAs(1, words...)
	head.hears("a second agent has come for host job-1")
	head.hears("host job-1 is lost: ")
	makeFile(t, lost)
	head.wait(0).says("host job-1 is there again")
	second.wait(0)
	head.prints("ready", "ready", "new rank 0 on job-1", "new rank 1 on job-1")
	for _, pid := range stopped {
		syscall.Kill(pid, syscall.SIGCONT)
	}
	old.wait(launcher.CodeAgain)
	p.gone()
}

// A pod that waits for its index when the job ends, ends with it.
func TestPodWaitsAtTheEnd(t *testing.T) {
	t.Parallel()
	p := respawning(t)
	words := []string{"join", "sleep"}
	head, pod := p.startAs(0, words...), p.startAs(1, words...)
	proc.Eventually(t, "the ranks", func() bool { return strings.Count(head.out.String(), "ready\n") == 4 })
	twin := p.startAs(1, words...)
	head.hears("a second agent has come for host job-1")
	head.cmd.Process.Signal(syscall.SIGTERM)
	head.wait(143)
	pod.wait(0)
	twin.wait(0)
	p.gone()
}

// When the pod with index 0 is lost, so is the job: the others may be made again, and it must not begin again.
func TestFirstPodDoesNotComeAgain(t *testing.T) {
	t.Parallel()
	p := respawning(t)
	words := []string{"join", "sleep"}
	head, pod := p.startAs(0, words...), p.startAs(1, words...)
	proc.Eventually(t, "the ranks", func() bool { return strings.Count(head.out.String(), "ready\n") == 4 })
	head.cmd.Process.Kill()
	head.wait(-1)
	pod.wait(launcher.CodeAgain).says("gorun is lost")
	p.gone()
	again := p.command(0, words...)
	again.cmd.Env = append(again.cmd.Env, k8s.FailuresVar+"=1")
	again.start().wait(1).says("the pod of job-0 has failed", "delete the Job job and create it")
}

// survive computes in two pods, loses a rank and a pod with two ranks, and gives the result of a job that loses none.
func TestSurviveInPods(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a program is built; TestPodComesAgain has the test's own ranks")
	}
	t.Parallel()
	survive := proc.Build(t, "examples/survive")
	args := []string{"-size", "400", "-steps", "4000", "-every", "1000000"}
	ctx, cancel := context.WithTimeout(t.Context(), 3*tooLong)
	defer cancel()
	plain := exec.CommandContext(ctx, proc.Gorun(t), append([]string{"-n", "4", survive}, args...)...)
	want, err := plain.Output()
	if err != nil {
		t.Fatal(err)
	}
	p := respawning(t)
	start := func(index int) *pod {
		o := p.command(index)
		at := slices.Index(o.cmd.Args, "--")
		o.cmd.Args = append(append(o.cmd.Args[:at+1], survive), append(args, "-deaths", "1")...)
		return o.start()
	}
	head, first := start(0), start(1)
	head.hears("rank 0 has been started again on ")
	first.cmd.Process.Kill()
	first.wait(-1)
	second := start(1)
	head.wait(0).says("rank 2 has been started again on job-1", "rank 3 has been started again on job-1",
		"all ranks that died were started again, and the job has ended well")
	second.wait(0)
	if got := head.out.String(); got != string(want) {
		t.Errorf("the result is %q, without deaths %q", got, want)
	}
	p.gone()
}
