package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("boards given back", boardsGivenBack)
	role("collective dies", collectiveDies)
	role("read rank dies", readRankDies)
}

// onBoards makes so many calls that go through the board of c.
func onBoards(c *mpi.Comm, times int) error {
	for i := range times {
		sum := make([]int, []int{1, 1000}[i%2])
		err := errors.Join(mpi.Allreduce(c, nil, sum, mpi.Sum), mpi.Bcast(c, sum, i%c.Size()), mpi.Barrier(c))
		if err != nil {
			return err
		}
	}
	return nil
}

// boards counts those that this process has mapped.
func boards() int {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	return strings.Count(string(maps), "memfd:gorun-board")
}

func boardsGivenBack(_ context.Context, w *mpi.Comm) error {
	for range 3 {
		half, err := w.Split(w.Rank()%2, 0)
		if err != nil {
			return err
		}
		dup, err := w.Dup()
		if err != nil {
			return err
		}
		if err := errors.Join(onBoards(half, 3), onBoards(dup, 3)); err != nil {
			return err
		}
		before := boards()
		if err := errors.Join(half.Free(), dup.Free()); err != nil {
			return err
		}
		if after := boards(); before != 2 || after != 0 {
			return fmt.Errorf("%d boards are mapped, and %d when their communicators are freed; want 2 and 0", before, after)
		}
	}
	fmt.Printf("rank %d done\n", w.Rank())
	return nil
}

func TestBoardsGivenBack(t *testing.T) {
	if j := run(t, spec{n: 6, role: "boards given back"}, 0); j.count(`^rank \d done`) != 6 {
		t.Errorf("not all ranks report\n%s", j.out.String())
	}
}

// collectiveDies has the last rank kill itself in an operator or between calls; all others say how their calls end.
// They stay until each has said it, or the launcher kills them: no rank's own end is what another hears of.
func collectiveDies(ctx context.Context, w *mpi.Comm) error {
	victim, dying, end := w.Size()-1, false, die
	if os.Args[2] == "exits" {
		end = func() { syscall.Exit(3) }
	}
	op := func(inout, in []int) {
		if dying && len(in) > 0 && w.Rank() == victim {
			end()
		}
		mpi.Sum(inout, in)
	}
	var err error
	for i := 0; err == nil; i++ {
		if dying = i >= 20; dying && w.Rank() == victim && os.Args[1] == "between calls" {
			end()
		}
		sum := make([]int, []int{1, 1000, 20_000}[i%3])
		all := make([]int, w.Size()*len(sum))
		err = errors.Join(mpi.Allreduce(w, nil, sum, op), mpi.Bcast(w, sum, i%w.Size()), mpi.Barrier(w),
			mpi.Allgather(w, sum, all), mpi.Reduce(w, sum, make([]int, len(sum)), op, i%w.Size()))
	}
	fmt.Printf("rank %d survives with peer failed %v: %v\n", w.Rank(), errors.Is(err, mpi.ErrPeerFailed), err)
	time.Sleep(300 * time.Millisecond)
	return err
}

// A rank that dies in a collective call is ErrPeerFailed at all others, through boards and by messages. gorun kills
// these half a second later. hydra, told by -disable-auto-cleanup not to, kills them at once all the same if a signal
// has ended the rank (mpiexec.hydra 4.0.2: SIGKILL to each other process within 3 ms), and not if it has exited: so
// under
// hydra it exits, without a word to any other rank. A slow machine may kill the survivors before they say what they
// have: then the job is run again.
func TestCollectiveDies(t *testing.T) {
	t.Parallel()
	const n = 5
	messages := []string{"GORUN_COLL=barrier:dissemination,bcast:knomial,allgather:ring,reduce:knomial," +
		"allreduce:doubling"}
	tcp := []string{"GORUN_TRANSPORTS=tcp"}
	for _, x := range []struct {
		name, when string
		env        []string
		hydra      bool
	}{
		{"boards, in an operator", "in an operator", nil, false},
		{"boards, between calls", "between calls", nil, false},
		{"messages", "in an operator", messages, false},
		{"tcp", "in an operator", tcp, false},
		{"boards under hydra", "in an operator", nil, true},
		{"boards under hydra, between calls", "between calls", nil, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := spec{n: n, role: "collective dies", args: []string{x.when, "is killed"}, env: x.env, hydra: x.hydra}
			if x.hydra {
				s.flags, s.args[1] = []string{"-disable-auto-cleanup"}, "exits"
			}
			j := startAgain(t, s, 10, func(j *job) bool { return j.count(`^rank \d survives`) == n-1 })
			j.end()
			j.nothingLeft()
			if got := j.count(`^rank \d survives with peer failed true: mpi: `); got != n-1 {
				t.Errorf("%d ranks say that a peer has failed; want %d\n%s%s", got, n-1, clip(j.out.String()),
					clip(j.err.String()))
			}
		})
	}
}

// readRankDies: rank 0 kills the last rank when the first of that rank's memory has come, and long before the last has.
// All others say how their calls end, and stay until each has said it.
func readRankDies(_ context.Context, w *mpi.Comm) error {
	const size = 1 << 21
	n, victim := w.Size(), w.Size()-1
	pids := make([]int, n)
	if err := errors.Join(mpi.Allgather(w, []int{os.Getpid()}, pids), onBoards(w, 3)); err != nil {
		return err
	}
	in, out := slices.Repeat([]int64{7}, n*size), make([]int64, n*size)
	buf := out
	if w.Rank() == victim {
		buf = in
	}
	kill := sync.OnceFunc(func() { syscall.Kill(pids[victim], syscall.SIGKILL) })
	op := func(inout, in []int64) {
		if w.Rank() == 0 {
			kill()
		}
		mpi.Sum(inout, in)
	}
	way := map[string]struct {
		call func() error
		at   int // where out has what is the victim's; -1: the operator kills it
	}{
		"bcast":     {func() error { return mpi.Bcast(w, buf, victim) }, 0},
		"allgather": {func() error { return mpi.Allgather(w, in[:size], out) }, victim * size},
		"alltoall":  {func() error { return mpi.Alltoall(w, in, out) }, victim * size},
		"reduce":    {func() error { return mpi.Reduce(w, in, out, op, 0) }, -1},
		"allreduce": {func() error { return mpi.Allreduce(w, in, out, op) }, -1},
	}[os.Args[1]]
	if w.Rank() == 0 && way.at >= 0 {
		go func() {
			for out[way.at] == 0 {
				runtime.Gosched()
			}
			kill()
		}()
	}
	err := mpi.Barrier(w) // all have their memory
	calls := 0
	for ; err == nil; calls++ {
		err = way.call()
	}
	peer := errors.Is(err, mpi.ErrPeerFailed)
	fmt.Printf("rank %d survives call %d with peer failed %v: %v\n", w.Rank(), calls, peer, err)
	time.Sleep(300 * time.Millisecond)
	return err
}

// A rank that is killed while another one reads its memory is ErrPeerFailed at all others. Each rank of hydra is of a
// shell, which exits when a signal has ended the rank: so hydra lets the others be. On a slow machine rank 0 may have
// read all before the rank dies, or end before rank 1 has said what it has: then the job is run again.
func TestReadRankDies(t *testing.T) {
	t.Parallel()
	operations := []string{"bcast", "allreduce", "allgather", "alltoall", "reduce"}
	if testing.Short() {
		operations = operations[:2]
	}
	const n, exits = 3, `"$0" "$@"; code=$?; [ $code -lt 128 ] || code=3; exit $code`
	for _, o := range operations {
		t.Run(o, func(t *testing.T) {
			s := spec{n: n, role: "read rank dies", hydra: true, flags: []string{"-disable-auto-cleanup"}, prog: "sh",
				args: []string{"-c", exits, program(t, ""), o}, env: []string{"GORUN_COLL=" + o + ":direct"}}
			j := startAgain(t, s, 10, func(j *job) bool {
				return j.count(`^rank 0 survives call 1 `) == 1 && j.count(`^rank \d survives`) == n-1
			})
			j.end()
			j.nothingLeft()
			if got := j.count(`^rank \d survives call \d+ with peer failed true: mpi: `); got != n-1 {
				t.Errorf("%d ranks say that a peer has failed; want %d\n%s%s", got, n-1, clip(j.out.String()),
					clip(j.err.String()))
			}
		})
	}
}
