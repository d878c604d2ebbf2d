//go:build !linux

package pmi

// scrub is for Linux: elsewhere the memory of the first environment is not found so easily.
func scrub(string) {}
