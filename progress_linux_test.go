package mpi

import (
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/shm"
)

// onlyHere are the fabrics that this system has and others have not.
var onlyHere = []fabric{{"shm", func(testing.TB) Option {
	return withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		return ok(shm.New(shm.Options{Rank: rank, Size: 1 << 10, Local: 2, Job: "test", Secret: testSecret}))
	})
}}}
