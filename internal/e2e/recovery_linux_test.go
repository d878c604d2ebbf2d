package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("recovery", recovery)
	role("left", left)
	role("outlive", outlive)
}

// left is a rank that waits for one that has ended, or was never there.
func left(_ context.Context, w *mpi.Comm) error {
	other, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	if _, err := mpi.Recv(w, []byte{0}, other, tagData); !errors.Is(err, mpi.ErrPeerFailed) {
		return fmt.Errorf("the receive from the rank that is not there: %w", err)
	}
	fmt.Println("goes on")
	return nil
}

// With --enable-recovery a rank hears of one that has ended before its own host has come, and of those of a host that
// was lost before it has started them.
func TestRecoveryOfTheStart(t *testing.T) {
	t.Parallel()
	shell := filepath.Join(t.TempDir(), "shell")
	script := `#!/bin/sh
case $1 in
late) sleep 1;;
lost) echo gorun-agent 1; sleep 0.3; exit 1;;
esac
shift
exec "$@"
`
	if err := os.WriteFile(shell, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		hosts string
		flags string // more of them
		n     int    // ranks that wait, and those of the same program that are not there
		other string
		goOn  int
	}{
		"late":            {"a,late", "-n 1 /bin/false :", 1, "0", 1},
		"late, in a tree": {"a,late", "--tree-width 1 -n 1 /bin/false :", 1, "0", 1},
		"lost":            {"a,lost", "", 2, "1", 1},
		"lost, in a tree": {"a,b,lost", "--tree-width 1", 3, "2", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := append([]string{"--enable-recovery", "--launcher", "exec", "--launch-agent", shell, "-H", c.hosts},
				strings.Fields(c.flags)...)
			j := run(t, spec{n: c.n, role: "left", args: []string{c.other}, flags: flags}, 1)
			if n := j.count(`^goes on$`); n != c.goOn {
				t.Errorf("%d ranks go on:\n%s\n%s", n, j.out.String(), j.err.String())
			}
		})
	}
}

// recovery is a job whose rank 1 dies. The others see it as failed, speak with each other, and finalize.
func recovery(_ context.Context, w *mpi.Comm) error {
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	if w.Rank() == 1 { // it dies when all are through: a rank that is still in the barrier may need it
		for _, other := range []int{0, 2, 3} {
			if _, err := mpi.Recv(w, []byte{0}, other, tagGo); err != nil {
				return err
			}
		}
		if os.Args[1] == "exit" {
			os.Exit(4)
		}
		die()
	}
	if err := mpi.Send(w, []byte{1}, 1, tagGo); err != nil {
		return err
	}
	_, err := mpi.Recv(w, []byte{0}, 1, tagData)
	if failed := errors.Is(err, mpi.ErrPeerFailed); !failed {
		return fmt.Errorf("the receive from the rank that died: %w", err)
	}
	// 0 → 2 → 3 → 0
	next := map[int]int{0: 2, 2: 3, 3: 0}[w.Rank()]
	last := map[int]int{2: 0, 3: 2, 0: 3}[w.Rank()]
	r, err := mpi.Irecv(w, []byte{0}, last, tagGo)
	if err != nil {
		return err
	}
	if err := mpi.Send(w, []byte{1}, next, tagGo); err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	fmt.Printf("rank %d goes on\n", w.Rank())
	return nil
}

// With --enable-recovery the ranks go on that are left, on one host and on several, and end well.
func TestRecovery(t *testing.T) {
	t.Parallel()
	for how, code := range map[string]int{"exit": 4, "die": 137} {
		for _, flags := range [][]string{nil, {"--launcher", "exec", "-H", "a:2,b:2"}} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				flags := append([]string{"--enable-recovery"}, flags...)
				j := run(t, spec{n: 4, role: "recovery", args: []string{how}, flags: flags}, code)
				if n := j.count(`^rank [023] goes on$`); n != 3 {
					t.Errorf("%d ranks go on:\n%s\n%s", n, j.out.String(), j.err.String())
				}
				j.says(`rank 1 .*; the job goes on without it`)
				if n := j.count(`; the job goes on without it`); n != 1 {
					t.Errorf("%d ranks have failed:\n%s", n, j.err.String())
				}
			})
		}
	}
}

// outlive is a job some of whose ranks die at random moments. The others revoke what they cannot go on with, shrink,
// and go on, until all that are to die have died and some rounds are done. os.Args: the seed, how many ranks die, and 1
// if rank 0 is one of them.
func outlive(_ context.Context, w *mpi.Comm) error {
	var arg [3]int
	for i := range arg {
		var err error
		if arg[i], err = strconv.Atoi(os.Args[1+i]); err != nil {
			return err
		}
	}
	seed, die0 := uint64(arg[0]), arg[2] != 0
	rnd, n := rand.New(rand.NewPCG(seed, 1)), w.Size()
	dies := map[int]time.Duration{} // after so long
	for _, rank := range rnd.Perm(n) {
		if len(dies) < arg[1] && (rank != 0 || die0) {
			dies[rank] = time.Duration(rnd.IntN(20_000)) * time.Microsecond
		}
	}
	for other := range n { // a link to each: one that is being made when its rank dies ends by its own timeout
		if _, err := mpi.Sendrecv(w, []byte{1}, other, tagGo, make([]byte, 1), other, tagGo); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	if after, is := dies[w.Rank()]; is {
		time.AfterFunc(after, die)
	}
	c, mine, done := w, 1<<w.Rank(), 0
	for done < 50 {
		sum := []int{0}
		failed := mpi.Allreduce(c, []int{mine}, sum, mpi.BitOr)
		if failed == nil && done%3 == 0 { // a ring, in which a rank waits for another one
			next, last := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
			_, failed = mpi.Sendrecv(c, make([]int, 20_000), next, tagData, make([]int, 20_000), last, tagData)
		}
		flags := uint32(1)
		if failed != nil {
			if !errors.Is(failed, mpi.ErrPeerFailed) && !errors.Is(failed, mpi.ErrRevoked) {
				return failed
			}
			flags = 0
			if err := c.Revoke(); err != nil {
				return err
			}
		}
		agreed, err := c.Agree(flags)
		if err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
			return err
		}
		if err == nil && agreed == 1 {
			if c.Size() == n-len(dies) {
				done++
			}
			continue
		}
		d, err := c.Shrink()
		if err != nil {
			return err
		}
		if c != w {
			if err := c.Free(); err != nil {
				return err
			}
		}
		c = d
	}
	sum := []int{0}
	if err := mpi.Allreduce(c, []int{mine}, sum, mpi.BitOr); err != nil {
		return err
	}
	fmt.Printf("%d ranks are left: %x\n", c.Size(), sum[0])
	return nil
}

// Ranks that are killed at any moment, rank 0 and all of a host among them, leave the others able to revoke, agree and
// shrink, in one memory and between hosts.
func TestOutlivingRanks(t *testing.T) {
	t.Parallel()
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		for where, flags := range map[string][]string{
			"one host": nil, "two hosts": {"--launcher", "exec", "-H", "a:3,b:3"},
		} {
			t.Run(fmt.Sprintf("%s, seed %d", where, seed), func(t *testing.T) {
				t.Parallel()
				const n = 6
				deaths := 1 + seed%4
				s := spec{n: n, role: "outlive", flags: append([]string{"--enable-recovery"}, flags...),
					args: []string{strconv.Itoa(seed), strconv.Itoa(deaths), strconv.Itoa(seed % 2)}}
				j := run(t, s, 137)
				line := regexp.MustCompile(`(?m)^(\d) ranks are left: ([0-9a-f]+)$`)
				left := line.FindAllStringSubmatch(j.out.String(), -1)
				if len(left) != n-deaths {
					t.Fatalf("%d ranks say that they are left:\n%s\n%s", len(left), j.out.String(), j.err.String())
				}
				for _, l := range left {
					mask, _ := strconv.ParseUint(l[2], 16, 64)
					if l[0] != left[0][0] || l[1] != strconv.Itoa(n-deaths) || bits.OnesCount64(mask) != n-deaths {
						t.Errorf("the ranks that are left differ:\n%s", j.out.String())
					}
				}
			})
		}
	}
}
