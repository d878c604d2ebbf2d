package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime/debug"

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
	info, _ := debug.ReadBuildInfo()
	fmt.Fprintf(w, "gorun %s\nbuild %s\n%s", version(), buildID(), builtFrom(info))
}

// builtFrom says what a program was built from, and how: a line for the module, for the revision if the build knows it,
// and for the build tags.
func builtFrom(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	text := fmt.Sprintf("module %s %s\n", info.Main.Path, cmp.Or(info.Main.Version, "(devel)"))
	if r := settings["vcs.revision"]; r != "" {
		text += "revision " + r
		if at := settings["vcs.time"]; at != "" {
			text += " of " + at
		}
		if settings["vcs.modified"] == "true" {
			text += ", with changes that are not committed"
		}
		text += "\n"
	}
	cgo := "no cgo"
	if settings["CGO_ENABLED"] == "1" {
		cgo = "cgo"
	}
	return text + fmt.Sprintf("built by %s, %s, tags: %s\n", info.GoVersion, cgo, cmp.Or(settings["-tags"], "none"))
}
