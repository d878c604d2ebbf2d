package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func versionCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version and the build, by which jobs tell gorun from other builds",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			printVersion(stdout)
			return nil
		},
	}
}

func printVersion(w io.Writer) {
	fmt.Fprintf(w, "gorun %s\nbuild %s\n", version(), buildID())
}
