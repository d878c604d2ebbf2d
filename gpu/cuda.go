//go:build linux && cgo

package gpu

import _ "github.com/gorun-mpi/mpi/accel/cuda" // its init makes CUDA the driver of this process
