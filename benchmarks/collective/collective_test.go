package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

func all() (chosen []form) {
	for i := range operations {
		for way := range persistent + 1 {
			chosen = append(chosen, form{&operations[i], way})
		}
	}
	return chosen
}

// -c finds nothing wrong with what the library does, and does find a call that does nothing.
func TestValidation(t *testing.T) {
	for _, ranks := range []int{1, 2, 5} {
		missed := make([]map[string]int64, ranks) // by operation, of each rank
		err := mpi.RunLocal(ranks, func(world *mpi.Comm) error {
			o := harness.CollectiveDefaults()
			o.MaxSize = 4096
			m, err := newMeter(&bench.Job{World: world, Rank: world.Rank(), Ranks: ranks, Options: o}, mpi.Undefined, all())
			if err != nil {
				return err
			}
			b := m.buffers
			missed[b.rank] = map[string]int64{}
			for round, o := range all() {
				for _, size := range []int{8, 4096, 64} {
					b.resize(o.operation, size)
					free, err := m.bind(o)
					if err != nil {
						return err
					}
					b.fill(round)
					missed[b.rank][o.String()] += b.wrong(round)
					err = m.call()
					free()
					if err != nil {
						return err
					}
					if wrong := b.wrong(round); wrong != 0 {
						return fmt.Errorf("%s of %d bytes: %d wrong on rank %d of %d", o, size, wrong, b.rank, ranks)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			continue // a rank has not come to all calls, of which it sees nothing then
		}
		for _, o := range all() {
			var found int64
			for _, of := range missed {
				found += of[o.String()]
			}
			if found == 0 && !o.named("barrier") && ranks > 1 {
				t.Errorf("%d ranks: no rank sees that %s has done nothing", ranks, o)
			}
		}
	}
}

// The program in C has the same operations, with the same titles.
func TestPeer(t *testing.T) {
	source, err := os.ReadFile("../peers/collective.c")
	if err != nil {
		t.Fatal(err)
	}
	var peer, ours []string
	for _, m := range regexp.MustCompile(`\n    \{("\w+", "[^"]+", [01]), \w+, \w+\},`).FindAllSubmatch(source, -1) {
		peer = append(peer, string(m[1]))
	}
	for _, o := range operations {
		reduces := map[bool]int{true: 1}[o.reduces]
		ours = append(ours, fmt.Sprintf("%q, %q, %d", o.name, o.title, reduces))
	}
	if !slices.Equal(ours, peer) {
		t.Errorf("peers/collective.c has\n%s\nand this program\n%s", strings.Join(peer, "\n"), strings.Join(ours, "\n"))
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct{ operand, name, want string }{
		{"bcast", "collective", "bcast"}, {"", "osu_scan", "scan"}, {"reduce,barrier", "osu_scan", "reduce barrier"},
		{"iallreduce", "collective", "iallreduce"}, {"", "osu_ibcast", "ibcast"},
		{"barrier_persistent,bcast", "collective", "barrier_persistent bcast"},
	} {
		chosen, err := choose(c.operand, c.name)
		var got []string
		for _, o := range chosen {
			got = append(got, o.String())
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	for _, operand := range []string{"", "barriers", "scan,", ",", "ibcast_persistent"} {
		if chosen, err := choose(operand, "collective"); err == nil || !strings.Contains(err.Error(), "allgather, ") {
			t.Errorf("%q: %v, %v", operand, chosen, err)
		}
	}
	if _, err := choose("iscan,scan", "collective"); err == nil || !strings.Contains(err.Error(), "by itself") {
		t.Errorf("nonblocking and another: %v", err)
	}
}

// What no job can do is wrong before there is one.
func TestCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"nosuch": `no operation "nosuch"`, "allreduce,nosuch": `no operation "nosuch"`, "allreduce -m 1:4": "multiples of 8",
		"alltoall": "", "alltoall -m 1:4": "",
	} {
		_, err := program.Parse(strings.Fields(args))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
