package gpu

import (
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/internal/topology/topologytest"
)

// Ranks get the nearest device, and those that are near to the same ones take them by turns.
func TestAssign(t *testing.T) {
	r := func(ids []uint64, far ...int64) (r reachable) {
		copy(r.ID[:], ids)
		copy(r.Far[:], far)
		r.N = int64(len(far))
		return r
	}
	ids := []uint64{7, 8, 9, 10}
	low, high, any := r(ids, 10, 10, 20, 20), r(ids, 20, 20, 10, 10), r(ids, 10, 10, 10, 10)
	for _, c := range []struct {
		ranks []reachable
		want  []int
	}{
		{[]reachable{low, low, high, high, low, high}, []int{0, 1, 2, 3, 0, 2}},
		{[]reachable{low, high, low, high}, []int{0, 2, 1, 3}},
		{[]reachable{any, any, any, any, any}, []int{0, 1, 2, 3, 0}},
		{[]reachable{low, any, any}, []int{0, 1, 2}},
		// The second rank sees the same devices in another order, and only the first rank has taken one.
		{[]reachable{any, r([]uint64{7, 10}, 10, 10)}, []int{0, 1}},
		{[]reachable{r(nil), {N: -5}, low}, []int{0, 0, 0}},
		{[]reachable{{N: 1 << 40}}, []int{0}},
	} {
		for i, want := range c.want {
			if got := assign(c.ranks[:i+1]); got != want {
				t.Errorf("rank %d of %v gets %d, want %d", i, c.want, got, want)
			}
		}
	}
}

func TestDistances(t *testing.T) {
	root := topologytest.Plant(t, topologytest.Load(t, "dgx"))
	host := topology.Read(topology.Source{Root: root})
	var all []Device
	for _, g := range host.GPUs {
		all = append(all, Device{PCI: g.Slot.Address()})
	}
	all = append(all, Device{PCI: "dead:00:00.0"})
	if len(all) < 3 {
		t.Fatal("the tree has too few GPUs")
	}
	for _, node := range []int{0, 1} {
		d := distances(root, []int{node}, all)
		for i, g := range host.GPUs {
			if want := g.Node == node; want != (d.Far[i] == 10) {
				t.Errorf("from node %d to %s on node %d: %d", node, all[i].PCI, g.Node, d.Far[i])
			}
		}
		if last := len(all) - 1; d.Far[last] != unknownFar || d.N != int64(len(all)) {
			t.Errorf("%d devices; the unknown one is %d away", d.N, d.Far[last])
		}
	}
}

func TestLocal(t *testing.T) {
	useMachine(t, acceltest.Options{Devices: 3})
	run(t, 4, func(c *mpi.Comm) {
		device := ok(Local(c))
		check(device == c.Rank()%3, "rank %d has device %d", c.Rank(), device)
	})
	useMachine(t, acceltest.Options{Devices: 1})
	run(t, 2, func(c *mpi.Comm) { check(ok(Local(c)) == 0, "another device than the only one") })
	_, err := Local(nil)
	isError(err, mpi.ErrComm, "gpu.Local: the communicator is nil")
}
