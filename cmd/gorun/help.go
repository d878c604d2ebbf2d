package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// width is that of the terminal, within reason.
func width() int {
	w, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 100
	}
	return min(max(w, 60), 120)
}

// help is the page of gorun --help.
func help(w io.Writer, root *cobra.Command) {
	cols := width()
	fmt.Fprintf(w, "Usage: %s\n\n", root.UseLine())
	for _, paragraph := range strings.Split(summary, "\n\n") {
		fmt.Fprintln(w, wrap(paragraph, cols, ""))
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "Examples:")
	for _, e := range examples {
		fmt.Fprintf(w, "  %-44s %s\n", e[0], e[1])
	}
	for _, g := range groups {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, name := range g.flags {
			left := flagName(root.Flags().Lookup(name))
			pad := strings.Repeat(" ", 28)
			text := wrap(flagText(root.Flags().Lookup(name)), cols-28, pad)
			fmt.Fprintf(w, "  %-25s %s\n", left, strings.TrimPrefix(text, pad))
		}
	}
	fmt.Fprintf(w, "\nCommands:\n")
	for _, c := range root.Commands() {
		if !c.Hidden && c.Name() != "help" {
			fmt.Fprintf(w, "  %-25s %s\n", c.Name(), c.Short)
		}
	}
	fmt.Fprintln(w, "\nExit code: that of the first rank that failed, 128 + N if signal N killed it; 124 after --timeout.")
	fmt.Fprintln(w, "Settings are GORUN_* variables: gorun info lists them. Spellings of mpirun and mpiexec (-np, -wdir, -genv) are understood.")
}

// flagName is how a flag is typed: -n, --np N.
func flagName(f *pflag.Flag) string {
	name := "    --" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", --" + f.Name
	}
	if kind := valueName(f); kind != "" {
		name += " " + kind
	}
	return name
}

func valueName(f *pflag.Flag) string {
	switch {
	case f.Value.Type() == "bool":
		return ""
	case f.Name == "stdin":
		return "WHO"
	case f.Value.Type() == "string":
		return "DIR"
	}
	return f.Value.Type()
}

func flagText(f *pflag.Flag) string {
	if f.DefValue == "" || f.DefValue == "false" {
		return f.Usage
	}
	return fmt.Sprintf("%s (default %s)", f.Usage, f.DefValue)
}

// wrap breaks text into lines of at most cols characters, each but for the prefix.
func wrap(text string, cols int, prefix string) string {
	var b strings.Builder
	n := 0
	for _, word := range strings.Fields(text) {
		switch {
		case n == 0:
			b.WriteString(prefix)
		case n+1+len(word) > cols:
			b.WriteString("\n" + prefix)
			n = 0
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += len(word)
	}
	return b.String()
}

// version is what was built: a release, or a commit.
func version() string {
	v, commit := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 && !strings.Contains(v, s.Value[:12]) {
				commit = " commit " + s.Value[:12]
			}
		}
	}
	return fmt.Sprintf("%s%s (%s %s/%s)", v, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
