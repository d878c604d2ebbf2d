package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/spf13/cobra"
)

func manCommand(stdout *os.File) *cobra.Command {
	return &cobra.Command{
		Use:     "man",
		Short:   "print the manual page (gorun man >/usr/local/share/man/man1/gorun.1)",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return manPage(stdout, cmd.Root()) },
		Example: "  gorun man | man -l -",
	}
}

// manPage prints roff, made from the same tables as the help page.
func manPage(w io.Writer, root *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH GORUN 1\n.SH NAME\ngorun \\- %s\n", roff(root.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B gorun\n%s\n", roff(strings.TrimPrefix(root.UseLine(), "gorun ")))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", strings.ReplaceAll(roff(summary), "\n\n", "\n.PP\n"))
	for _, g := range groups {
		fmt.Fprintf(&b, ".SH \"%s\"\n", strings.ToUpper(g.title))
		for _, name := range g.flags {
			f := root.Flags().Lookup(name)
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(flagName(f))), roff(flagText(f)))
		}
	}
	b.WriteString(".SH COMMANDS\n")
	for _, c := range root.Commands() {
		if !c.Hidden && c.Name() != "help" {
			fmt.Fprintf(&b, ".TP\n.B gorun %s\n%s\n", c.Name(), roff(c.Short))
		}
	}
	b.WriteString(".SH ENVIRONMENT\n")
	for _, s := range settings.Table {
		if !s.Internal {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s (default %s)\n", roff(s.Name), roff(s.Meaning), roff(s.Default))
		}
	}
	b.WriteString(".SH \"EXIT STATUS\"\nThat of the first rank that failed; 128 + N if signal N killed it; 124 after \\-\\-timeout; " +
		"130 after Ctrl\\-C; 2 for a wrong command line; 126 or 127 for a program that cannot be started or found.\n")
	b.WriteString(".SH EXAMPLES\n")
	for _, e := range examples {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(e[0]), roff(e[1]))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// roff escapes text; no line may begin with a dot or quote.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
