package mpi

import (
	"errors"
	"testing"
)

// A communicator of Shrink or Replace has the name of the one whose place it takes, with a number that no other one of
// the rank has, and that is the same at all of its ranks.
func TestNamesOfRenewedCommunicators(t *testing.T) {
	err := RunLocal(3, func(w *Comm) error {
		var made []*Comm
		next := func(want string, c *Comm, err error) *Comm {
			t.Helper()
			if err != nil {
				panic(err)
			}
			if got := c.Name(); got != want {
				t.Errorf("rank %d: it is %s, want %s", w.Rank(), got, want)
			}
			made = append(made, c)
			return c
		}
		shrunk := func(c *Comm, want string) *Comm {
			d, err := c.Shrink()
			return next(want, d, err)
		}
		replaced := func(c *Comm, want string) *Comm {
			d, err := c.Replace()
			return next(want, d, err)
		}
		if w.Rank() == 2 { // which is ahead of the others from now on
			shrunk(Self(w), "self.shrunk1")
		}
		a := shrunk(w, "world.shrunk2")
		b := shrunk(a, "world.shrunk3")
		c := replaced(w, "world.replaced4")
		shrunk(b, "world.shrunk5")
		d := shrunk(c, "world.shrunk6")
		dup, err := d.Dup()
		next("world.shrunk6.dup1", dup, err)
		e := shrunk(dup, "world.shrunk6.dup1.shrunk7")
		e.SetName("solver.shrunken")
		f := shrunk(e, "solver.shrunken.shrunk8")
		f.SetName("shrunk1")
		g := shrunk(f, "shrunk1.shrunk9")
		g.SetName("x.replaced-1")
		shrunk(g, "x.replaced-1.shrunk10")
		var errs []error
		for _, c := range made {
			errs = append(errs, c.Free())
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Error(err)
	}
}
