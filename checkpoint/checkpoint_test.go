package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/checkpoint"
)

// vectorOf is the slice of a rank at a step, of another length at each rank.
func vectorOf(rank, step int) []float64 {
	v := make([]float64, 1000*(rank+1))
	for i := range v {
		v[i] = float64(rank*1_000_000 + step*10_000 + i)
	}
	return v
}

// member is a rank with its slices and their store.
type member struct {
	s     *checkpoint.Store
	v     []float64
	count []int32
}

func join(c *mpi.Comm, options ...checkpoint.Option) (*member, int64, bool, error) {
	m := &member{s: checkpoint.New(options...), v: make([]float64, 1000*(c.Rank()+1)), count: make([]int32, 3)}
	if err := errors.Join(checkpoint.Add(m.s, m.v), checkpoint.Add(m.s, m.count)); err != nil {
		return nil, 0, false, err
	}
	step, found, err := m.s.Restore(c)
	return m, step, found, err
}

func (m *member) at(c *mpi.Comm, step int) {
	copy(m.v, vectorOf(c.Rank(), step))
	m.count[2] = int32(step)
}

func (m *member) is(t *testing.T, c *mpi.Comm, step int) {
	t.Helper()
	if !slices.Equal(m.v, vectorOf(c.Rank(), step)) || m.count[2] != int32(step) {
		t.Errorf("rank %d does not have the slices of step %d", c.Rank(), step)
	}
}

// Every pair of ranks is lost after a Save, with two partners each; and the one before the last is overwritten.
func TestRestore(t *testing.T) {
	const n = 4
	err := mpi.RunLocal(n, func(c *mpi.Comm) error {
		m, _, found, err := join(c, checkpoint.Partners(2))
		if err != nil || found {
			t.Errorf("a job that begins: found %v, %v", found, err)
			return err
		}
		step := 1
		for a := range n {
			for b := range n {
				for range 3 {
					m.at(c, step)
					if err := m.s.Save(int64(step)); err != nil {
						return err
					}
					step++
				}
				m.at(c, 99) // what the death of a rank has spoiled
				if c.Rank() == a || c.Rank() == b {
					m = &member{s: checkpoint.New(checkpoint.Partners(2)), v: make([]float64, 1000*(c.Rank()+1)),
						count: make([]int32, 3)}
					if err := errors.Join(checkpoint.Add(m.s, m.v), checkpoint.Add(m.s, m.count)); err != nil {
						return err
					}
				}
				got, found, err := m.s.Restore(c)
				if err != nil {
					return err
				}
				if !found || got != int64(step-1) {
					t.Errorf("ranks %d and %d are lost: found %v, step %d, not %d", a, b, found, got, step-1)
				}
				m.is(t, c, step-1)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A rank and its only partner are lost: all ranks hear it.
func TestAllCopiesLost(t *testing.T) {
	err := mpi.RunLocal(3, func(c *mpi.Comm) error {
		m, _, _, err := join(c)
		if err != nil {
			return err
		}
		for step := range 2 {
			if err := m.s.Save(int64(step)); err != nil {
				return err
			}
		}
		if c.Rank() < 2 {
			_, _, _, err = join(c)
		} else {
			_, _, err = m.s.Restore(c)
		}
		if !errors.Is(err, checkpoint.ErrLost) {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// All memory is lost, and the files are there; one of them is damaged, so that the partner's would be needed.
func TestFiles(t *testing.T) {
	const n = 3
	dir := t.TempDir()
	job := func(body func(c *mpi.Comm) error) {
		t.Helper()
		if err := mpi.RunLocal(n, body); err != nil {
			t.Error(err)
		}
	}
	job(func(c *mpi.Comm) error {
		m, _, _, err := join(c, checkpoint.Dir(dir))
		for step := 1; err == nil && step < 5; step++ {
			m.at(c, step)
			err = m.s.Save(int64(step))
		}
		return err
	})
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2*n {
		t.Fatalf("%v, %v", files, err)
	}
	job(func(c *mpi.Comm) error {
		m, step, found, err := join(c, checkpoint.Dir(dir))
		if err == nil && (!found || step != 4) {
			t.Errorf("found %v, step %d", found, step)
		}
		if err == nil {
			m.is(t, c, 4)
			m.at(c, 5)
			err = m.s.Save(5)
		}
		return err
	})
	job(func(c *mpi.Comm) error { // which has 5 as both of its checkpoints afterwards
		_, step, _, err := join(c, checkpoint.Dir(dir))
		if err == nil && step != 5 {
			t.Errorf("step %d of the job that went on", step)
		}
		return err
	})
	// The newest file of rank 1 is damaged: the checkpoint before it is still whole.
	newest := func() string {
		var name string
		var at int64
		for i := range 2 {
			p := filepath.Join(dir, []string{"rank-00001.0", "rank-00001.1"}[i])
			if s, err := os.Stat(p); err == nil && s.ModTime().UnixNano() > at {
				name, at = p, s.ModTime().UnixNano()
			}
		}
		return name
	}
	b, err := os.ReadFile(newest())
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 60, len(b) - 1} {
		damaged := slices.Clone(b)
		damaged[at] ^= 1
		if err := os.WriteFile(newest(), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		job(func(c *mpi.Comm) error {
			m, step, found, err := join(c, checkpoint.Dir(dir), checkpoint.Partners(0))
			if err == nil && (!found || step != 5) {
				t.Errorf("byte %d is damaged: found %v, step %d", at, found, step)
			}
			if err == nil {
				m.is(t, c, 5)
			}
			return err
		})
		if b, err = os.ReadFile(newest()); err != nil {
			t.Fatal(err)
		}
	}
}

// What a program can do wrong is an error, at each rank that should know.
func TestMistakes(t *testing.T) {
	if err := checkpoint.Add(checkpoint.New(), []string{"a"}); !errors.Is(err, mpi.ErrType) {
		t.Errorf("Add of strings: %v", err)
	}
	if err := checkpoint.New().Save(1); !errors.Is(err, mpi.ErrRequest) {
		t.Errorf("Save before Restore: %v", err)
	}
	err := mpi.RunLocal(2, func(c *mpi.Comm) error {
		if _, _, err := checkpoint.New(checkpoint.Partners(c.Rank())).Restore(c); !errors.Is(err, mpi.ErrCount) {
			t.Errorf("different Partners: %v", err)
		}
		s := checkpoint.New()
		if _, _, err := s.Restore(c); err != nil {
			return err
		}
		if err := checkpoint.Add(s, []int{1}); !errors.Is(err, mpi.ErrRequest) {
			t.Errorf("Add after Restore: %v", err)
		}
		m, _, _, err := join(c)
		if err != nil {
			return err
		}
		if err := m.s.Save(7); err != nil {
			return err
		}
		// Steps that differ spoil an attempt, and only that.
		m.at(c, 1)
		if err := m.s.Save(int64(8 + c.Rank())); !errors.Is(err, checkpoint.ErrIncomplete) {
			t.Errorf("different steps: %v", err)
		}
		if err := m.s.Save(9); err != nil {
			return err
		}
		// Another length than the checkpoint has.
		if c.Rank() == 0 {
			m = &member{s: checkpoint.New()}
			if err := checkpoint.Add(m.s, make([]byte, 10)); err != nil {
				return err
			}
		}
		if _, _, err := m.s.Restore(c); !errors.Is(err, mpi.ErrCount) {
			t.Errorf("another length: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	err = mpi.RunLocal(3, func(c *mpi.Comm) error {
		m, _, _, err := join(c)
		if err == nil {
			err = m.s.Save(1)
		}
		if err != nil {
			return err
		}
		color := 0
		if c.Rank() == 2 {
			color = mpi.Undefined
		}
		less, err := c.Split(color, 0)
		if err != nil || less == nil {
			return err
		}
		if _, _, err := m.s.Restore(less); !errors.Is(err, mpi.ErrComm) {
			t.Errorf("two ranks of three: %v", err)
		}
		return less.Free()
	})
	if err != nil {
		t.Error(err)
	}
}

// A rank that cannot write its file says so, the others name it, and the next Save is right.
func TestFolderIsGone(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	err := mpi.RunLocal(2, func(c *mpi.Comm) error {
		dir := dirs[c.Rank()]
		m, _, _, err := join(c, checkpoint.Dir(dir))
		if err == nil {
			err = m.s.Save(1)
		}
		if err == nil && c.Rank() == 1 {
			err = os.Rename(dir, dir+".gone")
		}
		if err != nil {
			return err
		}
		err = m.s.Save(2)
		if !errors.Is(err, checkpoint.ErrIncomplete) || c.Rank() == 1 && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
		if c.Rank() == 1 {
			if err := os.Rename(dir+".gone", dir); err != nil {
				return err
			}
		}
		m.at(c, 3)
		if err := m.s.Save(3); err != nil {
			return err
		}
		if c.Rank() == 0 {
			m, _, _, err = join(c)
		} else {
			_, _, err = m.s.Restore(c)
		}
		if err == nil {
			m.is(t, c, 3)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
