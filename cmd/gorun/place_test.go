package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/cpuset"
)

// Lists of hosts that name this one only.
func TestNamesOfThisHost(t *testing.T) {
	t.Parallel()
	name, err := os.Hostname()
	if err != nil {
		t.Skip("the host has no name: ", err)
	}
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("# this one\n"+name+" slots=2\n127.0.0.1:1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ranks int
		args  []string
	}{
		{2, []string{"-n", "2", "-H", "localhost:8"}},
		{3, []string{"-H", "localhost:2," + name}}, // as many as there are slots
		{1, []string{"-H", "localhost"}},
		{3, []string{"--hostfile", file}},
		{2, []string{"-f", file, "-n", "2"}},
		{2, []string{"-hosts", "[::1]", "-ppn", "2"}},
		{2, []string{"-npernode", "2"}},
		{4, []string{"-n", "4", "-H", "localhost:1", "--map-by", "node", "--rank-by", "slot"}},
		{1, []string{"-H", "localhost:4", "--map-by", "slot:PE=4"}},
	} {
		args := append(c.args, "--display-map", "RANK", "print=x")
		j := start(t, args...).wait(0).prints(strings.Repeat("x\n", c.ranks))
		ranks := "rank 0"
		if c.ranks > 1 {
			ranks = fmt.Sprintf("ranks 0-%d", c.ranks-1)
		}
		j.says(fmt.Sprintf("gorun: host %s has %s\n", name, ranks))
	}
	// -n of one program says nothing of the others.
	start(t, "-H", "localhost:4", "RANK", "print=x", ":", "-n", "2", "RANK", "print=x").wait(0).prints("x\nx\nx\n")
}

// What is wrong about hosts is said before anything is started.
func TestHostsThatCannotBe(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("a slots=2\nb slot=2\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"1 of the 2 hosts would get no rank (elsewhere)", []string{"-n", "2", "-H", "localhost:2,elsewhere:2"}},
		{"-H, column 3: the number of slots", []string{"-H", "a:x"}},
		{`invalid argument "" for "-H, --host" flag: it is empty`, []string{"-H", ""}},
		{`invalid argument "" for "-f, --hostfile" flag: it is empty`, []string{"--hostfile", ""}},
		{file + `:2:3: "slot=2" is not known: what may follow a host is slots=N, or a comma`, []string{"--hostfile", file}},
		{"--hostfile: open /no/such", []string{"--hostfile", "/no/such"}},
		{"-H and --hostfile cannot be used together", []string{"-H", "localhost", "--hostfile", file}},
		{"4 ranks with 2 on each host need 2 hosts, and there is 1", []string{"-n", "4", "-ppn", "2"}},
		{"use slot, node, core, numa, socket, l3cache or hwthread", []string{"--map-by", "board"}},
		{"use slot, node, core, numa, socket, l3cache or hwthread", []string{"--rank-by", "fill"}},
		{"-H, column 1: write an address of IPv6 in brackets: [fd77::2]", []string{"-H", "fd77::2"}},
	} {
		j := start(t, append(c.args, "RANK", "print=x")...).wait(2).prints("")
		j.says(c.want)
	}
	start(t, "-n", "2", "-H", "localhost:2,elsewhere:2", "--allow-unused-hosts", "RANK", "print=x").wait(0).
		prints("x\nx\n")
}

// In an allocation of several hosts all of them are used, by srun.
func TestSlurmAllocation(t *testing.T) {
	t.Parallel()
	in := func(args ...string) *job {
		j := prepare(t, args...)
		j.cmd.Env = append(j.cmd.Env, "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-3]", "SLURM_NODELIST=n[1-3]",
			"SLURM_TASKS_PER_NODE=2(x3)", "SLURM_NNODES=3", "SLURM_NTASKS=6", "PATH=/no/such")
		return j.start()
	}
	in("--display-map", "-n", "6", "RANK", "print=x").wait(126).prints("").
		says("host n3 has ranks 4-5", "srun is not found", "--launch-agent ssh")
	in("-n", "2", "RANK", "print=x").wait(2).prints("").
		says("2 of the 3 hosts of this Slurm allocation would get no rank (n2,n3)", "--map-by node", "-n")
	in("-H", "n1,n4", "RANK").wait(2).says("host n4 is not in this Slurm allocation, which has n1,n2,n3")
	in("-n", "2", "-H", "localhost", "RANK", "print=x").wait(0).prints("x\nx\n")
}

func TestMapByOnThisHost(t *testing.T) {
	t.Parallel()
	host := cpuset.Read()
	cores := map[[3]int]int{}
	for _, c := range host.CPUs {
		cores[[3]int{c.Node, c.Socket, c.Core}]++
	}
	all := fmt.Sprint(len(cores))
	start(t, "-n", "1", "--map-by", "core", "--report-bindings", "RANK", "cpus").wait(0).says("is bound to CPU", "(core ")
	j := start(t, "-n", "1", "--map-by", "core:PE="+all, "RANK", "cpus").wait(0)
	if want := fmt.Sprintf("rank 0 NumCPU %d ", len(host.CPUs)); !strings.HasPrefix(j.out.String(), want) {
		t.Errorf("%s has %q, want %q", all, j.out.String(), want)
	}
	start(t, "-n", "1", "--map-by", "core:PE=1"+all, "--report-bindings", "RANK", "cpus").wait(0).
		says("gorun: PE=1"+all+": host ", " has too few cores for 1 rank of so many, so no rank is bound", "is not bound")
}

// The commands of the page about launching are understood.
func TestCommandsOnTheLaunchingPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/launching.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(page)) {
		command, ok := strings.CutPrefix(line, "    gorun ")
		if !ok {
			continue
		}
		found++
		command, _, _ = strings.Cut(command, "#")
		j := prepare(t, append([]string{"--dry-run"}, strings.Fields(command)...)...)
		j.cmd.Dir = "../.."
		j.start().wait(0)
		if !strings.Contains(j.out.String(), " on host ") && !strings.Contains(j.out.String(), " hosts\nhost ") {
			t.Errorf("gorun %s: %s", command, j.out.String())
		}
	}
	if found < 10 {
		t.Errorf("%d commands found", found)
	}
}
