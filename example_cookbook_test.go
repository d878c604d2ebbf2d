package mpi_test

import (
	"encoding/gob"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
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

// shareConfig gives every rank the configuration of rank 0.
func shareConfig(world *mpi.Comm, c config) (config, error) {
	return mpi.BcastObject(world, c, 0)
}

// gatherNames gives rank 0 the names of all ranks, in the order of the ranks, and the other ranks nil.
func gatherNames(world *mpi.Comm, name string) ([]string, error) {
	return mpi.GatherObjects(world, name, 0)
}

// exchangeEdges exchanges an edge with each of four neighbours, up, down, left and right: eight requests.
func exchangeEdges(grid *mpi.Comm, neighbours [4]int, in, out [4][]float64) error {
	var s mpi.Set
	for i, rank := range neighbours {
		s.Add(mpi.Irecv(grid, in[i], rank, i))
		s.Add(mpi.Isend(grid, out[i], rank, i^1)) // my upper edge is the neighbour's lower one
	}
	return s.Wait()
}

func Example_cookbookOneLine() {
	run(4, func(world *mpi.Comm) error {
		c, err := shareConfig(world, config{Name: fmt.Sprint("of rank ", world.Rank())})
		if err != nil {
			return err
		}
		names, err := gatherNames(world, fmt.Sprint("node", 7+world.Rank()))
		if err != nil {
			return err
		}
		grid, err := world.Cart([]int{2, 2}, []bool{true, true}, false)
		if err != nil {
			return err
		}
		var neighbours [4]int
		var in, out [4][]float64
		for dim := range 2 {
			if neighbours[2*dim], neighbours[2*dim+1], err = grid.Shift(dim, 1); err != nil {
				return err
			}
		}
		for i := range in { // edge i of rank r is 10r + i
			in[i], out[i] = make([]float64, 1), []float64{float64(10*grid.Rank() + i)}
		}
		if err := exchangeEdges(grid, neighbours, in, out); err != nil {
			return err
		}
		counts, err := mpi.GatherValues(world, len(names), 0)
		if world.Rank() == 0 {
			fmt.Println(c.Name, names, counts)
			fmt.Println(neighbours, in)
		}
		return err
	})
	// Output:
	// of rank 0 [node7 node8 node9 node10] [4 0 0 0]
	// [2 2 1 1] [[21] [20] [13] [12]]
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

// putEdges writes the outermost rows of this rank's block into its neighbours' halos. The window has the block, in rows
// of so many elements, with a row more at each side; all ranks have blocks of one size.
func putEdges(world *mpi.Comm, win *mpi.Win[float64], width int) error {
	up, down := world.Rank()-1, world.Rank()+1
	if up < 0 {
		up = mpi.ProcNull
	}
	if down == world.Size() {
		down = mpi.ProcNull
	}
	block := win.Local()
	halo := len(block) - width // where the lower halo begins
	return errors.Join(
		win.Fence(), // the neighbours have read their halos
		win.Put(block[width:2*width], up, int64(halo)),
		win.Put(block[halo-width:halo], down, 0),
		win.Fence(), // the rows are there
	)
}

func Example_cookbookPut() {
	run(3, func(world *mpi.Comm) error {
		const width = 2
		win, err := mpi.WinAlloc[float64](world, 4*width)
		if err != nil {
			return err
		}
		for i := range win.Local() {
			win.Local()[i] = float64(10*world.Rank() + i/width)
		}
		err = putEdges(world, win, width)
		if world.Rank() == 1 {
			fmt.Println(win.Local())
		}
		return errors.Join(err, win.Free())
	})
	// Output: [2 2 11 11 12 12 21 21]
}

// takeTasks calls do with the tasks 0 to n-1, each at one rank, which takes the next task when it is free.
func takeTasks(world *mpi.Comm, n int64, do func(task int64)) error {
	own := 0 // elements of the window at this rank
	if world.Rank() == 0 {
		own = 1
	}
	counter, err := mpi.WinAlloc[int64](world, own)
	if err != nil {
		return err
	}
	if err := counter.LockAll(); err != nil {
		return err
	}
	for {
		task, err := counter.FetchOp(mpi.Sum, 1, 0, 0) // 1 to element 0 of rank 0
		if err != nil {
			return err
		}
		if task >= n {
			break
		}
		do(task)
	}
	return errors.Join(counter.UnlockAll(), counter.Free())
}

func Example_cookbookTasks() {
	var done [10]atomic.Int32
	run(3, func(world *mpi.Comm) error {
		return takeTasks(world, 10, func(task int64) { done[task].Add(1) })
	})
	for task := range done {
		fmt.Print(done[task].Load(), " ")
	}
	// Output: 1 1 1 1 1 1 1 1 1 1
}

// table has elements at each rank, which every rank reads and changes.
type table struct {
	win *mpi.Win[int64]
	per int // elements at each rank
}

func newTable(world *mpi.Comm, per int) (table, error) {
	win, err := mpi.WinAlloc[int64](world, per)
	return table{win, per}, err
}

// update replaces element i by what change makes of it.
func (t table) update(i int, change func(int64) int64) error {
	rank, at := i/t.per, int64(i%t.per)
	if err := t.win.Lock(rank, mpi.Exclusive); err != nil {
		return err
	}
	element := make([]int64, 1)
	err := errors.Join(t.win.Get(element, rank, at), t.win.Flush(rank))
	if err == nil {
		element[0] = change(element[0])
		err = t.win.Put(element, rank, at)
	}
	return errors.Join(err, t.win.Unlock(rank))
}

func (t table) read(i int) (int64, error) {
	rank, element := i/t.per, make([]int64, 1)
	if err := t.win.Lock(rank, mpi.Shared); err != nil {
		return 0, err
	}
	err := errors.Join(t.win.Get(element, rank, int64(i%t.per)), t.win.Unlock(rank))
	return element[0], err
}

func Example_cookbookTable() {
	run(3, func(world *mpi.Comm) error {
		t, err := newTable(world, 2)
		if err != nil {
			return err
		}
		for i := range 6 {
			if err := t.update(i, func(n int64) int64 { return n + int64(i) }); err != nil {
				return err
			}
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		if world.Rank() == 0 {
			last, err := t.read(5)
			if err != nil {
				return err
			}
			fmt.Println("element 5 is", last)
		}
		return t.win.Free()
	})
	// Output: element 5 is 15
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

// TestCookbook finds each piece of Go code of docs/cookbook.md in this file. A configuration and strings take a line,
// and an exchange with eight requests nine lines at most.
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
	if len(pieces) < 9 {
		t.Errorf("docs/cookbook.md has %d pieces of Go code", len(pieces))
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	goals := map[string]int{"shareConfig": 1, "gatherNames": 1, "exchangeEdges": 9}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || goals[f.Name.Name] == 0 {
			continue
		}
		body := strings.TrimSpace(string(code[f.Body.Lbrace : f.Body.Rbrace-1]))
		if n := strings.Count(body, "\n") + 1; n > goals[f.Name.Name] {
			t.Errorf("%s has %d lines, of at most %d:\n%s", f.Name.Name, n, goals[f.Name.Name], body)
		}
		delete(goals, f.Name.Name)
	}
	if len(goals) > 0 {
		t.Errorf("there is no function for %v", goals)
	}
}
