package launcher

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

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

// hostID tells this host from others, whatever names lead to it: by the kernel that runs, its network and addresses,
// its processes and its root folder. Containers and pods of one machine differ. "": the kernel does not say.
func hostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	h := sha256.New()
	fmt.Fprintln(h, string(boot), hostName())
	for _, space := range []string{"net", "pid"} {
		to, err := os.Readlink("/proc/self/ns/" + space)
		if err != nil {
			return ""
		}
		fmt.Fprintln(h, to)
	}
	var root syscall.Stat_t
	if syscall.Stat("/", &root) == nil {
		fmt.Fprintln(h, root.Dev, root.Ino)
	}
	addrs, _ := net.InterfaceAddrs() // copies of a machine that was running have the same boot id
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			fmt.Fprintln(h, n)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// isHere reports whether a name is one of the host that calls itself here. No name is looked up in a network.
func isHere(name, here string) bool {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.IsLoopback()
	}
	return strings.EqualFold(name, "localhost") || sameName(name, here)
}

// sameName reports whether two names are of one host. A name without a domain stands for one with any.
func sameName(a, b string) bool {
	if _, err := netip.ParseAddr(a); err == nil {
		return a == b
	}
	short, domain, _ := strings.Cut(a, ".")
	other, otherDomain, _ := strings.Cut(b, ".")
	return strings.EqualFold(a, b) || (domain == "" || otherDomain == "") && strings.EqualFold(short, other)
}

// choice is the hosts that a job may have ranks on.
type choice struct {
	hosts  []place.Host // at least one
	spares []place.Host // on which no rank starts before another host is lost
	here   string       // what this host is called among them
	slurm  bool         // Slurm has allocated them, and starts the agents there
}

// choose returns the hosts that the job names, else those of a Slurm allocation, else this one, without the spares. In
// an allocation the named ones must be of it, unless another way to them is named too.
func (j *Job) choose(here string) (c choice, err error) {
	if len(j.Spares) > 0 && j.Respawn == 0 {
		return c, errors.New("--spares names hosts for ranks that are started again, which --respawn N allows: " +
			"add that, with the most starts there may be")
	}
	allocated, err := place.Slurm(j.variable)
	c = choice{here: j.nameHere(allocated, here), slurm: allocated != nil && j.Agents.isDefault()}
	c.hosts, c.spares = namedHosts(j.Hosts, c.here), namedHosts(j.Spares, c.here)
	switch {
	case c.hosts == nil && err != nil:
		return c, fmt.Errorf("the hosts of this Slurm allocation cannot be read: %w; "+
			"say -H localhost if all ranks are meant to be on this host", err)
	case c.hosts == nil && allocated != nil:
		c.hosts = slices.Clone(allocated)
	case c.hosts == nil:
		c.hosts = []place.Host{{Name: c.here}}
	case c.slurm && !(len(c.hosts) == 1 && c.hosts[0].Name == c.here):
		if err := restrict(c.hosts, allocated); err != nil {
			return c, err
		}
	}
	if c.slurm {
		if err := restrict(c.spares, allocated); err != nil {
			return c, fmt.Errorf("--spares: %w", err)
		}
	}
	if err := c.setApart(); err != nil {
		return c, err
	}
	if c.slurm && j.Respawn > 0 { // the user has kept these
		for _, h := range allocated {
			if !has(c.hosts, h.Name) && !has(c.spares, h.Name) {
				c.spares = append(c.spares, h)
			}
		}
	}
	return c, nil
}

// setApart takes the spares out of the hosts, which may have them too. A spare has the slots that are said anywhere.
func (c *choice) setApart() error {
	for i := range c.spares {
		s := &c.spares[i]
		at := slices.IndexFunc(c.hosts, func(h place.Host) bool { return sameName(h.Name, s.Name) })
		if at < 0 {
			continue
		}
		s.Name, s.Slots = c.hosts[at].Name, cmp.Or(s.Slots, c.hosts[at].Slots)
		if c.hosts = slices.Delete(c.hosts, at, at+1); len(c.hosts) == 0 {
			return fmt.Errorf("all hosts are spares (%s): name those on which ranks start too", someHosts(c.spares))
		}
	}
	return nil
}

func has(hosts []place.Host, name string) bool {
	return slices.ContainsFunc(hosts, func(h place.Host) bool { return h.Name == name })
}

// nameHere is what this host is called in an allocation, or what it calls itself.
func (j *Job) nameHere(allocated []place.Host, here string) string {
	node := j.variable("SLURMD_NODENAME")
	for _, h := range allocated {
		if h.Name == node || sameName(h.Name, here) {
			return h.Name
		}
	}
	return here
}

// namedHosts is hosts that the user names, with all names of this one taken together; nil: there are none.
func namedHosts(named []place.Host, here string) (hosts []place.Host) {
	own := -1
	for _, h := range named {
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

// restrict calls the named hosts what Slurm calls them. One whose slots are not said has those of the allocation.
func restrict(hosts, allocated []place.Host) error {
	for i := range hosts {
		h := &hosts[i]
		at := slices.IndexFunc(allocated, func(a place.Host) bool { return sameName(h.Name, a.Name) })
		if at < 0 {
			return fmt.Errorf("host %s is not in this Slurm allocation, which has %s: name hosts of it, "+
				"or a remote shell too, as in --launch-agent ssh", h.Name, someHosts(allocated))
		}
		said := h.Name
		if h.Name = allocated[at].Name; h.Slots == 0 {
			h.Slots = allocated[at].Slots
		}
		if has(hosts[:i], h.Name) {
			return fmt.Errorf("host %s is named twice, once as %s: name it once, with all its slots", h.Name, said)
		}
	}
	return nil
}

// layOut places the ranks. It fails where the job was told of hosts that would get none.
func (j *Job) layOut(c *choice) (*place.Layout, error) {
	q := j.Place
	q.Ranks = j.Size()
	if j.at != nil {
		return placed(c.hosts, j.at), nil
	}
	l, err := place.Place(c.hosts, q)
	if err != nil {
		return nil, err
	}
	if len(l.Unused) > 0 && !j.AllowUnused {
		of := ""
		if c.slurm && j.Hosts == nil {
			of = " of this Slurm allocation"
		}
		return nil, fmt.Errorf("%d of the %d hosts%s would get no rank (%s): --map-by node deals them to all, "+
			"--ppn %d puts so many on each; or raise -n, name fewer hosts, or use --allow-unused-hosts if this is "+
			"meant",
			len(l.Unused), len(c.hosts), of, someHosts(l.Unused), (l.Ranks+len(c.hosts)-1)/len(c.hosts))
	}
	return l, nil
}

// placed is the layout of ranks whose hosts have been chosen.
func placed(hosts []place.Host, at []int) *place.Layout {
	l := &place.Layout{Ranks: len(at), Hosts: hosts, Counts: make([]int, len(hosts)), Order: place.OrderOf(at)}
	for _, host := range at {
		l.Counts[host]++
	}
	return l
}

// DefaultRanks is how many ranks a job of one program has if no number is given: as many as fill its hosts.
func (j *Job) DefaultRanks() (int, error) {
	c, err := j.choose(cmp.Or(j.Agents.Here, hostName()))
	if err != nil {
		return 0, err
	}
	return j.Place.All(c.hosts), nil
}

// variable is one of the environment that the ranks inherit.
func (j *Job) variable(name string) string {
	for _, kv := range slices.Backward(j.Environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// onlyHere reports whether no rank was placed on another host.
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

// mapLines says which ranks each host has, and which hosts are spares.
func mapLines(l *place.Layout) []string {
	ranks := make([][]int, len(l.Hosts))
	for rank, host := range l.Order.Ranks(l.Ranks) {
		ranks[host] = append(ranks[host], rank)
	}
	lines := make([]string, len(l.Hosts))
	for i, h := range l.Hosts {
		lines[i] = fmt.Sprintf("host %s has %s %s", h.Name, plural(len(ranks[i]), "rank"), cpuset.FormatList(ranks[i]))
	}
	for _, h := range l.Spares {
		lines = append(lines, fmt.Sprintf("host %s is a spare", h.Name))
	}
	return lines
}
