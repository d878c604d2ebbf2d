//go:build race

package proc

// Race is true: this binary has the race detector, which costs time and memory.
const Race = true
