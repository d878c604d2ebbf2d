//go:build !linux

package main

import (
	"errors"
	"runtime"
)

func newGauge() (func() float64, error) {
	return nil, errors.New("threads cannot be bound to processors on this system")
}

// usableCores is how many cores this process may use, as far as the system says: its CPUs.
func usableCores() int { return runtime.NumCPU() }
