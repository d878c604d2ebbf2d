//go:build race

package transporttest

// raceEnabled: the detector allocates, so allocations cannot be counted.
const raceEnabled = true
