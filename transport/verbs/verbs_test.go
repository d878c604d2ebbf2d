//go:build verbs && linux && cgo

package verbs

import (
	"testing"

	"github.com/gorun-mpi/mpi/transport/faulty"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

// suite are the options of the conformance suite that hold for every configuration here. A message waits in a receive
// buffer of the peer, or in the queue of a sender that is there.
func suite(more ...transporttest.Option) []transporttest.Option {
	more = append(more, transporttest.Leaves(receives/2))
	if inGuest() {
		more = append(more, transporttest.Brief())
	}
	return more
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, pair(), suite(transporttest.BadKeysEnd())...)
}

// The same over queue pairs whose receivers match tags; nothing is handed down, so everything comes as unexpected.
func TestConformanceTags(t *testing.T) {
	needSoft(t)
	transporttest.Run(t, pair(func(o *Options) { o.Tags = "on" }), suite(transporttest.BadKeysEnd(), transporttest.TagHeaders(), transporttest.Brief())...)
}

// A device that misbehaves on top of one that does not: what the engine's random tests run over.
func TestConformanceFaulty(t *testing.T) {
	if inGuest() {
		t.Skip("what is wrapped is tested here; the wrapping is tested with the software HCA")
	}
	plan := faulty.Plan{Refuse: 0.1, RefuseFor: 5, Delay: 0.2, DelayFor: 20, Stall: 0.1, StallFor: 20, Short: 0.5, EarlyPark: 0.3,
		RefuseRegister: 0.3, FullGet: 0.3, LateGet: 0.4, LateFor: 20, FailGet: 0.3}
	faulty.Explain(t, 1, plan)
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		p := pair()(t)
		return transporttest.Pair{A: faulty.Wrap(p.A, 1, plan), B: faulty.Wrap(p.B, 2, plan)}
	}, suite(transporttest.Unreliable(), transporttest.Brief(),
		transporttest.Without("urgent-not-woken-by-plain", "Poll interrupts Parks while it holds packets back"),
		transporttest.Without("park-is-idle", "a Park that returns at once is not idle"),
		transporttest.Without("wake-flag", "how it sleeps is the wrapped device's, and this takes long"),
		transporttest.Without("room-is-told", "what the wrapper refuses it does not speak of again"),
		transporttest.Without("no-allocations", "payloads are copied into memory of their own"))...)
}

// One end matches tags and the other cannot: one queue pair each, and everything matched by software.
func TestConformanceMixed(t *testing.T) {
	needSoft(t)
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		return transporttest.Pair{A: newDevice(t, 0, 2, func(o *Options) { o.Tags = "on" }), B: newDevice(t, 1, 2)}
	}, suite(transporttest.BadKeysEnd(), transporttest.Brief())...)
}

// The records that Go and C share have one layout.
func TestLayout(t *testing.T) {
	for i, sizes := range layouts() {
		if sizes[0] != sizes[1] {
			t.Errorf("record %d has %d bytes in Go and %d in C", i, sizes[0], sizes[1])
		}
	}
}
