package report

import (
	"os"
	"slices"
	"strings"
)

// cpuTicks returns the counter of the processor (RDTSC). It takes a third of the time of a call of the system's clock.
// The processor may read it before earlier instructions have ended, some nanoseconds too early.
func cpuTicks() int64

// hasTicks reports whether the counter has one rate, and is the same on all processors. The kernel offers it as a clock
// only then.
func hasTicks() bool {
	const clocks = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
	text, err := os.ReadFile(clocks)
	return err == nil && slices.Contains(strings.Fields(string(text)), "tsc")
}
