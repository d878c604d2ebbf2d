package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// The names of the libraries, as the plan, the tables and NAME.json have them.
const (
	gorun      = "gorun"
	openMPI    = "Open MPI"
	mpich      = "MPICH"
	bareSocket = "bare socket"
	bareMemory = "bare memory"
	perftest   = "perftest"
	gorunTLS   = "gorun, TLS"
	gorunPlain = "gorun, plain"
)

// baseline is a program without any library: it is no peer but the limit, and has ratios of its own.
type baseline struct {
	name   string // of the library
	called string // in a sentence
	short  string // in a head of a table
}

var baselines = []baseline{{bareSocket, "the bare socket", "the socket"}, {bareMemory, "bare memory", bareMemory},
	{perftest, perftest, perftest}, {ucxPerftest, ucxPerftest, ucxPerftest}}

// baselineIn finds the one among libraries, the first of which is ours. at is 0 where there is none.
func baselineIn(libraries []string) (at int, b baseline) {
	for _, b := range baselines {
		if i := slices.Index(libraries, b.name); i > 0 {
			return i, b
		}
	}
	return 0, baseline{}
}

// library is one of those compared.
type library struct {
	name    string
	version string
	dir     string // of its programs
	launch  func(ranks int, program string) []string
	absent  string                           // why it cannot be measured; empty when it can
	broken  map[string]string                // programs that it could not build, and why
	base    string                           // the hosts that launch names; empty: none
	read    func(out string) ([]line, error) // reads what its programs print; nil: that is a benchmark's output
}

// notInstalled is how the reason ends where a library is not there at all: that is no failure of it.
const notInstalled = " is not installed (make deps installs it)"

// missing is why a program of the library cannot run; empty when it can.
func (l library) missing(program string) string {
	if l.absent != "" {
		return l.absent
	}
	return l.broken[program]
}

// shown is the command of a run, without folders.
func (l library) shown(m measurement, a arguments, ours bool) string {
	words := append(l.launch(a.ranks, m.program), l.words(a, ours)...)
	if words[0] != guestScript {
		words[0] = filepath.Base(words[0])
	}
	command := strings.Join(words, " ")
	if l.base != "" { // hosts that are gone when the command is read
		command = strings.Replace(command, "-base "+l.base, "-hosts 2", 1)
	}
	return command
}

// words are the arguments of one run. perftest's are programs of its own, with options of their own. Bare memory is
// fast enough for ours.
func (l library) words(a arguments, ours bool) []string {
	if l.name == perftest || l.name == ucxPerftest {
		return strings.Fields(a.tool)
	}
	return a.words(ours || l.name == bareMemory)
}

// build makes the programs of every library. Only ours must be there.
func build(ctx context.Context, dir string, chosen []measurement) ([]library, error) {
	programs, hosts, memory := make(map[string]bool), false, false
	for _, m := range chosen {
		programs[m.program], hosts = true, hosts || m.hosts
		memory = memory || slices.Contains(m.libraries, bareMemory)
	}
	first, err := buildOurs(ctx, filepath.Join(dir, "gorun"), programs, hosts)
	if err != nil {
		return nil, err
	}
	libraries := []library{
		first,
		{name: openMPI, dir: filepath.Join(dir, "openmpi"), launch: underOpenMPI},
		{name: mpich, dir: filepath.Join(dir, "mpich"), launch: underMPICH},
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
	if memory {
		libraries = append(libraries, buildBare(ctx, bareMemory, dir, "memory", "cc", launchMemory))
	}
	return libraries, nil
}

// buildBare makes a baseline of one C program, which needs a tool to run.
func buildBare(ctx context.Context, name, dir, program, tool string, launch func(int, string) []string) library {
	l := library{name: name, dir: filepath.Join(dir, program), launch: launch}
	if l.absent = l.compile(ctx, [2]string{"cc", tool}, map[string]bool{program: true}); l.absent == "" {
		l.absent = l.broken[program]
	}
	return l
}

func buildOurs(ctx context.Context, dir string, programs map[string]bool, hosts bool) (library, error) {
	packages := []string{"./cmd/gorun"}
	for p := range programs {
		packages = append(packages, "./benchmarks/"+p)
	}
	if hosts {
		packages = append(packages, "./internal/testkit/netns/hostrun")
	}
	if err := goBuild(ctx, dir, "", packages...); err != nil {
		return library{}, err
	}
	return library{name: gorun, dir: dir, launch: func(n int, program string) []string {
		args := []string{filepath.Join(dir, "gorun"), "-n", strconv.Itoa(n)}
		if n <= runtime.NumCPU() {
			args = append(args, "--bind-to", "core")
		}
		return append(args, program)
	}}, nil
}

// goBuild makes the folder dir and the packages' programs in it.
func goBuild(ctx context.Context, dir, tags string, packages ...string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-tags", tags, "-o", dir + "/"}, packages...)...)
	if tags != "" {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %v (run it in the module's root)\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// compile builds the peers' programs. absent is why the library cannot be used at all; why a program cannot be built is
// noted in broken, and the others are built all the same.
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
		if why := l.compileOne(ctx, tools[0], p); why != "" {
			l.broken[p] = why
		}
	}
	return ""
}

func (l *library) compileOne(ctx context.Context, compiler, program string) (why string) {
	out, err := exec.CommandContext(ctx, compiler, "-O2", "-std=gnu11", "-pthread", "-Wno-stringop-overflow",
		"-o", filepath.Join(l.dir, program), "benchmarks/peers/"+program+".c").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s %s.c: %v: %s", compiler, program, err, firstLine(string(out)))
	}
	return ""
}

// launchMemory starts the processes of the program without a library, which has all operations of onesided.
func launchMemory(n int, program string) []string {
	return []string{filepath.Join(filepath.Dir(program), "memory"), strconv.Itoa(n)}
}

func underOpenMPI(n int, program string) []string {
	args := []string{"mpirun.openmpi", "--allow-run-as-root", "-np", strconv.Itoa(n)}
	if n > runtime.NumCPU() {
		args = append(args, "--oversubscribe", "--bind-to", "none")
	} else {
		args = append(args, "--bind-to", "core")
	}
	return append(args, program)
}

func underMPICH(n int, program string) []string {
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
