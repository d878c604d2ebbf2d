package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/gorun-mpi/mpi/internal/settings"
)

func manCommand(stdout *os.File) *cobra.Command {
	return &cobra.Command{
		Use:     "man",
		Short:   "print the manual page (gorun man >/usr/local/share/man/man1/gorun.1)",
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return manPage(stdout, cmd.Root()) },
		Example: "  gorun man | man -l -",
	}
}

// manPage prints the manual page: one for all commands, with the sections that cobra does not know in the description.
func manPage(w io.Writer, root *cobra.Command) error {
	var text strings.Builder // markdown
	fmt.Fprintf(&text, "%s\n\n# COMMANDS\n", summary)
	for _, c := range commands(root) {
		fmt.Fprintf(&text, "\n**gorun %s**\n: %s\n", c.Name(), c.Short)
	}
	fmt.Fprintf(&text, "\n# EXIT STATUS\nIt is %s\n\n# ENVIRONMENT\n", exitStatus)
	for _, s := range settings.Table {
		if !s.Internal() {
			fmt.Fprintf(&text, "\n**%s**=%s\n: %s\n", s.Name, s.Default, strings.ReplaceAll(s.Long(), "*", `\*`))
		}
	}
	page := &cobra.Command{Use: root.Use, Short: root.Short, Long: text.String(), Example: examples,
		DisableAutoGenTag: true}
	page.Flags().SortFlags = false
	page.Flags().AddFlagSet(root.Flags())
	return doc.GenMan(page, &doc.GenManHeader{Title: "GORUN", Section: "1", Source: "gorun"}, w)
}
