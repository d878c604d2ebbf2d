package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// mapped is how ss prints an IPv4 address at the end that accepted, as its listener takes both families.
var mapped = regexp.MustCompile(`\[::ffff:([0-9.]+)\]`)

// The addresses and ports in use are those of the settings.
func TestHostsAddresses(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 2)
	for _, test := range []struct {
		name, setting string
		local, peer   string // of the connection, as h1 sees it; parts
		port          string // of one end; ""; any
	}{
		{"IPv6 only", "GORUN_TCP_IF=fd77::/64", "[fd77::1]:", "[fd77::2]:", ""},
		{"without IPv6", "GORUN_TCP_IF=!fd77::/64", "10.77.0.1:", "10.77.0.2:", ""},
		{"interface", "GORUN_TCP_IF=eth*,!10.0.0.0/8", "[fd77::1]:", "[fd77::2]:", ""},
		{"ports", "GORUN_TCP_PORTS=41000-41001", "", "", ":4100"},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := runOn(t, h, spread{role: "hosts two talk", env: []string{test.setting}})
			j.signal("go")
			j.allReady()
			var lines []string
			proc.Eventually(t, "one connection", func() bool { lines = between(t, h, 1); return len(lines) == 1 })
			ends := strings.Fields(mapped.ReplaceAllString(lines[0], "$1"))
			if len(ends) < 4 || !strings.HasPrefix(ends[2], test.local) || !strings.HasPrefix(ends[3], test.peer) ||
				!strings.Contains(lines[0], test.port) {
				t.Errorf("the connection is %q, want %s… to %s… with port %s", lines[0], test.local, test.peer, test.port)
			}
			if test.port != "" {
				for _, line := range sockets(t, h, 1, "-l") {
					if !strings.Contains(line, test.port) {
						t.Errorf("h1 listens at %q", line)
					}
				}
			}
			j.signal("stop")
			j.finish(0)
		})
	}
}

// A setting that cannot be met is an error of Init, which names what was asked and what there is.
func TestHostsNoAddress(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 2)
	taken := []string{"GORUN_TCP_PORTS=42000", "taken", "each rank on a host needs one"}
	for settings, want := range map[string][]string{
		"GORUN_TRANSPORTS=tcp GORUN_TCP_IF=eth7":         {"eth7", "eth0", "GORUN_TCP_IF"},
		"GORUN_TRANSPORTS=tcp GORUN_TCP_IF=10.78.0.0/16": {"10.78.0.0/16", "10.77.0.", "GORUN_TCP_IF"},
		"GORUN_TRANSPORTS=tcp GORUN_TCP_PORTS=42000":     taken,
		"GORUN_TCP_PORTS=42000":                          taken, // shm opens and does not reach the other host
	} {
		t.Run(settings, func(t *testing.T) {
			j := runOn(t, h, spread{perHost: []int{2, 2}, role: "hosts mixed", grace: time.Second,
				env: strings.Fields(settings)}).finish(1)
			said := ""
			for _, line := range strings.Split(j.all(), "\n") {
				missing := func(w string) bool { return !strings.Contains(line, w) }
				if strings.HasPrefix(line, "mpi: Init:") && !slices.ContainsFunc(want, missing) {
					said = line
				}
			}
			if said == "" {
				t.Errorf("Init does not say %q but\n%s", want, j.all())
			}
			t.Log(said)
		})
	}
}
