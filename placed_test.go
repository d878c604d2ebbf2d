package mpi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

// unequal is ranks on hosts of 9, 1, 8 and 7 ranks.
func unequal(rank int) int {
	for host, n := range []int{9, 1, 8, 7} {
		if rank -= n; rank < 0 {
			return host
		}
	}
	return 4
}

// algorithmOf is what a call with these elements would be done by.
func algorithmOf(c *Comm, o collectives.Operation, count int64) string {
	key := coll.Key{Operation: o, Count: count, ElemSize: 8, Commutative: true}
	return c.group.Algorithm(&key)
}

// sent is how many messages this rank sends in f.
func sent(c *Comm, f func()) uint64 {
	before := c.Stats()
	f()
	after := c.Stats()
	return after.EagerSent - before.EagerSent + after.RendezvousSent - before.RendezvousSent
}

// The table takes algorithms of two levels where hosts have many ranks and a network is between them, in the world and
// in what is made of it. Then one rank of each host sends to other hosts.
func TestHostsDecide(t *testing.T) {
	overLoop(t, onHosts(unequal), unchecked())(25, func(w *Comm) {
		same(w.group.Hosts().Len(), 4)
		same(w.group.Hosts().Size(2), 8)
		same(algorithmOf(w, collectives.Barrier, 0), "dissemination") // 6 ranks per host are not enough
		big := ok(w.Split(map[bool]int{true: 0, false: Undefined}[unequal(w.Rank())%2 == 0], -w.Rank()))
		if big == nil {
			return
		}
		// Hosts of 8 and 9 ranks, in the other order.
		h := big.group.Hosts()
		same([4]int{h.Len(), h.Size(0), h.Size(1), h.Host(big.Rank())}, [4]int{2, 8, 9, 1 - unequal(w.Rank())/2})
		same(algorithmOf(big, collectives.Allreduce, 1), "two_level")
		must(Barrier(big)) // links are made
		messages := sent(big, func() { must(Barrier(big)) })
		check(messages == 1 || h.Index(big.Rank())%2 == 0, "%d messages of a leaf of its host's tree", messages)
		d := ok(big.Dup())
		check(d.group.Hosts() == h, "a Dup has hosts of its own")
		odd := ok(big.Split(big.Rank()%2, 0))
		same(algorithmOf(odd, collectives.Allreduce, 1), "two_level") // 4 ranks per host, and few in all
		moves[int32](big, 50)
		reductions[int64](big, 50)

		here := ok(big.SplitShared(0))
		same(here.Size(), h.Size(h.Host(big.Rank())))
		same([2]any{here.group.Hosts().Len(), here.group.Via()}, [2]any{1, collectives.SharedMemory})
		same(algorithmOf(here, collectives.Barrier, 0), "dissemination")
	})
}

// Each algorithm of two levels that GORUN_COLL names gives what the others do, on hosts of unequal numbers of ranks,
// in blocks, in turn and without a rule.
func TestTwoLevels(t *testing.T) {
	names := []string{"barrier:two_level", "bcast:two_level", "allgather:two_level", "reduce:two_level"}
	for i, at := range []func(int) int{
		unequal, func(rank int) int { return rank % 3 }, func(rank int) int { return rank * 5 % 13 / 4 },
	} {
		all := append(names, "allreduce:"+[]string{"two_level", "two_level_rabenseifner"}[i%2])
		env := "GORUN_COLL=" + strings.Join(all, ",")
		for _, n := range []int{13, 19}[:inShort(2, 1)] {
			over(t, onHosts(at), unchecked(env))(n, func(w *Comm) {
				same(algorithmOf(w, collectives.Bcast, 1000), "two_level")
				for _, n := range []int{0, 5, 3000}[:inShort(3, 3-i)] {
					moves[int64](w, n)
					reductions[uint32](w, n)
				}
				c := ok(w.Split(w.Rank()%3/2, w.Rank()/2))
				moves[int64](c, 7)
				reductions[int32](c, 7)
			})
		}
	}
}

// The root of a Bcast announces it to its own host's rank and to the other host's at once: each gets the elements
// though the other enters the call only after that.
func TestBcastAtOnce(t *testing.T) {
	over(t, onHosts(func(rank int) int { return rank / 2 }), unchecked())(4, func(w *Comm) {
		same(algorithmOf(w, collectives.Bcast, 64<<10), "two_level")
		buf, token := make([]int64, 64<<10), make([]int64, 1)
		for late := 1; late <= 2; late++ {
			other := 3 - late
			if w.Rank() == 0 {
				for i := range buf {
					buf[i] = int64(late * i)
				}
			}
			if w.Rank() == late {
				ok(Recv(w, token, other, 5))
			}
			must(Bcast(w, buf, 0))
			if w.Rank() == other {
				must(Send(w, token, late, 5))
			}
			same(buf[len(buf)-1], int64(late*(len(buf)-1)))
		}
	})
}

// Settings that make ranks choose differently are found by GORUN_COLL_CHECK.
func TestCheckOfAlgorithms(t *testing.T) {
	over(t)(3, func(w *Comm) {
		w.group.Setup.Choice = ok(collectives.ParseChoice(fmt.Sprint("bcast:",
			[]string{"binomial", "chain"}[w.Rank()/2])))
		err := Bcast(w, make([]int, 5), 0)
		is(err, ErrComm)
		check(strings.Contains(err.Error(), "with the algorithm binomial (GORUN_COLL) and rank 2 calls Bcast with the "+
			"algorithm chain"), "%v", err)

		w.group.Setup.Choice = ok(collectives.ParseChoice([]string{"", "bcast:knomial"}[w.Rank()/2]))
		for range 1 + coll.BoardSetup {
			is(Bcast(w, make([]int, 6), 0), ErrComm)
		}
	})
}
