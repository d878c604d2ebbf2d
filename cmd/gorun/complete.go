package main

import (
	"os"
	"strings"

	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/spf13/cobra"
)

// complete tells the shells what may follow: a program is a file or a folder, and so may be its arguments.
func complete(root *cobra.Command) {
	root.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	values := func(v ...cobra.Completion) cobra.CompletionFunc {
		return func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return beginning(v, begun), cobra.ShellCompDirectiveNoFileComp
		}
	}
	root.RegisterFlagCompletionFunc("bind-to", values("auto", "none", "core", "numa", "socket", "l3cache", "hwthread"))
	for _, flag := range []string{"map-by", "rank-by"} {
		root.RegisterFlagCompletionFunc(flag, values("slot", "node", "core", "numa", "socket", "l3cache", "hwthread"))
	}
	root.RegisterFlagCompletionFunc("host", values("localhost"))
	root.RegisterFlagCompletionFunc("stdin", values("none", "all", "0"))
	root.RegisterFlagCompletionFunc("launch-agent", values("ssh", "kubectl exec -i"))
	for _, number := range []string{"np", "ppn", "tree-width", "cpus-per-task"} {
		root.RegisterFlagCompletionFunc(number, values())
	}
	for _, time := range []string{"timeout", "kill-delay", "host-timeout"} {
		root.RegisterFlagCompletionFunc(time, values("30s", "5m", "1h"))
	}
	root.RegisterFlagCompletionFunc("env", completeVariable)
	root.MarkFlagDirname("wdir")
	root.MarkFlagDirname("output-dir")
	if c, _, err := root.Find([]string{"simulate"}); err == nil {
		c.RegisterFlagCompletionFunc("model", func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			return beginning([]string{"cluster", "ethernet", "testbed"}, begun), cobra.ShellCompDirectiveDefault
		})
	}
}

// beginning returns the words that begin so.
func beginning(words []string, begun string) (some []string) {
	for _, w := range words {
		if strings.HasPrefix(w, begun) {
			some = append(some, w)
		}
	}
	return some
}

// completeVariable completes -x: the settings, with the values of those that have some, and the variables that are set.
func completeVariable(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all []string
	for _, s := range settings.Table {
		if s.Internal() {
			continue
		}
		all = append(all, s.Name+"=")
		for _, value := range s.OneOf {
			if strings.Contains(begun, "=") {
				all = append(all, s.Name+"="+value)
			}
		}
	}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); begun != "" {
			all = append(all, name)
		}
	}
	return beginning(all, begun), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// arrangeCompletion is arrange for a command line that is being typed: its last word, which may be empty, is not
// complete.
func arrangeCompletion(root *cobra.Command, args []string) []string {
	words, last := args[1:], ""
	if len(words) > 0 {
		words, last = words[:len(words)-1], words[len(words)-1]
	}
	if len(words) == 0 || isCommand(root, words[0]) {
		return args
	}
	flags, rest, err := splitFlags(root.Flags(), words)
	if err != nil { // the last word is a flag that waits for its value, or no flag at all
		if flags, rest, err = splitFlags(root.Flags(), words[:len(words)-1]); err != nil || len(rest) > 0 {
			return args
		}
		flag, _, err := spell(root.Flags(), words[len(words)-1])
		if err != nil {
			return args
		}
		flags = append(flags, flag)
	}
	if len(rest) > 0 { // what follows the program is its own
		flags = append(append(flags, "--"), rest...)
	}
	return append(append([]string{args[0]}, flags...), last)
}
