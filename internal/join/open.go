package join

import (
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/ofi"
	"github.com/gorun-mpi/mpi/transport/shm"
	"github.com/gorun-mpi/mpi/transport/tcp"
	"github.com/gorun-mpi/mpi/transport/ucx"
	"github.com/gorun-mpi/mpi/transport/verbs"
)

func openShm(c deviceConfig) (transport.Device, error) {
	return shm.New(shm.Options{Rank: c.rank, Size: c.size, Local: c.local, Bulk: int(c.set.ShmRing),
		NoGet: !c.set.ShmCMA, Tracer: c.tracer, Job: c.job, Secret: c.secret, Log: c.log})
}

func openTCP(c deviceConfig) (transport.Device, error) {
	opt, err := c.tcpOptions()
	if err != nil {
		return nil, err
	}
	return tcp.New(opt)
}

// openVerbs opens an error in a program that was built without the tag verbs.
func openVerbs(c deviceConfig) (transport.Device, error) {
	control, err := c.tcpOptions()
	if err != nil {
		return nil, err
	}
	return verbs.New(verbs.Options{Rank: c.rank, Size: c.size, Library: c.set.VerbsLibrary, Devices: c.set.VerbsDevices,
		Partition: c.set.VerbsPartition, TrafficClass: c.set.VerbsClass, ServiceLevel: c.set.VerbsLevel,
		Tags: c.set.TagMatching, GPUDirect: c.set.GPUDirect, LocalRank: c.localRank, Nodes: nodesOfCPUs(),
		RegisterFrom: int(c.set.VerbsRegister), Cache: c.set.VerbsCache, ReceiveMemory: c.set.VerbsReceive,
		Control: control, Log: c.log, Debug: c.debug})
}

// openUCX opens an error in a program that was built without the tag ucx.
func openUCX(c deviceConfig) (transport.Device, error) {
	return ucx.New(ucx.Options{Rank: c.rank, Size: c.size, PeerTimeout: c.set.PeerTimeout, Library: c.set.UCXLibrary,
		Log: c.log, Debug: c.debug})
}

// openOFI opens an error in a program that was built without the tag ofi.
func openOFI(c deviceConfig) (transport.Device, error) {
	control, err := c.tcpOptions()
	if err != nil {
		return nil, err
	}
	return ofi.New(ofi.Options{Rank: c.rank, Size: c.size, Provider: c.set.OFIProvider, Library: c.set.OFILibrary,
		Control: control, Log: c.log, Debug: c.debug})
}

func (c *deviceConfig) tcpOptions() (tcp.Options, error) {
	interfaces, err := tcp.ParseInterfaces(c.set.TCPInterfaces)
	if err != nil {
		return tcp.Options{}, fmt.Errorf("GORUN_TCP_IF=%q: %w", c.set.TCPInterfaces, err)
	}
	ports, err := tcp.ParsePorts(c.set.TCPPorts)
	if err != nil {
		return tcp.Options{}, fmt.Errorf("GORUN_TCP_PORTS=%q: %w", c.set.TCPPorts, err)
	}
	return tcp.Options{Rank: c.rank, Size: c.size, Job: c.job, Secret: c.secret, Call: c.call,
		Interfaces: interfaces, Ports: ports, TLS: c.set.TCPTLS, PeerTimeout: c.set.PeerTimeout,
		Timeout: c.set.Timeout, Log: c.log}, nil
}
