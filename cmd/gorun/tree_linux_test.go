package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// seven are the hosts of a tree of width 2: gorun starts the agents of h1 and h4, h1 those of h2 and h3, h4 those of h5
// and h6, and h6 that of h7. Each has one rank.
var seven = []string{"--launcher", "exec", "--tree-width", "2", "-H", "h[1-7]", "--bind-to", "none"}

func inTree(t *testing.T, args ...string) *job {
	return start(t, append(slices.Clone(seven), args...)...)
}

// parentsOf tells for each agent's process which one has started it.
func (j *job) parentsOf() map[int]int {
	all := map[int]int{}
	for _, a := range j.agents() {
		all[a.PID] = a.Parent
	}
	return all
}

// Agents start those below them. What ranks put, write and read goes through several.
func TestTree(t *testing.T) {
	t.Parallel()
	j := inTree(t, "RANK", "join", "fence", "exchange=10", "fence", "finalize").wait(0)
	if n := strings.Count(j.out.String(), "70\n"); n != 7 {
		t.Errorf("%s", j.out.String())
	}
	j = prepare(t, append(slices.Clone(seven), "--stdin", "all", "-l", "RANK", "cat")...)
	j.cmd.Stdin = strings.NewReader("x\n")
	j.start().wait(0).printsLines("[0] x", "[1] x", "[2] x", "[3] x", "[4] x", "[5] x", "[6] x")
	j = inTree(t, "RANK", "sleep").ready(7)
	parents, top := j.parentsOf(), 0
	for _, parent := range parents {
		if _, agent := parents[parent]; !agent {
			top++
		}
	}
	if len(parents) != 7 || top != 2 {
		t.Errorf("gorun has started %d of %d agents", top, len(parents))
	}
	j.tell(syscall.SIGTERM)
	j.wait(143)
	j.gone()
}

// The loss of an agent is the end of those below it, and of the job.
func TestTreeIsCut(t *testing.T) {
	t.Parallel()
	for rank, says := range map[int]string{3: "host h4 is lost", 6: "host h7 is lost", 0: "host h1 is lost",
		5: "host h6 is lost"} {
		if testing.Short() && rank < 5 {
			continue
		}
		t.Run(fmt.Sprint(rank), func(t *testing.T) {
			t.Parallel()
			j := inTree(t, "RANK", "join", "fence", fmt.Sprintf("%d:orphan", rank), "sleep")
			j.cmd.Wait()
			j.gone()
			j.took(j.started)
			switch code := j.cmd.ProcessState.ExitCode(); code {
			case 1:
				j.says(says)
			case 137: // the cleaner of the agent that is killed has found the ranks of all hosts, which are one
			default:
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// An agent that is killed as soon as it has started a rank leaves nothing behind, whether it has agents below or none.
func TestAgentIsKilledAtOnce(t *testing.T) {
	t.Parallel()
	for _, hosts := range []string{"a", "a,b"} {
		j := start(t, "--launcher", "exec", "--tree-width", "1", "-H", hosts, "--bind-to", "none", "sh", "-c",
			"setsid sleep 1000 & test $PMI_RANK = 0 && kill -9 $PPID; sleep 1000")
		j.cmd.Wait()
		j.gone()
	}
}

// What a rank leaves behind with an empty environment is killed, also where its agent has one below it.
func TestOrphanWithoutEnvironment(t *testing.T) {
	t.Parallel()
	j := start(t, "--launcher", "exec", "--tree-width", "1", "-H", "a,b", "--bind-to", "none", "sh", "-c",
		"setsid env -i sleep 1000 >/dev/null 2>&1 & echo $!; sleep 0.1").wait(0)
	words := strings.Fields(j.out.String())
	if len(words) != 2 {
		t.Fatalf("%q; want two pids", words)
	}
	for _, word := range words {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		if p, alive := proc.Lookup(pid); alive {
			t.Errorf("it lives: %v", p)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// refusing is a remote shell that stays here, and runs a script where it is called by an agent.
func refusing(t *testing.T, script string) []string {
	path := filepath.Join(t.TempDir(), "shell")
	text := "#!/bin/sh\nif [ -n \"$INNER\" ]; then\n" + script + "\nfi\nshift\nINNER=1 exec \"$@\"\n"
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"--launcher", "exec", "--launch-agent", path, "--tree-width", "2", "-H", "h[1-7]", "--bind-to", "none"}
}

// Where hosts have no way to each other gorun starts all agents itself, and says so once.
func TestTreeOfHostsApart(t *testing.T) {
	t.Parallel()
	flags := refusing(t, "echo Permission denied '(publickey)' >&2; exit 255")
	j := prepare(t, append(flags, "--stdin", "all", "RANK", "join", "exchange=10", "finalize", "cat")...)
	j.cmd.Stdin = strings.NewReader("x\n")
	j.start().wait(0).says(": Permission denied (publickey)): gorun does it itself")
	if out := j.out.String(); strings.Count(out, "70\n") != 7 || strings.Count(out, "x\n") != 7 {
		t.Errorf("%s", out)
	}
	if n := strings.Count(j.err.String(), "gorun does it itself"); n != 1 {
		t.Errorf("said %d times:\n%s", n, j.err.String())
	}
	j.gone()
}

// The same over ssh: hosts that log in at each other, and hosts that let only gorun's in.
func TestTreeOverSSH(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: seven hosts with sshd; TestTree and TestTreeOfHostsApart cover the same over exec")
	}
	h := upSSH(t, 7)
	flags := []string{"--launch-agent", h.shell, "--tree-width", "2", "-H", "h[1-7]", "--bind-to", "none",
		"--host-timeout", "2m", "RANK", "join", "fence"}
	run := func(words ...string) *job {
		j := prepare(t, append(slices.Clone(flags), words...)...)
		h.move(j)
		return j.start()
	}
	shells := func() (from int) { // which hosts have started others
		for host := range 7 {
			if slices.ContainsFunc(h.processes(t, host+1), func(p proc.Info) bool { return p.Args()[0] == "ssh" }) {
				from++
			}
		}
		return from
	}
	j := run("exchange=10", "finalize").wait(0)
	if n := strings.Count(j.out.String(), "70\n"); n != 7 {
		t.Errorf("%s", j.out.String())
	}
	h.nothingLeft(t)
	j = run("sleep").ready(7)
	if n := shells(); n != 3 {
		t.Errorf("%d hosts have started agents, want h1, h2 and h5", n)
	}
	at := time.Now()
	h.kill(t, 2, j.isAgent)
	j.wait(1).says("host h2 is lost: its agent is gone")
	h.nothingLeft(t)
	j.took(at)

	key, err := os.ReadFile(h.keys)
	if err == nil {
		err = os.WriteFile(h.keys, append([]byte(`from="10.77.0.1,fd77::1" `), key...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	j = run("exchange=10", "sleep").ready(7).says(": gorun does it itself", "Permission denied")
	if n := shells(); n != 1 {
		t.Errorf("%d hosts have started agents, want h1", n)
	}
	j.tell(syscall.SIGTERM)
	j.wait(143)
	if n := strings.Count(j.err.String(), ": gorun does it itself"); n != 1 {
		t.Errorf("said %d times:\n%s", n, j.err.String())
	}
	h.nothingLeft(t)
}

// A host that comes up late is waited for, wherever it is in the tree, and so are those below it. One that never does
// ends the job.
func TestTreeOfLateHosts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shell := filepath.Join(dir, "shell")
	text := "#!/bin/sh\ncount=" + dir + "/$1\n" +
		"case $1 in h4|h7) echo x >>$count; [ $(wc -l <$count) -gt $LATE ] || exit 255;; esac\n" +
		"shift; exec \"$@\"\n"
	if err := os.WriteFile(shell, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--launcher", "exec", "--launch-agent", shell, "--tree-width", "2", "-H", "h[1-7]", "--bind-to", "none",
		"--host-timeout"}
	j := prepare(t, append(flags, "1m", "RANK", "join", "exchange=10", "finalize")...)
	j.cmd.Env = append(j.cmd.Env, "LATE=2")
	j.start().wait(0).says("host h4 does not answer yet", "cannot start the agent of host h7",
		"host h7 does not answer yet")
	if n := strings.Count(j.out.String(), "70\n"); n != 7 {
		t.Errorf("%s", j.out.String())
	}
	j = prepare(t, append(flags, "5s", "RANK", "sleep")...)
	j.cmd.Env = append(j.cmd.Env, "LATE=1000")
	j.start().wait(126).says("host h4 cannot be used: ")
	j.gone()
}

// Many agents, each of which watches many ranks without a thread for each.
func TestManyAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: 2,400 processes; TestTree has agents in three levels")
	}
	const hosts, ranks = 40, 60
	j := start(t, "--launcher", "exec", "--tree-width", "6", "-H", fmt.Sprintf("h[01-%d]", hosts),
		"-ppn", fmt.Sprint(ranks), "sh", "-c", "echo ready; exec sleep 1000").ready(hosts * ranks)
	agents := j.agents()
	if len(agents) != hosts {
		t.Errorf("%d agents", len(agents))
	}
	for _, a := range agents {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", a.PID))
		if err != nil || len(threads) > ranks/2 {
			t.Errorf("an agent has %d threads for %d ranks", len(threads), ranks)
		}
	}
	j.tell(syscall.SIGTERM)
	j.wait(143)
	j.gone()
}
