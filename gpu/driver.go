package gpu

import (
	"errors"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Device is one accelerator of this process.
type Device = accel.Device

// Devices returns the devices that this process may use. Their indices are their numbers. It returns mpi.ErrUnavailable
// if the program has no driver, or none answers.
func Devices() ([]Device, error) { return devices("gpu.Devices") }

func devices(op string) ([]Device, error) {
	d, err := driver(op)
	if err != nil {
		return nil, err
	}
	all, err := d.Devices()
	if err != nil {
		return nil, driverError(op, err)
	}
	return all, nil
}

func driver(op string) (accel.Driver, error) {
	d, err := accel.InUse()
	if err != nil {
		return nil, driverError(op, err)
	}
	return d, nil
}

// driverError is an error of the driver, or of a wait for other ranks that have memory mapped.
func driverError(op string, err error) *mpi.Error {
	class := mpi.ErrDevice
	if errors.Is(err, accel.ErrNoDriver) {
		class = mpi.ErrUnavailable
	}
	return mpierr.New(op, class, "%w", err)
}
