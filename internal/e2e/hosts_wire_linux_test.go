package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/testkit/vswitch"
)

// overWire has ranks of different hosts talk over the switch of the test.
const overWire = "GORUN_TCP_IF=" + netns.WireDevice

// Long packets are lost without a word, and short ones pass, so that the receiver's probes are answered all the time: a
// connection ends within the peer timeout at both ends, and the error names the MTU.
func TestHostsBlackHole(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 2)
	wire := h.Wire(t)
	j := runOn(t, h, spread{role: "hosts chatter", timeout: soonDead, env: []string{overWire}})
	j.allReady()
	wire.Set(vswitch.All, vswitch.All, vswitch.Faults{MaxPacket: 1400})
	from := time.Now()
	j.signal("go")
	words := j.failsWithin(0, soonDead+margin, from, "peer failed")
	j.failsWithin(1, soonDead+margin, from, "peer failed")
	for _, want := range []string{"GORUN_PEER_TIMEOUT is 3s", "MTU of 1500"} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in: %s", want, words)
		}
	}
	j.signal("end")
	j.finish(-1)
}

// The stress run over a network that loses, repeats, delays and reorders packets, and cuts hosts off one way: every byte
// of every message is right.
func TestHostsStressWire(t *testing.T) {
	last, seed := soak(t)
	h := netns.Up(t, 3)
	wire := h.Wire(t)
	random := rand.New(rand.NewPCG(seed, 5))
	j := runOn(t, h, spread{perHost: []int{2, 2, 2}, prog: proc.Build(t, "benchmarks/stress"), timeout: patience,
		env: []string{overWire},
		args: []string{"-time", last.String(), "-seed", fmt.Sprint(seed | 1), "-max", "262144", "-messages", "200",
			"-limits"}})
	j.limit = patience
	pause := func(most time.Duration) (ended bool) {
		select {
		case <-j.Ended(0):
			return true
		case <-time.After(time.Duration(random.Int64N(int64(most)))):
			return false
		}
	}
	for end := time.Now().Add(last + patience); time.Now().Before(end); {
		f := vswitch.Faults{Loss: random.Float64() / 100, Repeat: random.Float64() / 50}
		switch random.IntN(3) {
		case 0:
			f.Delay, f.Jitter = time.Millisecond, time.Duration(random.Int64N(int64(3*time.Millisecond)))
		case 1:
			f.Cut = true
		}
		wire.Set(random.IntN(4), random.IntN(4), f) // 0 is all
		ended := pause(400 * time.Millisecond)
		wire.Set(vswitch.All, vswitch.All, vswitch.Faults{})
		if ended || pause(400*time.Millisecond) {
			break
		}
	}
	j.finish(0)
	j.says(0, `^stress: 6 ranks, .* every byte was right`)
	t.Logf("the switch has dropped %d frames", wire.Dropped())
}
