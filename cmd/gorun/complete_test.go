package main

import (
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
)

// What the shells are told of a command line that is being typed. The directives: 0 completes files, 4 does not, 16
// folders only; 6 does not, and puts no blank.
func TestCompletion(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"./bin/la", ":0"},
		{"-n 4 ./bin/la", ":0"},
		{"-np 4 ./bin/la", ":0"},
		{"-np 4 ./heat -st", ":0"},
		{"-np 4 ./heat --bind-to c", ":0"},
		{"inf", "info"},
		{"--bind-to c", "core :4"},
		{"-np 4 -bind-to c", "core :4"},
		{"-np 4 --map-by n", "node numa :4"},
		{"-np ", ":4"},
		{"-wdir x", ":16"},
		{"-x GORUN_TM", "GORUN_TM= :6"},
		{"-x GORUN_TM=o", "GORUN_TM=off GORUN_TM=on :6"},
		{"simulate --model cl", "cluster :0"},
		{"doctor --js", "--json"},
		{"completion z", "zsh :4"},
	} {
		got := call(t, append([]string{"__completeNoDesc"}, strings.Split(c.line, " ")...)...)
		if words := strings.Join(strings.Fields(got.out), " "); got.code != 0 || !strings.HasPrefix(words, c.want) {
			t.Errorf("gorun %s<TAB>: %q, want %q (%d, %s)", c.line, words, c.want, got.code, got.err)
		}
	}
}

// gorun completion prints a script for each shell, says how to use it, and refuses other shells.
func TestCompletionScripts(t *testing.T) {
	for shell, want := range map[string]string{"bash": "complete -o ", "zsh": "#compdef gorun", "fish": "complete -c gorun",
		"powershell": "Register-ArgumentCompleter"} {
		if got := call(t, "completion", shell); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%s: %d, %s, %.300s", shell, got.code, got.err, got.out)
		}
		if got := call(t, "completion", "--help"); !strings.Contains(got.out, "gorun completion "+shell) ||
			strings.Contains(got.out, "autocompletion") {
			t.Errorf("--help prints\n%s", got.out)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}, {"completion", "bash", "zsh"}} {
		if got := call(t, args...); got.code != 2 || !strings.Contains(got.err, "bash, fish, powershell, zsh") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// gorun version says by what jobs tell builds apart.
func TestVersion(t *testing.T) {
	for _, word := range []string{"version", "--version"} {
		if got := call(t, word); got.code != 0 || !strings.Contains(got.out, "gorun ") ||
			!strings.Contains(got.out, "\nbuild "+buildID()+"\n") {
			t.Errorf("%s: %+v", word, got)
		}
	}
}

// gorun version says from what it was built, as far as the build knows.
func TestVersionSaysWhatWasBuilt(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/m", Version: "v0.1.0"}}
	if got, want := builtFrom(info), "module example.com/m v0.1.0\nbuilt by go1.26.8, no cgo, tags: none\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	info.Main.Version = ""
	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789ab"}, {Key: "vcs.modified", Value: "true"},
		{Key: "vcs.time", Value: "2026-11-28T03:00:00Z"}, {Key: "-tags", Value: "verbs,ucx"}, {Key: "CGO_ENABLED", Value: "1"}}
	want := "module example.com/m (devel)\nrevision 0123456789ab of 2026-11-28T03:00:00Z, with changes that are not " +
		"committed\nbuilt by go1.26.8, cgo, tags: verbs,ucx\n"
	if got := builtFrom(info); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := call(t, "version"); !strings.Contains(got.out, "\nmodule github.com/gorun-mpi/mpi ") {
		t.Errorf("%+v", got)
	}
}

// gorun info --collectives --json is the table.
func TestInfoCollectivesJSON(t *testing.T) {
	got := call(t, "info", "--collectives", "--json")
	var lines []collectives.Line
	if err := json.Unmarshal([]byte(got.out), &lines); err != nil || len(lines) != len(collectives.Lines()) ||
		lines[0].Operation == "" || lines[0].Algorithm == "" {
		t.Errorf("%v: %.300s", err, got.out)
	}
}
