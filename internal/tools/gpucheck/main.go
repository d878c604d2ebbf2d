// Gpucheck checks this library on a machine with a GPU: facts, correctness, and figures with their goals. It is part
// of what scripts/gpu-check builds, and takes the other programs from its own folder.
//
//	gpucheck [-o FOLDER] [-limit 5m] [-time 500ms] [-only facts|correctness|figures]
//
// It prints a text and writes it to FOLDER/gpu-check.txt, and the same as one object to FOLDER/gpu-check.json. A part
// that fails, or takes longer than it may, does not stop the others; FOLDER/gpu-check-failed-N.txt is all that it has
// printed. A part that says "by one copy" fails where the log says that memory is not mapped. Over the software GPU each
// line of a figure says SOFTWARE DEVICE, and no figure has a verdict.
//
// Exit codes: 0: everything passed, and every goal is met; 1: something failed or did not run; 2: usage; 3: everything
// passed, and a goal is missed.
//
// Owns: the parts, their limits, the goals.
// May call: accel, accel/cuda, golang.org/x/sys; as programs the binaries of its folder.
// Never: judge a figure of the software GPU; need the network, a compiler or the go command.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
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
	out := fs.String("o", ".", "the `folder` for gpu-check.txt and gpu-check.json")
	limit := fs.Duration("limit", 5*time.Minute, "the `time` that all parts together may take")
	each := fs.Duration("time", 500*time.Millisecond, "the `time` for which each figure is measured")
	only := fs.String("only", "", "one `part`: facts, correctness or figures")
	if fs.Parse(args) != nil {
		return usage
	}
	if fs.NArg() > 0 || *only != "" && *only != "facts" && *only != "correctness" && *only != "figures" {
		fmt.Fprintln(stderr, "gpucheck: -only is facts, correctness or figures, and there are no arguments")
		return usage
	}
	self, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(*out, 0o777)
	}
	if err != nil {
		fmt.Fprintln(stderr, "gpucheck:", err)
		return failed
	}
	text, err := os.Create(filepath.Join(*out, "gpu-check.txt"))
	if err != nil {
		fmt.Fprintln(stderr, "gpucheck:", err)
		return failed
	}
	// A signal, such as of a time limit outside, ends the parts with all that they have started; the report is written.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := &check{dir: filepath.Dir(self), self: self, out: *out, text: io.MultiWriter(stdout, text), ctx: ctx,
		until: time.Now().Add(*limit), each: *each}
	c.all(*only)
	err = c.report.write(filepath.Join(*out, "gpu-check.json"))
	if e := text.Close(); err == nil {
		err = e
	}
	if err != nil {
		fmt.Fprintln(stderr, "gpucheck:", err)
		return failed
	}
	return c.report.code()
}
