package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/vet"
	"github.com/gorun-mpi/mpi/launcher"
	"github.com/spf13/cobra"
	"golang.org/x/tools/go/analysis/unitchecker"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == cleanerWord {
		procs.Clean(os.Stdin)
		return
	}
	if vet.IsTool(os.Args) {
		unitchecker.Main(vet.Analyzers()...)
	}
	if reach.Agent(os.Args) != nil {
		os.Exit(agent(os.Args))
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// agent is what gorun has started on a host.
func agent(args []string) int {
	connect := reach.Agent(args)
	if reach.Duty(args) == reach.Examine {
		return examine(connect)
	}
	return launcher.Agent(connect, cleanerCommand())
}

// usageError is a command line that cannot be meant.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// noArguments is for commands that have flags only.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes flags only, and %q is not a flag", c.CommandPath(), args[0])}
	}
	return nil
}

func run(args []string, stdin, stdout, stderr *os.File) int {
	code := 0
	root := newRoot(stdin, stdout, stderr, &code)
	command := root
	args, err := arrange(root, args)
	if err == nil {
		root.SetArgs(args)
		command, err = root.ExecuteC()
	}
	if err == nil {
		return code
	}
	fmt.Fprintf(stderr, "gorun: %v\n", err)
	if code == 0 {
		code = launcher.CodeUsage
	}
	if errors.As(err, &usageError{}) {
		fmt.Fprintf(stderr, "Run '%s --help' for the flags.\n", command.CommandPath())
	}
	return code
}

// arrange makes the command line fit for cobra: a command (gorun info) goes as it is; of gorun's own, the
// flags come in their long spelling, and everything from the program's name on behind "--".
func arrange(root *cobra.Command, args []string) ([]string, error) {
	if len(args) == 0 {
		return []string{"--help"}, nil
	}
	if args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd {
		return arrangeCompletion(root, args), nil
	}
	if isCommand(root, args[0]) {
		return args, nil
	}
	flags, rest, err := splitFlags(root.Flags(), args)
	if err != nil {
		return nil, usageError{err}
	}
	if len(rest) > 0 {
		flags = append(append(flags, "--"), rest...)
	}
	return flags, nil
}

func isCommand(root *cobra.Command, name string) bool {
	builtin := []string{"help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}
	return slices.Contains(builtin, name) ||
		slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
}
