//go:build cuda

package main

import _ "github.com/gorun-mpi/mpi/accel/cuda" // the driver that accel.InUse returns
