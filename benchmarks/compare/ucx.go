package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
)

// ucxPerftest is UCX's own benchmark, without any MPI: no peer but the limit.
const ucxPerftest = "ucx_perftest"

// What UCX gets in all three as UCX_TLS: its ranks share memory, or talk over TCP of this host.
const (
	ucxShared = "UCX_TLS=posix,self"
	ucxTCP    = "UCX_TLS=tcp,self"
)

// ucxPlan is what is measured over UCX, on this host.
func ucxPlan() []measurement {
	latency, bw, rate := latency(), bandwidth("bw", "Bandwidth over UCX", "from one rank to another", 12), messageRate()
	latency.title, latency.runs = "Latency over UCX", []arguments{
		{ranks: 2, args: "-m 8:8 --time 0.2", tool: "latency 8:300000"}}
	bw.runs = []arguments{{ranks: 2, args: "-W 64 -m 65536:4194304 --time 0.05",
		tool: "bw 65536:8000 131072:4000 262144:2000 524288:1000 1048576:500 2097152:250 4194304:120"}}
	rate.title, rate.runs = "Message rate over UCX, one pair", []arguments{
		{ranks: 2, args: "-p 1 -W 64 -m 8:8 --time 0.2", tool: "mbw_mr 8:2000000"}}
	all := []measurement{overUCX("ucx-latency", ucxShared, latency), overUCX("ucx-bw", ucxShared, bw),
		overUCX("ucx-rate", ucxShared, rate)}
	latency.title, bw.title = "Latency over UCX's TCP", "Bandwidth over UCX's TCP"
	latency.runs[0].tool = "latency 8:20000"
	bw.runs[0].tool = "bw 65536:4000 131072:2000 262144:1000 524288:500 1048576:250 2097152:120 4194304:60"
	return append(all, overUCX("ucx-tcp-latency", ucxTCP, latency), overUCX("ucx-tcp-bw", ucxTCP, bw))
}

// overUCX is m over those transports of UCX.
func overUCX(name, transports string, m measurement) measurement {
	m.name, m.ucx, m.sizes, m.runs = name, transports, false, slices.Clone(m.runs)
	m.libraries = []string{gorun, openMPI, ucxPerftest}
	m.about += " Over UCX with " + transports + ": ours by GORUN_TRANSPORTS=ucx, Open MPI by its PML ucx. " +
		ucxPerftest + " calls UCX without any MPI, and its windows are not answered; its MB are 2^20 bytes and were " +
		"converted."
	return m
}

// makeUCX makes ours for runs over UCX, and says where.
func (b *testbed) makeUCX() (dir string, err error) {
	if _, err := exec.LookPath(ucxPerftest); err != nil {
		return "", fmt.Errorf("%w: %s%s", errUnavailable, ucxPerftest, notInstalled)
	}
	dir = filepath.Join(b.dir, "gorun-ucx")
	if err := goBuild(b.ctx, dir, "ucx", "./cmd/gorun", "./benchmarks/latency", "./benchmarks/bw",
		"./benchmarks/mbw_mr"); err != nil {
		return "", fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return dir, nil
}

// librariesOverUCX are ours in dir, and the others, over those transports of UCX.
func librariesOverUCX(dir, transports string, local []library) []library {
	ours, peer := local[0], local[1]
	ours.dir = dir
	ours.launch = func(n int, program string) []string {
		args := local[0].launch(n, program)
		args[0] = filepath.Join(dir, filepath.Base(args[0]))
		return slices.Insert(args, len(args)-1, "-x", "GORUN_TRANSPORTS=ucx", "-x", transports)
	}
	peer.launch = func(n int, program string) []string {
		args := underOpenMPI(n, program)
		return slices.Insert(args, len(args)-1, "--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca",
			"pml_ucx_devices", "any", "-x", transports)
	}
	tool := library{name: ucxPerftest, launch: func(int, string) []string {
		return []string{"env", transports, "scripts/ucx-perftest"}
	}}
	return []library{ours, peer, tool}
}
