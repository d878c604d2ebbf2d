package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
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

// help prints the page of gorun --help.
func help(w io.Writer, root *cobra.Command) {
	cols := width()
	fmt.Fprintf(w, "Usage: %s\n", root.UseLine())
	for _, paragraph := range strings.Split(summary, "\n\n") {
		fmt.Fprintf(w, "\n%s\n", wrap(paragraph, cols, ""))
	}
	fmt.Fprintf(w, "\nExamples:\n%s\n\nFlags:\n%s\nCommands:\n", examples, root.Flags().FlagUsagesWrapped(cols))
	var rows [][]string
	for _, c := range commands(root) {
		rows = append(rows, []string{c.Name(), c.Short})
	}
	printTable(w, rows)
	fmt.Fprintf(w, "\n%s\n\n%s\n", wrap("Exit status: "+exitStatus, cols, ""), wrap(notes, cols, ""))
}

// commands are those that a user may give.
func commands(root *cobra.Command) (all []*cobra.Command) {
	for _, c := range root.Commands() {
		if !c.Hidden && c.Name() != "help" {
			all = append(all, c)
		}
	}
	return all
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

// release is the version that make release builds; internal/tools/release has the linker set it.
var release string

// version is what was built: a release, or a commit.
func version() string {
	v, commit := cmp.Or(release, "(devel)"), ""
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(release, info.Main.Version, v)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 && !strings.Contains(v, s.Value[:12]) {
				commit = " commit " + s.Value[:12]
			}
		}
	}
	return fmt.Sprintf("%s%s (%s %s/%s)", v, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
