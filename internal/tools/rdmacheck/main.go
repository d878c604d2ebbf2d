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
// May call: transport/verbs, internal/topology; as programs the binaries of its folder, ibv_devinfo, perftest.
// Never: need the network, a compiler or the go command; judge a figure.
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
)

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("rdmacheck", flag.ContinueOnError)
	fs.SetOutput(stderr)
	out := fs.String("o", ".", "the `folder` for rdma-check.txt and rdma-check.json")
	limit := fs.Duration("limit", 5*time.Minute, "the `time` that all parts together may take")
	each := fs.Duration("time", 500*time.Millisecond, "the `time` for which each figure is measured")
	if fs.Parse(args) != nil {
		return usage
	}
	if fs.NArg() > 0 {
		fmt.Fprintln(stderr, "rdmacheck: there are no arguments")
		return usage
	}
	self, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(*out, 0o777)
	}
	var text *os.File
	if err == nil {
		text, err = os.Create(filepath.Join(*out, "rdma-check.txt"))
	}
	if err != nil {
		fmt.Fprintln(stderr, "rdmacheck:", err)
		return failed
	}
	// A signal, such as of a time limit outside, ends the parts with all that they have started; the report is written.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := &check{dir: filepath.Dir(self), out: *out, text: io.MultiWriter(stdout, text), ctx: ctx,
		until: time.Now().Add(*limit), each: *each}
	c.all()
	err = c.report.write(filepath.Join(*out, "rdma-check.json"))
	if e := text.Close(); err == nil {
		err = e
	}
	if err != nil {
		fmt.Fprintln(stderr, "rdmacheck:", err)
		return failed
	}
	return c.report.code()
}
