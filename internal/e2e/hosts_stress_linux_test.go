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

// weather is what happens to hosts that a job must survive.
type weather struct {
	t      *testing.T
	h      *netns.Hosts
	j      *hostJob
	random *rand.Rand
	past   map[string]int // how often what has happened
	said   map[string]int // how often rank 0 was heard to say what
	end    time.Time      // when the job hangs, if it has not ended
}

// between draws a time.
func (w *weather) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.random.Int64N(int64(hi-lo)))
}

// next lets one thing happen and be over.
func (w *weather) next() {
	host := 1 + w.random.IntN(w.h.Count())
	var name string
	var begin, end func() error
	last := w.between(100*time.Millisecond, 1200*time.Millisecond)
	switch w.random.IntN(5) {
	case 0:
		name, begin, end = "flap", func() error { return w.h.LinkDown(host) }, func() error { return w.h.LinkUp(host) }
	case 1:
		percent := float64(1+w.random.IntN(30)) / 10
		name, begin, end = "loss", func() error { return w.h.Loss(host, percent) }, func() error { return w.h.Heal(host) }
	case 2:
		megabits := 20 + w.random.IntN(180)
		name, begin, end = "rate", func() error { return w.h.Rate(host, megabits) }, func() error { return w.h.Rate(host, 0) }
	case 3:
		name, begin, end = "freeze", func() error { return w.h.Freeze(host) }, func() error { return w.h.Thaw(host) }
	default:
		w.drop(host)
		return
	}
	w.past[name]++
	must(w.t, begin())
	time.Sleep(last)
	must(w.t, end())
}

// drop aborts the connections of a host while nothing is under way.
func (w *weather) drop(host int) {
	w.j.tell("pause")
	idle := w.awaits("stress: idle")
	if idle {
		time.Sleep(300 * time.Millisecond) // what the last round has left on the way arrives
		quiet(w.t, w.h)
		must(w.t, w.h.KillConnections(host))
		w.past["drop"]++
	}
	must(w.t, os.Remove(filepath.Join(w.j.folder, "pause")))
	if idle {
		w.awaits("stress: goes on")
	}
}

// awaits waits until rank 0 says what it has said once for each drop. False: the job is over, or hangs.
func (w *weather) awaits(what string) bool {
	for strings.Count(w.j.Output(0), what) <= w.said[what] {
		if w.over() || time.Now().After(w.end) {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.said[what]++
	return true
}

func (w *weather) over() bool {
	select {
	case <-w.j.Ended(0):
		return true
	default:
		return false
	}
}

// The stress run on three hosts with two ranks each, in bad weather: every byte of every message is right.
func TestHostsStress(t *testing.T) {
	last, seed := 4*time.Second, rand.Uint64()
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
	h := netns.Up(t, 3)
	prog := proc.Build(t, "benchmarks/stress")
	w := &weather{t: t, h: h, random: rand.New(rand.NewPCG(seed, 4)), past: map[string]int{}, said: map[string]int{}}
	folder := t.TempDir()
	w.j = runOn(t, h, spread{perHost: []int{2, 2, 2}, prog: prog, timeout: patience, folder: folder,
		args: []string{"-time", last.String(), "-seed", fmt.Sprint(seed | 1), "-max", "2097152", "-messages", "600", "-pause", filepath.Join(folder, "pause")}})
	w.end = time.Now().Add(last + patience)
	w.j.limit = patience
	for !w.over() && time.Now().Before(w.end) {
		w.next()
	}
	w.j.finish(0)
	w.j.says(0, `^stress: 6 ranks, .* every byte was right`)
	if _, verdict, ok := strings.Cut(w.j.Output(0), "stress: 6"); ok {
		t.Logf("%v; 6%s", w.past, verdict)
	}
}
