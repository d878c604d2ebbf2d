//go:build !linux

package program

import (
	"os"
	"path/filepath"

	"github.com/gorun-mpi/mpi/internal/procs"
)

// target makes a folder for the executable, since no file can be run that has no name.
func (p *Program) target() (string, error) {
	dir, err := os.MkdirTemp("", procs.TempPrefix)
	if err != nil {
		return "", err
	}
	p.temp = dir
	p.Path = filepath.Join(dir, p.base())
	return p.Path, nil
}
