package main

import (
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// With -gpu the models are the same, over GPUs of this process whose copies take their time. examples/gpu_test.go runs
// the program over the software GPU.
func TestGPU(t *testing.T) {
	machine := acceltest.New(acceltest.Options{Devices: 2, Seed: 1, Delay: 100 * time.Microsecond})
	driver := machine.Process()
	accel.Use(driver)
	*useGPU, *samples, *steps = true, 100, 10
	if err := mpi.RunLocal(3, func(world *mpi.Comm) error { return run(t.Context(), world) }); err != nil {
		t.Fatal(err)
	}
	if n := driver.Calls("Copy"); n < 3*10*4 { // to the device, there and back in Allreduce, and to the host
		t.Errorf("%d copies", n)
	}
}
