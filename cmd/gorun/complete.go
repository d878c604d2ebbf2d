package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/spf13/cobra"
)

// completionCommand prints what has a shell complete gorun's command line.
func completionCommand(w io.Writer) *cobra.Command {
	scripts := map[string]func(root *cobra.Command) error{
		"bash":       func(root *cobra.Command) error { return root.GenBashCompletionV2(w, true) },
		"fish":       func(root *cobra.Command) error { return root.GenFishCompletion(w, true) },
		"powershell": func(root *cobra.Command) error { return root.GenPowerShellCompletionWithDesc(w) },
		"zsh":        func(root *cobra.Command) error { return root.GenZshCompletion(w) },
	}
	shells := slices.Sorted(maps.Keys(scripts))
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "print a script by which bash, zsh, fish or powershell completes gorun's command line",
		Long: `Prints a script for the shell: bash, fish, powershell or zsh. A shell that has read it completes the flags
and commands of gorun, their values, and the program. bash needs the package bash-completion.`,
		Example: `  source <(gorun completion bash)                                     this shell; zsh likewise
  gorun completion bash >/etc/bash_completion.d/gorun                 all shells of this host, as root
  gorun completion zsh >"${fpath[1]}/_gorun"                          after compinit in ~/.zshrc
  gorun completion fish >~/.config/fish/completions/gorun.fish
  gorun completion powershell | Out-String | Invoke-Expression`,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || scripts[args[0]] == nil {
				return usageError{fmt.Errorf("gorun completion takes the name of a shell: %s", strings.Join(shells, ", "))}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return scripts[args[0]](c.Root()) },
	}
}

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
	root.RegisterFlagCompletionFunc("spares", values())
	root.RegisterFlagCompletionFunc("stdin", values("none", "all", "0"))
	root.RegisterFlagCompletionFunc("launch-agent", values("ssh", "kubectl exec -i"))
	for _, number := range []string{"np", "ppn", "debug", "tree-width", "cpus-per-task", "respawn"} {
		root.RegisterFlagCompletionFunc(number, values())
	}
	for _, time := range []string{"timeout", "kill-delay", "host-timeout"} {
		root.RegisterFlagCompletionFunc(time, values("30s", "5m", "1h"))
	}
	root.RegisterFlagCompletionFunc("env", completeVariable)
	root.MarkFlagDirname("wdir")
	root.MarkFlagDirname("output-dir")
	root.MarkFlagDirname("report")
	root.MarkFlagDirname("cpuprofile")
	if c, _, err := root.Find([]string{"simulate"}); err == nil {
		c.RegisterFlagCompletionFunc("model", func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			return beginning([]string{"cluster", "ethernet", "testbed"}, begun), cobra.ShellCompDirectiveDefault
		})
	}
	if c, _, err := root.Find([]string{"tune"}); err == nil {
		c.RegisterFlagCompletionFunc("np", values())
		c.RegisterFlagCompletionFunc("time", values("2m", "10m"))
		c.MarkFlagFilename("output", "json")
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
