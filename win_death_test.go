package mpi_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/testkit/truth"
	"github.com/gorun-mpi/mpi/transport"
)

// A rank that dies at any step of a program on a window leaves no other rank waiting, and no other rank with a wrong
// value. GORUN_TEST_LITMUS=SEED runs one program.
func TestDeathInWindow(t *testing.T) {
	for _, hosts := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%d hosts", hosts), func(t *testing.T) {
			first, programs := uint64(crc32.ChecksumIEEE([]byte(t.Name()))), 60
			if testing.Short() {
				programs = 3
			}
			if text := os.Getenv("GORUN_TEST_LITMUS"); text != "" {
				seed, err := strconv.ParseUint(text, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				first, programs = seed, 1
			}
			for seed := first; seed < first+uint64(programs); seed++ {
				dieInWindow(t, seed, hosts)
			}
		})
	}
}

func dieInWindow(t *testing.T, seed uint64, hosts int) {
	const ranks = 4
	var devices [ranks]transport.Device
	where := mpi.Option(func(o *join.Options) {
		o.Host = func(rank int) int { return rank % hosts }
		o.Wrap = func(rank int, d transport.Device) transport.Device {
			devices[rank] = d
			return d
		}
	})
	what := fmt.Sprint(&truth.WindowDeath{Seed: seed, Create: seed%2 == 0})
	defer time.AfterFunc(time.Minute, func() { panic(what + ": hangs") }).Stop()
	var living sync.WaitGroup
	living.Add(ranks - 1)
	var errs [ranks]error
	mpi.RunLocal(ranks, func(w *mpi.Comm) error {
		for other := range ranks { // a link to each, which tells of the end of a device; no launcher does
			if _, err := mpi.Sendrecv(w, []byte{1}, other, 1, make([]byte, 1), other, 1); err != nil {
				errs[w.Rank()] = err
			}
		}
		dead := false
		p := truth.WindowDeath{Seed: seed, Create: seed%2 == 0, Die: func() {
			devices[w.Rank()].Close()
			dead = true
		}}
		errs[w.Rank()] = errors.Join(errs[w.Rank()], p.Run(w))
		if !dead {
			living.Done()
			return nil
		}
		living.Wait()
		return errors.New("the rank has died") // without an error it would wait for what is under way over its device
	}, where)
	if err := errors.Join(errs[:]...); err != nil {
		t.Errorf("%v", err)
	}
}
