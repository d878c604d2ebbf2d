package mpi

import (
	"errors"
	"strings"
	"testing"
)

// Goroutines have no launcher: Spawn is the same error at all ranks, with and without hooks, and the next call goes on.
func TestSpawnWithoutLauncher(t *testing.T) {
	for _, opts := range [][]Option{nil, {WithHooks(Hooks{Before: func(*Call) {}})}} {
		err := RunLocal(3, func(w *Comm) error {
			fromRoot := "rank 2: "
			if w.Rank() == 2 { // its own mistake
				fromRoot = "gorun -n N"
			}
			for _, c := range []struct {
				n       int
				command string
				root    int
				want    error
				text    string
			}{
				{1, "", 0, ErrUnavailable, "gorun -n N"}, {1, "/bin/true", 2, ErrUnavailable, fromRoot},
				{0, "", 0, ErrCount, "start 1 at least"}, {1, "", 3, ErrRoot, "the root is 3"},
				{1, "", -1, ErrRoot, "the root is -1"},
			} {
				d, err := Spawn(w, c.n, c.command, nil, SpawnRoot(c.root))
				if d != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("rank %d: Spawn of %d, root %d: %v, %v; want %v", w.Rank(), c.n, c.root, d, err, c.want)
				}
			}
			return Barrier(w)
		}, opts...)
		if err != nil {
			t.Error(err)
		}
	}
	if p := Parent(); p != nil {
		t.Errorf("this process was spawned by %s", p.Name())
	}
	if _, err := Spawn(nil, 1, "", nil); !errors.Is(err, ErrComm) {
		t.Errorf("Spawn on nil: %v", err)
	}
}

// An intercommunicator has no Spawn: its two groups would each start ranks.
func TestSpawnOnIntercommunicator(t *testing.T) {
	err := RunLocal(2, func(w *Comm) error {
		self := Self(w)
		inter, err := self.Intercomm(0, w, 1-w.Rank(), 3)
		if err != nil {
			return err
		}
		if _, err := Spawn(inter, 1, "", nil); !errors.Is(err, ErrComm) {
			t.Errorf("%v", err)
		}
		return inter.Free()
	})
	if err != nil {
		t.Error(err)
	}
}
