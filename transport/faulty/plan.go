package faulty

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Plan says what goes wrong and how often. Chances are from 0 to below 1, "for" is counted in calls of the same
// method. The zero Plan only copies payloads.
type Plan struct {
	Refuse    float64 // TrySend refuses, and goes on refusing for up to RefuseFor calls
	RefuseFor int
	Delay     float64 // a packet, and with it all later ones of its peer, is held back for up to DelayFor polls
	DelayFor  int
	Stall     float64 // Poll gives nothing, for up to StallFor calls
	StallFor  int
	Short     float64 // Poll gives fewer packets than there are and fit

	EarlyArm  float64 // Arm says that there is something to poll, and there is not
	EarlyPark float64 // Park returns at once

	RefuseRegister float64 // Register says no
	FullGet        float64 // TryGet says GetFull
	LateGet        float64 // TryGet says GetStarted; the memory is read up to LateFor polls later
	LateFor        int
	FailGet        float64 // TryGet, or the Got of a late one, fails with ErrInjected
	LiePresence    float64 // PeerPolls or PeerWaits says the opposite

	Cuts []Cut // fatal: links that break
}

// Cut breaks the connection with Peer once After packets have gone either way. This device then sees Down and drops
// what it sends; the peer's device knows nothing of it and needs a Cut of its own.
type Cut struct{ Peer, After int }

// String leaves out what is zero.
func (p Plan) String() string {
	var b strings.Builder
	for _, f := range []struct {
		name   string
		chance float64
		calls  int
	}{
		{"Refuse", p.Refuse, p.RefuseFor}, {"Delay", p.Delay, p.DelayFor}, {"Stall", p.Stall, p.StallFor}, {"Short", p.Short, 0},
		{"EarlyArm", p.EarlyArm, 0}, {"EarlyPark", p.EarlyPark, 0},
		{"RefuseRegister", p.RefuseRegister, 0}, {"FullGet", p.FullGet, 0}, {"LateGet", p.LateGet, p.LateFor}, {"FailGet", p.FailGet, 0},
		{"LiePresence", p.LiePresence, 0},
	} {
		if f.chance == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s: %.3g", f.name, f.chance)
		if f.calls > 0 {
			fmt.Fprintf(&b, " for %d", f.calls)
		}
		b.WriteString(", ")
	}
	for _, c := range p.Cuts {
		fmt.Fprintf(&b, "cut from %d after %d, ", c.Peer, c.After)
	}
	return "{" + strings.TrimSuffix(b.String(), ", ") + "}"
}

// Random is a plan for a seed: some of the misfortunes, none of them fatal.
func Random(seed int64) Plan {
	r := rand.New(rand.NewPCG(uint64(seed), 0x506c616e))
	chance := func(most float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return most * r.Float64()
	}
	return Plan{
		Refuse: chance(0.2), RefuseFor: 1 + r.IntN(8),
		Delay: chance(0.2), DelayFor: 1 + r.IntN(50),
		Stall: chance(0.1), StallFor: 1 + r.IntN(50),
		Short:    chance(0.5),
		EarlyArm: chance(0.5), EarlyPark: chance(0.5),
		RefuseRegister: chance(0.3), FullGet: chance(0.5), LateGet: chance(0.9), LateFor: 1 + r.IntN(50), FailGet: chance(0.3),
		LiePresence: chance(0.5),
	}
}

// TB is what Explain needs of a *testing.T.
type TB interface {
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
}

// Explain logs seed and plan if the test fails, so that the schedule can be run again.
func Explain(t TB, seed int64, p Plan) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("faulty: seed %d, plan %v", seed, p)
		}
	})
}
