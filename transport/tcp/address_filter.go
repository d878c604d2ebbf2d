package tcp

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Filter says which of the host's addresses are used. The zero value: all. See ParseInterfaces.
type Filter struct {
	text     string
	only     []pattern // not empty: no others
	excluded []pattern
}

// pattern is the name of an interface, the beginning of some, or a network.
type pattern struct {
	text    string
	name    string       // without the * at its end
	begins  bool         // the name ends with *
	network netip.Prefix // valid: addresses in it, and name is empty
}

const interfacesHelp = "it is a list like eth0,ib*,10.0.0.0/8,!docker0 of names of interfaces and of networks, " +
	"! excludes"

// ParseInterfaces understands GORUN_TCP_IF: names of interfaces (with * at the end: all that begin so), networks like
// 10.0.0.0/8 and addresses, separated by commas; with ! before it the entry is excluded. If any entry is not excluded,
// only the addresses that one of these names are used, and loopback, which is always used between ranks of one
// host unless an entry excludes it.
func ParseInterfaces(text string) (Filter, error) {
	f := Filter{text: text}
	if strings.TrimSpace(text) == "" {
		return Filter{}, nil
	}
	for _, entry := range strings.Split(text, ",") {
		entry = strings.TrimSpace(entry)
		rest, not := strings.CutPrefix(entry, "!")
		p, err := parsePattern(strings.TrimSpace(rest))
		if err != nil {
			return Filter{}, fmt.Errorf("%q: entry %q %w; %s", text, entry, err, interfacesHelp)
		}
		if not {
			f.excluded = append(f.excluded, p)
		} else {
			f.only = append(f.only, p)
		}
	}
	return f, nil
}

func parsePattern(text string) (pattern, error) {
	p := pattern{text: text}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		p.network = netip.PrefixFrom(a, a.BitLen())
		return p, nil
	}
	if strings.Contains(text, "/") {
		network, err := netip.ParsePrefix(text)
		if err != nil || network.Addr().Is4In6() {
			return p, fmt.Errorf("is no network like 10.0.0.0/8 or fd00::/8")
		}
		p.network = network.Masked()
		return p, nil
	}
	p.name, p.begins = strings.CutSuffix(text, "*")
	switch {
	case text == "":
		return p, fmt.Errorf("is empty")
	case strings.ContainsAny(p.name, "* \t!"):
		return p, fmt.Errorf("is no name of an interface (* may only be its end)")
	}
	return p, nil
}

func (p *pattern) matches(name string, a netip.Addr) bool {
	switch {
	case p.network.IsValid():
		return p.network.Contains(a)
	case p.begins:
		return strings.HasPrefix(name, p.name)
	}
	return p.name == name
}

func matchAny(patterns []pattern, name string, a netip.Addr) bool {
	for i := range patterns {
		if patterns[i].matches(name, a) {
			return true
		}
	}
	return false
}

// admits reports whether address a of an interface is used.
func (f *Filter) admits(name string, a netip.Addr) bool {
	if matchAny(f.excluded, name, a) {
		return false
	}
	return len(f.only) == 0 || a.IsLoopback() || matchAny(f.only, name, a)
}

// pick returns those of the host's networks that are used. A filter that names something, of which nothing is there, is
// a mistake: the ranks would only reach those of their own host.
func (f *Filter) pick(all []network) (picked []network, err error) {
	meant := len(f.only) == 0
	for _, n := range all {
		if f.admits(n.name, n.prefix.Addr()) {
			picked = append(picked, n)
			meant = meant || matchAny(f.only, n.name, n.prefix.Addr())
		}
	}
	if !meant || len(picked) == 0 && f.text != "" {
		return nil, fmt.Errorf("no address of this host is left by GORUN_TCP_IF=%s; it has %s", f.text, listed(all))
	}
	if len(picked) == 0 {
		return nil, fmt.Errorf("this host has no network interface that is up, not even loopback")
	}
	return picked, nil
}

func listed(all []network) string {
	var s []string
	for _, n := range all {
		s = append(s, n.name+" "+n.prefix.String())
	}
	if s == nil {
		return "none"
	}
	return strings.Join(s, ", ")
}

// PortRange is the ports that may be listened on. The zero value: any that the system chooses.
type PortRange struct{ lo, hi uint16 }

// ParsePorts understands GORUN_TCP_PORTS: lo-hi, both included, or one port. Empty: any.
func ParsePorts(text string) (PortRange, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return PortRange{}, nil
	}
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	lo, err1 := strconv.ParseUint(strings.TrimSpace(low), 10, 16)
	hi, err2 := strconv.ParseUint(strings.TrimSpace(high), 10, 16)
	if err1 != nil || err2 != nil || lo == 0 {
		return PortRange{}, fmt.Errorf("%q is no range of ports: write it like 20000-20999, from 1 to 65535", text)
	}
	if lo > hi {
		return PortRange{}, fmt.Errorf("%q begins behind its end: write %d-%d", text, hi, lo)
	}
	return PortRange{uint16(lo), uint16(hi)}, nil
}

func (r PortRange) String() string {
	switch {
	case r.lo == 0:
		return "any"
	case r.lo == r.hi:
		return strconv.Itoa(int(r.lo))
	}
	return fmt.Sprintf("%d-%d", r.lo, r.hi)
}
