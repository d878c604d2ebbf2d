//go:build linux

package shm

import (
	"testing"

	"github.com/gorun-mpi/mpi/transport/transporttest"
)

const abilities = transporttest.Get | transporttest.Put | transporttest.Presence | transporttest.Memory |
	transporttest.Introducer | transporttest.Refused

func pair(opt Options) func(*testing.T) transporttest.Pair {
	return func(t *testing.T) transporttest.Pair {
		var d [2]*Device
		for i := range d {
			var err error
			opt.Rank, opt.Size = i, 2
			if d[i], err = newDevice(opt); err != nil {
				t.Fatal(err)
			}
		}
		return transporttest.Pair{A: d[0], B: d[1]}
	}
}

// Brief: where all processors are busy the netpoller is looked at every 10 ms only, and 10,000 wake-ups of a goroutine
// take a minute.
func TestConformance(t *testing.T) {
	transporttest.Run(t, pair(Options{}), transporttest.Has(abilities), transporttest.Brief())
}

func TestConformanceFaulty(t *testing.T) {
	transporttest.RunFaulty(t, pair(Options{}), transporttest.Has(abilities))
}

func TestConformanceNoGet(t *testing.T) {
	const rest = abilities &^ (transporttest.Get | transporttest.Put)
	transporttest.Run(t, pair(Options{NoGet: true}), transporttest.Has(rest), transporttest.Brief())
}

// Small rings, as when a host has many ranks.
func TestConformanceManyRanks(t *testing.T) {
	transporttest.Run(t, pair(Options{Local: 100}), transporttest.Has(abilities), transporttest.Brief())
}
