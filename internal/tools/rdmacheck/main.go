// Rdmacheck checks this library on a machine with an RDMA adapter: facts, correctness, and figures compared with
// perftest's. It is part of what scripts/rdma-check builds, and takes the other programs from its own folder.
//
//	rdmacheck [-o FOLDER] [-limit 5m] [-time 500ms]
//
// It prints a text and writes it to FOLDER/rdma-check.txt, and the same as one object to FOLDER/rdma-check.json. A part
// that fails, or takes longer than it may, does not stop the others. FOLDER/rdma-check-failed-N.txt has all that it has
// printed. Over software (the software HCA, soft-RoCE) each line of a figure says SOFTWARE DEVICE.
//
// Exit codes: 0: everything passed; 1: something failed or did not run; 2: usage.
//
// Owns: the parts and their limits.
// May call: internal/tools/partrun, transport/verbs, internal/topology; as programs the binaries of its folder,
// ibv_devinfo, perftest.
// Never: need the network, a compiler or the go command; judge a figure.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const (
	failed = 1
	usage  = 2
)

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("rdmacheck", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var opt partrun.Options
	opt.Add(fs, "rdma-check")
	if fs.Parse(args) != nil {
		return usage
	}
	if fs.NArg() > 0 {
		fmt.Fprintln(stderr, "rdmacheck: there are no arguments")
		return usage
	}
	c := &check{each: opt.Each}
	err := opt.Run("rdma-check", stdout, func(r *partrun.Runner) any {
		c.Runner, c.report.Report = r, r.Report
		c.all()
		return &c.report
	})
	if err != nil {
		fmt.Fprintln(stderr, "rdmacheck:", err)
		return failed
	}
	return c.report.code()
}
