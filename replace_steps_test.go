package mpi_test

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/deaths"
)

func init() { recoveryCalls["Replace"] = stepReplace }

// stepReplace is Replace where nothing can start processes. Its error has one class at all ranks, also at a rank that
// has met a second death while the others were told that nothing can be started.
func stepReplace(r *deaths.Rank) (string, error) {
	r.Arm()
	c, err := r.Replace()
	living := r.Settle()
	switch {
	case err == nil: // no rank had died
		return "made", errors.Join(goOn(r, c, living), c.Free())
	case c != nil:
		return "", fmt.Errorf("a communicator and an error: %w", err)
	case errors.Is(err, mpi.ErrPeerFailed):
		return "failed", goOn(r, r.Comm, living)
	case errors.Is(err, mpi.ErrUnavailable):
		return "unavailable", goOn(r, r.Comm, living)
	}
	return "", err
}
