//go:build linux

package shm

import (
	"testing"

	"github.com/gorun-mpi/mpi/transport/transporttest"
)

func pair(t *testing.T, noGet bool, local int) transporttest.Pair {
	t.Helper()
	var d [2]*Device
	for i := range d {
		var err error
		if d[i], err = New(Options{Rank: i, Size: 2, Local: local, NoGet: noGet}); err != nil {
			t.Fatal(err)
		}
	}
	return transporttest.Pair{A: d[0], B: d[1]}
}

func TestConformance(t *testing.T) {
	// Brief: where all processors are busy the netpoller is looked at every 10 ms only, and 10,000 wake-ups of a
	// goroutine take a minute.
	transporttest.Run(t, func(t *testing.T) transporttest.Pair { return pair(t, false, 2) }, transporttest.Brief())
}

func TestConformanceNoGet(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair { return pair(t, true, 2) }, transporttest.NoGet(), transporttest.Brief())
}

// Small rings, as when a host has many ranks.
func TestConformanceManyRanks(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair { return pair(t, false, 100) }, transporttest.Brief())
}
