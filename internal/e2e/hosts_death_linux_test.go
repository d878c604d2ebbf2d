package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/netns"
)

// A host dies: its kernel may have closed the connections (crash), or not (poweroff). A call that needs a rank of it
// fails within the peer timeout, and the job ends.
func TestHostsHostDies(t *testing.T) {
	for fault, die := range map[string]func(*netns.Hosts) error{
		"crash":    func(h *netns.Hosts) error { return h.Crash(2) },
		"poweroff": func(h *netns.Hosts) error { return h.PowerOff(2) },
	} {
		for _, how := range []string{"recv", "flow"} {
			t.Run(fault+"/"+how, func(t *testing.T) {
				t.Parallel()
				h := netns.Up(t, 3)
				j := runBlocked(t, h, how, soonDead)
				dead := time.Now()
				must(t, die(h))
				j.failsWithin(0, soonDead+margin, dead, "peer failed")
				j.finish(-1)
				if want := []int{128 + 9, 128 + 9, 128 + 9}; !slices.Equal(j.codes, want) && j.codes[0] != 1 {
					t.Errorf("codes %v", j.codes)
				}
			})
		}
	}
}

// A rank that is killed in the middle of 64 MiB, the sender or the receiver: the other one fails at once, long before
// any timeout.
func TestHostsRankKilled(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 2)
	for victim := range 2 {
		t.Run(fmt.Sprintf("rank %d", victim), func(t *testing.T) {
			j := runBlocked(t, h, "flow", 0)
			dead := time.Now()
			j.Kill(victim)
			j.failsWithin(1-victim, margin, dead, "peer failed")
			j.finish(-1)
		})
	}
}

// Silence of a process is not failure: a host that is frozen for longer than the peer timeout and thawed has missed
// nothing. Its kernel has answered all the time, also with a closed window.
func TestHostsFreeze(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 3)
	j := runOn(t, h, spread{role: "hosts traffic", timeout: soonDead})
	j.allReady()
	j.progresses()
	must(t, h.Freeze(2))
	since := time.Now()
	time.Sleep(soonDead + 2*time.Second)
	frozen := len(j.roundsSince(since))
	must(t, h.Thaw(2))
	if frozen > mayEnd {
		t.Errorf("%d rounds while a host was frozen: it was not", frozen)
	}
	j.progresses()
	j.stop()
}
