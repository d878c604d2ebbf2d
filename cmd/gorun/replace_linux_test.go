package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// namedHosts are flags for a job on hosts that know their names. The host "lost" is lost before it starts a rank,
// and the host "down" lets no agent in.
func namedHosts(t *testing.T) []string {
	shell := filepath.Join(t.TempDir(), "shell")
	script := "#!/bin/sh\nif [ $1 = lost ]; then echo gorun-agent 1; sleep 0.3; exit 1; fi\n" +
		"if [ $1 = down ]; then echo 'Permission denied (publickey)' >&2; exit 255; fi\n" +
		"export HOSTNAME=$1; shift\nexec \"$@\"\n"
	if err := os.WriteFile(shell, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"--launcher", "exec", "--launch-agent", shell, "--bind-to", "none"}
}

// Ranks that take places start on the hosts of the dead ranks, in the order of the places; on spares if these are lost.
func TestPlacesOfNewRanks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags string
		words string
		code  int
		lines string
	}{
		"their hosts": {"-H a:2,b:2,c:2 --respawn 2", "join 2:kill=9 5:kill=9 0:replace=5,2 finalize", 0,
			"new rank 0 on c,new rank 1 on b"},
		"again": {"-H a:2,b:2 --respawn 2", "join 3:kill=9 0:replace=3 0:replace=3 finalize", 0,
			"new rank 0 on b,new rank 0 on b"},
		"a spare": {"-H a:2,lost:2,c:1,s --spares s --respawn 2", "join 0:replace=2,3 finalize", 0,
			"new rank 0 on s,new rank 1 on s"},
		"spares": {"-H a:2,lost:2 --spares s:1,u --respawn 2", "join 0:replace=2,3 finalize", 0,
			"new rank 0 on s,new rank 1 on u"},
		"a spare that is down": {"-H a:2,lost:1 --spares down,s --respawn 2", "join 0:try=2 0:replace=2 finalize", 0,
			"new rank 0 on s"},
		"an unused host": {"-n 4 -H a:2,lost:2,u:2 --allow-unused-hosts --respawn 2", "join 0:replace=3 finalize", 1,
			"new rank 0 on u"},
		"no spare": {"-H a:1,lost:2,c:3 --respawn 2", "join 0:replace=1,2 fence finalize", 0,
			"new rank 0 on a,new rank 1 on a"}, // the others are there until all enter the fence
		"chain": {"--tree-width 1 -H a:1,b:1,lost:1 --spares s --respawn 1", "join 0:replace=2 finalize", 0,
			"new rank 0 on s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append(namedHosts(t), strings.Fields(c.flags)...)
			j := start(t, append(append(args, "RANK"), strings.Fields(c.words)...)...)
			j.end(c.code)
			j.gone()
			j.printsLines(strings.Split(c.lines, ",")...)
		})
	}
	start(t, append(namedHosts(t), "-H", "a,b", "--respawn", "1", "RANK", "join", "0:replace=2", "finalize")...).
		wait(1).says("the request names dead rank 2 of a world of 2 ranks")
}

// In a Slurm allocation srun starts the agents for the new ranks too. A node without a rank is a spare.
func TestPlacesInAllocation(t *testing.T) {
	t.Parallel()
	on := inAllocation(t)
	for flags, host := range map[string]string{"-n 2": "b", "-n 2 --spares a": "b", "-H b:2": "b"} {
		j := prepare(t, append(strings.Fields(flags), "--bind-to", "none", "--respawn", "1", "RANK", "join", "1:kill=9",
			"0:replace=1", "finalize")...)
		on(j)
		j.start().end(0)
		j.gone()
		j.printsLines("new rank 0 on " + host)
	}
}

// A node of an allocation is lost: what has run there starts on the node that the user has kept.
func TestSpareInAllocation(t *testing.T) {
	t.Parallel()
	j := prepare(t, "-H", "a,b", "--bind-to", "none", "--respawn", "1", "RANK", "join", "1:freeze", "0:replace=1",
		"finalize")
	inAllocation(t)(j)
	j.cmd.Env = append(j.cmd.Env, "SLURM_JOB_NODELIST=a,b,c", "GORUN_PEER_TIMEOUT=5s")
	j.start().end(0)
	for _, a := range j.agents() { // Slurm would end it with the step
		syscall.Kill(a.PID, syscall.SIGKILL)
	}
	j.gone()
	j.printsLines("new rank 0 on c")
	j.says("host b is lost")
}

// --spares is for jobs that it helps.
func TestSparesMakeNoSense(t *testing.T) {
	t.Parallel()
	for words, says := range map[string]string{
		"-n 2 -H a,b --spares s":               "which --respawn N allows",
		"-n 2 --spares s --respawn 1":          "--spares s: all ranks are on this host",
		"-n 2 -H a,b --spares a,b --respawn 1": "all hosts are spares (a,b)",
		"-n 2 -H a,b --spares s:0 --respawn 1": "--spares, column 3: the number of slots is",
		"-n 3 -H a,b,c --respawn 1":            "",
	} {
		code := 2
		if says == "" {
			code = 0
		}
		start(t, append(strings.Fields(words), "--dry-run", "true")...).wait(code).says(says)
	}
	start(t, "-H", "a:2,b:2,c:2", "--spares", "b", "--respawn", "1", "--dry-run", "true").wait(0).
		prints("4 ranks on 2 hosts\nhost a has ranks 0-1\nhost c has ranks 2-3\nhost b is a spare\n")
}
