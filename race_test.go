//go:build race

package mpi

// raceEnabled: the detector allocates and is slow.
const raceEnabled = true
