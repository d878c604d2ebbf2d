//go:build verbs && linux && cgo

package verbs

import (
	"testing"

	"github.com/gorun-mpi/mpi/transport/transporttest"
)

func TestConformance(t *testing.T) {
	transporttest.Run(t, pair(), transporttest.BadKeysEnd())
}

// The records that Go and C share have one layout.
func TestLayout(t *testing.T) {
	for i, sizes := range layouts() {
		if sizes[0] != sizes[1] {
			t.Errorf("record %d has %d bytes in Go and %d in C", i, sizes[0], sizes[1])
		}
	}
}
