package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/netns"
)

const (
	// soonDead is the peer timeout of jobs whose links go down for good; margin is what detection may take beyond it: the
	// interval of the checks, and a loaded machine. Together they are less than the default timeout of 30 s, so a rank
	// that ignores the setting fails the test.
	soonDead = 3 * time.Second
	margin   = 25 * time.Second
)

// A dead link: calls that need the peer fail within the peer timeout, the job ends, and what is printed names the link
// and the setting. With nothing in flight it is keep-alive that notices.
func TestHostsLinkDown(t *testing.T) {
	for _, how := range []string{"recv", "flow"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			h := netns.Up(t, 3)
			j := runBlocked(t, h, how, soonDead)
			down := time.Now()
			must(t, h.LinkDown(2))
			words := j.failsWithin(0, soonDead+margin, down, "peer failed")
			if !regexp.MustCompile(`link to rank 1 \(10\.77\.0\.1:\d+ ↔ 10\.77\.0\.2:\d+\)`).MatchString(words) &&
				!regexp.MustCompile(`link to rank 1 \(\[fd77::1\]:\d+ ↔ \[fd77::2\]:\d+\)`).MatchString(words) {
				t.Errorf("no link is named: %s", words)
			}
			if !strings.Contains(words, "GORUN_PEER_TIMEOUT is 3s") {
				t.Errorf("GORUN_PEER_TIMEOUT is not named: %s", words)
			}
			j.finish(-1) // rank 0 aborts the job; rank 1 notices by itself
		})
	}
}

// To connect while the link is down is an error within the peer timeout.
func TestHostsConnectLinkDown(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 2)
	j := runOn(t, h, spread{role: "hosts connect", timeout: soonDead})
	j.allReady()
	must(t, h.LinkDown(2))
	down := time.Now() // nothing is dialled before
	j.signal("go")
	words := j.failsWithin(0, soonDead+margin, down, "timeout")
	for _, want := range []string{"10.77.0.2:", "fd77::2]:", "no answer"} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in: %s", want, words)
		}
	}
	j.finish(-1)
}

// A link that is down for less than the peer timeout costs time, and nothing else; so does a bad one.
func TestHostsLinkFlaps(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 3)
	j := runOn(t, h, spread{role: "hosts traffic"})
	j.allReady()
	j.progresses()
	must(t, h.LinkDown(2))
	since := time.Now()
	time.Sleep(5 * time.Second)
	last := len(j.roundsSince(since))
	must(t, h.LinkUp(2))
	if last > mayEnd {
		t.Errorf("%d rounds while the link was down: it was not", last)
	}
	j.progresses()
	must(t, h.Loss(1, 1))
	must(t, h.Loss(2, 1))
	j.progresses()
	time.Sleep(time.Second)
	j.progresses()
	must(t, h.Heal(1, 2))
	j.stop()
}
