//go:build ucx

package main

import (
	"os"
	"strings"

	"github.com/gorun-mpi/mpi/transport/ucx"
)

func init() {
	askUCX = func() ([]string, error) {
		i, err := ucx.Query(os.Getenv("GORUN_UCX_LIB"))
		if err != nil {
			return nil, err
		}
		return []string{i.Version + ", " + i.Path, "for UCX_TLS: " + strings.Join(i.Resources, ", ")}, nil
	}
}
