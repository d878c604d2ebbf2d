package mpi_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/testkit/truth"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// Every call, by every algorithm, with every kind of elements and operator, gives what plain loops give.
func TestTruth(t *testing.T) {
	choices := truth.Choices()
	for i, ranks := range []int{5, 1, 2, 3, 4, 6, 7, 8, 9, 16, 17, 32} {
		for j, choice := range choices {
			fewer := testing.Short() && (i > 0 || j > 2) || (proc.Race || ranks > 9) && i > 0 && j != i%len(choices)
			if direct := j == len(choices)-1; fewer && (i > 0 || !direct) {
				continue
			}
			t.Run(fmt.Sprintf("%d ranks, choice %d", ranks, j), func(t *testing.T) {
				counts := truth.Counts
				if testing.Short() || ranks > 9 {
					counts = []int{0, 1, 7, 129}
				}
				if ranks > 17 {
					counts = counts[1:3]
				}
				err := mpi.RunLocal(ranks, func(w *mpi.Comm) error { return truth.Catalogue(w, counts, !testing.Short()) },
					append(mpi.Beneath(), mpi.WithEnviron([]string{"GORUN_COLL=" + choice,
						"GORUN_COLL_CHECK=" + fmt.Sprint(j%2)}))...)
				if err != nil {
					t.Errorf("GORUN_COLL=%s: %v", choice, err)
				}
			})
		}
	}
}

// Random programs of collective calls, messages and splits, several at once at each rank, over links that misbehave.
// GORUN_TEST_SEED repeats one.
func TestRandomPrograms(t *testing.T) {
	last := 10 * time.Second
	if testing.Short() {
		last = 2 * time.Second
	}
	from := rand.Uint64() % 1_000_000
	if seed, is := givenSeed(); is {
		from, last = seed, 0
	}
	begun, programs := time.Now(), 0
	for seed := from; seed == from || time.Since(begun) < last; seed++ {
		randomProgram(t, &truth.Random{Seed: seed})
		programs++
	}
	t.Logf("%d programs from seed %d on", programs, from)
}

// RunLocal ends none of them however often it looks whether a rank can move.
func TestRandomProgramsMove(t *testing.T) {
	mpi.LookOften(t, 50*time.Microsecond)
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		randomProgram(t, &truth.Random{Seed: seed, Mistakes: seed%5 == 4})
	}
}

// So with calls that one rank makes wrongly: all ranks that can see it have an error, and every other call is right.
func TestRandomMistakes(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 6
	}
	from := uint64(1)
	if seed, is := givenSeed(); is {
		from, seeds = seed, seed
	}
	for seed := from; seed <= seeds; seed++ {
		randomProgram(t, &truth.Random{Seed: seed, Mistakes: true})
	}
}

func givenSeed() (seed uint64, is bool) {
	seed, err := strconv.ParseUint(os.Getenv("GORUN_TEST_SEED"), 10, 64)
	return seed, err == nil
}

// randomProgram runs the program on ranks and in surroundings that follow from its seed.
func randomProgram(t *testing.T, program *truth.Random) {
	seed := program.Seed
	random := rand.New(rand.NewPCG(seed, 77))
	ranks, check := 2+random.IntN(6), random.IntN(2)
	program.Steps, program.Threads = 150, 1+random.IntN(3)
	if program.Mistakes {
		check = 1
	}
	env := []string{"GORUN_COLL_CHECK=" + strconv.Itoa(check),
		"GORUN_COLL=" + truth.Choices()[random.IntN(len(truth.Choices()))]}
	wrap := mpi.Option(func(o *join.Options) {
		if random.IntN(4) == 0 || mpi.Beneath() != nil {
			return
		}
		plan := faulty.Random(int64(seed))
		o.Wrap = func(rank int, d transport.Device) transport.Device {
			return faulty.Wrap(d, int64(seed)*1000+int64(rank), plan)
		}
	})
	stuck := time.AfterFunc(2*time.Minute, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("GORUN_TEST_SEED=%d hangs: %d ranks, %v\n%v", seed, ranks, env, program))
	})
	defer stuck.Stop()
	if err := mpi.RunLocal(ranks, program.Run, append(mpi.Beneath(), wrap, mpi.WithEnviron(env))...); err != nil {
		t.Fatalf("GORUN_TEST_SEED=%d: %d ranks, %v: %v", seed, ranks, env, err)
	}
}
