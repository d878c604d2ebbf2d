package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

var hostLine = regexp.MustCompile(`(?m)^\d+ \d+ h\d+$`)

// Use is a set of hosts that is up already: BASE of `scripts/hosts up N BASE`. Close ends what was started by it and
// leaves the hosts.
func Use(base string) (*Hosts, error) {
	script, err := proc.CheckoutFile("scripts/hosts")
	if err != nil {
		return nil, err
	}
	if base, err = filepath.Abs(base); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(base, "pids"))
	if err != nil {
		return nil, fmt.Errorf("no hosts are up in %s (scripts/hosts up N %s makes them): %w", base, base, err)
	}
	h := &Hosts{n: len(hostLine.FindAll(text, -1)), script: script, base: base}
	if err := h.readProcesses(); err != nil {
		return nil, err
	}
	for i, p := range h.procs {
		if p.Alive() {
			continue
		}
		what := name(i)
		if i == Switch {
			what = "the switch"
		}
		return nil, fmt.Errorf("%s of the hosts in %s has ended: make them again (scripts/hosts down %s)", what, base, base)
	}
	return h, nil
}
