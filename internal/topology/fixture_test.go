package topology

import (
	"testing"

	"github.com/gorun-mpi/mpi/internal/topology/topologytest"
)

func readFixture(t testing.TB, name string) Host {
	t.Helper()
	return Read(Source{Root: topologytest.Plant(t, topologytest.Load(t, name)), Addrs: topologytest.Addrs})
}

func (h Host) find(t testing.TB, name string) Device {
	t.Helper()
	for _, d := range h.Devices {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no device %s among %+v", name, h.Devices)
	return Device{}
}
