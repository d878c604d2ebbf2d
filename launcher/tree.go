package launcher

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/frames"
)

// The agents of a job are a tree, of which gorun is the root. An agent that starts others is to them what gorun is to
// it: it has a fleet, passes on what comes down, and reports what comes up.

// parts cuts hosts into width parts of about the same size, in their order. The first host of a part is the one whose
// agent starts those of the others. gorun's own host is a part by itself: other hosts may have no way to it.
func parts(hosts []hostPart, width int) (all [][]hostPart) {
	var others []hostPart
	for i, h := range hosts {
		if h.Own {
			all = append(all, hosts[i:i+1:i+1])
		} else {
			others = append(others, h)
		}
	}
	n := len(others)
	for i := range min(width, n) {
		all = append(all, slices.Clone(others[n*i/min(width, n):n*(i+1)/min(width, n)]))
	}
	return all
}

// handOver takes hosts that the agent of a child cannot reach away from it, with all below them. The head adopts them.
// It is called by the goroutine that receives: what the agent says next is no more about them.
func (c *child) handOver(m refusedMessage) error {
	f := c.fleet
	at := slices.IndexFunc(c.hosts, func(h hostPart) bool { return h.Ranks[0] == m.Rank })
	if at < 1 || m.Hosts < 1 || m.Hosts > len(c.hosts)-at || c.started {
		return fmt.Errorf("%d hosts from that of rank %d on handed over", m.Hosts, m.Rank)
	}
	hosts := slices.Clone(c.hosts[at : at+m.Hosts])
	for _, h := range hosts {
		for _, rank := range h.Ranks {
			if c.seen[rank] != notStarted {
				return fmt.Errorf("the host of rank %d, which runs, handed over", rank)
			}
		}
	}
	c.hosts = slices.Delete(c.hosts, at, at+m.Hosts)
	gone := map[int]bool{}
	for _, h := range hosts {
		for _, rank := range h.Ranks {
			delete(c.seen, rank)
			gone[rank] = true
		}
	}
	var adopted *child
	if f.parent != nil {
		f.parent.refused(hosts, m.Err) // before what is said after it
	} else {
		adopted = newChild(f, hosts)
	}
	f.run.post(func() {
		c.ranks = slices.DeleteFunc(c.ranks, func(rank int) bool { return gone[rank] })
		if adopted != nil {
			f.adopt(adopted, c, m.Err)
		}
	})
	return nil
}

// adopt reaches for a host that the agent of another could not reach. It runs on the supervisor.
func (f *fleet) adopt(c, from *child, why string) {
	r := f.run
	f.left++
	if r.stopping() || from.ended {
		c.gone()
		return
	}
	f.children = append(f.children, c)
	if !f.saidAdopt {
		f.saidAdopt = true
		r.say("host %s cannot start the agent of host %s (%.300s): gorun does it itself, as for all hosts of which "+
			"this is so, %d at a time", from.name, c.name, oneLine(why), cap(f.turns))
	}
	go c.begin()
}

// refused reports hosts that cannot be reached from here. It may be called by any goroutine.
func (a *parent) refused(hosts []hostPart, why string) {
	a.link.Send(frames.Refused, encode(refusedMessage{hosts[0].Ranks[0], len(hosts), fmt.Sprintf("%.1000s", why)}))
}
