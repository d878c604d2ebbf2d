package checkpoint

import (
	"errors"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
)

// After Restore a rank has the slices of the rank that had its number, whatever its own number was then.
func TestRanksChangeNumbers(t *testing.T) {
	const n = 4
	orders := [][n]int{{1, 2, 3, 0}, {3, 2, 1, 0}, {0, 2, 1, 3}, {0, 1, 2, 3}, {2, 3, 0, 1}}
	for k := range n + 1 {
		err := mpi.RunLocal(n, func(w *mpi.Comm) error {
			s, v := New(Partners(k)), make([]int, 3)
			if err := Add(s, v); err != nil {
				return err
			}
			c := w
			if _, _, err := s.Restore(c); err != nil {
				return err
			}
			for i, order := range orders {
				v[1] = 100*i + c.Rank()
				if err := s.Save(int64(i)); err != nil {
					return err
				}
				v[1] = -1
				moved, err := w.Split(0, order[w.Rank()])
				if err != nil {
					return err
				}
				step, found, err := s.Restore(moved)
				if err != nil {
					return err
				}
				if want := 100*i + moved.Rank(); !found || step != int64(i) || v[1] != want {
					t.Errorf("%d partners, order %v, rank %d: found %t, step %d, slice %d, not %d", k, order, moved.Rank(),
						found, step, v[1], want)
				}
				if c != w {
					if err := c.Free(); err != nil {
						return err
					}
				}
				c = moved
			}
			return c.Free()
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// The only checkpoint that there was is lost with a rank and its partner: that is no job that begins.
func TestTheFirstCheckpointIsLost(t *testing.T) {
	err := mpi.RunLocal(3, func(c *mpi.Comm) error {
		s := New()
		_, _, err := s.Restore(c)
		if err == nil {
			err = s.Save(1)
		}
		if err != nil {
			return err
		}
		if c.Rank() < 2 {
			s = New()
		}
		if _, _, err := s.Restore(c); !errors.Is(err, ErrLost) {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A rank that says of another one that it holds copies harms no other rank.
func TestHostileHolder(t *testing.T) {
	err := mpi.RunLocal(2, func(c *mpi.Comm) error {
		v := make([]byte, 8)
		if c.Rank() == 0 {
			s := New()
			if err := Add(s, v); err != nil {
				return err
			}
			if _, _, err := s.Restore(c); err == nil || strings.Contains(err.Error(), "panic") {
				t.Errorf("the error is %v", err)
			}
			return nil
		}
		if _, err := hostOf(c); err != nil {
			return err
		}
		a := announcement{Partners: 1, Length: 8}
		for owner := range uint32(2) {
			a.Held = append(a.Held, holding{Header: header{Lineage: 1, Number: 1, Before: 1, Size: 2, Owner: owner, Length: 8}})
		}
		if _, err := mpi.AllgatherObjects(c, a); err != nil {
			return err
		}
		if err := mpi.Send(c, v, 0, tagCopy); err != nil { // which is no copy
			return err
		}
		_, err := vote(c, nil)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
