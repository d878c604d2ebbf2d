//go:build verbs && linux && cgo

package verbs

import (
	"testing"

	"github.com/gorun-mpi/mpi/transport/transporttest"
)

func TestConformance(t *testing.T) {
	transporttest.Run(t, pair(), transporttest.BadKeysEnd())
}

// The same over queue pairs whose receivers match tags; nothing is handed down, so everything comes as unexpected.
func TestConformanceTags(t *testing.T) {
	needSoft(t)
	transporttest.Run(t, pair(func(o *Options) { o.Tags = "on" }), transporttest.BadKeysEnd(), transporttest.TagHeaders(), transporttest.Brief())
}

// The records that Go and C share have one layout.
func TestLayout(t *testing.T) {
	for i, sizes := range layouts() {
		if sizes[0] != sizes[1] {
			t.Errorf("record %d has %d bytes in Go and %d in C", i, sizes[0], sizes[1])
		}
	}
}
