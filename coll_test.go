package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// unchecked is without GORUN_COLL_CHECK, which is on in RunLocal.
func unchecked(env ...string) Option { return WithEnviron(append(env, "GORUN_COLL_CHECK=0")) }

// period is after how many elements the contents of a buffer begin again: no multiple of what calls cut them into.
const period = 97 * 5

// tiled is n elements, at(0) and so on in each period. Copying is fast with the race detector too, which sees it.
func tiled[T any](n int, at func(k int) T) []T {
	v := make([]T, n)
	for k := range min(n, period) {
		v[k] = at(k)
	}
	for k := period; k < n; k *= 2 {
		copy(v[k:], v[:k])
	}
	return v
}

// cell is element k of what rank has for rank to.
func cell[T Integer](rank, to, k int) T { return T(rank*31 + to*7 + k%97 + 1) }

func vector[T Integer](rank, to, n int) []T {
	return tiled(n, func(k int) T { return cell[T](rank, to, k) })
}

// uneven is how many elements rank i has for rank j in the v forms: some have none.
func uneven(i, j, n int) int { return n * ((i*7 + j*3 + i*j) % 4) / 2 }

func equal[T comparable](what string, got, want []T) {
	check(len(got) == len(want), "%s: %d elements, want %d", what, len(got), len(want))
	if bytes.Equal(bytesOf(got), bytesOf(want)) { // which is fast, and the race detector sees that they are read
		return
	}
	for i := range got {
		check(got[i] == want[i], "%s: element %d of %d is %v, want %v", what, i, len(got), got[i], want[i])
	}
}

// joined is what all ranks have for rank to, one after the other.
func joined[T Integer](size, to, n int) (all []T) {
	for i := range size {
		all = append(all, vector[T](i, to, n)...)
	}
	return all
}

// summed is the sum of the vectors of ranks from low to below high.
func summed[T Integer](low, high, to, n int) []T {
	return tiled(n, func(k int) (sum T) {
		for i := low; i < high; i++ {
			sum += cell[T](i, to, k)
		}
		return sum
	})
}

// affine is x ↦ A·x + B, modulo 2^32: composition is associative and does not commute.
type affine struct{ A, B uint32 }

func compose(inout, in []affine) {
	for i, first := range in {
		inout[i] = first.before(inout[i])
	}
}

func (first affine) before(then affine) affine {
	return affine{A: first.A * then.A, B: first.B*then.A + then.B}
}

// affineOf is element k of what rank has.
func affineOf(rank, k int) affine { return affine{uint32(2*rank + 3 + k%5), uint32(rank*rank + k)} }

func affines(rank, n int) []affine { return tiled(n, func(k int) affine { return affineOf(rank, k) }) }

// composed is what the affines of ranks from low to below high give, in the order of the ranks.
func composed(low, high, n int) []affine {
	return tiled(n, func(k int) affine {
		v := affineOf(low, k)
		for i := low + 1; i < high; i++ {
			v = v.before(affineOf(i, k))
		}
		return v
	})
}

// moves makes every call that moves data, with n elements.
func moves[T Integer](w *Comm, n int) { movesBy[T](coll.Blocking, w, n) }

func movesBy[T Integer](h coll.Way, w *Comm, n int) {
	me, size := w.Rank(), w.Size()
	must(byBarrier(h, w))
	for root := 0; root < size; root += max(1, size-2) {
		buf := make([]T, n)
		if me == root {
			buf = vector[T](root, 1, n)
		}
		must(byBcast(h, w, buf, root))
		equal("Bcast", buf, vector[T](root, 1, n))

		var all []T
		if me == root {
			all = make([]T, n*size)
		}
		must(byGather(h, w, vector[T](me, root, n), all, root))
		if me == root {
			equal("Gather", all, joined[T](size, root, n))
			clear(all)
			copy(all[me*n:], vector[T](me, root, n))
			must(byGather(h, w, nil, all, root))
			equal("Gather in place", all, joined[T](size, root, n))
		} else {
			must(byGather(h, w, vector[T](me, root, n), nil, root))
		}

		var parts [][]T
		if me == root {
			for i := range size {
				parts = append(parts, make([]T, uneven(i, root, n)))
			}
		}
		must(byGatherv(h, w, vector[T](me, root, uneven(me, root, n)), parts, root))
		for i, part := range parts {
			equal("Gatherv", part, vector[T](i, root, uneven(i, root, n)))
		}

		if me == root {
			all = nil
			parts = nil
			for i := range size {
				all = append(all, vector[T](root, i, n)...)
				parts = append(parts, vector[T](root, i, uneven(root, i, n)))
			}
		}
		part := make([]T, n)
		must(byScatter(h, w, all, part, root))
		equal("Scatter", part, vector[T](root, me, n))
		part = make([]T, uneven(root, me, n))
		must(byScatterv(h, w, parts, part, root))
		equal("Scatterv", part, vector[T](root, me, uneven(root, me, n)))
		if me == root {
			part = nil
		} else {
			part = make([]T, n)
		}
		must(byScatter(h, w, all, part, root))
		if me != root {
			equal("Scatter, the root in place", part, vector[T](root, me, n))
		}
	}
	all := make([]T, n*size)
	must(byAllgather(h, w, vector[T](me, 5, n), all))
	equal("Allgather", all, joined[T](size, 5, n))
	clear(all)
	copy(all[me*n:], vector[T](me, 5, n))
	must(byAllgather(h, w, nil, all))
	equal("Allgather in place", all, joined[T](size, 5, n))

	parts := make([][]T, size)
	for i := range parts {
		parts[i] = make([]T, uneven(i, 1, n))
	}
	must(byAllgatherv(h, w, vector[T](me, 5, uneven(me, 1, n)), parts))
	for i := range parts {
		equal("Allgatherv", parts[i], vector[T](i, 5, uneven(i, 1, n)))
	}

	var send []T
	for i := range size {
		send = append(send, vector[T](me, i, n)...)
	}
	must(byAlltoall(h, w, send, all))
	equal("Alltoall", all, joined[T](size, me, n))
	must(byAlltoall(h, w, nil, send))
	equal("Alltoall in place", send, joined[T](size, me, n))

	from := make([][]T, size)
	to := make([][]T, size)
	for i := range size {
		from[i], to[i] = vector[T](me, i, uneven(me, i, n)), make([]T, uneven(i, me, n))
	}
	must(byAlltoallv(h, w, from, to))
	for i := range size {
		equal("Alltoallv", to[i], vector[T](i, me, uneven(i, me, n)))
	}
}

// reductions makes every call that combines, with n elements.
func reductions[T Integer](w *Comm, n int) { reductionsBy[T](coll.Blocking, w, n) }

func reductionsBy[T Integer](h coll.Way, w *Comm, n int) {
	me, size := w.Rank(), w.Size()
	mine := vector[T](me, 2, n)
	for root := 0; root < size; root += max(1, size-2) {
		sum := make([]T, n)
		must(byReduce(h, w, mine, sum, Sum, root))
		if me == root {
			equal("Reduce", sum, summed[T](0, size, 2, n))
			must(byReduce(h, w, nil, slices.Clone(mine), Sum, root))
		} else {
			equal("Reduce elsewhere", sum, make([]T, n))
			must(byReduce(h, w, mine, nil, Sum, root))
		}
		got := make([]affine, n)
		must(byReduce(h, w, affines(me, n), got, compose, root, Ordered))
		if me == root {
			equal("Reduce, Ordered", got, composed(0, size, n))
		}
	}
	sum := make([]T, n)
	must(byAllreduce(h, w, mine, sum, Sum))
	equal("Allreduce", sum, summed[T](0, size, 2, n))
	sum = slices.Clone(mine)
	must(byAllreduce(h, w, nil, sum, Sum))
	equal("Allreduce in place", sum, summed[T](0, size, 2, n))
	equal("what Allreduce reads", mine, vector[T](me, 2, n))

	must(byScan(h, w, mine, sum, Sum))
	equal("Scan", sum, summed[T](0, me+1, 2, n))
	clear(sum)
	must(byExscan(h, w, mine, sum, Sum))
	equal("Exscan", sum, summed[T](0, me, 2, n))

	got := make([]affine, n)
	must(byAllreduce(h, w, affines(me, n), got, compose, Ordered))
	equal("Allreduce, Ordered", got, composed(0, size, n))
	got = affines(me, n)
	must(byAllreduce(h, w, nil, got, compose, Ordered))
	equal("Allreduce in place, Ordered", got, composed(0, size, n))
	must(byScan(h, w, affines(me, n), got, compose, Ordered))
	equal("Scan, Ordered", got, composed(0, me+1, n))
	if must(byExscan(h, w, affines(me, n), got, compose, Ordered)); me > 0 {
		equal("Exscan, Ordered", got, composed(0, me, n))
	}

	var all []T
	counts := make([]int, size)
	for i := range size {
		all = append(all, vector[T](me, i, n)...)
	}
	sum = make([]T, n)
	must(byReduceScatterBlock(h, w, all, sum, Sum))
	equal("ReduceScatterBlock", sum, summed[T](0, size, me, n))
	must(byReduceScatterBlock(h, w, nil, all, Sum))
	equal("ReduceScatterBlock in place", all[:n], summed[T](0, size, me, n))

	all = nil
	for i := range size {
		counts[i] = uneven(i, 3, n)
		all = append(all, vector[T](me, i, counts[i])...)
	}
	sum = make([]T, counts[me])
	must(byReduceScatter(h, w, all, sum, counts, Sum))
	equal("ReduceScatter", sum, summed[T](0, size, me, counts[me]))
}

// Every collective call gives what it should, on every number of ranks and beyond every limit of a message.
func TestCollectives(t *testing.T) {
	sizes := few([]int{0, 1, 3, 70, 9000}, 0, 1, 70, 9000)
	for _, ranks := range few([]int{1, 2, 3, 4, 5, 7, 8, 9}, 1, 2, 3, 8) {
		for _, env := range []string{"", "GORUN_COLL_CHECK=0"} {
			if testing.Short() && env != "" && ranks != 3 {
				continue
			}
			t.Run(fmt.Sprintf("%d ranks %s", ranks, env), func(t *testing.T) {
				over(t, WithEnviron([]string{env}))(ranks, func(w *Comm) {
					for _, n := range sizes {
						moves[int64](w, n)
						reductions[int32](w, n)
						if testing.Short() && n > 1000 {
							continue
						}
						moves[uint8](w, n)
						reductions[uint64](w, n)
					}
				})
			})
		}
	}
}

// So they do over every way to move messages, where each of them overtakes, waits and is cut into pieces.
func TestCollectivesEverywhere(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			for _, n := range few([]int{0, 5, 3000, 40_000}, 0, 5, 9000) {
				moves[int64](w, n)
				reductions[int32](w, n)
			}
		})
	})
}

// Every algorithm of an operation that GORUN_COLL names gives the same, and is one that all ranks take.
func TestCollectivesByName(t *testing.T) {
	for _, names := range []string{
		"bcast:chain,gather:linear,scatter:linear,allgather:ring,alltoall:pairwise,reduce:rabenseifner,allreduce:ring",
		"bcast:scatter_ring,gather:binomial,allgather:bruck,alltoall:bruck,reduce:chain,allreduce:tree," +
			"scan:chain,exscan:chain",
		"barrier:tree,bcast:knomial,alltoall:linear,reduce:knomial,allreduce:rabenseifner,reduce_scatter:ring",
	} {
		over(t, WithEnviron([]string{"GORUN_COLL=" + names}))(5, func(w *Comm) {
			for _, n := range few([]int{1, 100, 9000}, 1, 2000) {
				moves[int64](w, n)
				reductions[int64](w, n)
			}
		})
	}
	err := RunLocal(1, func(*Comm) error { return nil }, WithEnviron([]string{"GORUN_COLL=bcast:best"}))
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "GORUN_COLL") ||
		!strings.Contains(err.Error(), "binomial") {
		t.Error(err)
	}
}

// A call through the board takes no memory for messages. What calls by messages have taken on communicators that are
// freed is not held, though the caller still has them: at most coll.ScratchMost is, for each rank.
func TestWhatCallsTake(t *testing.T) {
	const ranks, long, most = 2, 24 << 20, 4 << 20
	var before, after runtime.MemStats
	overLoop(t)(ranks, func(w *Comm) {
		vector := make([]float64, long/8)
		meetOnBoard(w)
		measured := func(into *runtime.MemStats) {
			must(Barrier(w))
			if w.Rank() == 0 {
				runtime.GC()
				runtime.ReadMemStats(into)
			}
			must(Barrier(w))
		}
		measured(&before)
		for range 3 {
			must(Allreduce(w, nil, vector, Sum))
			must(Bcast(w, vector, 0))
		}
		measured(&after)
		if took := after.TotalAlloc - before.TotalAlloc; w.Rank() == 0 {
			check(took < most, "six calls by the board take %d bytes", took)
		}
		measured(&before)
		var freed []*Comm
		for range 12 {
			c := ok(w.Dup())
			must(Allreduce(c, nil, vector, Sum))
			must(c.Free())
			freed = append(freed, c)
		}
		measured(&after)
		if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); w.Rank() == 0 {
			check(held < ranks*coll.ScratchMost+most, "%d communicators that are freed hold %d bytes", len(freed), held)
		}
		runtime.KeepAlive(freed)
	}, onBoard)
}

// Calls of several goroutines, each with a communicator of its own, do not take each other's messages, nor those of
// callers, who may use any tag.
func TestCollectivesAtOnce(t *testing.T) {
	over(t)(4, func(w *Comm) {
		var wg sync.WaitGroup
		failed := make([]error, 3)
		comms := []*Comm{w, ok(w.Dup()), ok(w.Split(w.Rank()%2, -w.Rank()))}
		for i, c := range comms {
			wg.Go(func() {
				defer func() {
					if p := recover(); p != nil {
						failed[i] = fmt.Errorf("%v", p)
					}
				}()
				for turn := range inShort(20, 6) {
					r := ok(Irecv(c, make([]int, 1), AnySource, AnyTag))
					moves[int32](c, 10+300*turn)
					reductions[int64](c, 10+300*turn)
					must(Send(c, []int{1}, (c.Rank()+1)%c.Size(), coll.FirstTag+turn))
					ok(r.Wait())
				}
			})
		}
		wg.Wait()
		must(errors.Join(failed...))
	})
}

// A call whose context ends is finished in the background on memory of the library's own: the caller's buffers are the
// caller's at once, and later calls are those that belong together.
func TestContextEndsInCollective(t *testing.T) {
	const n = 20_000
	calls := map[string]func(c *Comm, send, recv []int64) error{
		"Bcast":     func(c *Comm, send, recv []int64) error { return Bcast(c, send, 0) },
		"Allreduce": func(c *Comm, send, recv []int64) error { return Allreduce(c, send, recv, Sum) },
		"Gather": func(c *Comm, send, recv []int64) error {
			return Gather(c, send, make([]int64, n*c.Size()), c.Size()-1)
		},
		"Scan": func(c *Comm, send, recv []int64) error { return Scan(c, send, recv, Sum) },
	}
	for name, call := range calls {
		for late := range 3 {
			t.Run(fmt.Sprintf("%s, rank %d is late", name, late), func(t *testing.T) {
				over1, entered := make(chan bool), sync.WaitGroup{}
				entered.Add(2)
				over(t)(3, func(w *Comm) {
					send, recv := vector[int64](w.Rank(), 0, n), make([]int64, n)
					if w.Rank() == late {
						<-over1
						must(call(w, send, recv))
						if name == "Allreduce" { // with what the others had when they called
							equal(name, recv, summed[int64](0, 3, 0, n))
						}
					} else {
						ctx, cancel := context.WithCancel(t.Context())
						go endsWith(nextCollective(w), ctx, cancel)
						err := call(w.WithContext(ctx), send, recv)
						if err != nil { // it may have been over without the late one
							check(errors.Is(err, context.Canceled), "%v", err)
						}
						clear(send) // the caller's again
						clear(recv)
						entered.Done()
						if w.Rank() == (late+1)%3 {
							entered.Wait()
							close(over1)
						}
					}
					sum := make([]int64, n)
					must(Allreduce(w, vector[int64](w.Rank(), 4, n), sum, Sum))
					equal("the next Allreduce", sum, summed[int64](0, 3, 4, n))
					if err := call(w, vector[int64](w.Rank(), 0, n), recv); err != nil {
						panic(err)
					}
					if name == "Allreduce" {
						equal(name, recv, summed[int64](0, 3, 0, n))
					}
				})
			})
		}
	}
}

// A context that does not end changes nothing of the result.
func TestCollectivesWithContext(t *testing.T) {
	over(t)(3, func(w *Comm) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		moves[int64](w.WithContext(ctx), 1000)
		reductions[int64](w.WithContext(ctx), 1000)
	})
}

// What a caller's mistakes in collective calls are.
func TestCollectiveMistakes(t *testing.T) {
	over(t)(2, func(w *Comm) {
		one, two, three := []int{1}, []int{1, 2}, []int{1, 2, 3}
		for _, m := range []struct {
			err, class error
			text       string
		}{
			{Bcast(w, one, 2), ErrRoot, "mpi: Bcast: the root is 2; the communicator has 2 ranks (0–1)"},
			{Bcast(w, one, -1), ErrRoot, "the root is -1"},
			{Reduce(w, one, one, Sum, 9), ErrRoot, "the root is 9"},
			{Bcast(w, []string{""}, 0), ErrType, "string"},
			{Allreduce(w, one, two, Sum), ErrCount, "send has 1 elements and recv 2"},
			{Scan(w, one, two, Sum), ErrCount, "send has 1"},
			{Allreduce(w, one, one, nil), ErrOp, "the operator is nil"},
			{Gather(w, one, three, w.Rank()), ErrCount, "recv has 3 elements"},
			{Gather(w, one, []int{1, 2, 3, 4}, w.Rank()), ErrCount, "recv must have 2"},
			{Scatter(w, three, one, w.Rank()), ErrCount, "send has 3 elements"},
			{Allgather(w, two, two), ErrCount, "recv must have 4"},
			{Alltoall(w, one, two), ErrCount, "send has 1 elements and recv 2"},
			{Alltoall(w, three, three), ErrCount, "recv has 3 elements"},
			{Allgatherv(w, one, [][]int{one}), ErrCount, "recv has 1 slices"},
			{Allgatherv(w, one, [][]int{two, two}), ErrCount, "elements and send 1"},
			{Alltoallv(w, [][]int{one}, [][]int{one, one}), ErrCount, "s"},
			{ReduceScatter(w, three, one, []int{1, 1}, Sum), ErrCount, "the sum of counts, 2"},
			{ReduceScatter(w, two, one, []int{3, -1}, Sum), ErrCount, "counts[1] is -1"},
			{ReduceScatter(w, two, one, []int{2}, Sum), ErrCount, "there are 1 counts"},
			{ReduceScatterBlock(w, three, one, Sum), ErrCount, "send has 3 elements"},
		} {
			is(m.err, m.class)
			check(strings.Contains(m.err.Error(), m.text), "%v does not say %q", m.err, m.text)
		}
		must(Barrier(w)) // nothing was sent
	})
}

// Ranks that do not call the same hear it, all of them, with two ranks that differ, and can go on.
func TestCollectivesThatDiffer(t *testing.T) {
	differ := map[string]struct {
		calls [2]func(w *Comm) error
		class error
		text  []string
	}{
		"operation": {[2]func(w *Comm) error{Barrier, func(w *Comm) error { return Bcast(w, []int{1}, 0) }},
			ErrComm, []string{"calls Barrier", "calls Bcast"}},
		"root": {[2]func(w *Comm) error{func(w *Comm) error { return Bcast(w, []int{1}, 1) },
			func(w *Comm) error { return Bcast(w, []int{1}, 0) }}, ErrRoot, []string{"with root 1", "with root 0"}},
		"count": {[2]func(w *Comm) error{func(w *Comm) error { return Allreduce(w, []int{1}, []int{1}, Sum) },
			func(w *Comm) error { return Allreduce(w, []int{1, 2}, []int{1, 2}, Sum) }}, ErrCount,
			[]string{"with 1 elements", "with 2 elements"}},
		"type": {[2]func(w *Comm) error{func(w *Comm) error { return Bcast(w, []int{1}, 0) },
			func(w *Comm) error { return Bcast(w, []float64{1}, 0) }}, ErrType, []string{"with int", "with float64"}},
		"order": {[2]func(w *Comm) error{func(w *Comm) error { return Allreduce(w, []int{1}, []int{1}, Sum) },
			func(w *Comm) error { return Allreduce(w, []int{1}, []int{1}, Sum, Ordered) }}, ErrOp,
			[]string{"without that", "with Ordered"}},
		"operator": {[2]func(w *Comm) error{func(w *Comm) error { return Allreduce(w, []int{1}, []int{1}, Sum) },
			func(w *Comm) error { return Allreduce(w, []int{1}, []int{1}, Max) }}, ErrOp, []string{"with Sum", "with Max"}},
		"place": {[2]func(w *Comm) error{
			func(w *Comm) error { return Alltoall(w, make([]int, w.Size()), make([]int, w.Size())) },
			func(w *Comm) error { return Alltoall(w, nil, make([]int, w.Size())) },
		}, ErrBuffer, []string{"with no send buffer", "without that"}},
	}
	for name, d := range differ {
		for odd := range 5 {
			t.Run(fmt.Sprintf("%s of rank %d", name, odd), func(t *testing.T) {
				over(t)(5, func(w *Comm) {
					call := d.calls[0]
					if w.Rank() == odd {
						call = d.calls[1]
					}
					err := call(w)
					is(err, d.class)
					for _, text := range append(d.text, fmt.Sprintf("rank %d calls", odd)) {
						check(strings.Contains(err.Error(), text), "%v does not say %q", err, text)
					}
					must(Barrier(w))
				})
			})
		}
	}
}

// Without the comparison, and by messages, counts that do not go together are ErrCount at a rank that gets a message of
// another length, longer or shorter, and those that need what it has not have an error too. None waits, and the next
// call is right.
func TestCountsThatDiffer(t *testing.T) {
	ints := func(n int) []int { return make([]int, n) }
	calls := []struct {
		name string
		make func(w *Comm, n int) error // with n elements
	}{
		{"Bcast", func(w *Comm, n int) error { return Bcast(w, ints(n), 1) }},
		{"Gather", func(w *Comm, n int) error { return Gather(w, ints(n), ints(n*w.Size()), 1) }},
		{"Scatter", func(w *Comm, n int) error { return Scatter(w, ints(n*w.Size()), ints(n), 1) }},
		{"Allgather", func(w *Comm, n int) error { return Allgather(w, ints(n), ints(n*w.Size())) }},
		{"Alltoall", func(w *Comm, n int) error { return Alltoall(w, ints(n*w.Size()), ints(n*w.Size())) }},
		{"Reduce", func(w *Comm, n int) error { return Reduce(w, ints(n), ints(n), Sum, 1) }},
		{"Allreduce", func(w *Comm, n int) error { return Allreduce(w, ints(n), ints(n), Sum) }},
		{"Scan", func(w *Comm, n int) error { return Scan(w, ints(n), ints(n), Sum) }},
	}
	messages := unchecked("GORUN_COLL=bcast:binomial,gather:linear,scatter:linear,allgather:ring,alltoall:pairwise," +
		"reduce:binomial,allreduce:doubling,scan:doubling,barrier:dissemination")
	for _, ranks := range []int{2, 3, 5} {
		for odd := range ranks {
			for _, n := range []int{1, 3} {
				unit := 1
				if ranks == 3 {
					unit = 9000 // beyond eager messages
				}
				wrong := make([]atomic.Int32, len(calls)) // how many ranks have ErrCount
				over(t, messages)(ranks, func(w *Comm) {
					length := 2 * unit
					if w.Rank() == odd {
						length = n * unit
					}
					for i, call := range calls {
						if err := call.make(w, length); err != nil {
							check(errors.Is(err, ErrCount) || errors.Is(err, ErrPeerFailed), "%s: %v", call.name, err)
							if errors.Is(err, ErrCount) {
								wrong[i].Add(1)
							}
						}
						must(Barrier(w))
					}
				})
				for i, call := range calls {
					if wrong[i].Load() == 0 {
						t.Errorf("%s of %d ranks, of which rank %d has %d elements and the others %d: no ErrCount",
							call.name, ranks, odd, n*unit, 2*unit)
					}
				}
			}
		}
	}
}

// An operator that panics is an error at its rank, and at those that wait for what it would have made; the communicator
// stays usable.
func TestOperatorPanics(t *testing.T) {
	for bad := range 4 {
		for _, n := range few([]int{1, 1000, 50_000}, 1, 9000) {
			over(t, unchecked())(4, func(w *Comm) {
				op := func(inout, in []int64) {
					if w.Rank() == bad {
						panic("no such number")
					}
					Sum(inout, in)
				}
				for _, call := range []func() error{
					func() error { return Allreduce(w, make([]int64, n), make([]int64, n), op) },
					func() error { return Scan(w, make([]int64, n), make([]int64, n), op) },
					func() error { return Reduce(w, make([]int64, n), make([]int64, n), op, 0) },
					func() error { return ReduceScatterBlock(w, make([]int64, 4*n), make([]int64, n), op) },
				} {
					err := call()
					if w.Rank() == bad && err != nil && !errors.Is(err, ErrPeerFailed) {
						is(err, ErrOp)
						check(strings.Contains(err.Error(), "no such number"), "%v", err)
					} else if err != nil {
						is(err, ErrPeerFailed)
					}
					must(Barrier(w))
				}
				reductions[int64](w, n)
			})
		}
	}
}

// A rank that fails in mid-collective is an error at every rank, also at those that neither send to it nor receive from
// it, and none waits for ever.
func TestRankFailsInCollective(t *testing.T) {
	const n = 6
	calls := map[string]func(w *Comm, in, out, all []int64) error{
		"Barrier":   func(w *Comm, in, out, all []int64) error { return Barrier(w) },
		"Allreduce": func(w *Comm, in, out, all []int64) error { return Allreduce(w, in, out, Sum) },
		"Allgather": func(w *Comm, in, out, all []int64) error { return Allgather(w, in, all) },
		"Alltoall":  func(w *Comm, in, out, all []int64) error { return Alltoall(w, nil, all) },
		"Bcast, Gather": func(w *Comm, in, out, all []int64) error {
			return errors.Join(Bcast(w, in, 1), Gather(w, in, all, 4), Barrier(w))
		},
		"Reduce, Scatter": func(w *Comm, in, out, all []int64) error {
			return errors.Join(Reduce(w, in, out, Sum, 3), Scatter(w, all, out, 2), Barrier(w))
		},
	}
	for name, call := range calls {
		for victim := range n {
			if testing.Short() && victim%4 != 1 { // a root, and a rank that is none
				continue
			}
			for _, checked := range few([]string{"0", "1"}, fmt.Sprint(victim/4)) {
				t.Run(fmt.Sprintf("%s, rank %d, check %s", name, victim, checked), func(t *testing.T) {
					cut := withDevices(func(rank int, d transport.Device) transport.Device {
						var plan faulty.Plan
						for r := range n {
							if (r == victim) != (rank == victim) {
								plan.Cuts = append(plan.Cuts, faulty.Cut{Peer: r, After: 20})
							}
						}
						return faulty.Wrap(d, 1, plan)
					})
					over(t, cut, WithEnviron([]string{"GORUN_COLL_CHECK=" + checked, byMessages}))(n, func(w *Comm) {
						var failed error
						for turn := range 45 { // all ranks make all calls: which is the first to fail differs
							size := []int{1, 500, 10_000}[turn%3]
							if err := call(w, make([]int64, size), make([]int64, size), make([]int64, n*size)); err != nil {
								failed = err
							}
						}
						check(errors.Is(failed, ErrPeerFailed), "%v", failed)
					})
				})
			}
		}
	}
}
