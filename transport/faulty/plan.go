package faulty

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
)

// Plan says what goes wrong and how often. Chances are from 0 to below 1, "for" is counted in polls. The zero Plan only
// copies payloads.
type Plan struct {
	Refuse    float64 // the link refuses to send, and goes on refusing for up to RefuseFor polls
	RefuseFor int
	Delay     float64 // a packet, and with it all later ones of its peer, is held back for up to DelayFor polls
	DelayFor  int
	Stall     float64 // Poll gives nothing, for up to StallFor polls
	StallFor  int
	Short     float64 // Poll gives fewer packets than there are and fit

	EarlyArm  float64 // Arm says that there is something to poll, and there is not
	EarlyWake float64 // the sleep that Arm is for ends at once

	RefuseRegister float64 // Register says no
	FullRMA        float64 // an operation on the peer's memory says Full
	LateRMA        float64 // it says Started and begins up to LateFor polls later; or its end is reported so much later
	LateFor        int
	FailRMA        float64 // it fails with ErrInjected, at once or late; a Put or an atomic has changed nothing then
	LiePresence    float64 // Polls or Waits says the opposite
	IgnorePlace    float64 // the fragments of a stream come as packets
	RefusePost     float64 // a receive is not handed down: PostedFull or PostedUnmapped
	LateBack       float64 // OffloadBack comes up to LateFor polls late

	Cuts  []Cut  // fatal: links that break
	Death *Death // fatal: the end of this device; nil: it does not end
}

// Cut breaks the connection with Peer once After packets have gone either way. This device then sees Down and drops
// what it sends; the peer's device does not notice, and needs a Cut of its own. A link that is to break has no
// ZeroCopy, and a device with such a link no Offload: buffers would be in use by the wrapped device beyond Down.
type Cut struct{ Peer, After int }

// Death closes a device as the death of its process does, at a step that the test chooses: the peers see Down, and what
// the rank sends later is lost. The rank itself sees Down of all that have had packets of it or sent it any, so its
// calls end. Each device has a Death of its own. Such a device has no Offload and its links no ZeroCopy, as with a Cut;
// it makes links.
type Death struct {
	mu   sync.Mutex
	left int // packets until then; 0: it does not come
	came bool
}

// After has the device die once n packets more have gone either way. 0 spares it: if Came is false then, it stays so.
func (d *Death) After(n int) {
	d.mu.Lock()
	d.left = n
	d.mu.Unlock()
}

// Came reports whether the device has died, or is doing so.
func (d *Death) Came() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.came
}

// step counts a packet, and reports whether the device dies now.
func (d *Death) step() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == 0 || d.came {
		return false
	}
	d.left--
	d.came = d.left == 0
	return d.came
}

// String leaves out what is zero.
func (p Plan) String() string {
	var parts []string
	for _, f := range []struct {
		name   string
		chance float64
		polls  int
	}{
		{"Refuse", p.Refuse, p.RefuseFor}, {"Delay", p.Delay, p.DelayFor}, {"Stall", p.Stall, p.StallFor},
		{"Short", p.Short, 0}, {"EarlyArm", p.EarlyArm, 0}, {"EarlyWake", p.EarlyWake, 0},
		{"RefuseRegister", p.RefuseRegister, 0}, {"FullRMA", p.FullRMA, 0}, {"LateRMA", p.LateRMA, p.LateFor},
		{"FailRMA", p.FailRMA, 0},
		{"LiePresence", p.LiePresence, 0}, {"IgnorePlace", p.IgnorePlace, 0},
		{"RefusePost", p.RefusePost, 0}, {"LateBack", p.LateBack, p.LateFor},
	} {
		switch {
		case f.chance == 0:
		case f.polls == 0:
			parts = append(parts, fmt.Sprintf("%s: %.3g", f.name, f.chance))
		default:
			parts = append(parts, fmt.Sprintf("%s: %.3g for %d", f.name, f.chance, f.polls))
		}
	}
	for _, c := range p.Cuts {
		parts = append(parts, fmt.Sprintf("cut from %d after %d", c.Peer, c.After))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Mild is a plan with all misfortunes, none of them fatal and none so frequent that a test takes long.
var Mild = Plan{
	Refuse: 0.1, RefuseFor: 5, Delay: 0.2, DelayFor: 20, Stall: 0.1, StallFor: 20,
	Short: 0.5, EarlyArm: 0.2, EarlyWake: 0.3,
	RefuseRegister: 0.3, FullRMA: 0.3, LateRMA: 0.4, LateFor: 20, FailRMA: 0.3,
	LiePresence: 0.3, IgnorePlace: 0.3, RefusePost: 0.2, LateBack: 0.3,
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
		EarlyArm: chance(0.5), EarlyWake: chance(0.5),
		RefuseRegister: chance(0.3), FullRMA: chance(0.5), LateRMA: chance(0.9), LateFor: 1 + r.IntN(50),
		FailRMA:     chance(0.3),
		LiePresence: chance(0.5), IgnorePlace: chance(0.5), RefusePost: chance(0.5), LateBack: chance(0.5),
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
