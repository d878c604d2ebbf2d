package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// finding is one thing that is wrong on some hosts, and what mends it. In Mend and in Details the word HOST stands for
// the name of each of them.
type finding struct {
	Note    bool              `json:"note,omitempty"` // jobs work without what is missing
	Kind    kind              `json:"kind"`
	Hosts   []string          `json:"hosts"`             // in the order of the job
	Wrong   string            `json:"wrong"`             // the same for all of them
	Details map[string]string `json:"details,omitempty"` // by host
	Mend    string            `json:"mend"`
}

// kind is what a finding is about.
type kind string

// kinds in the order in which they are mended: what stands first may be the reason of what follows.
var kinds = []kind{"reach", "same host", "system", "link", "network", "ports", "path", "mtu", "limits",
	"memory", "rdma", "gpu", "clock"}

const (
	skewMax    = time.Second
	memlockMin = 1 << 30 // bytes; a rank registers what it sends
	// A rank has a descriptor for each rank on another host, and its agent some for each rank of its own; both have some
	// more. Go's runtime has some threads in each rank.
	filesEach, filesMore, threadsEach = 5, 64, 12
)

// exam is what is known when the visits are over.
type exam struct {
	local       *visit
	visits      []*visit
	links       []link
	ports       string   // GORUN_TCP_PORTS
	shell       []string // the words of the remote shell
	path        string   // of gorun
	aliasesFail bool     // two names of one host end a job
	direct      string   // GORUN_GPUDIRECT
	all         []finding
}

// add notes what is wrong with a host. Hosts with the same trouble share a finding.
func (e *exam) add(k kind, host, detail, mend, wrong string, args ...any) {
	e.addFinding(false, k, host, detail, mend, wrong, args...)
}

// addFinding is add, perhaps of a note.
func (e *exam) addFinding(note bool, k kind, host, detail, mend, wrong string, args ...any) {
	wrong = fmt.Sprintf(wrong, args...)
	i := slices.IndexFunc(e.all, func(f finding) bool { return f.Kind == k && f.Wrong == wrong && f.Mend == mend })
	if i < 0 {
		i = len(e.all)
		e.all = append(e.all, finding{Note: note, Kind: k, Wrong: wrong, Mend: mend, Details: map[string]string{}})
	}
	f := &e.all[i]
	if !slices.Contains(f.Hosts, host) {
		f.Hosts = append(f.Hosts, host)
	}
	if detail != "" && f.Details[host] == "" {
		f.Details[host] = detail
	}
}

// notesLast orders findings.
func notesLast(f finding) int {
	if f.Note {
		return 1
	}
	return 0
}

// nothingWrong reports whether all findings are notes.
func nothingWrong(all []finding) bool {
	return !slices.ContainsFunc(all, func(f finding) bool { return !f.Note })
}

// diagnose finds what is wrong, and then what is to be noted.
func (e *exam) diagnose() []finding {
	rdma, gpus, ranks := false, false, 0
	for _, v := range e.visits {
		if v.err == nil {
			rdma = rdma || len(v.Facts.RDMA.Devices) > 0
			gpus = gpus || slices.ContainsFunc(v.Facts.RDMA.GPUs, usable)
			ranks += v.ranks()
		}
	}
	for _, v := range e.visits {
		if v.err != nil {
			c := reach.CauseOf(v.err)
			e.add("reach", v.Name, v.Error, c.Mend(e.shell, e.path), "%s", c.Wrong())
			continue
		}
		e.checkFacts(v, rdma)
		if gpus {
			e.checkGPUs(v)
		}
		e.checkLimits(v, ranks)
		if f, own := v.Facts, e.local.Facts; f.Arch != own.Arch || f.System != own.System {
			e.add("system", v.Name, "", "leave HOST out: the hosts of a job are of one system and architecture",
				"it is %s/%s, and this host %s/%s", f.System, f.Arch, own.System, own.Arch)
		}
		if e.blocked(v) {
			e.add("network", v.Name, v.greeting.Blocked, "correct GORUN_TCP_IF and GORUN_TCP_PORTS, or name networks "+
				"that all hosts have: GORUN_TCP_IF=10.1.0.0/16", "ranks cannot listen there")
		}
	}
	e.checkNames()
	e.checkClocks()
	e.checkLinks()
	e.checkMTU()
	order := map[string]int{}
	for i, v := range e.visits {
		order[v.Name] = i
	}
	for i := range e.all {
		slices.SortStableFunc(e.all[i].Hosts, func(a, b string) int { return order[a] - order[b] })
	}
	slices.SortStableFunc(e.all, func(a, b finding) int {
		return cmp.Or(notesLast(a)-notesLast(b), slices.Index(kinds, a.Kind)-slices.Index(kinds, b.Kind),
			order[a.Hosts[0]]-order[b.Hosts[0]],
			strings.Compare(a.Wrong, b.Wrong))
	})
	return e.all
}

// ranks is how many a host is for.
func (v *visit) ranks() int { return cmp.Or(v.Slots, v.Facts.CPUs.Usable) }

// saidElsewhere reports whether another finding says why a transport does not open at a host: verbs is not in gorun or
// has no device, and tcp has no address to listen at.
func (e *exam) saidElsewhere(v *visit, transport string) bool {
	switch transport {
	case "verbs":
		return !v.Facts.RDMA.Verbs || len(v.Facts.RDMA.Devices) == 0
	case "tcp":
		return e.blocked(v)
	}
	return false
}

// blocked reports whether ranks cannot listen at a host, and have to.
func (e *exam) blocked(v *visit) bool { return v.greeting.Blocked != "" && len(e.visits) > 1 }

// checkFacts looks at one host. rdma: some host has a device.
func (e *exam) checkFacts(v *visit, rdma bool) {
	f := v.Facts
	if f.System == "linux" && !strings.HasPrefix(f.Readv, "yes") {
		e.add("memory", v.Name, "", "sysctl -w kernel.yama.ptrace_scope=0; in a container: --cap-add=SYS_PTRACE",
			"ranks cannot read each other's memory (%s)", f.Readv)
	}
	if len(e.visits) > 1 &&
		!slices.ContainsFunc(f.Interfaces, func(i netFacts) bool { return !i.Loopback && len(i.Addresses) > 0 }) {
		e.add("network", v.Name, "", "ip link; ip addr", "no interface but loopback is up and has an address")
	}
	for _, t := range f.Transports {
		if t.Error == "" || e.saidElsewhere(v, t.Name) {
			continue
		}
		k, ok := map[string]kind{"shm": "memory", "verbs": "rdma"}[t.Name]
		if !ok {
			k = "network"
		}
		e.add(k, v.Name, t.Error, "ssh HOST gorun info", "ranks there do without the transport %s, which does not open",
			t.Name)
	}
	if !rdma {
		return
	}
	if len(f.RDMA.Devices) == 0 {
		e.add("rdma", v.Name, "", "lspci | grep -i -e mellanox -e infiniband; modprobe mlx5_ib",
			"it has no RDMA device, and another host has")
		return
	}
	if !f.RDMA.Verbs {
		e.add("rdma", v.Name, "", "CGO_ENABLED=1 go build -tags verbs, for the program and for gorun",
			"it has an RDMA device, and gorun was built without verbs")
	}
	if f.Memlock >= 0 && f.Memlock < memlockMin {
		e.add("limits", v.Name, "", "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf, then log in again; "+
			"for a service LimitMEMLOCK=infinity", "a process may lock %d KiB only, and RDMA locks what is sent",
			f.Memlock>>10)
	}
	for _, d := range f.RDMA.Devices {
		if !active(d) {
			e.add("rdma", v.Name, "", "ibstat "+d.Name+"; ip link set DEV up; with InfiniBand: is opensm running?",
				"no port of the RDMA device %s is active", d.Name)
		}
	}
}

// active reports whether a device has a port that is.
func active(d topology.Device) bool {
	return slices.ContainsFunc(d.Ports, func(p topology.Port) bool { return p.State == "ACTIVE" })
}

// checkLimits compares what a host allows with what its ranks need. ranks counts the ranks of all hosts.
func (e *exam) checkLimits(v *visit, ranks int) {
	f, own := v.Facts, v.ranks()
	files := max(ranks-own, filesEach*own) + filesMore
	if f.Files >= 0 && f.Files < int64(files) {
		e.add("limits", v.Name, "", fmt.Sprintf("echo '* - nofile %d' >/etc/security/limits.d/gorun.conf, then log in "+
			"again; for a service LimitNOFILE=%[1]d", max(files, 65536)),
			"a process may have %d files open (ulimit -Hn), and %d ranks here of %d need %d", f.Files, own, ranks, files)
	}
	if threads := int64(own * threadsEach); f.Processes >= 0 && f.Processes < threads {
		e.add("limits", v.Name, "", "echo '* - nproc unlimited' >/etc/security/limits.d/gorun.conf, then log in again; "+
			"for a service TasksMax=infinity; in a container --pids-limit",
			"a user may have %d threads (ulimit -u, pids.max), and %d ranks need about %d", f.Processes, own, threads)
	}
	ports, err := tcp.ParsePorts(e.ports)
	if n := ports.Count(); err == nil && n > 0 && v.Slots > n && len(e.visits) > 1 {
		e.add("ports", v.Name, "", "give a port for each rank of a host: GORUN_TCP_PORTS=40000-40999",
			"GORUN_TCP_PORTS=%v has %d ports, and it is for %d ranks", ports, n, v.Slots)
	}
}

// checkNames finds hosts that have two names in the list.
func (e *exam) checkNames() {
	named := map[string]*visit{}
	for _, v := range e.visits {
		id := v.greeting.Host
		if v.err != nil || id == "" || !e.aliasesFail {
			continue
		}
		other := named[id]
		if other == nil {
			named[id] = v
			continue
		}
		e.add("same host", other.Name, "", "name it once, with all its slots; getent hosts HOST shows where a name leads",
			"it has several names in the list, and calls itself %s", printable(v.Facts.Host))
		e.add("same host", v.Name, "", "name it once, with all its slots; getent hosts HOST shows where a name leads",
			"it has several names in the list, and calls itself %s", printable(v.Facts.Host))
	}
}

// checkClocks compares the clocks with the one in their middle: the clock of this host may be the wrong one.
func (e *exam) checkClocks() {
	var all []*visit
	for _, v := range e.visits {
		if v.err == nil {
			all = append(all, v)
		}
	}
	if !slices.Contains(all, e.local) {
		all = append(all, e.local)
	}
	slices.SortStableFunc(all, func(a, b *visit) int { return cmp.Compare(a.Skew, b.Skew) })
	middle := all[len(all)/2].Skew
	if len(all) == 2 { // who can say which; the doctor's is believed
		middle = e.local.Skew
	}
	for _, v := range all {
		if d := v.Skew - middle; d.Abs() > skewMax {
			e.add("clock", v.Name, fmt.Sprintf("by %+.1f s", d.Seconds()), "timedatectl set-ntp true (or chronyc makestep)",
				"its clock differs from those of the others by more than %v", skewMax)
		}
	}
}

// checkMTU compares what hosts send in one frame on each network that they share.
func (e *exam) checkMTU() {
	type seen struct {
		mtu  int
		host string
	}
	networks := map[netip.Prefix][]seen{}
	for _, v := range e.visits {
		if v.err != nil {
			continue
		}
		for _, i := range v.Facts.Interfaces {
			for _, a := range i.Addresses {
				p, err := netip.ParsePrefix(a)
				if err != nil || i.Loopback || p.IsSingleIP() || p.Addr().IsLinkLocalUnicast() || !v.publishes(p.Addr()) {
					continue
				}
				networks[p.Masked()] = append(networks[p.Masked()], seen{i.MTU, v.Name})
			}
		}
	}
	for _, n := range slices.SortedFunc(maps.Keys(networks), netip.Prefix.Compare) {
		all := networks[n]
		most := slices.MaxFunc(all, func(a, b seen) int { return a.mtu - b.mtu }).mtu
		for _, s := range all {
			if s.mtu < most {
				e.add("mtu", s.host, "", fmt.Sprintf("ip link set dev IF mtu %d, or the smaller one on all", most),
					"its frames in %v have %d bytes at most, and those of other hosts %d: long ones can get lost", n, s.mtu,
					most)
			}
		}
	}
}

// publishes reports whether ranks of the host are reached at an address.
func (v *visit) publishes(a netip.Addr) bool {
	if len(v.greeting.Addresses) == 0 {
		return false
	}
	points, err := tcp.Points(v.greeting.Addresses[0])
	return err == nil && slices.Contains(points, a)
}

// breach is why some hosts cannot connect to others, or not as they would.
type breach struct {
	fault   string
	blocked bool // no address answers
	oneWay  bool // but the other host connects to this one, which ranks ask it to do
}

// checkLinks merges what is wrong between hosts.
func (e *exam) checkLinks() {
	bad := map[breach]map[*visit][]*visit{} // by the host that is not reached
	texts := map[breach]map[*visit]string{}
	open := map[[2]*visit]bool{}
	for _, l := range e.links {
		w, _ := l.diagnose()
		open[[2]*visit{l.from, l.to}] = !w.blocked
	}
	for _, l := range e.links {
		w, text := l.diagnose()
		if w.fault == "" {
			continue
		}
		w.oneWay = w.blocked && open[[2]*visit{l.to, l.from}]
		if loose := noCarrier(l.to, l.from); w.blocked && loose != nil {
			e.add("link", loose.Name, "", "plug in the cable of HOST, or enable the port of its switch; ip -br link on HOST",
				"no cable is connected to %s: NO-CARRIER", strings.Join(loose.loose(), ", "))
			continue
		}
		if bad[w] == nil {
			bad[w], texts[w] = map[*visit][]*visit{}, map[*visit]string{}
		}
		bad[w][l.to] = append(bad[w][l.to], l.from)
		if texts[w][l.from] == "" {
			texts[w][l.from] = text
		}
	}
	for _, w := range slices.SortedFunc(maps.Keys(bad), func(a, b breach) int { return strings.Compare(a.fault, b.fault) }) {
		groups := map[string][]*visit{} // the hosts that the same ones do not reach, by these
		from := map[string][]*visit{}
		for _, to := range e.visits {
			if bad[w][to] == nil {
				continue
			}
			who := e.inOrder(append(bad[w][to], to)) // so that hosts that do not reach each other are one group
			key := place.Fold(namesOf(who))
			groups[key], from[key] = append(groups[key], to), who
		}
		for _, key := range slices.Sorted(maps.Keys(groups)) {
			e.addUnreachable(w, from[key], groups[key], texts[w])
		}
	}
}

// addUnreachable notes that hosts do not reach others.
func (e *exam) addUnreachable(w breach, from, to []*visit, texts map[*visit]string) {
	target := place.Fold(namesOf(to))
	if len(from) == len(to) {
		target = "each other"
	} else { // each group holds the hosts that are not reached, which reach themselves
		from = slices.DeleteFunc(slices.Clone(from), func(v *visit) bool { return slices.Contains(to, v) && len(to) == 1 })
	}
	k, wrong := kind("path"), "ranks there first try an address of "+target+" in vain: "+w.fault
	switch {
	case w.oneWay:
		k, wrong = "ports", "ranks there cannot connect to "+target+", and are connected by it, later: "+w.fault
	case w.blocked:
		k, wrong = "ports", "ranks there cannot connect to "+target+": "+w.fault
	}
	mend := e.mendFor(w.fault, target)
	for i, v := range from {
		text := ""
		if i == 0 {
			text = texts[v]
		}
		e.add(k, v.Name, text, mend, "%s", wrong)
	}
}

func (e *exam) mendFor(fault, target string) string {
	has := func(f tcp.Fault) bool { return strings.Contains(fault, string(f)) }
	on := "on " + target
	if target == "each other" {
		on = "on each"
	}
	other := "; or choose a network on which they reach each other: GORUN_TCP_IF=10.1.0.0/16"
	switch {
	case has(tcp.Stuck):
		return on + ": ip link set dev IF mtu 1500, or raise the MTU of the switches and tunnels between them" + other
	case has(tcp.Silent), has(tcp.Refused):
		open := func(ports string) string {
			return fmt.Sprintf("firewall-cmd --permanent --add-port=%s/tcp && firewall-cmd --reload", ports)
		}
		if e.ports == "" {
			return "choose ports for ranks, export GORUN_TCP_PORTS=40000-40999, and let them in " + on + ": " +
				open("40000-40999") + other
		}
		return "let the ports of GORUN_TCP_PORTS in " + on + ": " + open(e.ports) + other
	case has(tcp.Stranger):
		return "leave out the network that other machines have too: GORUN_TCP_IF='!IF'"
	case has(tcp.Unreachable):
		return "ping the address; " + on + ": ip -br addr: is the interface up, and in the same network?" + other
	}
	return "ip route; " + on + ": ip -br addr" + other
}

// diagnose says what is wrong with a link, and one error of it. Each port counts, and of its addresses those that ranks
// would try. One to which there is no route costs nothing if another answers.
func (l *link) diagnose() (w breach, text string) {
	var faults []string
	note := func(a attempt) {
		if !slices.Contains(faults, string(a.Fault)) {
			faults = append(faults, string(a.Fault))
		}
		if text == "" {
			text = fmt.Sprintf("to %s, %s: %.200s", l.to.Name, cmp.Or(printable(a.To), "no address"), printable(a.Text))
		}
	}
	for _, tried := range l.ways {
		open := len(tried) > 0 && tried[len(tried)-1].Fault == tcp.NoFault
		w.blocked = w.blocked || !open
		only := !open && !slices.ContainsFunc(tried, func(a attempt) bool { return a.Fault != tcp.NoRoute })
		for _, a := range tried {
			if a.Fault != tcp.NoFault && (a.Fault != tcp.NoRoute || only) {
				note(a)
			}
		}
		if len(tried) == 0 {
			note(attempt{Fault: "it has no address that can be reached from there", Text: "GORUN_TCP_IF leaves none"})
		}
	}
	slices.Sort(faults)
	w.fault = strings.Join(faults, "; ")
	return w, text
}

// noCarrier is the first of the hosts that has an interface of its network without a cable.
func noCarrier(visits ...*visit) *visit {
	for _, v := range visits {
		if len(v.loose()) > 0 {
			return v
		}
	}
	return nil
}

// loose are the interfaces by which ranks are reached, and which have no carrier.
func (v *visit) loose() (names []string) {
	for _, i := range v.Facts.Interfaces {
		if i.Loopback || i.Carrier {
			continue
		}
		for _, a := range i.Addresses {
			if p, err := netip.ParsePrefix(a); err == nil && v.publishes(p.Addr()) {
				names = append(names, i.Name)
				break
			}
		}
	}
	return names
}

// inOrder sorts hosts as the job has them.
func (e *exam) inOrder(some []*visit) (sorted []*visit) {
	for _, v := range e.visits {
		if slices.Contains(some, v) {
			sorted = append(sorted, v)
		}
	}
	return sorted
}

func namesOf(visits []*visit) (names []string) {
	for _, v := range visits {
		names = append(names, v.Name)
	}
	return names
}

// print prints a finding. Details that are the same but for the name of the host are printed once.
func (f *finding) print(w io.Writer) {
	word := "wrong"
	if f.Note {
		word = "a note"
	}
	fmt.Fprintf(w, "\n%s on %s: %s\n", word, place.Fold(f.Hosts), f.Wrong)
	const most = 3
	var printed []string
	for _, h := range f.Hosts {
		text := f.Details[h]
		if general := replaceName(text, h, "HOST"); text != "" && !slices.Contains(printed, general) {
			if printed = append(printed, general); len(printed) <= most {
				fmt.Fprintf(w, "  %s: %s\n", h, text)
			}
		}
	}
	if len(printed) > most {
		fmt.Fprintf(w, "  and %d more such\n", len(printed)-most)
	}
	mend := f.Mend
	if len(f.Hosts) == 1 {
		mend = replaceName(mend, "HOST", f.Hosts[0])
	}
	fmt.Fprintf(w, "  mend: %s\n", mend)
}

// replaceName replaces a word.
func replaceName(text, word, by string) string {
	letter := func(i int) bool {
		return i >= 0 && i < len(text) && (text[i] >= '0' && text[i] <= '9' || text[i] >= 'A' && text[i] <= 'Z' ||
			text[i] >= 'a' && text[i] <= 'z')
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		if word != "" && strings.HasPrefix(text[i:], word) && !letter(i-1) && !letter(i+len(word)) {
			b.WriteString(by)
			i += len(word)
			continue
		}
		b.WriteByte(text[i])
		i++
	}
	return b.String()
}

// clearly is an error without what only frames it.
func clearly(err error) string {
	var parts []string
	for part := range strings.SplitSeq(err.Error(), "; ") {
		if strings.Trim(part, "@ ") != "" && !strings.HasSuffix(part, "@@@") {
			parts = append(parts, part)
		}
	}
	return fmt.Sprintf("%.400s", printable(strings.Join(parts, "; ")))
}

// printable is one line of what came from elsewhere.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
