package mpi_test

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
)

// The programs of docs/cookbook.md. TestCookbook compares the page with this file, and the examples run the code.

// exchangeHalos fills the first and the last row of a block of rows with the neighbours' rows.
func exchangeHalos(world *mpi.Comm, block [][]float64) error {
	up, down := world.Rank()-1, world.Rank()+1
	if up < 0 {
		up = mpi.ProcNull
	}
	if down == world.Size() {
		down = mpi.ProcNull
	}
	last := len(block) - 1
	var s mpi.Set
	s.Add(mpi.Irecv(world, block[0], up, 1))
	s.Add(mpi.Irecv(world, block[last], down, 2))
	s.Add(mpi.Isend(world, block[1], up, 2))
	s.Add(mpi.Isend(world, block[last-1], down, 1))
	// What needs no halo is computed here.
	return s.Wait()
}

func Example_cookbookHalo() {
	run(3, func(world *mpi.Comm) error {
		block := [][]float64{{-1}, {float64(10 * world.Rank())}, {float64(10*world.Rank() + 5)}, {-1}}
		if err := exchangeHalos(world, block); err != nil {
			return err
		}
		if world.Rank() == 1 {
			fmt.Println(block)
		}
		return nil
	})
	// Output: [[5] [10] [15] [20]]
}

type config struct {
	Name  string
	Steps int
	Sizes []int
}

// readConfig returns the configuration that rank 0 has read, at every rank. All ranks get an error of rank 0.
func readConfig(world *mpi.Comm, read func() (config, error)) (config, error) {
	type answer struct {
		Config config
		Failed string
	}
	var a answer
	if world.Rank() == 0 {
		c, err := read()
		if a.Config = c; err != nil {
			a.Failed = err.Error()
		}
	}
	a, err := mpi.BcastObject(world, a, 0)
	if err == nil && a.Failed != "" {
		err = errors.New(a.Failed)
	}
	return a.Config, err
}

func Example_cookbookConfig() {
	run(3, func(world *mpi.Comm) error {
		c, err := readConfig(world, func() (config, error) { return config{"heat", 100, []int{64, 64}}, nil })
		if err != nil {
			return err
		}
		_, err = readConfig(world, func() (config, error) { return config{}, errors.New("no such file") })
		if world.Rank() == 2 {
			fmt.Println(c, err)
		}
		return nil
	})
	// Output: {heat 100 [64 64]} no such file
}

// printHosts prints at rank 0 where each rank runs.
func printHosts(world *mpi.Comm, host string) error {
	hosts, err := mpi.GatherObjects(world, host, 0)
	for rank, h := range hosts { // which only rank 0 has
		fmt.Println("rank", rank, "on", h)
	}
	return err
}

func Example_cookbookStrings() {
	run(2, func(world *mpi.Comm) error { return printHosts(world, fmt.Sprint("node", 7+world.Rank())) })
	// Output:
	// rank 0 on node7
	// rank 1 on node8
}

// farm does the tasks 0 to n-1. Rank 0 hands them out; do is called at the other ranks. Rank 0 gets the results.
func farm(world *mpi.Comm, n int, do func(task int) float64) ([]float64, error) {
	const taskTag, resultTag = 1, 2
	type result struct {
		Task  int
		Value float64
	}
	if world.Rank() > 0 {
		done := result{Task: -1}
		for {
			if err := mpi.SendValue(world, done, 0, resultTag); err != nil {
				return nil, err
			}
			task, _, err := mpi.RecvValue[int](world, 0, taskTag)
			if err != nil || task < 0 {
				return nil, err
			}
			done = result{task, do(task)}
		}
	}
	results := make([]float64, n)
	if world.Size() == 1 { // there is no other rank
		for task := range results {
			results[task] = do(task)
		}
	}
	for next, busy := 0, world.Size()-1; busy > 0; next++ {
		r, status, err := mpi.RecvValue[result](world, mpi.AnySource, resultTag)
		if err != nil {
			return nil, err
		}
		if r.Task >= 0 {
			results[r.Task] = r.Value
		}
		task := next
		if next >= n {
			task, busy = -1, busy-1
		}
		if err := mpi.SendValue(world, task, status.Source, taskTag); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func Example_cookbookFarm() {
	run(3, func(world *mpi.Comm) error {
		squares, err := farm(world, 6, func(task int) float64 { return float64(task * task) })
		if world.Rank() == 0 {
			fmt.Println(squares)
		}
		return err
	})
	// Output: [0 1 4 9 16 25]
}

type state struct {
	Step  int
	Cells []float64
}

// save writes one file for each rank. A checkpoint counts when every rank has written its file: then rank 0 names it in
// the file "last".
func save(world *mpi.Comm, dir string, s state) error {
	name := filepath.Join(dir, fmt.Sprintf("step%d.rank%d", s.Step, world.Rank()))
	err := writeGob(name, s)
	failed, err2 := mpi.AllreduceValue(world, err != nil, mpi.LogicalOr)
	switch {
	case err != nil || err2 != nil:
		return errors.Join(err, err2)
	case failed:
		return errors.New("another rank could not write its checkpoint")
	case world.Rank() == 0:
		return writeGob(filepath.Join(dir, "last"), s.Step)
	}
	return nil
}

// load returns the state of the last checkpoint; before the first one, the zero state.
func load(world *mpi.Comm, dir string) (s state, err error) {
	step := -1
	if world.Rank() == 0 {
		if err := readGob(filepath.Join(dir, "last"), &step); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s, err // Main ends the other ranks
		}
	}
	if step, err = mpi.BcastValue(world, step, 0); err != nil || step < 0 {
		return s, err
	}
	err = readGob(filepath.Join(dir, fmt.Sprintf("step%d.rank%d", step, world.Rank())), &s)
	return s, err
}

// writeGob replaces a file at once, or not at all.
func writeGob(name string, v any) error {
	f, err := os.Create(name + ".new")
	if err != nil {
		return err
	}
	err = errors.Join(gob.NewEncoder(f).Encode(v), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func readGob(name string, v any) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return gob.NewDecoder(f).Decode(v)
}

func Example_cookbookCheckpoint() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	run(2, func(world *mpi.Comm) error {
		s, err := load(world, dir)
		for err == nil && s.Step < 25 {
			s.Cells = append(s.Cells, float64(world.Rank()))
			if s.Step++; s.Step%10 == 0 {
				err = save(world, dir, s)
			}
		}
		return err
	})
	run(2, func(world *mpi.Comm) error { // the job begins again
		s, err := load(world, dir)
		if world.Rank() == 1 {
			fmt.Println("from step", s.Step, "with", len(s.Cells), "cells, the last of them", s.Cells[len(s.Cells)-1])
		}
		return err
	})
	// Output: from step 20 with 20 cells, the last of them 1
}

// profiled runs f and writes a CPU profile of each rank that f runs in.
func profiled(world *mpi.Comm, dir string, f func() error) error {
	w, err := os.Create(filepath.Join(dir, fmt.Sprintf("cpu.%d.pprof", world.Rank())))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(w); err != nil {
		return errors.Join(err, w.Close())
	}
	err = f()
	pprof.StopCPUProfile()
	return errors.Join(err, w.Close())
}

func Example_cookbookProfile() {
	dir, err := os.MkdirTemp("", "profile")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	run(1, func(world *mpi.Comm) error {
		return profiled(world, dir, func() error { return mpi.Barrier(world) })
	})
	files, err := filepath.Glob(filepath.Join(dir, "cpu.*.pprof"))
	fmt.Println(len(files), err)
	// Output: 1 <nil>
}

// total is what the test below looks at: the sum of all ranks' numbers.
func total(world *mpi.Comm, mine []int) (int, error) {
	sum := 0
	for _, n := range mine {
		sum += n
	}
	return mpi.AllreduceValue(world, sum, mpi.Sum)
}

func TestTotal(t *testing.T) {
	for _, ranks := range []int{1, 2, 5} {
		err := mpi.RunLocal(ranks, func(world *mpi.Comm) error {
			got, err := total(world, []int{world.Rank(), 1})
			if want := ranks*(ranks-1)/2 + ranks; err == nil && got != want {
				err = fmt.Errorf("the total is %d, want %d", got, want)
			}
			return err // not t.Fatal: this is not the goroutine of the test
		})
		if err != nil {
			t.Errorf("%d ranks: %v", ranks, err)
		}
	}
}

// TestCookbook finds each piece of Go code of docs/cookbook.md in this file.
func TestCookbook(t *testing.T) {
	page, err := os.ReadFile("docs/cookbook.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_cookbook_test.go")
	if err != nil {
		t.Fatal(err)
	}
	pieces := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, p := range pieces {
		if !strings.Contains(string(code), "\n"+p[1]) {
			t.Errorf("this code of docs/cookbook.md is not in example_cookbook_test.go, which runs it:\n%s", p[1])
		}
	}
	if len(pieces) < 7 {
		t.Errorf("docs/cookbook.md has %d pieces of Go code", len(pieces))
	}
}
