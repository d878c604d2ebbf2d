package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// library is one of those compared.
type library struct {
	name    string
	version string
	dir     string // of its programs
	launch  func(ranks int, program string) []string
	absent  string            // why it cannot be measured; empty when it can
	broken  map[string]string // programs that it could not build, and why
}

// notInstalled is how the reason ends where a library is not there at all: that is no failure of it.
const notInstalled = " is not installed (make deps installs it)"

// missing says why a program of the library cannot run; empty when it can.
func (l library) missing(program string) string {
	if l.absent != "" {
		return l.absent
	}
	return l.broken[program]
}

// shown is the command of a run, without folders.
func (l library) shown(m measurement, a arguments, ours bool) string {
	words := append(l.launch(a.ranks, m.program), a.words(ours)...)
	words[0] = filepath.Base(words[0])
	return strings.Join(words, " ")
}

// build makes the programs of every library. Only ours must be there.
func build(ctx context.Context, dir string, chosen []measurement) ([]library, error) {
	programs := make(map[string]bool)
	for _, m := range chosen {
		programs[m.program] = true
	}
	ours, err := buildOurs(ctx, filepath.Join(dir, "gorun"), programs)
	if err != nil {
		return nil, err
	}
	libraries := []library{
		ours,
		{name: "Open MPI", dir: filepath.Join(dir, "openmpi"), launch: openMPI},
		{name: "MPICH", dir: filepath.Join(dir, "mpich"), launch: mpich},
	}
	for i, tools := range [][2]string{{"mpicc.openmpi", "mpirun.openmpi"}, {"mpicc.mpich", "mpiexec.hydra"}} {
		l := &libraries[i+1]
		if l.absent = l.compile(ctx, tools, programs); l.absent != "" {
			fmt.Fprintf(os.Stderr, "compare: %s is left out: %s\n", l.name, l.absent)
			continue
		}
		l.version = versionIn(output(ctx, tools[1], "--version"))
		for program, why := range l.broken {
			fmt.Fprintf(os.Stderr, "compare: %s of %s is left out: %s\n", program, l.name, why)
		}
	}
	return libraries, nil
}

func buildOurs(ctx context.Context, dir string, programs map[string]bool) (library, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return library{}, err
	}
	args := []string{"build", "-o", dir + "/", "./cmd/gorun"}
	for p := range programs {
		args = append(args, "./benchmarks/"+p)
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return library{}, fmt.Errorf("go %s: %v (run it in the module's root)\n%s", strings.Join(args, " "), err, out)
	}
	return library{name: "gorun", dir: dir, launch: func(n int, program string) []string {
		args := []string{filepath.Join(dir, "gorun"), "-n", strconv.Itoa(n)}
		if n <= runtime.NumCPU() {
			args = append(args, "--bind-to", "core")
		}
		return append(args, program)
	}}, nil
}

// compile builds the peers' programs. It says why the library cannot be used at all; a program that cannot be built
// is noted and leaves the others alone.
func (l *library) compile(ctx context.Context, tools [2]string, programs map[string]bool) (absent string) {
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return tool + notInstalled
		}
	}
	if err := os.Mkdir(l.dir, 0o755); err != nil {
		return err.Error()
	}
	l.broken = make(map[string]string)
	for p := range programs {
		out, err := exec.CommandContext(ctx, tools[0], "-O2", "-std=gnu11", "-pthread", "-Wno-stringop-overflow",
			"-o", filepath.Join(l.dir, p), "benchmarks/peers/"+p+".c").CombinedOutput()
		if err != nil {
			l.broken[p] = fmt.Sprintf("%s %s.c: %v: %s", tools[0], p, err, firstLine(string(out)))
		}
	}
	return ""
}

func openMPI(n int, program string) []string {
	args := []string{"mpirun.openmpi", "--allow-run-as-root", "-np", strconv.Itoa(n)}
	if n > runtime.NumCPU() {
		args = append(args, "--oversubscribe", "--bind-to", "none")
	} else {
		args = append(args, "--bind-to", "core")
	}
	return append(args, program)
}

func mpich(n int, program string) []string {
	args := []string{"mpiexec.hydra", "-n", strconv.Itoa(n)}
	if n <= runtime.NumCPU() {
		args = append(args, "-bind-to", "core")
	}
	return append(args, program)
}

// versionIn is the first word of a text that is numbers and dots: "mpirun (Open MPI) 4.1.4" has 4.1.4.
func versionIn(text string) string {
	for _, word := range strings.Fields(text) {
		if strings.Contains(word, ".") && strings.Trim(word, "0123456789.") == "" {
			return word
		}
	}
	return ""
}
