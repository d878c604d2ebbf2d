//go:build verbs && cuda && linux && cgo

package gpu

import (
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
)

// Over verbs adapters move the messages, and a device sees what they have written after a flush only.
func init() {
	jobWays["verbs"] = func(t *testing.T) []string {
		return []string{"GORUN_VERBS_LIB=" + hcakit.Build(t), "SOFTHCA_DIR=" + t.TempDir(), "SOFTCUDA_ORDERING=0",
			"GORUN_LOG=info"}
	}
	randomWays["verbs"] = func(t *testing.T) []string { return append(jobWays["verbs"](t), "GORUN_TRANSPORTS=verbs") }
	eachWays["verbs"] = randomWays["verbs"]
	jobSays["verbs"] = `messages in device memory: rank=0 device=0000:10:00.0 adapter=softhca0 way="READ by dma-buf" ` +
		`because="the adapter is software"`
}
