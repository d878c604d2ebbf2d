package gpu

import (
	"hash/fnv"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/door"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/topology"
)

// Local returns the number of the device that this rank should use: one of those that are nearest to its CPUs, by the
// NUMA nodes of /sys. Ranks of c on one host that are near to the same devices take them by turns, in the order of their
// ranks. All ranks of c call Local, as a collective call; a rank that has no device returns mpi.ErrUnavailable.
func Local(c *mpi.Comm) (int, error) {
	all, missing := devices("gpu.Local")
	var own reachable
	if missing == nil {
		var nodes []int
		for _, cpu := range cpuset.Read().CPUs {
			if !slices.Contains(nodes, cpu.Node) {
				nodes = append(nodes, cpu.Node)
			}
		}
		own = distances("/", nodes, all)
	}
	ranks := make([]reachable, c.Size())
	if err := mpi.Allgather(c, []reachable{own}, ranks); err != nil {
		return 0, named(err, "gpu.Local")
	}
	if missing != nil {
		return 0, missing
	}
	if len(all) == 0 {
		return 0, mpierr.New("gpu.Local", mpi.ErrUnavailable, "this process has no device (CUDA_VISIBLE_DEVICES decides)")
	}
	var here []reachable // of the ranks on this host, up to this one
	host := door.Through().Host(c, c.Rank())
	for rank, r := range ranks[:c.Rank()+1] {
		if door.Through().Host(c, rank) == host {
			here = append(here, r)
		}
	}
	return assign(here), nil
}

// mostDevices is how many devices of a rank take part.
const mostDevices = 32

// reachable are the devices of a rank, as other ranks hear of them: each process may number them in another way.
type reachable struct {
	N   int64
	ID  [mostDevices]uint64 // follows from the PCI address
	Far [mostDevices]int64
}

// assign returns the device of the last of some ranks on one host. Each rank in turn gets, of the devices that are
// nearest to it, the one that the fewest ranks have got before.
func assign(ranks []reachable) (device int) {
	users := map[uint64]int{}
	for _, r := range ranks {
		n := min(max(int(r.N), 0), mostDevices)
		if n == 0 {
			continue
		}
		device = 0
		for i := range n {
			near, used := r.Far[i]-r.Far[device], users[r.ID[i]]-users[r.ID[device]]
			if near < 0 || near == 0 && used < 0 {
				device = i
			}
		}
		users[r.ID[device]]++
	}
	return device
}

// unknownFar is the distance of a device of which /sys does not say where it is: farther than any.
const unknownFar = 1 << 10

// distances says how far each device is from the nearest of some NUMA nodes. root has sys below it.
func distances(root string, nodes []int, all []Device) (r reachable) {
	host := topology.Read(topology.Source{Root: root})
	for i, d := range all[:min(len(all), mostDevices)] {
		id := fnv.New64a()
		id.Write([]byte(strings.ToLower(d.PCI)))
		r.ID[i], r.Far[i] = id.Sum64(), unknownFar
		g := slices.IndexFunc(host.GPUs, func(g topology.GPU) bool {
			return strings.EqualFold(g.Slot.Address(), d.PCI)
		})
		if g < 0 || host.GPUs[g].Node < 0 {
			continue
		}
		for _, node := range nodes {
			r.Far[i] = min(r.Far[i], int64(topology.NodeDistance(root, node, host.GPUs[g].Node)))
		}
	}
	r.N = int64(min(len(all), mostDevices))
	return r
}
