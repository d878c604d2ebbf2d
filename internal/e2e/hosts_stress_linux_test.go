package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// The environment of TestHostsStress: how long, and the seed of its faults and messages.
const (
	soakVar = "GORUN_TEST_SOAK"
	seedVar = "GORUN_TEST_SEED"
)

// chaos lets links, hosts and connections fail at random; the job must survive it.
type chaos struct {
	t      *testing.T
	h      *netns.Hosts
	j      *hostJob
	random *rand.Rand
	past   map[string]int // by fault: how often it has happened
	said   map[string]int // by text: how often the test has waited for rank 0 to print it
	end    time.Time      // when the job hangs, if it has not ended
}

// between draws a time.
func (c *chaos) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(c.random.Int64N(int64(hi-lo)))
}

// next lets one fault happen and be over.
func (c *chaos) next() {
	host := 1 + c.random.IntN(c.h.Count())
	var name string
	var begin, end func() error
	last := c.between(100*time.Millisecond, 1200*time.Millisecond)
	switch c.random.IntN(5) {
	case 0:
		name, begin, end = "flap", func() error { return c.h.LinkDown(host) }, func() error { return c.h.LinkUp(host) }
	case 1:
		percent := float64(1+c.random.IntN(30)) / 10
		name, begin, end = "loss", func() error { return c.h.Loss(host, percent) }, func() error { return c.h.Heal(host) }
	case 2:
		megabits := 20 + c.random.IntN(180)
		name, begin, end = "rate", func() error { return c.h.Rate(host, megabits) }, func() error { return c.h.Rate(host, 0) }
	case 3:
		name, begin, end = "freeze", func() error { return c.h.Freeze(host) }, func() error { return c.h.Thaw(host) }
	default:
		c.drop(host)
		return
	}
	c.past[name]++
	must(c.t, begin())
	time.Sleep(last)
	must(c.t, end())
}

// drop aborts the connections of a host while nothing is under way.
func (c *chaos) drop(host int) {
	c.j.signal("pause")
	idle := c.awaits("stress: idle")
	if idle {
		time.Sleep(300 * time.Millisecond) // what the last round has left on the way arrives
		quiet(c.t, c.h)
		must(c.t, c.h.KillConnections(host))
		c.past["drop"]++
	}
	must(c.t, os.Remove(filepath.Join(c.j.folder, "pause")))
	if idle {
		c.awaits("stress: goes on")
	}
}

// awaits waits until rank 0 has printed what, once more than before. It reports whether that has come: otherwise the
// job is over, or hangs.
func (c *chaos) awaits(what string) bool {
	for strings.Count(c.j.Output(0), what) <= c.said[what] {
		if c.over() || time.Now().After(c.end) {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	c.said[what]++
	return true
}

func (c *chaos) over() bool {
	select {
	case <-c.j.Ended(0):
		return true
	default:
		return false
	}
}

// soak is for how long a stress run lasts, and its seed.
func soak(t *testing.T) (last time.Duration, seed uint64) {
	last, seed = 4*time.Second, rand.Uint64()
	if v := os.Getenv(soakVar); v != "" {
		var err error
		if last, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	if v := os.Getenv(seedVar); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("to see it again: %s=%d %s=%v", seedVar, seed, soakVar, last)
	return last, seed
}

// The stress run on three hosts with two ranks each, while links, hosts and connections fail, and descriptors run out:
// every byte of every message is right.
func TestHostsStress(t *testing.T) {
	last, seed := soak(t)
	h := netns.Up(t, 3)
	prog := proc.Build(t, "benchmarks/stress")
	c := &chaos{t: t, h: h, random: rand.New(rand.NewPCG(seed, 4)), past: map[string]int{}, said: map[string]int{}}
	folder := t.TempDir()
	c.j = runOn(t, h, spread{perHost: []int{2, 2, 2}, prog: prog, timeout: patience, folder: folder,
		args: []string{"-time", last.String(), "-seed", fmt.Sprint(seed | 1), "-max", "2097152", "-messages", "600",
			"-limits", "-pause", filepath.Join(folder, "pause")}})
	c.end = time.Now().Add(last + patience)
	c.j.limit = patience
	for !c.over() && time.Now().Before(c.end) {
		c.next()
	}
	c.j.finish(0)
	c.j.says(0, `^stress: 6 ranks, .* every byte was right`)
	if _, verdict, ok := strings.Cut(c.j.Output(0), "stress: 6"); ok {
		t.Logf("%v; 6%s", c.past, verdict)
	}
}
