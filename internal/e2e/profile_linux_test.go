package e2e

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	// Rank 0 fails when the others are where they will be: in a call, and outside the library.
	role("profiled", func(_ context.Context, w *mpi.Comm) error {
		if err := mpi.Barrier(w); err != nil {
			return err
		}
		switch w.Rank() {
		case 0:
			return errors.New("it has failed")
		case 1:
			_, err := mpi.Recv(w, []byte{0}, 2, 1)
			return err
		}
		for {
		}
	})
}

// gorun --cpuprofile has each rank write a profile, also if another one has failed.
func TestCPUProfile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "profiles")
	run(t, spec{n: 3, role: "profiled", flags: []string{"--cpuprofile", dir}}, 1)
	for rank := range 3 {
		f, err := os.Open(filepath.Join(dir, fmt.Sprintf("rank-%d.pprof", rank)))
		if err != nil {
			t.Error(err)
			continue
		}
		z, err := gzip.NewReader(f)
		if err == nil {
			_, err = io.Copy(io.Discard, z)
		}
		if err != nil {
			t.Errorf("the profile of rank %d: %v", rank, err)
		}
		f.Close()
	}
}
