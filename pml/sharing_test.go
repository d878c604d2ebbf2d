package pml

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// Where a rank does not share its memory, or another one cannot open it, the log says why, once: otherwise a user sees
// slow messages, and no reason.
func TestNotSharedIsSaid(t *testing.T) {
	for _, c := range []struct {
		name, why string
		options   acceltest.Options
		rank      int // that says it
	}{
		{"not shared", "cannot be mapped", acceltest.Options{NotShared: true}, 0},
		{"not opened", "Open: ", acceltest.Options{}, 1},
	} {
		d := newDeviceRanks(t, 2, c.options)
		if c.rank == 1 {
			d.procs[1].Fail("Open", 1)
		}
		var mu sync.Mutex
		var said []string
		for rank, e := range d.e {
			e.cfg.Debug = func(msg string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				if msg == notSharedBecause {
					said = append(said, fmt.Sprint(rank, args))
				}
			}
		}
		from, want := d.buffer(0, 0, 40_000)
		to, _ := d.buffer(1, 0, 40_000)
		for range 3 {
			s, r := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard), d.e[1].IrecvDevice(nil, 0, 0, 3, to)
			for _, q := range []*Request{s, r} {
				if _, err := d.wait(q); err != nil {
					t.Fatal(c.name, err)
				}
			}
			if !bytes.Equal(d.read(1, to), want) {
				t.Fatal(c.name, ": other bytes")
			}
		}
		d.left()
		if len(said) != 1 || !strings.HasPrefix(said[0], fmt.Sprint(c.rank)) || !strings.Contains(said[0], c.why) {
			t.Errorf("%s: said %q", c.name, said)
		}
	}
}
