package main

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

// jobOf runs an operation with ranks that are goroutines, and returns what rank 0 prints and the error of a rank.
func jobOf(ranks int, operation string, rounds harness.Rounds) (out string, err error) {
	var b bytes.Buffer
	err = mpi.RunLocal(ranks, func(world *mpi.Comm) error {
		j := &bench.Job{World: world, Rank: world.Rank(), Ranks: ranks, Program: program,
			Options: harness.Options{Operand: operation, Small: rounds}}
		if j.Output = (harness.Output{Options: j.Options, Ranks: ranks}); j.Rank == 0 {
			j.Output.W = &b
		}
		return run(j)
	})
	return b.String(), err
}

func TestOperations(t *testing.T) {
	for operation, title := range map[string]string{"revoke": "Revoke", "agree": "Agree", "shrink": "Shrink"} {
		want := `^# OSU MPI ` + title + ` Test v7\.4 \(gorun\)\n# Ranks +Median\(us\) +Min\(us\) +Max\(us\) +Rounds\n` +
			`5( +\d+\.\d\d){3} +3\n$`
		if out, err := jobOf(5, operation, harness.Rounds{Iterations: 3, Warmup: 1}); err != nil ||
			!regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %v, printed\n%s", operation, err, out)
		}
	}
}

// No rank dies where another one would die with it, or where no rank would be left.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		ranks int
		want  string
	}{{3, "ranks 0 and 1 are one process"}, {2, "start it with gorun --enable-recovery -n 3 or more"}} {
		out, err := jobOf(c.ranks, "kill", harness.Rounds{Iterations: 1, Warmup: 1})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "recovery:") != 1 || out != "" {
			t.Errorf("%d ranks: %v, printed %q", c.ranks, err, out)
		}
	}
}

// The time is from when the last rank has begun until the last one has heard. Ranks that have died have no part in it.
func TestCollect(t *testing.T) {
	parts := []span{{5, 6}, {0, 31}, {20, 12}, {90, 90}}
	err := mpi.RunLocal(len(parts), func(world *mpi.Comm) error {
		m := &member{world: world, lives: 3}
		ns, err := m.collect(parts[world.Rank()])
		if want := map[int]int64{0: 11}[world.Rank()]; ns != want {
			t.Errorf("rank %d: %d ns, want %d", world.Rank(), ns, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A receive that ends otherwise than by the death or the revocation is an error, and no figure.
func TestHears(t *testing.T) {
	err := mpi.RunLocal(1, func(world *mpi.Comm) error {
		m := &member{world: world, now: func() int64 { return 7 }, word: make([]byte, 1)}
		if err := mpi.Send(world, m.word, 0, waitTag); err != nil {
			return err
		}
		if at, err := m.hears(world, 0, mpi.ErrRevoked); err == nil || at != 7 {
			t.Errorf("a receive that got a message: %v at %d", err, at)
		}
		c, err := world.Dup()
		if err == nil {
			err = c.Revoke()
		}
		if _, heard := m.hears(c, 0, mpi.ErrRevoked); heard != nil {
			t.Error(heard)
		}
		return errors.Join(err, c.Free())
	})
	if err != nil {
		t.Error(err)
	}
}

func TestCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"": "which operation? There are kill, ", "die": `no operation "die"; there are kill, `, "kill": "", "agree -i 3": "",
		"shrink -m 8": "unknown shorthand flag",
	} {
		_, err := program.Parse(strings.Fields(args))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
