//go:build verbs && linux && cgo

package verbs

import (
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/multi"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

// able is what devices and links here can do; those that match tags have Offload in addition.
const able = transporttest.Get | transporttest.Put | transporttest.PutNote | transporttest.Atomics |
	transporttest.Memory | transporttest.Import | transporttest.Introducer | transporttest.Refused

// suite are the options of the conformance suite that hold for every configuration here. A message waits in a receive
// buffer of the peer, or in the queue of a sender that is there.
func suite(more ...transporttest.Option) []transporttest.Option {
	more = append(more, transporttest.Has(able), transporttest.BadKeysEnd(), transporttest.Leaves(receives/2))
	if inGuest() {
		more = append(more, transporttest.Brief())
	}
	return more
}

func pair(change ...func(*Options)) func(*testing.T) transporttest.Pair {
	return func(t *testing.T) transporttest.Pair {
		return transporttest.Pair{A: newDevice(t, 0, 3, change...), B: newDevice(t, 1, 3, change...),
			Third: func() transport.Device { return newDevice(t, 2, 3, change...) }}
	}
}

func tagsOn(o *Options) { o.Tags = "on" }

func TestConformance(t *testing.T) { transporttest.Run(t, pair(), suite()...) }

// The same over queue pairs whose receivers match tags.
func TestConformanceTags(t *testing.T) {
	needSoft(t)
	transporttest.Run(t, pair(tagsOn), suite(transporttest.Has(transporttest.Offload), transporttest.Brief())...)
}

// Devices that misbehave on top of those, with all that they can do: what the engine's random tests run over.
func TestConformanceFaulty(t *testing.T) {
	needSoft(t)
	transporttest.RunFaulty(t, pair(tagsOn), suite(transporttest.Has(transporttest.Offload))...)
}

// One end matches tags and the other cannot: one queue pair each, and everything matched by software.
func TestConformanceMixed(t *testing.T) {
	needSoft(t)
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		return transporttest.Pair{A: newDevice(t, 0, 2, tagsOn), B: newDevice(t, 1, 2)}
	}, suite(transporttest.Brief())...)
}

// What a device does for its receives passes through one of several.
func TestConformanceAmongSeveral(t *testing.T) {
	needSoft(t)
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		among := func(d transport.Device) transport.Device {
			several, err := multi.New(nil, d)
			if err != nil {
				t.Fatal(err)
			}
			return several
		}
		p := pair(tagsOn)(t)
		return transporttest.Pair{A: among(p.A), B: among(p.B)}
	}, transporttest.Has(able&^transporttest.Import|transporttest.Offload|transporttest.Via), transporttest.BadKeysEnd(),
		transporttest.Leaves(receives/2), transporttest.Brief())
}

// The records that Go and C share have one layout.
func TestLayout(t *testing.T) {
	for i, sizes := range layouts() {
		if sizes[0] != sizes[1] {
			t.Errorf("record %d has %d bytes in Go and %d in C", i, sizes[0], sizes[1])
		}
	}
}
