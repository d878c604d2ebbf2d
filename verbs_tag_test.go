//go:build verbs && linux && cgo

package mpi

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/multi"
	"github.com/gorun-mpi/mpi/transport/shm"
	"github.com/gorun-mpi/mpi/transport/tcp"
	"github.com/gorun-mpi/mpi/transport/verbs"
)

// further runs everything that says everywhere over verbs too: over the software HCA, and in a guest over soft-RoCE.
var further = furtherFabrics()

func furtherFabrics() []fabric {
	f := []fabric{{"verbs", overVerbs("off", 1)}}
	if !inGuest() {
		f = append(f, fabric{"verbs-tags", overVerbs("on", 1)}, fabric{"verbs-stream", overVerbs("off", 1<<30)},
			fabric{"verbs-tags-shm", besideShm})
	}
	return f
}

// besideShm are two hosts, of the even and of the odd ranks: shared memory on each, and between them a device that
// matches tags.
func besideShm(t testing.TB) Option {
	rdma := newVerbs(t, "on", 1)
	return withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		return ok(multi.New(nil, onHost(rank, rank%2), rdma(rank)))
	})
}

// hostShm is shared memory between the ranks of one host only.
type hostShm struct {
	transport.Device
	host int
}

func (h *hostShm) Name() string { return fmt.Sprint("shm", h.host) }

func onHost(rank, host int) transport.Device {
	return &hostShm{ok(shm.New(shm.Options{Rank: rank, Size: 1 << 10, Secret: testSecret})), host}
}

var verbsJobs atomic.Int64

// overVerbs has the ranks of RunLocal reach each other by devices of their own.
func overVerbs(tags string, registerFrom int) func(testing.TB) Option {
	return func(t testing.TB) Option {
		rdma := newVerbs(t, tags, registerFrom)
		return withDevices(func(rank int, d transport.Device) transport.Device {
			d.Close()
			return rdma(rank)
		})
	}
}

// newVerbs opens the devices of one job.
func newVerbs(t testing.TB, tags string, registerFrom int) func(rank int) *verbs.Device {
	library, device := os.Getenv("GORUN_VERBS_LIB"), ""
	switch {
	case inGuest():
		device = "rxe0"
	case library == "":
		library = hcakit.Build(t)
	}
	job := strconv.FormatInt(verbsJobs.Add(1), 10)
	return func(rank int) *verbs.Device {
		return ok(verbs.New(verbs.Options{Rank: rank, Size: 1 << 10, Library: library, Devices: device, Tags: tags,
			RegisterFrom: registerFrom,
			Control:      tcp.Options{Job: job, PeerTimeout: time.Minute, Secret: testSecret}})).(*verbs.Device)
	}
}
