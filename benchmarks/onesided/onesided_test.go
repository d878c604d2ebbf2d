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

// rounds is a side, whatever its elements are.
type rounds interface {
	bench.Rounds
	free() error
}

func sideOf(j *bench.Job, o operation) (rounds, error) {
	if o.words() {
		return newSide(j, o, j.Options.Sync, mpi.Sum[int64], fillWords{})
	}
	return newSide(j, o, j.Options.Sync, nil, fillBytes{})
}

// -c finds nothing wrong with what the library does, and does find a round that does nothing: with all operations,
// calls of an epoch and windows.
func TestValidation(t *testing.T) {
	for i, o := range operations {
		ranks := 2
		if o.shape == fromAll {
			ranks = 3
		}
		err := mpi.RunLocal(ranks, func(world *mpi.Comm) error {
			for k, sync := range o.syncs() {
				kinds := harness.WinKinds
				if testing.Short() { // each with one
					kinds = kinds[(i+k)%len(kinds):][:1]
				}
				for _, kind := range kinds {
					opts := harness.LatencyDefaults()
					opts.MinSize, opts.MaxSize, opts.Window, opts.Sync, opts.WinKind = 8, 16, 3, sync, kind
					opts, err := o.settle(opts)
					if err != nil {
						return err
					}
					j := &bench.Job{World: world, Rank: world.Rank(), Ranks: ranks, Options: opts}
					if err := checkSide(j, o); err != nil {
						return fmt.Errorf("%s -s %s -w %s: %w", o.name, sync, kind, err)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func checkSide(j *bench.Job, o operation) error {
	s, err := sideOf(j, o)
	if err != nil {
		return err
	}
	for round, size := range j.Options.Sizes(2) {
		if err := s.Resize(size); err != nil {
			return err
		}
		for _, plays := range []int{1, 0} {
			if plays == 0 && o.call == noCall { // which changes nothing
				continue
			}
			s.Fill(round)
			if err := mpi.Barrier(j.World); err != nil {
				return err
			}
			if err := s.Play(plays); err != nil {
				return err
			}
			all := make([]int64, 1)
			if err := mpi.Allreduce(j.World, []int64{s.Check(round)}, all, mpi.Sum); err != nil {
				return err
			}
			if (all[0] == 0) != (plays == 1) {
				return fmt.Errorf("%d rounds of %d bytes: %d wrong", plays, size, all[0])
			}
		}
	}
	return s.free()
}

// The program in C has the same operations, with the same titles and shapes, and the same calls of an epoch.
func TestPeer(t *testing.T) {
	source, err := os.ReadFile("../peers/onesided.c")
	if err != nil {
		t.Fatal(err)
	}
	var peer, ours []string
	calls := []string{"PUT", "GET", "ACC", "GET_ACC", "FETCH_OP", "CAS", "NO_CALL"}
	shapes := []string{"LATENCY", "ONE_WAY", "BOTH_WAYS", "FROM_ALL"}
	for _, m := range regexp.MustCompile(`\n    \{("\w+", "[^"]+", \w+, \w+)\},`).FindAllSubmatch(source, -1) {
		peer = append(peer, string(m[1]))
	}
	for _, o := range operations {
		ours = append(ours, fmt.Sprintf("%q, %q, %s, %s", o.name, o.title, calls[o.call], shapes[o.shape]))
	}
	if !slices.Equal(ours, peer) {
		t.Errorf("peers/onesided.c has\n%s\nand this program\n%s", strings.Join(peer, "\n"), strings.Join(ours, "\n"))
	}
	check := func(words []string, texts map[string]string) {
		for _, word := range words {
			want := fmt.Sprintf("{%q, %q}", word, texts[word])
			if texts[word] == "" || !strings.Contains(string(source), want) {
				t.Errorf("peers/onesided.c has no %s", want)
			}
		}
	}
	check(harness.Syncs, osuSync)
	check(harness.WinKinds, osuWindow)
}

// Options that no job can have are refused before there is a job.
func TestCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"nosuch": `no operation "nosuch"; there are put_latency, `, "": "which operation?",
		"put_bibw -s lock": "put_bibw has pscw, fence", "fop_rate -s flush,fence": "-s fence: fop_rate has flush, ",
		"fence_latency -s flush": "fence_latency has fence", "put_bw -s flush,lock -c": "name one of them",
		"put_bw -s flush,lock": "", "fence_latency": "", "put_latency -s flush,none": "wanted one of lock, ",
		"acc_latency -m 12:24": "multiples of 8", "acc_latency -m 1:4": "multiples of 8",
		"put_latency -w heap": "wanted one of allocate, ", "put_latency -w dynamic": "",
		"put_bw -M 1000": "128 buffers", "put_bibw": "", "fop_latency -m 1:4": "", "acc_latency -m 1:64": "",
		"put_latency -s pscw -w create": "", "put_latency -m 0:1": "",
	} {
		_, err := program.Parse(strings.Fields(args))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	for name, want := range map[string]string{"osu_fop_latency": "fop_latency", "put_bw": "put_bw"} {
		if o, err := choose("", name); err != nil || o.name != want {
			t.Errorf("%s: %q, %v", name, o.name, err)
		}
	}
}

// An operation has the sizes and the numbers of iterations of OSU's program.
func TestSettle(t *testing.T) {
	for args, want := range map[string]string{
		"put_latency": "1:4194304 10000", "acc_latency": "8:4194304 10000", "cas_latency": "8:8 10000",
		"put_bw -m 2:4": "2:4 100", "put_bw -i 7": "1:4194304 7",
	} {
		opts, err := program.Parse(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		o, _ := choose(opts.Operand, "")
		opts, err = o.settle(opts)
		if got := fmt.Sprintf("%d:%d %d", opts.MinSize, opts.MaxSize, opts.Small.Iterations); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", args, got, err, want)
		}
	}
}
