//go:build !race

package proc

// Race is false: this binary is without the race detector, which costs time and memory.
const Race = false
