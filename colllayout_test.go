package mpi

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

// cells is a matrix of rows × n of which element (r, c) is tag·10⁶ + 1000·r + c.
func cells(tag, rows, n int) []float64 {
	m := matrix(rows, n)
	for i := range m {
		m[i] += 1e6 * float64(tag)
	}
	return m
}

// columns are the layouts of the columns of a matrix of so many rows and n columns.
func columns(rows, n int) (all []Layout) {
	for c := range n {
		all = append(all, column(rows, n, c))
	}
	return all
}

// rowsOf are those of its rows.
func rowsOf(rows, n int) (all []Layout) {
	for r := range rows {
		all = append(all, Indexed([]int{n}, []int{r * n}, Of[float64]()))
	}
	return all
}

// callBy makes a call in one of the ways.
type callBy func(w *Comm, plan func(w *Comm, v coll.Way) (*coll.Plan, error)) error

func callBlocking(w *Comm, plan func(w *Comm, v coll.Way) (*coll.Plan, error)) error {
	return w.perform(plan(w, coll.Blocking))
}

func callNonblocking(w *Comm, plan func(w *Comm, v coll.Way) (*coll.Plan, error)) error {
	_, err := ok(w.start(plan(w, coll.Nonblocking))).Wait()
	return err
}

func callPersistent(w *Comm, plan func(w *Comm, v coll.Way) (*coll.Plan, error)) error {
	r := ok(w.keep(plan(w, coll.Persistent)))
	must(r.Start())
	_, err := r.Wait()
	must(r.Free())
	return err
}

// A persistent call packs what is there when it is started.
func TestPersistentLayouts(t *testing.T) {
	over(t)(3, func(w *Comm) {
		m := make([]int32, 30)
		r := ok(BcastLayoutInit(w, m, Vector(10, 1, 3, Of[int32]()), 1))
		for turn := range int32(3) {
			if w.Rank() == 1 {
				for i := range m {
					m[i] = 100*turn + int32(i)
				}
			}
			must(r.Start())
			ok(r.Wait())
			for i := range m {
				if i%3 == 0 || w.Rank() == 1 {
					same(m[i], 100*turn+int32(i))
				} else {
					same(m[i], 0)
				}
			}
		}
		must(r.Free())
	})
}

// §6.4–6.8: each call that moves data, with layouts that differ at its two ends: what is a row here is a column there.
// Others' memory is not touched.
func TestCollectiveLayouts(t *testing.T) {
	calls := func(w *Comm, k int, by callBy) {
		me, size := w.Rank(), w.Size()
		n := k * size
		for root := 0; root < size; root += max(1, size-1) {
			// Column 1 of a matrix of 3 at the root, a slice elsewhere.
			m, l := make([]float64, n), Contiguous(n, Of[float64]())
			if me == root {
				m, l = cells(0, n, 3), column(n, 3, 1)
			}
			must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) { return planBcastLayout(w, v, m, l, root) }))
			for i := range n {
				at := i
				if me == root {
					at = 3*i + 1
				}
				same(m[at], float64(1000*i+1))
			}

			// Every rank's row becomes a column.
			row := cells(me, 1, k)
			var all []float64
			if me == root {
				all = make([]float64, k*size)
			}
			want := make([]float64, k*size)
			for i := range want {
				want[i] = 1e6*float64(i%size) + float64(i/size)
			}
			must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) {
				return planGatherw(w, v, row, Contiguous(k, Of[float64]()), all, columns(k, size), root)
			}))
			if me == root {
				equal("Gatherw", all, want)
				clear(all)
				ok(Unpack(ok(Pack(nil, row, Contiguous(k, Of[float64]()))), all, column(k, size, me)))
				must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) {
					return planGatherw(w, v, []float64(nil), Layout{}, all, columns(k, size), root)
				}))
				equal("Gatherw in place", all, want)
			} else {
				must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) {
					return planGatherw(w, v, row, Contiguous(k, Of[float64]()), all, nil, root)
				}))
			}

			// And back, every second element.
			back := make([]float64, 2*k)
			must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) {
				return planScatterw(w, v, all, columns(k, size), back, Vector(k, 1, 2, Of[float64]()), root)
			}))
			for i := range k {
				same([2]float64{back[2*i], back[2*i+1]}, [2]float64{row[i], 0})
			}
			if me == root {
				must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) {
					return planScatterw(w, v, all, columns(k, size), []float64(nil), Layout{}, root)
				}))
			} else {
				must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) {
					return planScatterw(w, v, all, nil, back, Vector(k, 1, 2, Of[float64]()), root)
				}))
			}

			every := make([]float64, k*size)
			must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) {
				return planAllgatherw(w, v, row, Contiguous(k, Of[float64]()), every, columns(k, size))
			}))
			equal("Allgatherw", every, want)
			clear(every)
			ok(Unpack(ok(Pack(nil, row, Contiguous(k, Of[float64]()))), every, column(k, size, me)))
			must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) {
				return planAllgatherw(w, v, []float64(nil), Layout{}, every, columns(k, size))
			}))
			equal("Allgatherw in place", every, want)
		}

		// A matrix of size columns at each rank: column i goes to rank i, which makes it row me.
		from, to := cells(me, k, size), make([]float64, k*size)
		must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) {
			return planAlltoallw(w, v, from, columns(k, size), to, rowsOf(size, k))
		}))
		for i := range to {
			same(to[i], 1e6*float64(i/k)+1000*float64(i%k)+float64(me))
		}
		must(by(w, func(w *Comm, v coll.Way) (*coll.Plan, error) {
			return planAlltoallw(w, v, []float64(nil), nil, from, columns(k, size))
		}))
		for i := range from {
			same(from[i], 1e6*float64(i%size)+1000*float64(i/size)+float64(me))
		}
	}
	everywhere(t, func(t *testing.T, run runner) {
		for _, n := range []int{1, 3, 4} {
			for _, k := range []int{0, 1, 5, inShort(4000, 1200)} {
				run(n, func(w *Comm) { calls(w, k, callBlocking) })
				run(n, func(w *Comm) { calls(w, k, callNonblocking) }, unchecked())
				run(n, func(w *Comm) { calls(w, k, callPersistent) })
			}
		}
		run(3, func(w *Comm) { calls(w, 7, callBlocking) }, unchecked())
		for _, by := range []callBy{callBlocking, callNonblocking, callPersistent} {
			run(3, func(w *Comm) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				calls(w.WithContext(ctx), 50, by)
			})
		}
	})
}

// A layout that is one run is moved from where it lies to where it lies: the call's plan has the caller's memory.
func TestContiguousLayoutsAreNotCopied(t *testing.T) {
	over(t)(2, func(w *Comm) {
		m := cells(w.Rank(), 2, 100)
		p := ok(planAlltoallw(w, coll.Blocking, m, rowsOf(2, 100), make([]float64, 200), columns(100, 2)))
		same(p.Packed(), 2)
		in := p.Blocks(collectives.In)
		check(&in[0][0] == &bytesOf(m)[0] && &in[1][0] == &bytesOf(m[100:])[0], "rows have been copied")
		p = ok(planBcastLayout(w, coll.Blocking, m[3:], Contiguous(7, Of[float64]()), 0))
		out := p.Blocks(collectives.Out)[0]
		check(p.Packed() == 0 && &out[0] == &bytesOf(m[3:])[0], "a slice has been copied")
	})
}

// §8.6.4: the border of each part of a grid goes to its neighbours, columns and rows alike, and beyond the grid's edge
// nothing is touched.
func TestNeighborAlltoallw(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(6, func(w *Comm) {
			c := ok(w.Cart([]int{3, 2}, []bool{false, true}, false))
			const n = 5 // 3 × 3 inside of a border
			m := make([]float64, n*n)
			for i := range m {
				m[i] = -1
				if r, q := i/n, i%n; r > 0 && r < n-1 && q > 0 && q < n-1 {
					m[i] = float64(100*(c.Rank()+1) + i)
				}
			}
			part := func(rows, cols, r, q int) Layout {
				return Subarray([]int{n, n}, []int{rows, cols}, []int{r, q}, OrderC, Of[float64]())
			}
			to := []Layout{part(1, 3, 1, 1), part(1, 3, n-2, 1), part(3, 1, 1, 1), part(3, 1, 1, n-2)}
			from := []Layout{part(1, 3, 0, 1), part(1, 3, n-1, 1), part(3, 1, 1, 0), part(3, 1, 1, n-1)}
			must(NeighborAlltoallw(c, m, to, m, from))
			sources, _, err := c.Neighbors()
			must(err)
			for i := range m {
				r, q := i/n, i%n
				at, its := -1, 0 // which neighbour, and where it has the element
				switch {
				case q > 0 && q < n-1 && r == 0:
					at, its = 0, (n-2)*n+q
				case q > 0 && q < n-1 && r == n-1:
					at, its = 1, n+q
				case r > 0 && r < n-1 && q == 0:
					at, its = 2, r*n+n-2
				case r > 0 && r < n-1 && q == n-1:
					at, its = 3, r*n+1
				case r > 0 && r < n-1:
					same(m[i], float64(100*(c.Rank()+1)+i))
					continue
				}
				want := -1.0
				if at >= 0 && sources[at] >= 0 {
					want = float64(100*(sources[at]+1) + its)
				}
				same(m[i], want)
			}
		})
	})
}

// layoutCall is a call with layouts by its public names, which writes to memory that is all 0 before, and what checks
// it.
type layoutCall struct {
	name        string
	run         func(c *Comm) error
	start, keep func(c *Comm) (*Request, error)
	check       func()
}

// every makes the call in every way.
func (l layoutCall) every(c *Comm, out []float64) {
	for _, by := range []func(c *Comm) error{
		l.run,
		func(c *Comm) error { return waited(l.start(c)) },
		func(c *Comm) error { return startedOnce(l.keep(c)) },
	} {
		clear(out)
		must(by(c))
		l.check()
		must(Barrier(c))
	}
}

// refused: its errors have its name.
func (l layoutCall) refused(gone *Comm) {
	for v, err := range []error{l.run(gone), second(l.start(gone)), second(l.keep(gone))} {
		is(err, ErrComm)
		check(strings.HasPrefix(err.Error(), "mpi: "+coll.Way(v).Named(l.name)+" on "), "%v", err)
	}
}

// Each call with layouts does by each of its public names what it should.
func TestLayoutCallsByName(t *testing.T) {
	over(t)(3, func(w *Comm) {
		const k, root = 4, 1
		me, n := w.Rank(), w.Size()
		ring, gone := ok(w.Cart([]int{n}, []bool{true}, false)), ok(w.Cart([]int{n}, []bool{true}, false))
		must(gone.Free())
		all, mine, row, out := cells(9, k, n), cells(me, k, n), cells(me, 1, k), make([]float64, k*n)
		one, cols, rows := Contiguous(k, Of[float64]()), columns(k, n), rowsOf(n, k)
		shared, first := out, column(k, n, 0)
		if me == root {
			shared = all
		}
		// holds: out has what value says, anywhere else 0.
		holds := func(name string, value func(i int) float64) func() {
			want := make([]float64, k*n)
			for i := range want {
				want[i] = value(i)
			}
			return func() { equal(name, out, want) }
		}
		zero := func(i int) float64 { return 0 }
		transposed := func(i int) float64 { return 1e6*float64(i%n) + float64(i/n) }
		got := map[string]func(i int) float64{
			"BcastLayout": func(i int) float64 {
				if me == root || i%n != 0 {
					return 0
				}
				return all[i]
			},
			"Gatherw": zero,
			"Scatterw": func(i int) float64 {
				if i >= k {
					return 0
				}
				return all[i*n+me]
			},
			"Allgatherw": transposed,
			"Alltoallw":  func(i int) float64 { return 1e6*float64(i/k) + 1000*float64(i%k) + float64(me) },
			"NeighborAlltoallw": func(i int) float64 { // the left one's column 1, and the right one's column 0
				switch left, right := (me+n-1)%n, (me+1)%n; {
				case i < k:
					return 1e6*float64(left) + 1000*float64(i) + 1
				case i < 2*k:
					return 1e6*float64(right) + 1000*float64(i-k)
				}
				return 0
			},
		}
		if me == root {
			got["Gatherw"] = transposed
		}
		for _, l := range []layoutCall{
			{"BcastLayout", func(c *Comm) error { return BcastLayout(c, shared, first, root) },
				func(c *Comm) (*Request, error) { return IbcastLayout(c, shared, first, root) },
				func(c *Comm) (*Request, error) { return BcastLayoutInit(c, shared, first, root) }, nil},
			{"Gatherw", func(c *Comm) error { return Gatherw(c, row, one, out, cols, root) },
				func(c *Comm) (*Request, error) { return Igatherw(c, row, one, out, cols, root) },
				func(c *Comm) (*Request, error) { return GatherwInit(c, row, one, out, cols, root) }, nil},
			{"Scatterw", func(c *Comm) error { return Scatterw(c, all, cols, out, one, root) },
				func(c *Comm) (*Request, error) { return Iscatterw(c, all, cols, out, one, root) },
				func(c *Comm) (*Request, error) { return ScatterwInit(c, all, cols, out, one, root) }, nil},
			{"Allgatherw", func(c *Comm) error { return Allgatherw(c, row, one, out, cols) },
				func(c *Comm) (*Request, error) { return Iallgatherw(c, row, one, out, cols) },
				func(c *Comm) (*Request, error) { return AllgatherwInit(c, row, one, out, cols) }, nil},
			{"Alltoallw", func(c *Comm) error { return Alltoallw(c, mine, cols, out, rows) },
				func(c *Comm) (*Request, error) { return Ialltoallw(c, mine, cols, out, rows) },
				func(c *Comm) (*Request, error) { return AlltoallwInit(c, mine, cols, out, rows) }, nil},
			{"NeighborAlltoallw", func(c *Comm) error { return NeighborAlltoallw(c, mine, cols[:2], out, rows[:2]) },
				func(c *Comm) (*Request, error) { return IneighborAlltoallw(c, mine, cols[:2], out, rows[:2]) },
				func(c *Comm) (*Request, error) { return NeighborAlltoallwInit(c, mine, cols[:2], out, rows[:2]) }, nil},
		} {
			l.check = holds(l.name, got[l.name])
			l.every(ring, out)
			l.refused(gone)
		}
	})
}

// Every collective call has its three names, and a test calls each of them.
func TestCollectiveNames(t *testing.T) {
	exported, used := map[string]bool{}, map[string]bool{}
	for _, file := range ok(filepath.Glob("*.go")) {
		f := ok(parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution))
		if !strings.HasSuffix(file, "_test.go") {
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil {
					exported[d.Name.Name] = true
				}
			}
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if n, ok := n.(*ast.Ident); ok {
				used[n.Name] = true
			}
			return true
		})
	}
	for v, names := range coll.CallNames {
		for _, name := range append(names[:], coll.Way(v).Named("BcastLayout"), coll.Way(v).Named("Gatherw"),
			coll.Way(v).Named("Scatterw"), coll.Way(v).Named("Allgatherw")) {
			if !exported[name] || !used[name] {
				t.Errorf("%q: there is such a call: %v; a test names it: %v", name, exported[name], used[name])
			}
		}
	}
}

// What does not fit together is an error at all ranks that names it, and the communicator stays usable.
func TestCollectiveLayoutMistakes(t *testing.T) {
	over(t)(3, func(w *Comm) {
		m := make([]float64, 30)
		f := Of[float64]()
		says := func(err, class error, text string) {
			is(err, class)
			check(strings.Contains(err.Error(), text), "%v; want %q", err, text)
		}
		three := columns(1, 3)
		says(BcastLayout(w, m, Contiguous(31, f), 0), ErrCount, "the layout needs 248 bytes, the buffer has 240")
		says(BcastLayout(w, m, Layout{}, 0), ErrType, "zero value")
		says(BcastLayout(w, m, f, 3), ErrRoot, "BcastLayout: the root is 3")
		says(BcastLayout(w, m, Contiguous(w.Rank()+1, f), 0), ErrCount, "with 8 elements for each block")
		twice := Vector(2, 2, 1, f)
		says(BcastLayout(w, m, twice, 1), ErrType, "names some memory twice")
		says(Alltoallw(w, m, three[1:], m, three), ErrCount, "to has 2 layouts")
		bad := []Layout{three[0], three[1], twice}
		says(Alltoallw(w, m, three, m, bad), ErrType, "from[2]: the layout names some memory twice")
		other := columns(1, 3)
		if w.Rank() == 1 {
			other[2] = Contiguous(2, f)
		}
		says(Alltoallw(w, m[:10], other, m[10:], three), ErrCount, "with 16 elements for rank 2")
		says(Gatherw(w, m, Contiguous(2, f), m[10:], three, 0), ErrCount, "for itself has 16 bytes in send and 8 in recv")
		if w.Rank() == 2 {
			says(Bcast(w, m, 0), ErrType, "")
		} else {
			says(BcastLayout(w, m, Contiguous(30, f), 0), ErrType, "")
		}
		says(NeighborAlltoallw(w, m, three, m, three), ErrTopology, "no topology")
		var none *Comm
		is(Alltoallw(none, m, three, m, three), ErrComm)
		is(Alltoallw(w, []string{}, three, m, three), ErrType)
		must(Barrier(w))
	})
}
