//go:build verbs && linux && cgo

package mpi

import (
	"github.com/gorun-mpi/mpi/transport"
	rdma "github.com/gorun-mpi/mpi/transport/verbs"
)

// withTag are the transports that this program was built with on request.
var withTag = []entry{{"verbs", openVerbs}}

func openVerbs(p place) (transport.Device, error) {
	control, err := optionsTCP(p)
	if err != nil {
		return nil, err
	}
	return rdma.New(rdma.Options{Rank: p.rank, Size: p.size, Library: p.set.VerbsLibrary, Devices: p.set.VerbsDevices, Partition: p.set.VerbsPartition, TrafficClass: p.set.VerbsClass, Tags: p.set.TagMatching,
		RegisterFrom: int(p.set.VerbsRegister), Cache: p.set.VerbsCache, Control: control, Log: p.log, Debug: p.debug})
}
