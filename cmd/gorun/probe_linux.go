package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const (
	probeTarget = "__probe-target"
	probeReader = "__probe-reader"
)

var probeWord = [8]byte{'g', 'o', 'r', 'u', 'n', 0xa5, 0x5a, 1}

// probeCommands are the two processes of gorun info's trial of process_vm_readv.
func probeCommands(stdin, stdout *os.File) []*cobra.Command {
	target := &cobra.Command{
		Use: probeTarget, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// What a rank does as well: where Yama allows reading only to ancestors, it lets its siblings read.
			unix.Prctl(unix.PR_SET_PTRACER, uintptr(os.Getppid()), 0, 0, 0)
			word := probeWord
			fmt.Fprintf(stdout, "%d %p\n", os.Getpid(), &word)
			_, err := io.Copy(io.Discard, stdin) // until gorun info has seen enough
			return err
		},
	}
	reader := &cobra.Command{
		Use: probeReader, Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil {
				return err
			}
			addr, err := strconv.ParseUint(args[1], 0, 64)
			if err != nil {
				return err
			}
			fmt.Fprintln(stdout, tryReadv(pid, uintptr(addr)))
			return nil
		},
	}
	return []*cobra.Command{target, reader}
}

func tryReadv(pid int, addr uintptr) string {
	var got [8]byte
	local := []unix.Iovec{{Base: &got[0]}}
	local[0].SetLen(len(got))
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: addr, Len: len(got)}}, 0)
	switch {
	case err != nil:
		return fmt.Sprintf("no: %v (Yama, seccomp or a user namespace forbids it; "+
			"large messages are copied through shared memory instead)", err)
	case n != len(got) || got != probeWord:
		return fmt.Sprintf("no: it returned %d bytes %q", n, got[:])
	}
	return "yes, between two sibling processes"
}
