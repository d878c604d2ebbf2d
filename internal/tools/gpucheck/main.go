// Gpucheck checks this library on a machine with a GPU: facts, correctness, and figures with their goals. It is part
// of what scripts/gpu-check builds, and takes the other programs from its own folder.
//
//	gpucheck [-o FOLDER] [-limit 5m] [-time 500ms] [-only facts|correctness|figures]
//
// It prints a text and writes it to FOLDER/gpu-check.txt, and the same as one object to FOLDER/gpu-check.json. A part
// that fails, or takes longer than it may, does not stop the others; FOLDER/gpu-check-failed-N.txt is all that it has
// printed. A part that says "by one copy" fails where the log says that memory is not mapped. Over the software GPU
// each line of a figure says SOFTWARE DEVICE, and no figure has a verdict.
//
// Exit codes: 0: everything passed, and every goal is met; 1: something failed or did not run; 2: usage; 3: everything
// passed, and a goal is missed.
//
// Owns: the parts, their limits, the goals.
// May call: internal/tools/partrun, accel, accel/cuda, golang.org/x/sys; as programs the binaries of its folder.
// Never: judge a figure of the software GPU; need the network, a compiler or the go command.
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
	missed = 3
)

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == asPuller {
		return pullMain(args[1:], stdout, stderr)
	}
	fs := flag.NewFlagSet("gpucheck", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var opt partrun.Options
	opt.Add(fs, "gpu-check")
	only := fs.String("only", "", "one `part`: facts, correctness or figures")
	if fs.Parse(args) != nil {
		return usage
	}
	if fs.NArg() > 0 || *only != "" && *only != "facts" && *only != "correctness" && *only != "figures" {
		fmt.Fprintln(stderr, "gpucheck: -only is facts, correctness or figures, and there are no arguments")
		return usage
	}
	c := &check{each: opt.Each}
	err := opt.Run("gpu-check", stdout, func(r *partrun.Runner) any {
		c.Runner, c.report.Report = r, r.Report
		c.all(*only)
		return &c.report
	})
	if err != nil {
		fmt.Fprintln(stderr, "gpucheck:", err)
		return failed
	}
	return c.report.code()
}
