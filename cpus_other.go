//go:build !linux

package mpi

import "runtime"

func hostCPUs() int { return runtime.NumCPU() }
