package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
)

func init() {
	collectives := func(_ context.Context, w *mpi.Comm) error { return collective(w, 0, 1, 100, 5000, 300_000) }
	role("collectives", collectives)
	withoutReadv("collectives", collectives)
	role("collectives by hosts", byHosts)
}

// collective makes calls of these sizes, whose results follow from the ranks.
func collective(w *mpi.Comm, sizes ...int) error {
	me, size := w.Rank(), w.Size()
	for _, n := range sizes {
		mine, sum, all := make([]int64, n), make([]int64, n), make([]int64, n*size)
		for i := range mine {
			mine[i] = int64(me*1000 + i)
		}
		if err := errors.Join(mpi.Barrier(w), mpi.Allreduce(w, mine, sum, mpi.Sum), mpi.Allgather(w, mine, all)); err != nil {
			return err
		}
		for i := range sum {
			if want := int64(1000*size*(size-1)/2 + size*i); sum[i] != want {
				return fmt.Errorf("Allreduce of %d: element %d is %d, want %d", n, i, sum[i], want)
			}
		}
		for i := range all {
			if want := int64(i/n*1000 + i%n); all[i] != want {
				return fmt.Errorf("Allgather of %d: element %d is %d, want %d", n, i, all[i], want)
			}
		}
		to := make([]int64, n*size)
		for i := range to {
			to[i] = int64(me*1000 + i/n)
		}
		if err := mpi.Alltoall(w, nil, to); err != nil {
			return err
		}
		for i := range to {
			if want := int64(i/n*1000 + me); to[i] != want {
				return fmt.Errorf("Alltoall of %d: element %d is %d, want %d", n, i, to[i], want)
			}
		}
		for root := range size {
			buf := make([]int64, n)
			if me == root {
				copy(buf, mine)
			}
			if err := errors.Join(mpi.Bcast(w, buf, root), mpi.Reduce(w, buf, sum, mpi.Max, root)); err != nil {
				return err
			}
			for i := range buf {
				if want := int64(root*1000 + i); buf[i] != want || me == root && sum[i] != want {
					return fmt.Errorf("Bcast and Reduce of %d, root %d: element %d is %d, want %d", n, root, i, buf[i], want)
				}
			}
		}
	}
	fmt.Printf("rank %d done over %s\n", me, w.Transport())
	return nil
}

// byHosts is collective on communicators that lie on several hosts, in other orders than the world.
func byHosts(_ context.Context, w *mpi.Comm) error {
	here, err := w.SplitShared(0)
	if err != nil {
		return err
	}
	back, err := w.Split(0, -w.Rank())
	if err != nil {
		return err
	}
	some, err := w.Split(min(w.Rank(), 1), 0)
	if err != nil {
		return err
	}
	for i, c := range []*mpi.Comm{w, here, back, some} {
		if err := collective(c, []int{20_000, 0, 100, 7}[i]); err != nil {
			return fmt.Errorf("%s: %w", c.Name(), err)
		}
	}
	fmt.Printf("rank %d is %d of %d here\n", w.Rank(), here.Rank(), here.Size())
	return nil
}

// twoLevels names every algorithm that needs to know who shares a host.
const twoLevels = "GORUN_COLL=barrier:two_level,bcast:two_level,allgather:two_level,reduce:two_level," +
	"allreduce:two_level"

// Ranks on three hosts know which of them share one: as the launcher says, or as the kernel does where the launcher
// says what cannot be. If it says what is not so, collective calls are right all the same.
func TestHostsShared(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 3)
	as := []string{"0 of 1", "0 of 2", "1 of 2", "0 of 3", "1 of 3", "2 of 3"}
	for _, c := range []struct {
		mapping, check string
		want           []string
	}{
		{"", "1", as},
		{"(vector,(0,99999999,1))", "0", as},
		{"(matrix", "0", as},
		{"(vector,(0,2,1))", "0", []string{"0 of 3", "0 of 3", "1 of 3", "1 of 3", "2 of 3", "2 of 3"}},
		{"(vector,(5,1,4))", "0", []string{"0 of 6", "1 of 6", "2 of 6", "3 of 6", "4 of 6", "5 of 6"}},
	} {
		t.Run(c.mapping, func(t *testing.T) {
			j := runOn(t, h, spread{perHost: []int{1, 2, 3}, role: "collectives by hosts", mapping: c.mapping,
				env: []string{"GORUN_LOG=debug", twoLevels, "GORUN_COLL_CHECK=" + c.check}}).finish(0)
			for rank, ok := range c.want {
				j.says(rank, fmt.Sprintf("^rank %d is %s here", rank, ok))
			}
			if c.mapping != "" && c.want[0] == as[0] {
				j.says(0, "ranks find out by themselves which of them share a host: ")
			}
		})
	}
}

// Hydra says which ranks share a host, also where its hosts are names only.
func TestCollectivesUnderHydra(t *testing.T) {
	for flags, want := range map[string][2]string{
		"":                              {"0 of 5", "4 of 5"},
		"-launcher fork -hosts a:3,b:2": {"0 of 3", "1 of 2"},
	} {
		j := run(t, spec{n: 5, role: "collectives by hosts", hydra: true, flags: strings.Fields(flags),
			env: []string{twoLevels}}, 0)
		j.says("^rank 0 is "+want[0]+" here", "^rank 4 is "+want[1]+" here")
	}
}

// Collective calls between processes that share memory, on any number of ranks.
func TestCollectives(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		j := run(t, spec{n: n, role: "collectives"}, 0)
		if got := j.count(`^rank \d done over shm`); got != n {
			t.Errorf("%d of %d ranks report\n%s", got, n, j.out.String())
		}
	}
	run(t, spec{n: 4, role: "collectives", env: []string{"GORUN_COLL_CHECK=1"}}, 0)
	direct := "GORUN_COLL=bcast:direct,allgather:direct,alltoall:direct,reduce:direct,allreduce:direct"
	run(t, spec{n: 3, role: "collectives", env: []string{direct}}, 0)
	run(t, spec{n: 3, role: "collectives", env: []string{direct, "GORUN_SHM_CMA=0"}}, 0)
	run(t, spec{n: 3, role: "collectives without readv", env: []string{direct}}, 0)
}
