//go:build verbs && linux && cgo

package mpi

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/softhca"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
	"github.com/gorun-mpi/mpi/transport/verbs"
)

// further runs everything that says everywhere over verbs too: over the software HCA, and in a guest over soft-RoCE.
var further = furtherFabrics()

func furtherFabrics() []fabric {
	f := []fabric{{"verbs", overVerbs("off", 1)}}
	if !inGuest() {
		f = append(f, fabric{"verbs-tags", overVerbs("on", 1)}, fabric{"verbs-stream", overVerbs("off", 1<<30)})
	}
	return f
}

var verbsJobs atomic.Int64

// overVerbs has the ranks of RunLocal reach each other by devices of their own.
func overVerbs(tags string, registerFrom int) func(testing.TB) Option {
	return func(t testing.TB) Option {
		library, device := os.Getenv("GORUN_VERBS_LIB"), ""
		switch {
		case inGuest():
			device = "rxe0"
		case library == "":
			library = softhca.Build(t)
		}
		job := strconv.FormatInt(verbsJobs.Add(1), 10)
		return withDevices(func(rank int, d transport.Device) transport.Device {
			d.Close()
			secret := func() ([]byte, error) { return []byte("the secret of this test, 32 bytes"), nil }
			return ok(verbs.New(verbs.Options{Rank: rank, Size: 1 << 10, Library: library, Devices: device, Tags: tags,
				RegisterFrom: registerFrom, Control: tcp.Options{Job: job, PeerTimeout: time.Minute, Secret: secret}}))
		})
	}
}
