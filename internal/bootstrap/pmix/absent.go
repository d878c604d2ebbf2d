//go:build !pmix || !linux || !cgo

package pmix

import (
	"context"
	"errors"

	"github.com/gorun-mpi/mpi/internal/bootstrap"
)

// Built is false: this program was built without the tag pmix.
const Built = false

// Join fails.
func Join(context.Context) (bootstrap.Client, error) {
	return nil, errors.New("this program was built without the tag pmix")
}
