package main

import (
	"errors"
	"os"
	"os/exec"

	"github.com/gorun-mpi/mpi/launcher"
	"github.com/spf13/cobra"
)

// vetCommand has go vet run with this program as its tool.
func vetCommand(stdin, stdout, stderr *os.File, code *int) *cobra.Command {
	return &cobra.Command{
		Use:   "vet [PACKAGE]...",
		Short: "find mistakes in the use of package mpi that the compiler cannot see",
		Long: `Looks at the source of Go packages (the one in the current folder, if none is named), and prints a line for
each mistake:

  mpirequest  the request of a started operation is dropped, or a Set that has some is never waited for
  mpibuffer   a buffer is used between the start of an operation and its Wait, or is a loop's copy of an array
  mpierror    the error of a call is dropped
  mpiorder    a collective call that some ranks do not make, by a condition on Rank, or that each rank makes in
              its own order, in a loop over a map

A check says nothing where it is not sure. Arguments are those of go vet, and its exit code is gorun's. The
same checks run as go vet -vettool=$(which gorun), in editors and in CI.`,
		Example: "  gorun vet ./...                 all packages of the module\n" +
			"  gorun vet -mpierror=false .     all checks but one",
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return c.Help()
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			vet := exec.Command("go", append([]string{"vet", "-vettool=" + self}, args...)...)
			vet.Stdin, vet.Stdout, vet.Stderr = stdin, stdout, stderr
			err = vet.Run()
			var status *exec.ExitError
			switch {
			case errors.As(err, &status):
				*code = status.ExitCode()
				return nil
			case errors.Is(err, exec.ErrNotFound):
				*code = launcher.CodeNotFound
				return errors.New("gorun vet runs go vet, and there is no command go here: install Go (https://go.dev/dl), or " +
					"add the folder of its commands to PATH, as in PATH=$PATH:/usr/local/go/bin")
			case err != nil:
				*code = launcher.CodeNotFound
			}
			return err
		},
	}
}
