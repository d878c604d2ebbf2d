package accel

import (
	"errors"
	"fmt"
)

var (
	// ErrNoDriver means that this program has no driver, or this machine none that answers and has a device. It is
	// wrapped with the reason.
	ErrNoDriver = errors.New("no accelerator can be used")
	// ErrNotShared means that memory cannot be mapped by another process.
	ErrNotShared = errors.New("the memory cannot be mapped by another process")
)

// Error is an answer of a driver.
type Error struct {
	Call string // of the driver's interface: cuMemAlloc
	Code int
	Name string // CUDA_ERROR_OUT_OF_MEMORY
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code) }
