package report

import (
	"os"
	"slices"
	"strings"
)

// cpuTicks returns the counter of the processor (RDTSC). It takes a third of the time of a call of the system's clock.
// The processor may read it before earlier instructions have ended, some nanoseconds too early.
func cpuTicks() int64

// hasTicks reports whether the counter has one rate, and is the same on all processors.
func hasTicks() bool {
	const clocks = "/sys/devices/system/clocksource/clocksource0/"
	var texts [3]string
	for i, name := range []string{clocks + "available_clocksource", clocks + "current_clocksource", "/proc/cpuinfo"} {
		if f, err := os.Open(name); err == nil {
			b := make([]byte, 1<<13) // of the first processor; there may be hundreds
			n, _ := f.Read(b)
			texts[i] = string(b[:n])
			f.Close()
		}
	}
	return steady(texts[0], texts[1], texts[2])
}

// steady reports whether the counter is, by what the kernel says: it offers a steady one as a clock. Where the clock is
// kvm-clock, which the hypervisor makes of the counter, the processor's flags tell it.
func steady(available, current, cpuinfo string) bool {
	if slices.Contains(strings.Fields(available), "tsc") {
		return true
	}
	_, flags, _ := strings.Cut(cpuinfo, "\nflags")
	flags, _, _ = strings.Cut(flags, "\n")
	has := strings.Fields(flags)
	return strings.TrimSpace(current) == "kvm-clock" && slices.Contains(has, "constant_tsc") &&
		slices.Contains(has, "nonstop_tsc")
}
