package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// library is one of those compared.
type library struct {
	name   string
	dir    string // of its programs
	launch func(ranks int, program string) []string
	absent string // why it cannot be measured; empty when it can
}

// build makes the programs of every library. Only ours must be there.
func build(ctx context.Context, dir string, chosen []measurement) ([]library, error) {
	programs := make(map[string]bool)
	for _, m := range chosen {
		programs[m.program] = true
	}
	ours := filepath.Join(dir, "gorun")
	args := []string{"build", "-o", ours + "/", "./cmd/gorun"}
	for p := range programs {
		args = append(args, "./benchmarks/"+p)
	}
	if err := os.Mkdir(ours, 0o755); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go %s: %v (run it in the module's root)\n%s", strings.Join(args, " "), err, out)
	}
	libraries := []library{
		{name: "gorun", dir: ours, launch: func(n int, p string) []string {
			return []string{filepath.Join(ours, "gorun"), "-n", strconv.Itoa(n), p}
		}},
		{name: "Open MPI", dir: filepath.Join(dir, "openmpi"), launch: openMPI},
		{name: "MPICH", dir: filepath.Join(dir, "mpich"), launch: mpich},
	}
	for i, compiler := range []string{"mpicc.openmpi", "mpicc.mpich"} {
		l := &libraries[i+1]
		l.absent = l.compile(ctx, compiler, programs)
	}
	return libraries, nil
}

// compile builds the peers' programs and says why it could not.
func (l *library) compile(ctx context.Context, compiler string, programs map[string]bool) (why string) {
	if _, err := exec.LookPath(compiler); err != nil {
		return compiler + " is not installed (make deps installs it)"
	}
	if err := os.Mkdir(l.dir, 0o755); err != nil {
		return err.Error()
	}
	for p := range programs {
		out, err := exec.CommandContext(ctx, compiler, "-O2", "-std=gnu11", "-Wno-stringop-overflow",
			"-o", filepath.Join(l.dir, p), "benchmarks/peers/"+p+".c").CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%s %s.c: %v: %s", compiler, p, err, out)
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

// measure runs one measurement in rounds, the libraries by turns. A library that fails is not tried again.
func measure(ctx context.Context, m measurement, libraries []library, rounds int, limit time.Duration) *samples {
	s := newSamples(libraries)
	for i, l := range libraries {
		s.failed[i] = l.absent
	}
	for round := range rounds {
		for i, l := range libraries {
			if s.failed[i] != "" || ctx.Err() != nil {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s, %d ranks, round %d of %d: %s\n", m.program, m.ranks, round+1, rounds, l.name)
			lines, err := runOnce(ctx, m, l, limit)
			if err != nil {
				s.failed[i] = err.Error()
				continue
			}
			s.add(i, lines)
		}
	}
	return s
}

// runOnce starts one program under its launcher and returns the lines that it printed.
func runOnce(ctx context.Context, m measurement, l library, limit time.Duration) ([]line, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append(l.launch(m.ranks, filepath.Join(l.dir, m.program)), m.args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	// A launcher that is asked to end takes its ranks along; one that is killed may leave them.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("did not end within %v", limit)
	case err != nil:
		return nil, fmt.Errorf("%s: %v: %s", args[0], err, firstLine(complaints.String()))
	case m.wall:
		return []line{{key: int64(m.ranks), values: []float64{float64(took) / 1e6}}}, nil
	}
	return parse(out.String())
}

func firstLine(s string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return first
}

// machine is a line about what the tables were measured on.
func machine() string {
	cpu := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(info), "model name"); ok {
			cpu = strings.TrimLeft(firstLine(rest), "\t :")
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	commit, _ := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	return fmt.Sprintf("%s, %d CPUs, Linux %s, %s, commit %s\n", cpu, runtime.NumCPU(),
		bytes.TrimSpace(kernel), runtime.Version(), bytes.TrimSpace(commit))
}
