package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/gorun-mpi/mpi/launcher"
	"github.com/spf13/cobra"
)

// statusCommand asks a gorun that runs what its ranks do.
func statusCommand(stdout *os.File) *cobra.Command {
	return &cobra.Command{
		Use:   "status PID",
		Short: "print what the ranks of a running job do and wait for",
		Long: `Asks the gorun with that PID, on this host and of the same user, and prints a line for each rank, or for ranks
that do the same: the call it is in, the rank that it waits for, and the line of its source. The job goes on.
pgrep -a gorun lists the jobs of this host.`,
		Example: "  gorun status 4711",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil || pid < 1 {
				return usageError{errors.New("name the PID of a gorun: gorun status PID")}
			}
			text, err := launcher.Status(pid)
			fmt.Fprint(stdout, text)
			return err
		},
	}
}

// stallFlag is what is done about a job in which no rank can move.
type stallFlag launcher.Stall

func (s *stallFlag) Set(text string) error {
	switch text {
	case "off":
		*s = stallFlag{}
	case "abort":
		*s = stallFlag{Limit: launcher.DefaultStall, Abort: true}
	default:
		var limit seconds
		if limit.Set(text) != nil {
			return errors.New("use off, abort, or a time such as 10s")
		}
		*s = stallFlag{Limit: limit.duration()}
	}
	return nil
}

func (s *stallFlag) String() string {
	limit := seconds(s.Limit)
	switch {
	case s.Abort:
		return "abort"
	case s.Limit == 0:
		return "off"
	}
	return limit.String()
}
func (s *stallFlag) Type() string { return "TIME" }
