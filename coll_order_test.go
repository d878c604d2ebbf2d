package mpi

import (
	"context"
	"errors"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// Two operators whose results tell in which order the ranks' contributions were combined: neither is associative. The
// first gives the same for two operands in either place, the second does not.
func tellsPairs(inout, in []uint64) {
	for i, a := range in {
		b := inout[i]
		inout[i] = (a + b ^ a*b>>3 ^ bits.RotateLeft64(a^b, 29)) * 0x9e3779b97f4a7c15
	}
}

func tellsPlaces(inout, in []uint64) {
	for i, a := range in {
		inout[i] = (a*5 + bits.RotateLeft64(inout[i], 13)) * 0x9e3779b97f4a7c15
	}
}

// tellingCall makes one reduction of what each rank has, and returns what this rank has of the result.
type tellingCall func(h coll.Way, c *Comm, mine []uint64, inPlace bool, op Op[uint64], options ...Reduction) []uint64

// buffers are what a rank gives as send, and as recv, which has n elements or in place what mine has.
func buffers(mine []uint64, inPlace bool, n int) (send, recv []uint64) {
	if inPlace {
		return nil, slices.Clone(mine)
	}
	return mine, make([]uint64, n)
}

var tellingCalls = map[string]tellingCall{
	"Allreduce": func(h coll.Way, c *Comm, mine []uint64, inPlace bool, op Op[uint64], options ...Reduction) []uint64 {
		send, recv := buffers(mine, inPlace, len(mine))
		must(byAllreduce(h, c, send, recv, op, options...))
		return recv
	},
	"Reduce": func(h coll.Way, c *Comm, mine []uint64, inPlace bool, op Op[uint64], options ...Reduction) []uint64 {
		var results []uint64
		for _, root := range slices.Compact([]int{0, c.Size() / 2, c.Size() - 1}) {
			if c.Rank() != root {
				must(byReduce(h, c, mine, nil, op, root, options...))
				continue
			}
			send, recv := buffers(mine, inPlace, len(mine))
			must(byReduce(h, c, send, recv, op, root, options...))
			results = append(results, recv...)
		}
		return results
	},
	"Scan": func(h coll.Way, c *Comm, mine []uint64, inPlace bool, op Op[uint64], options ...Reduction) []uint64 {
		send, recv := buffers(mine, inPlace, len(mine))
		must(byScan(h, c, send, recv, op, options...))
		return recv
	},
	"Exscan": func(h coll.Way, c *Comm, mine []uint64, inPlace bool, op Op[uint64], options ...Reduction) []uint64 {
		send, recv := buffers(mine, inPlace, len(mine))
		must(byExscan(h, c, send, recv, op, options...))
		if c.Rank() == 0 {
			return nil
		}
		return recv
	},
	"ReduceScatterBlock": func(h coll.Way, c *Comm, mine []uint64, inPlace bool, op Op[uint64], options ...Reduction,
	) []uint64 {
		n := len(mine) / c.Size()
		send, recv := buffers(mine[:n*c.Size()], inPlace, n)
		must(byReduceScatterBlock(h, c, send, recv, op, options...))
		return recv[:n]
	},
	"ReduceScatter": func(h coll.Way, c *Comm, mine []uint64, inPlace bool, op Op[uint64],
		options ...Reduction) []uint64 {
		counts := make([]int, c.Size())
		start := func(i int) int { return len(mine) * i * i / (len(counts) * len(counts)) }
		for i := range counts {
			counts[i] = start(i+1) - start(i)
		}
		n := counts[c.Rank()]
		send, recv := buffers(mine, inPlace, n)
		must(byReduceScatter(h, c, send, recv, counts, op, options...))
		return recv[:n]
	},
}

// A reduction gives the same bits in each call on communicators of the same ranks: in the first calls, before there is
// a board, and in later ones; blocking, nonblocking and persistent; in place and not; with a context; on a duplicate
// that has no board; and, where the operator commutes and the call gives all ranks one result, at all of them.
func TestReductionsGiveTheSameBits(t *testing.T) {
	if proc.Race {
		t.Skip("bits are compared without the race detector; other tests make the same calls with it")
	}
	settings := map[string]Option{
		"default":  unchecked(),
		"shared":   unchecked("GORUN_COLL=reduce:shared,allreduce:shared"),
		"direct":   unchecked("GORUN_COLL=reduce:direct,allreduce:direct"),
		"no reads": unchecked("GORUN_COLL=reduce:direct,allreduce:direct", "GORUN_SHM_CMA=0"),
	}
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			whereBoards(t, func(t *testing.T, run runner) {
				if testing.Short() && (name != "default" || !strings.HasSuffix(t.Name(), "/loop")) {
					t.Skip("without -short")
				}
				ranks := []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}
				if name != "default" {
					ranks = []int{2, 3, 6, 9, 16} // all take a quarter of an hour
				}
				for _, n := range few(ranks, 3, 7) {
					sizes := []int{1, n + 2, 5<<10/8 + 3, 40 << 10 / 8, 200<<10/8 + 1}
					if n < 6 || n == 9 { // others would take long
						sizes = append(sizes, 600<<10/8, 5<<20/8)
					}
					refuse := make([]bool, n) // each rank's own
					run(n, func(w *Comm) {
						for _, size := range few(sizes, n+2, 200<<10/8+1) {
							for _, name := range slices.Sorted(maps.Keys(tellingCalls)) {
								sameBits(w, name, size, tellingCalls[name], &refuse[w.Rank()])
							}
						}
					}, setting, onTop(func(rank int, d transport.Device) transport.Device {
						boards := *d.Facts().Boards
						was := boards.Make
						boards.Make = func(members []int32, lines, bytes int) (*transport.Board, []byte, error) {
							if refuse[rank] {
								return nil, nil, errors.New("the test refuses it")
							}
							return was(members, lines, bytes)
						}
						d.Facts().Boards = &boards
						return d
					}))
				}
			})
		})
	}
}

func sameBits(w *Comm, name string, size int, call tellingCall, refuse *bool) {
	mine := make([]uint64, size)
	for i := range mine {
		mine[i] = uint64(w.Rank()+1)*0xd1342543de82ef95 + uint64(i)*0xaf251af3b0f025b5
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, op := range []struct {
		op      Op[uint64]
		options []Reduction
	}{{tellsPairs, nil}, {tellsPlaces, []Reduction{Ordered}}} {
		var first []uint64
		again := func(c *Comm, what string, h coll.Way, inPlace bool) {
			got := call(h, c, mine, inPlace, op.op, op.options...)
			if first == nil {
				first = got
			}
			differ := 0
			for i := range got {
				if got[i] != first[i] {
					differ++
				}
			}
			check(differ == 0, "%s of %d elements by %d ranks, ordered %v, %s: %d of %d elements of rank %d differ from the "+
				"first call's", name, size, w.Size(), op.options != nil, what, differ, len(got), w.Rank())
		}
		c := ok(w.Dup())
		for _, what := range []string{"1st call", "2nd call", "3rd call", "4th call"} {
			again(c, what, coll.Blocking, false)
		}
		again(c, "in place", coll.Blocking, true)
		again(c, "nonblocking", coll.Nonblocking, false)
		again(c, "nonblocking in place", coll.Nonblocking, true)
		again(c, "persistent", coll.Persistent, false)
		again(c, "with a context", coll.Blocking, false)
		again(c.WithContext(ctx), "with a context", coll.Blocking, false)
		again(c.WithContext(ctx), "nonblocking with a context", coll.Nonblocking, false)
		*refuse = true // all ranks end the calls before: this one makes the board, if any
		d := ok(c.Dup())
		for range 3 {
			again(d, "on a duplicate without a board", coll.Blocking, false)
		}
		again(d, "in place on a duplicate without a board", coll.Blocking, true)
		*refuse = false
		must(d.Free())
		must(c.Free())
		if name == "Allreduce" {
			all := make([]uint64, len(first)*w.Size())
			must(Allgather(w, first, all))
			check(slices.Equal(all[:len(first)], first), "rank %d has another result than rank 0", w.Rank())
		}
	}
}
