package launcher

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/place"
)

// hostName is what this host calls itself.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// isHere tells whether a name is one of the host that calls itself here. No name is looked up in a network.
func isHere(name, here string) bool {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.IsLoopback()
	}
	short, domain, _ := strings.Cut(name, ".")
	own, ownDomain, _ := strings.Cut(here, ".")
	return strings.EqualFold(name, "localhost") || strings.EqualFold(name, here) ||
		(domain == "" || ownDomain == "") && strings.EqualFold(short, own)
}

// layOut places the ranks. It fails where the job was told of hosts that would get none.
func (j *Job) layOut(here string) (*place.Layout, error) {
	hosts := j.namedHosts(here)
	if hosts == nil {
		if err := j.checkAllocation(here); err != nil {
			return nil, err
		}
		hosts = []place.Host{{Name: here}}
	}
	q := j.Place
	q.Ranks = j.Size()
	l, err := place.Place(hosts, q)
	if err != nil {
		return nil, err
	}
	if len(l.Unused) > 0 && !j.AllowUnused {
		return nil, fmt.Errorf("%d of the %d hosts would get no rank (%s): --map-by node deals them to all, "+
			"-ppn %d puts so many on each; or raise -n, name fewer hosts, or use --allow-unused-hosts if this is meant",
			len(l.Unused), len(hosts), someHosts(l.Unused), (l.Ranks+len(hosts)-1)/len(hosts))
	}
	return l, nil
}

// namedHosts is the hosts of the job, with all names of this one taken together; nil: it names none.
func (j *Job) namedHosts(here string) (hosts []place.Host) {
	own := -1
	for _, h := range j.Hosts {
		switch {
		case !isHere(h.Name, here):
			hosts = append(hosts, h)
		case own < 0:
			own = len(hosts)
			hosts = append(hosts, place.Host{Name: here, Slots: h.Slots})
		default:
			hosts[own].Slots = min(max(hosts[own].Slots, 1)+max(h.Slots, 1), place.MaxRanks)
		}
	}
	return hosts
}

// checkAllocation fails in a Slurm allocation that has other hosts than this one: their time would be paid for, and all
// ranks would be here.
func (j *Job) checkAllocation(here string) error {
	if j.AllowUnused {
		return nil
	}
	const meant = "-H localhost if all of them are meant to be on this host"
	hosts, err := place.Slurm(j.variable)
	if err != nil {
		return fmt.Errorf("the hosts of this Slurm allocation cannot be read: %w; say %s", err, meant)
	}
	others := slices.DeleteFunc(slices.Clone(hosts), func(h place.Host) bool {
		return isHere(h.Name, here) || h.Name == j.variable("SLURMD_NODENAME")
	})
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("this Slurm allocation has %d %s (%s), and gorun starts ranks on its own only, which is %s: "+
		"start them with srun --mpi=pmi2 -n %d and the program, or say %s",
		len(hosts), plural(len(hosts), "host"), someHosts(hosts), here, j.Size(), meant)
}

// variable is one of the environment that the ranks inherit.
func (j *Job) variable(name string) string {
	for _, kv := range slices.Backward(j.Environ) {
		if value, is := strings.CutPrefix(kv, name+"="); is {
			return value
		}
	}
	return ""
}

// onlyHere tells whether no rank was placed on another host.
func onlyHere(l *place.Layout, here string) bool {
	return !slices.ContainsFunc(l.Hosts, func(h place.Host) bool { return h.Name != here })
}

// someHosts names the first of them.
func someHosts(hosts []place.Host) string {
	const most = 8
	var names []string
	for _, h := range hosts[:min(len(hosts), most)] {
		names = append(names, h.Name)
	}
	if len(hosts) > most {
		names = append(names, "...")
	}
	return strings.Join(names, ",")
}

// mapLines says which ranks each host has.
func mapLines(l *place.Layout) []string {
	ranks := make([][]int, len(l.Hosts))
	for rank, host := range l.Order.Ranks(l.Ranks) {
		ranks[host] = append(ranks[host], rank)
	}
	lines := make([]string, len(l.Hosts))
	for i, h := range l.Hosts {
		lines[i] = fmt.Sprintf("host %s has %s %s", h.Name, plural(len(ranks[i]), "rank"), cpuset.FormatList(ranks[i]))
	}
	return lines
}
