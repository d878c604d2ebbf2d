package main

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/spf13/pflag"
)

// Each command line of gorun in a document has flags that gorun has, with values that it takes, at places where it
// takes them. Names in capitals stand for values: N, TIME, [flags].
func TestGorunInDocuments(t *testing.T) {
	_, root := proc.CheckoutText(t, "go.mod")
	count := map[string]int{}
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "benchmarks/*.md", "softdevices/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(root, page)
		for _, line := range codeOf(string(text)) {
			for _, args := range gorunIn(line) {
				count[name]++
				if err := understood(args); err != nil {
					t.Errorf("%s: gorun %s: %v", name, strings.Join(args, " "), err)
				}
			}
		}
	}
	for name, least := range map[string]int{"README.md": 10, "docs/cookbook.md": 5, "docs/launching.md": 25,
		"docs/hangs.md": 2, "docs/report.md": 2, "docs/kubernetes.md": 8, "docs/simulate.md": 6} {
		if count[name] < least {
			t.Errorf("%s has %d lines of gorun, of at least %d: are they found?", name, count[name], least)
		}
	}
}

// What TestGorunInDocuments finds in a line, and what it takes for wrong.
func TestGorunInALine(t *testing.T) {
	for line, want := range map[string]string{
		"gorun -n 4 --stal 5 ./x":                          "no flag --stal; did you mean --stall?",
		"gorun --timeout soon ./x":                         "use a time such as",
		"gorun -n 1 ./x : --timeout 5 ./y":                 "after a colon: only -n",
		"salloc -N3 gorun --hots a ./x":                    "no flag --hots",
		"GORUN_LOG=info bin/gorun -q2 ./x | tee log":       "no flag -q2",
		"true && go run ./cmd/gorun --np ./x":              "--np",
		"gorun info --jsn":                                 "unknown flag: --jsn",
		"gorun info all":                                   "takes flags only",
		"gorun k8s manifest --image x --pots 2 p":          "no flag --pots",
		"gorun status 1 2":                                 "accepts 1 arg",
		"gorun status":                                     "",
		"- run: go tool gorun --ppm 2 ./x  # --also":       "no flag --ppm",
		"gorun -n N --timeout TIME [flags] PROGRAM …":      "",
		"gorun -n 1 dlv exec --headless ./x : -n 3 ./x &":  "",
		"gorun -- prog --any : --thing":                    "",
		"gorun simulate --json | go run ./x --what":        "",
		"gorun k8s manifest --image x -n 8 -np 4 p --flag": "",
		"gorun vet -mpierror=false ./...":                  "",
		"go build -o bin/ ./cmd/gorun --what":              "no line of gorun",
		"pgrep -a gorun":                                   "no line of gorun",
		"gorun: warning: --what":                           "no line of gorun",
	} {
		got := "no line of gorun"
		for _, args := range gorunIn(line) {
			got = ""
			if err := understood(args); err != nil {
				got = err.Error()
			}
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// codeOf returns the lines of the blocks of a document, and the spans of code in its prose.
func codeOf(text string) (lines []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t"):
			lines = append(lines, line)
		default:
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				lines = append(lines, m[1])
			}
		}
	}
	return lines
}

var (
	comment   = regexp.MustCompile(`(^|\s)#.*`)
	redirects = regexp.MustCompile(`\d?[<>]>?\s*\S+`)
	between   = regexp.MustCompile(`\|\|?|&&|[;&](\s|$)|\bdo\b`) // commands
	// notStarted are commands that have gorun for an argument.
	notStarted = regexp.MustCompile(`\bgo (build|install|get|vet|mod)\b|\b(pgrep|which|man)\b`)
	capitals   = regexp.MustCompile(`^[A-Z]+$`)
)

// gorunIn returns the arguments of each gorun that a line of a shell, or of a file of CI, starts.
func gorunIn(line string) (all [][]string) {
	line = redirects.ReplaceAllString(comment.ReplaceAllString(line, ""), " ")
	for _, command := range between.Split(line, -1) {
		words, err := shellWords(command)
		at := slices.IndexFunc(words, func(w string) bool { return w == "gorun" || strings.HasSuffix(w, "/gorun") })
		if err != nil || at < 0 {
			continue
		}
		if !notStarted.MatchString(strings.Join(words[:at], " ")) {
			all = append(all, words[at+1:])
		}
	}
	return all
}

// understood parses a command line as run does, and starts nothing.
func understood(line []string) error {
	var args []string
	for _, w := range line {
		switch {
		case w == "..." || w == "…" || strings.HasPrefix(w, "["):
		case capitals.MatchString(w):
			args = append(args, cmp.Or(map[string]string{"TIME": "1m", "SIZE": "1Gi"}[w], "4"))
		default:
			args = append(args, w)
		}
	}
	root := newRoot(os.Stdin, os.Stdout, os.Stderr, new(int))
	if len(args) == 0 || !isCommand(root, args[0]) {
		return jobLine(root.Flags(), args)
	}
	command, rest, err := root.Find(args)
	switch {
	case err != nil || len(rest) == 0 || command.Name() == "vet": // named only, or with the flags of go vet
		return err
	case command.DisableFlagParsing:
		return jobLine(command.Flags(), rest)
	}
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}

// jobLine parses flags, and those after each colon.
func jobLine(known *pflag.FlagSet, args []string) error {
	own, rest, err := splitFlags(known, args)
	if err == nil {
		err = known.Parse(own)
	}
	if err == nil && len(rest) > 0 {
		_, err = segments(appFlags{}, rest)
	}
	return err
}

// The command lines of the cookbook do what they say, one after the other, as a user types them in a module that has
// the cookbook's code: its program writes profiles, and its test is the one of the page. Debugger and network may be
// missing, so lines of dlv and go get do not run; TestGorunInDocuments looks at the flags of the first. With -short,
// and without a C compiler, nothing is built for the race detector; with -short, nothing for a debugger or by go tool.
func TestCookbookLines(t *testing.T) {
	t.Parallel()
	page, root := proc.CheckoutText(t, "docs/cookbook.md")
	dir := moduleOfCookbook(t, page, root)
	path := filepath.Dir(proc.Gorun(t)) + ":" + os.Getenv("PATH")
	_, noC := exec.LookPath("gcc")
	ran := 0
	for _, line := range linesOfCookbook(page) {
		raced := strings.Contains(line, " -race ")
		cgo := "CGO_ENABLED=0"
		switch {
		case regexp.MustCompile(`\bdlv |--debug |^go get `).MatchString(line),
			testing.Short() && regexp.MustCompile(`^go tool |-gcflags`).MatchString(line):
			continue
		case raced && (testing.Short() || noC != nil):
			line = strings.ReplaceAll(line, " -race ", " ")
		case raced:
			cgo = "CGO_ENABLED=1"
		}
		c := exec.Command("sh", "-e", "-c", line)
		c.Dir = dir
		c.Env = append(os.Environ(), "PATH="+path, "GOWORK="+filepath.Join(dir, "go.work"), cgo, "XDG_CONFIG_HOME="+dir)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, clip(string(out)))
		}
		ran++
	}
	if least := map[bool]int{true: 5, false: 9}[testing.Short()]; ran < least {
		t.Errorf("%d lines ran, of at least %d: are they found?", ran, least)
	}
	if profiles, err := filepath.Glob(filepath.Join(dir, "out", "rank-*.pprof")); len(profiles) != 4 {
		t.Errorf("the program has written %q (%v)", profiles, err)
	}
}

// linesOfCookbook are the lines of a shell, and the lines of the file for CI.
func linesOfCookbook(page string) (lines []string) {
	lang := ""
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if fence, ok := strings.CutPrefix(line, "```"); ok {
			lang = fence
			continue
		}
		run, isCI := strings.CutPrefix(line, "- run: ")
		shell, isShell := strings.CutPrefix(line, "    ")
		switch {
		case lang == "yaml" && isCI:
			lines = append(lines, run)
		case lang == "" && isShell:
			lines = append(lines, shell)
		}
	}
	return lines
}

// moduleOfCookbook makes a module with code of the page, in a workspace with this checkout: nothing is fetched, and
// what has been compiled there is used.
func moduleOfCookbook(t *testing.T, page, root string) (dir string) {
	t.Helper()
	pieces := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1)
	piece := func(has string) string {
		at := slices.IndexFunc(pieces, func(p []string) bool { return strings.Contains(p[1], has) })
		if at < 0 {
			t.Fatalf("docs/cookbook.md has no %s", has)
		}
		return pieces[at][1]
	}
	dir = t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.org/prog\n\ngo 1.26.0\n\ntool github.com/gorun-mpi/mpi/cmd/gorun\n",
		"go.work": "go 1.26.0\n\nuse (\n\t.\n\t" + root + "\n)\n",
		"main.go": `package main

import (
	"context"

	"github.com/gorun-mpi/mpi"
)

func main() {
	mpi.Main(func(_ context.Context, world *mpi.Comm) error { return mpi.Barrier(world) })
}
`,
		"prog_test.go": `package main

import (
	"fmt"
	"testing"

	"github.com/gorun-mpi/mpi"
)
` + piece("func TestTotal("),
		"cmd/prog/main.go": `package main

import (
	"context"

	"github.com/gorun-mpi/mpi"
)

func main() {
	mpi.Main(func(_ context.Context, world *mpi.Comm) error { return mpi.Barrier(world) })
}
`,
	} {
		file := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, []byte(text), 0o666))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
