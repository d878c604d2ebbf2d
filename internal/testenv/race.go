//go:build race

package testenv

// Race: this binary has the race detector, which costs time and memory.
const Race = true
