//go:build linux

package shm

import (
	"cmp"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

const abilities = transporttest.Get | transporttest.Put | transporttest.Presence | transporttest.Memory |
	transporttest.Introducer | transporttest.Refused | transporttest.Short | transporttest.ConnectNow |
	transporttest.Boards

func pair(opt Options) func(*testing.T) transporttest.Pair {
	return func(t *testing.T) transporttest.Pair {
		rank := func(rank int) transport.Device {
			opt := opt
			opt.Rank, opt.Size, opt.Local = rank, 3, cmp.Or(opt.Local, 2)
			d, err := newDevice(opt)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		return transporttest.Pair{A: rank(0), B: rank(1), Third: func() transport.Device { return rank(2) }}
	}
}

// Brief: where all processors are busy the netpoller is looked at every 10 ms only, and 10,000 wake-ups of a goroutine
// take a minute.
func TestConformance(t *testing.T) {
	transporttest.Run(t, pair(Options{}), transporttest.Has(abilities), transporttest.Brief())
}

func TestConformanceFaulty(t *testing.T) {
	transporttest.RunFaulty(t, pair(Options{}), transporttest.Has(abilities&^transporttest.Short&^transporttest.ConnectNow))
}

func TestConformanceNoGet(t *testing.T) {
	const rest = abilities &^ (transporttest.Get | transporttest.Put)
	transporttest.Run(t, pair(Options{NoGet: true}), transporttest.Has(rest), transporttest.Brief())
}

// Where no process's descriptors can be opened.
func TestConformanceBySocket(t *testing.T) {
	const rest = abilities &^ (transporttest.ConnectNow | transporttest.Boards)
	transporttest.Run(t, pair(Options{bySocket: true}), transporttest.Has(rest), transporttest.Brief())
}

// Small rings, as when a host has many ranks.
func TestConformanceManyRanks(t *testing.T) {
	transporttest.Run(t, pair(Options{Local: 100}), transporttest.Has(abilities), transporttest.Brief())
}
