// Pauses runs go test on packages with a pause before any statement: for some milliseconds, seldom for a second, as on
// a machine that takes processors away at the wrong moment. A test that fails only then depends on an order of events:
// there is a race in the test or in the tested code. A time limit that detects a hang may also expire.
//
//	go run ./internal/tools/pauses [-rare N] [-only tests|code] [-run PATTERN] [-race] [PACKAGE...]
//
// The sources stay as they are: go test is told to read others in their place (-overlay), the programs that tests build
// too. Linters read the sources themselves and would see nothing new.
//
// Owns: the pauses.
// May call: the standard library and the go command.
// Never: write into the source tree.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// counting are the tests of what an added call changes: the instructions, allocations and imports of the code.
const counting = "^(TestInstructions|TestNoAllocations|TestImports|TestGraphNamesExist)$"

// without are the folders whose code takes no pauses: what has no sources of the module, and the linters.
var without = []string{".git", "testdata", "bin", "internal/lint", "internal/tools"}

func main() {
	rare := flag.Int("rare", 100,
		"the `chance`, 1 in so many, of a pause before a statement that runs for the first time; later it is less")
	only := flag.String("only", "", "which `files`: tests or code (default both)")
	pattern := flag.String("run", "", "go test's -run")
	race := flag.Bool("race", false, "with the race detector")
	tags := flag.String("tags", "", "build `tags`")
	flag.Parse()
	if *rare < 1 || *only != "" && *only != "tests" && *only != "code" {
		fmt.Fprintln(os.Stderr, "pauses: -rare is at least 1, and -only is tests or code")
		os.Exit(2)
	}
	args := []string{"test", "-vet=off", "-count=1", "-timeout=1h", "-short", "-skip=" + counting, "-run=" + *pattern,
		"-tags=" + *tags}
	if *race {
		args = append(args, "-race")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rare, *only, append(args, packages(flag.Args())...), os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "pauses:", err)
		os.Exit(1)
	}
}

func packages(asked []string) []string {
	if len(asked) == 0 {
		return []string{"./..."}
	}
	return asked
}

// run is the go command with args on the module in the working directory. It is interrupted when ctx ends.
func run(ctx context.Context, rare int, only string, args []string, stdout, stderr io.Writer) error {
	dir, err := os.MkdirTemp("", "pauses-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, places, err := overlay(".", dir, only)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "pauses at %d statements\n", places)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay),
		fmt.Sprintf("%s=%d", rareVar, rare))
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd.Run()
}

// overlay writes the changed sources of the module at root into dir, and the file that names them to the go command.
func overlay(root, dir, only string) (path string, places int, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return "", 0, err
	}
	module, err := modulePath(root)
	if err != nil {
		return "", 0, err
	}
	replace := map[string]string{}
	put := func(at string, src []byte) error {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		replace[at] = to
		return os.WriteFile(to, src, 0o600)
	}
	err = filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, p)
		switch {
		case err != nil:
			return err
		case d.IsDir() && leftOut(rel):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(p) != ".go" || !wanted(rel, only):
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		src, n, err := withPauses(rel, src, module+"/"+pausesAt, places)
		if err != nil || n == 0 {
			return err
		}
		places += n
		return put(p, src)
	})
	if err == nil {
		err = put(filepath.Join(root, pausesAt, "pauses.go"), fmt.Appendf(nil, library, places, rareVar))
	}
	if err != nil {
		return "", 0, err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", 0, err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, places, os.WriteFile(path, text, 0o600)
}

func modulePath(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("run it in the root of the module: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, found := strings.CutPrefix(line, "module "); found {
			return strings.TrimSpace(path), nil
		}
	}
	return "", fmt.Errorf("%s names no module", filepath.Join(root, "go.mod"))
}

func leftOut(rel string) bool {
	for _, w := range without {
		if rel == w || filepath.Base(rel) == w {
			return true
		}
	}
	return false
}

// wanted reports whether the file is among those that only names: tests are their files and the kit that only they
// import.
func wanted(rel, only string) bool {
	test := strings.HasSuffix(rel, "_test.go") || strings.HasPrefix(rel, filepath.Join("internal", "testkit"))
	return only == "" || test == (only == "tests")
}
