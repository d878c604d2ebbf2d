package main

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/topology"
)

// askVerbs asks libibverbs; nil in a binary that was built without it.
var askVerbs func() ([]topology.Device, error)

const noVerbs = "built without verbs (go build -tags verbs): capabilities are not shown"

// patience is how long a driver may take to answer. A driver whose firmware hangs blocks every reader of its files for
// ever, and a user who asks why jobs hang must see the rest. Tests set it.
var patience = 10 * time.Second

// machine is what is printed of a host's RDMA devices and GPUs.
type machine struct {
	topology.Host
	asked     bool  // libibverbs was
	err       error // why not all is known
	cudaAsked bool  // CUDA was
	cudaErr   error // why it did not answer
}

// readMachine reads the kernel's files and then, unless they are nil, asks libibverbs and CUDA.
func readMachine(src topology.Source, ask func() ([]topology.Device, error),
	gpus func() ([]accel.Device, error)) machine {
	h, ok := within(patience, func() topology.Host { return topology.Read(src) })
	if !ok {
		return machine{cudaAsked: gpus != nil,
			err: fmt.Errorf("/sys was not read to its end within %v: does a driver hang? (dmesg)", patience)}
	}
	m := machine{Host: h}
	if gpus != nil {
		m.askCUDA(gpus)
	}
	if ask == nil {
		return m
	}
	type answer struct {
		devices []topology.Device
		err     error
	}
	a, ok := within(patience, func() (a answer) {
		a.devices, a.err = ask()
		return a
	})
	if !ok {
		a.err = fmt.Errorf("libibverbs did not answer within %v: does a driver hang? (dmesg)", patience)
	}
	m.asked, m.err = true, a.err
	m.Merge(a.devices, a.err)
	return m
}

// within returns what f does, if it does so in time. If not, f goes on in vain until gorun ends.
func within[T any](limit time.Duration, f func() T) (result T, ok bool) {
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case result = <-done:
		return result, true
	case <-time.After(limit):
		return result, false
	}
}

// print prints tables. Those that could be of any width are cut to cols columns.
func (m machine) print(w io.Writer, cols int) {
	switch {
	case len(m.Devices) > 0:
		m.printDevices(w, cols)
	case m.err != nil && m.asked:
		fmt.Fprintf(w, "%-18snone; %v\n", "RDMA devices", m.err)
	case m.err != nil:
		fmt.Fprintf(w, "%-18sunknown: %v\n", "RDMA devices", m.err)
	case m.asked:
		fmt.Fprintf(w, "%-18s%s\n", "RDMA devices", "none")
	default:
		fmt.Fprintf(w, "%-18s%s\n%-18s%s\n", "RDMA devices", "none", "verbs", noVerbs)
	}
	m.printGPUs(w, cols)
	fmt.Fprintln(w)
}

func (m machine) printDevices(w io.Writer, cols int) {
	fmt.Fprintln(w, "RDMA devices")
	rows := [][]string{{"device", "PCI", "NUMA", "node GUID", "board", "firmware", "kind"}}
	for _, d := range m.Devices {
		rows = append(rows, []string{d.Name, slot(d), numa(d.Node, d.Virtual), known(d.NodeGUID),
			absent(d.Board, d.Virtual), absent(d.Firmware, d.Virtual), known(d.Kind)})
	}
	printTable(w, rows)
	m.printPorts(w)
	m.printGIDs(w, cols)
	m.printNets(w)
	m.printCaps(w, cols)
	fmt.Fprintln(w)
}

func (m machine) printPorts(w io.Writer) {
	rows, guessed := [][]string{{"port", "state", "link", "rate", "MTU", "LID", "P_Keys"}}, false
	m.ports(func(name string, p topology.Port) {
		mtu := known("")
		if p.MTU > 0 {
			mtu = strconv.Itoa(p.MTU)
		}
		if p.MTUFrom != "" {
			mtu, guessed = mtu+"?", true
		}
		rows = append(rows, []string{name, state(p), known(p.Link), known(p.Rate), mtu, lid(p), keys(p.PKeys)})
	})
	fmt.Fprintln(w)
	printTable(w, rows)
	if guessed {
		fmt.Fprintln(w, "  ?: what the kernel makes of the network device's MTU; libibverbs was not asked")
	}
}

// gidsMost is how many GIDs of a port are printed; a host of many containers may have hundreds.
const gidsMost = 16

func (m machine) printGIDs(w io.Writer, cols int) {
	rows, notes := [][]string{{"port", "GID", "", "type", "address", "network"}}, []string{}
	m.ports(func(name string, p topology.Port) {
		chosen, why := topology.ChooseGID(p)
		if p.Link != "InfiniBand" || chosen < 0 { // else it goes without saying
			notes = append(notes, name+": "+why)
		}
		for n, g := range p.GIDs {
			mark := ""
			if g.Index == chosen {
				mark = "*"
			}
			if n < gidsMost || mark != "" {
				rows = append(rows, []string{name, strconv.Itoa(g.Index), mark, known(string(g.Type)), g.Addr.String(),
					dash(g.Net)})
			}
		}
		if left := len(p.GIDs) - gidsMost; left > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d more GIDs are not shown", name, left))
		}
	})
	fmt.Fprintln(w)
	if len(rows) > 1 {
		printTable(w, rows)
		fmt.Fprintln(w, "  *: the GID that ranks use on this port")
	}
	printNotes(w, notes, cols)
}

func (m machine) printNets(w io.Writer) {
	rows := [][]string{{"network", "port", "state", "MTU", "addresses"}}
	m.ports(func(name string, p topology.Port) {
		for _, n := range p.Nets {
			label, mtu := n.Name, known("")
			if len(n.Members) > 0 {
				label += " (" + strings.Join(n.Members, "+") + ")"
			}
			if n.MTU > 0 {
				mtu = strconv.Itoa(n.MTU)
			}
			rows = append(rows, []string{label, name, known(n.State), mtu, dash(listOf(n.Addrs))})
		}
	})
	if len(rows) > 1 {
		fmt.Fprintln(w)
		printTable(w, rows)
	}
}

func (m machine) printCaps(w io.Writer, cols int) {
	fmt.Fprintln(w)
	if !m.asked {
		fmt.Fprintln(w, "  "+noVerbs)
		return
	}
	rows := [][]string{{"device", "tag matching", "ODP", "atomics", "inline", "SGEs", "of READ", "READs out",
		"READs in", "longest"}}
	var missing, sources remarks
	for _, d := range m.Devices {
		c := d.Caps
		if c == nil {
			missing.add(d.Name, "capabilities are unknown: "+known(d.CapsWhy))
			continue
		}
		if d.Unfit != "" {
			missing.add(d.Name, "the transport verbs cannot use it: "+d.Unfit)
		}
		inline := "unknown"
		if c.MaxInline >= 0 {
			inline = fmt.Sprint(c.MaxInline, " B")
		}
		rows = append(rows, []string{d.Name, tags(c.Tags), odp(c.ODP), known(c.Atomics), inline,
			strconv.Itoa(c.MaxSGE), strconv.Itoa(c.MaxSGERead), strconv.Itoa(c.MaxReads), strconv.Itoa(c.MaxServed),
			size(c.MaxMessage)})
		sources.add(d.Name, "according to "+known(d.Library))
	}
	if len(rows) > 1 {
		printTable(w, rows)
	}
	printNotes(w, append(sources.notes(), missing.notes()...), cols)
}

// remarks collects the names that have a remark in common, so that it is printed once.
type remarks struct {
	texts []string
	names map[string][]string
}

func (g *remarks) add(name, text string) {
	if g.names == nil {
		g.names = map[string][]string{}
	}
	if g.names[text] == nil {
		g.texts = append(g.texts, text)
	}
	g.names[text] = append(g.names[text], name)
}

func (g *remarks) notes() (all []string) {
	for _, text := range g.texts {
		all = append(all, strings.Join(g.names[text], ", ")+": "+text)
	}
	return all
}

func printNotes(w io.Writer, notes []string, cols int) {
	for _, note := range notes {
		fmt.Fprintln(w, "  "+strings.TrimLeft(wrap(note, max(cols-4, 30), "    "), " "))
	}
}

func tags(t topology.TagMatching) string {
	switch {
	case t.MaxTags == 0:
		return "no"
	case !t.RC:
		return "not for RC"
	}
	return fmt.Sprintf("%d tags", t.MaxTags)
}

// odp is short where all that messages need is there: send, recv, write and read.
func odp(o topology.ODP) string {
	text := "yes"
	switch {
	case !o.Supported:
		return "no"
	case len(o.RC) == 0:
		return "not for RC"
	case !slices.Contains(o.RC, "send") || !slices.Contains(o.RC, "recv") || !slices.Contains(o.RC, "write") ||
		!slices.Contains(o.RC, "read"):
		text = strings.Join(o.RC, "+")
	}
	if o.Implicit {
		text += ", implicit"
	}
	return text
}

// ports calls f for each port, with its name in GORUN_VERBS_DEV.
func (m machine) ports(f func(name string, p topology.Port)) {
	for _, d := range m.Devices {
		for _, p := range d.Ports {
			f(fmt.Sprintf("%s:%d", d.Name, p.Number), p)
		}
	}
}

// printTable prints rows in columns that are as wide as what is in them.
func printTable(w io.Writer, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for len(row) > 1 && row[len(row)-1] == "" { // no blanks at the end of a line
			row = row[:len(row)-1]
		}
		fmt.Fprintln(t, "  "+strings.Join(row, "\t"))
	}
	t.Flush()
}

func known(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// absent distinguishes what cannot be there from what is not known.
func absent(s string, isAbsent bool) string {
	if isAbsent {
		return dash(s)
	}
	return known(s)
}

// state has the physical one only where that says more.
func state(p topology.Port) string {
	if p.Phys == "LinkUp" || p.Phys == "" {
		return known(p.State)
	}
	return known(p.State) + " (" + p.Phys + ")"
}

func slot(d topology.Device) string {
	if d.Virtual {
		return "software"
	}
	return known(d.Slot.Address())
}

func numa(node int, isAbsent bool) string {
	if node < 0 {
		return absent("", isAbsent)
	}
	return strconv.Itoa(node)
}

func lid(p topology.Port) string {
	switch {
	case p.Link == "Ethernet":
		return "-"
	case p.LID < 0:
		return known("")
	case p.LID == 0 || p.LID == 0xffff:
		return "none"
	}
	return strconv.Itoa(p.LID)
}

// keys prints P_Keys as they are written elsewhere. A card may have 128 of them.
func keys(all []topology.PKey) string {
	const most = 4
	var texts []string
	for _, k := range all[:min(len(all), most)] {
		texts = append(texts, fmt.Sprintf("%04x", k.Value))
	}
	if len(all) > most {
		texts = append(texts, fmt.Sprintf("and %d more", len(all)-most))
	}
	return known(strings.Join(texts, " "))
}

func listOf(all []netip.Prefix) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, " ")
}

// size prints what is a power of two in most cases, and exactly what is not.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit := 0
	for n > 0 && n%1024 == 0 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	if n == 0 {
		return known("")
	}
	return fmt.Sprint(n, " ", units[unit])
}
