package mpi_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/deaths"
)

// stepped makes a call during which ranks may die, and reports what is to be the same at all ranks that live. A call
// is stepped from Arm to Settle.
type stepped func(r *deaths.Rank) (same string, err error)

var recoveryCalls = map[string]stepped{"Agree": stepAgree, "Shrink": stepShrink, "Revoke": stepRevoke}

// A rank that dies at any step of a call for programs that outlive ranks, or two at once, the rank that decides among
// them, leave all others with equal results, and these go on.
func TestEveryStepOfRecoveryCanBeTheLast(t *testing.T) {
	for name, call := range recoveryCalls {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(crc32.ChecksumIEEE([]byte(name))), 1))
			for _, ranks := range []int{5, 8} { // in 8 the root of an agreement has four children, and one has three
				var some [][]int
				for a := range ranks {
					some = append(some, []int{a})
					for b := range ranks {
						if a != b {
							some = append(some, []int{a, b})
						}
					}
				}
				if testing.Short() { // the rank that decides is one of them
					some = [][]int{{0}, some[rnd.IntN(len(some))], {0, 1 + rnd.IntN(ranks-1)}}
				}
				for _, victims := range some {
					stepThrough(t, call, ranks, victims, rnd)
				}
			}
		})
	}
}

// stepThrough has the first of the victims die at each step of a call, until it outlives the call, and a second one at
// any step.
func stepThrough(t *testing.T, call stepped, ranks int, victims []int, rnd *rand.Rand) {
	for step := 1; ; step++ {
		j := deaths.Job{Ranks: ranks, After: map[int]int{victims[0]: step}, Seed: rnd.Int64N(2) * rnd.Int64N(1000)}
		for _, v := range victims[1:] {
			j.After[v] = 1 + rnd.IntN(12)
		}
		var mu sync.Mutex
		results := map[string][]int{} // the ranks that have got them
		died, err := deaths.Run(j, func(r *deaths.Rank) error {
			result, err := call(r)
			mu.Lock()
			results[result] = append(results[result], r.Rank())
			mu.Unlock()
			return err
		})
		if err != nil || len(results) != 1 {
			t.Errorf("%v, died: %v; results and ranks: %v; %v", j, died, results, err)
		}
		if !slices.Contains(died, victims[0]) {
			return
		}
	}
}

// stepAgree makes several agreements, since a rank may die that is ahead of others, or behind them.
func stepAgree(r *deaths.Rank) (string, error) {
	const armed = 3
	var flags [armed + 1]uint32 // in the last one all know of the same deaths
	var errs [armed + 1]error
	var living []int
	r.Arm()
	for i := range flags {
		if i == armed {
			living = r.Settle()
		}
		flags[i], errs[i] = r.Agree(^uint32(1 << r.Rank()))
	}
	var all []string
	for i := range flags {
		same, err := agreed(flags[i], errs[i], living)
		if err != nil {
			return same, err
		}
		all = append(all, same)
	}
	return strings.Join(all, "; "), goOn(r, r.Comm, living)
}

// agreed is what Agree has returned, to which each rank has given all bits but its own.
func agreed(flags uint32, err error, living []int) (string, error) {
	if err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
		return "", fmt.Errorf("Agree: %w", err)
	}
	for _, rank := range living {
		if flags>>rank&1 != 0 {
			return "", fmt.Errorf("Agree: the flags %#x have the bit of rank %d, which lives and has not given it", flags, rank)
		}
	}
	return fmt.Sprintf("%#x, deaths: %v", flags, err != nil), nil
}

func stepShrink(r *deaths.Rank) (string, error) {
	r.Arm()
	c, err := r.Shrink()
	living := r.Settle()
	if err != nil {
		return "", err
	}
	members, err := worldRanks(r, c)
	if err != nil {
		return "", err
	}
	for _, rank := range living {
		if !slices.Contains(members, rank) {
			return "", fmt.Errorf("Shrink has left out rank %d, which lives", rank)
		}
	}
	if !slices.IsSorted(members) {
		return "", fmt.Errorf("Shrink has the ranks in another order than the world: %v", members)
	}
	return fmt.Sprint(members), errors.Join(goOn(r, c, living), c.Free())
}

func worldRanks(r *deaths.Rank, c *mpi.Comm) ([]int, error) {
	all := make([]int, c.Size())
	for i := range all {
		all[i] = i
	}
	return c.Group().Translate(all, r.Group())
}

// goOn makes a communicator of the ranks of c that live, and has them use it.
func goOn(r *deaths.Rank, c *mpi.Comm, living []int) error {
	d, err := c.Shrink()
	if err != nil {
		return fmt.Errorf("Shrink, to go on: %w", err)
	}
	members, err := worldRanks(r, d)
	if err != nil || !slices.Equal(members, living) {
		return fmt.Errorf("the ranks %v go on, and %v live: %v", members, living, err)
	}
	want := 0
	for _, rank := range living {
		want |= 1 << rank
	}
	sum := []int{0}
	if err := mpi.Allreduce(d, []int{1 << r.Rank()}, sum, mpi.Sum); err != nil || sum[0] != want {
		return fmt.Errorf("Allreduce, to go on: %#x, not %#x: %v", sum[0], want, err)
	}
	return d.Free()
}

// stepRevoke has rank 0 revoke a communicator while the others wait for a message of it. If it dies before one that
// lives has heard, the lowest of these revokes.
func stepRevoke(r *deaths.Rank) (string, error) {
	const caller = 0
	c, err := r.Dup()
	if err != nil {
		return "", err
	}
	wait := func(from int) error {
		_, err := mpi.Recv(c, make([]byte, 1), from, 9)
		return err
	}
	r.Arm()
	if r.Rank() == caller {
		err = c.Revoke()
	} else {
		err = wait(caller)
	}
	living := r.Settle()
	me, lives := slices.Index(living, r.Rank()), living[0] == caller
	flags := uint32(1) // this rank has not heard
	switch {
	case r.Rank() == caller && err == nil, r.Rank() != caller && errors.Is(err, mpi.ErrRevoked):
		flags = 0
	case r.Rank() == caller || lives || !errors.Is(err, mpi.ErrPeerFailed):
		return "", fmt.Errorf("rank %d revokes (it lives: %v): %v", caller, lives, err)
	}
	heard, err := r.Agree(flags)
	if err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
		return "", fmt.Errorf("Agree: %w", err)
	}
	if heard == 1 && me == 0 { // no rank has
		if err := c.Revoke(); err != nil {
			return "", err
		}
	}
	if err := wait(living[(me+1)%len(living)]); !errors.Is(err, mpi.ErrRevoked) {
		return "", fmt.Errorf("a rank that lives has heard of the revocation, and this one waits for rank %d: %v",
			living[(me+1)%len(living)], err)
	}
	if flags, err = c.Agree(3); flags != 3 || err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
		return "", fmt.Errorf("Agree on what is revoked: %d, %v", flags, err)
	}
	return fmt.Sprintf("not heard: %d, deaths: %v", heard, err != nil), errors.Join(c.Free(), goOn(r, r.Comm, living))
}
