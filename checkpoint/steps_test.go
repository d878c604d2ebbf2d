package checkpoint_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/checkpoint"
	"github.com/gorun-mpi/mpi/internal/testkit/deaths"
)

const (
	working = 4 // ranks at a time
	spares  = 2 // ranks that take the places of dead ones
)

// A rank that dies at any step of Save or Restore, or two at once, leave the others with a checkpoint that is whole and
// the same at all: the one that Save has made, if any rank that lives was told so, or else that one or the one before.
func TestEveryStepCanBeTheLast(t *testing.T) {
	for i, name := range []string{"Save", "Restore"} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(i), 3))
			var some [][]int
			for a := range working {
				some = append(some, []int{a}, []int{a, (a + 1 + rnd.IntN(working-1)) % working})
			}
			first, stride := 1, 1
			if testing.Short() {
				first, stride, some = 1+rnd.IntN(9), 9, [][]int{{rnd.IntN(working)}, {0, 1 + rnd.IntN(working-1)}}
			}
			for _, victims := range some {
				for step := first; ; step += stride {
					j := deaths.Job{Ranks: working + spares, After: map[int]int{victims[0]: step}, Hosts: 1 + rnd.IntN(3),
						Seed: rnd.Int64N(2) * rnd.Int64N(1000)}
					for _, v := range victims[1:] {
						j.After[v] = 1 + rnd.IntN(40)
					}
					if died := stepJob(t, j, name == "Save"); !slices.Contains(died, victims[0]) {
						break
					}
				}
			}
		})
	}
}

// stepJob runs a job whose ranks die in a Save, or in a Restore.
func stepJob(t *testing.T, j deaths.Job, saves bool) (died []int) {
	var mu sync.Mutex
	var told, found []int64 // the steps that Save has told a rank, and that Restore has found then
	died, err := deaths.Run(j, func(r *deaths.Rank) error {
		saved, restored, err := survive(t, r, len(j.After), saves)
		mu.Lock()
		told, found = append(told, saved), append(found, restored)
		mu.Unlock()
		return err
	})
	slices.Sort(found)
	if found = slices.Compact(found); err != nil || len(found) != 1 || found[0] < slices.Max(told) {
		t.Errorf("%v, died: %v; saved: %v; restored: %v; %v", j, died, told, found, err)
	}
	return died
}

// survive is one rank. It saves step 2, and then saves step 3, or restores step 2, while ranks die. One rank restores
// with a new store, so that others send it its slices. It returns the last step that Save has confirmed here, or 0, and
// the step that all ranks restore afterwards.
func survive(t *testing.T, r *deaths.Rank, die int, saves bool) (saved, restored int64, err error) {
	place, partners := r.Rank(), checkpoint.Partners(die+1)
	if place >= working {
		place = -1
	}
	c, err := r.Split(colorOf(place), place)
	if err != nil {
		return 0, 0, err
	}
	var m *member
	if place >= 0 {
		if m, _, _, err = join(c, partners); err != nil {
			return 0, 0, err
		}
		for step := range 3 {
			m.at(c, step)
			if err := m.s.Save(int64(step)); err != nil {
				return 0, 0, err
			}
		}
		saved = 2
	}
	r.Arm()
	if place >= 0 {
		switch {
		case saves:
			m.at(c, 3)
			if err = m.s.Save(3); err == nil {
				saved = 3
			}
		case place == 2:
			m, _, _, err = join(c, partners)
		default:
			m.at(c, 99)
			_, _, err = m.s.Restore(c)
		}
		if err != nil { // others wait for this rank
			err = errors.Join(expected(err), c.Revoke())
		}
	}
	living := r.Settle()
	if err != nil {
		return saved, 0, err
	}
	restored, err = restore(t, r, m, place, len(living), partners)
	return saved, restored, err
}

func colorOf(place int) int {
	if place < 0 {
		return mpi.Undefined
	}
	return 0
}

// expected returns nil for an error that a death may bring.
func expected(err error) error {
	if errors.Is(err, mpi.ErrPeerFailed) || errors.Is(err, mpi.ErrRevoked) || errors.Is(err, checkpoint.ErrIncomplete) {
		return nil
	}
	return err
}

// restore fills the places of the dead with spare ranks and restores. Every rank lives that calls it.
func restore(t *testing.T, r *deaths.Rank, m *member, place, living int, partners checkpoint.Option) (step int64,
	err error) {
	all, err := r.Shrink()
	if err != nil {
		return 0, err
	}
	if all.Size() != living {
		return 0, fmt.Errorf("Shrink: %d ranks, and %d live", all.Size(), living)
	}
	places, err := mpi.AllgatherValues(all, place)
	if err != nil {
		return 0, err
	}
	spare := 0 // the spare ranks before this one
	for _, p := range places[:all.Rank()] {
		if p < 0 {
			spare++
		}
	}
	for p := range working {
		if !slices.Contains(places, p) {
			if spare == 0 && place < 0 {
				place = p
			}
			spare--
		}
	}
	c, err := all.Split(colorOf(place), place)
	if err == nil && c != nil {
		found := true
		if m == nil {
			m, step, found, err = join(c, partners)
		} else {
			step, found, err = m.s.Restore(c)
		}
		if err == nil && found {
			m.is(t, c, int(step))
			m.at(c, 4)
			err = m.s.Save(4)
		}
	}
	if err != nil {
		return 0, err
	}
	newest, err := mpi.AllreduceValue(all, step, mpi.Max[int64])
	if err == nil && c != nil && step != newest {
		err = fmt.Errorf("Restore: step %d, and %d at another rank", step, newest)
	}
	return newest, err
}
