package netns

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/vswitch"
)

// WireDevice is the network device of a host that Wire makes.
const WireDevice = "wire0"

// Wire joins the hosts by a second network, whose switch the test has in its hands: host i is at port i, and has
// WireAddress. It is gone at the end of the test, which is skipped where the kernel has no TAP devices.
func (h *Hosts) Wire(tb testing.TB) *vswitch.Switch {
	tb.Helper()
	var ports []vswitch.Port
	for host := 1; host <= h.n; host++ {
		err := h.Do(host, func() error {
			p, err := vswitch.OpenTAP(WireDevice)
			if err == nil {
				ports = append(ports, p)
			}
			return err
		})
		if err != nil {
			for _, p := range ports {
				p.Close()
			}
			tb.Skipf("%v: %v", ErrUnavailable, err)
		}
	}
	s := vswitch.New(ports...)
	tb.Cleanup(func() { s.Close() })
	for host := 1; host <= h.n; host++ {
		up := fmt.Sprintf("ip addr add %v/24 dev %s && ip link set %[2]s up", h.WireAddress(host), WireDevice)
		if out, err := h.Command(host, "sh", "-c", up).CombinedOutput(); err != nil {
			tb.Fatalf("%s on h%d: %v: %s", up, host, err, strings.TrimSpace(string(out)))
		}
	}
	return s
}

// WireAddress is a host's address in the network of Wire.
func (h *Hosts) WireAddress(host int) netip.Addr {
	return netip.MustParseAddr("10.78.0." + strconv.Itoa(host))
}
