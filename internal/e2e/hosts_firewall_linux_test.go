package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/netns"
)

// One-way firewalls: a rank that cannot dial another one is connected by that, whether its own attempts are dropped or
// refused, and whichever of the two has the lower rank.
func TestHostsOneWayFirewall(t *testing.T) {
	for _, how := range []string{"reset", "drop"} {
		for _, from := range []int{1, 2} {
			t.Run(how+" from h"+string(rune('0'+from)), func(t *testing.T) {
				t.Parallel()
				h := netns.Up(t, 2)
				must(t, h.Block(from, 3-from, how))
				j := runOn(t, h, spread{role: "hosts one talks", args: []string{string(rune('0' + from - 1))}})
				j.limit = 25 * time.Second // less than GORUN_PEER_TIMEOUT: no attempt has to be given up before
				j.finish(0)
			})
		}
	}
}

// Where neither side can connect, the error is no failure of a peer, and names the firewall and what tries the ports.
func TestHostsFirewallBothWays(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 2)
	must(t, h.Block(1, 2, "reset"))
	must(t, h.Block(2, 1, "reset"))
	j := runOn(t, h, spread{role: "hosts connect", timeout: soonDead})
	j.allReady()
	j.signal("go")
	j.finish(-1)
	for _, want := range []string{"peer failed false, timeout true", "connection refused", "a firewall looks the same", "gorun doctor",
		"was told to connect by itself"} {
		if !strings.Contains(j.all(), want) {
			t.Errorf("no %q in:\n%s", want, j.all())
		}
	}
}
