package mpi

import (
	"sync"

	"github.com/gorun-mpi/mpi/collectives"
)

// placed says which ranks of a communicator share a host. It follows from the world's hosts, which are the same at all
// ranks, and the group. Communicators with one group have one placed.
type placed struct {
	once  sync.Once
	hosts collectives.Hosts // after once; of the world from the beginning
}

// host is a number that the ranks of this host have, and no others.
func (c *shared) host() int { return c.setup.Hosts.Host(int(c.group.WorldRank)) }

// hosts says which ranks of the communicator share a host; of an intercommunicator, of the remote group.
func (c *shared) hosts() collectives.Hosts {
	p := c.placed
	p.once.Do(func() {
		switch {
		case p.hosts != nil:
		case c.group.Peers == nil:
			p.hosts = c.setup.Hosts
		default:
			p.hosts = collectives.HostsOf(c.group.Size,
				func(rank int) int { return c.setup.Hosts.Host(c.group.Peers.At(rank)) })
		}
	})
	return p.hosts
}

// via is what most messages of the communicator go over.
func (c *shared) via() collectives.Via {
	if c.setup.via == collectives.SharedMemory || c.setup.SharedMemory && c.hosts().Len() == 1 {
		return collectives.SharedMemory
	}
	return collectives.Network
}
