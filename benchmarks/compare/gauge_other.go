//go:build !linux

package main

import "errors"

func newGauge() (func() float64, error) {
	return nil, errors.New("threads cannot be bound to processors on this system")
}
