package waitpolicy

import (
	"fmt"
	"time"
)

// Policy is what a rank does while it waits and finds nothing: it polls for a time that adapts, and then sleeps in the
// kernel. The zero Policy sleeps at once.
type Policy struct {
	Least, Most time.Duration // for how long it polls before it sleeps: between these, and for Most at first
	Short       time.Duration // a wait that takes longer is not worth polling
	YieldCPU    bool          // after each look it lets other processes have its CPU
	Crowded     bool          // ranks outnumber the CPUs of the host, however they wait
}

var (
	// Spin is for ranks that have a CPU each. To wake a processor that sleeps costs 50 to 200 µs, so a rank that waits
	// for one that it has woken must not fall asleep meanwhile: else one late rank makes a chain of sleeps, in which
	// each rank wakes one that lets it fall asleep in turn. Most is longer than a step of most programs, and a fiftieth
	// of a second in idleness.
	Spin = Policy{Least: time.Millisecond, Most: 20 * time.Millisecond, Short: 20 * time.Millisecond}

	// Yield is for more ranks than CPUs (docs/decisions/waiting.md). A token of 32 ranks that all sleep needs a
	// millisecond or two to come round, which must not keep them asleep.
	Yield = Policy{Least: 80 * time.Microsecond, Most: 2 * time.Millisecond, Short: 4 * time.Millisecond,
		YieldCPU: true, Crowded: true}
)

// Fixed polls for so long, whatever it learns.
func Fixed(spin time.Duration) Policy { return Policy{Least: spin, Most: spin} }

// For is the policy of so many ranks on a host with so many usable CPUs. spin is GORUN_SPIN; negative: auto.
func For(spin time.Duration, ranks, cpus int) Policy {
	switch {
	case spin >= 0:
		p := Fixed(spin)
		p.Crowded = ranks > cpus
		return p
	case ranks > cpus:
		return Yield
	}
	return Spin
}

// Learn is for how long to poll in the next wait after one that has ended by sleep and took so long; poll is for how
// long that one did.
func (p Policy) Learn(poll, took time.Duration) time.Duration {
	if took <= p.Short {
		return max(poll, min(2*took, p.Most))
	}
	return max(poll/2, p.Least)
}

// String is what gorun info prints.
func (p Policy) String() string {
	if p.Most == 0 {
		return "sleep in the kernel at once"
	}
	how, long := "spin", p.Most.String()
	if p.YieldCPU {
		how = "yield the CPU after each poll"
	}
	if p.Least != p.Most {
		long = p.Least.String() + " to " + long
	}
	return fmt.Sprintf("%s for %s, then sleep in the kernel", how, long)
}
