//go:build verbs && !guest && linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

// The conformance suite over each of the devices that SOFTHCA_MODE makes of the software HCA. Tag matching is asked
// for, and the device of mode roce refuses it.
func TestConformanceModes(t *testing.T) {
	needSoft(t)
	for _, c := range []struct {
		mode string
		can  transporttest.Ability
	}{
		{"roce", able},
		{"vf", able&^transporttest.Atomics | transporttest.Offload},
		{"two_ports", able | transporttest.Offload},
		{"efa", able | transporttest.Offload},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Setenv("SOFTHCA_MODE", c.mode)
			transporttest.Run(t, pair(tagsOn, func(o *Options) { o.LocalRank = o.Rank }), transporttest.Has(c.can),
				transporttest.BadKeysEnd(), transporttest.Leaves(receives/2), transporttest.Brief())
		})
	}
}

// endIn is an end whose device has these knobs.
func endIn(t *testing.T, rank int, change func(*Options), knobs ...string) *end {
	t.Helper()
	for _, k := range knobs {
		name, value, _ := strings.Cut(k, "=")
		t.Setenv(name, value)
	}
	return newEnd(t, rank, 2, change)
}

func talkBoth(t *testing.T, a, b *end) {
	t.Helper()
	ab, ba := a.link(b), b.link(a)
	talk(ab, b)
	talk(ba, a)
}

// A device that says that it matches tags and then refuses, and one that says no such thing: the log has the reason.
func TestTagsAreRefused(t *testing.T) {
	needSoft(t)
	for knob, says := range map[string]string{
		"SOFTHCA_MODE=roce": "refuses to match tags (GORUN_TM)", "SOFTHCA_TM=0": "matches no tags",
	} {
		t.Run(knob, func(t *testing.T) { // whose end takes the knob back
			var log notes
			e := endIn(t, 0, func(o *Options) { o.Tags, o.Log = "on", log.log }, knob)
			if e.Facts().Offload != nil || len(log.with(says)) != 1 {
				t.Errorf("the log has %q, want %q", log.text, says)
			}
		})
	}
}

// Tag matching is used where it is asked for only.
func TestTagsAreAskedFor(t *testing.T) {
	needSoft(t)
	if e := newEnd(t, 0, 2, func(o *Options) { o.Tags = "" }); e.Facts().Offload != nil {
		t.Error("the device matches tags, and GORUN_TM is not set")
	}
}

// Devices that cannot serve are left out, each for its reason. One that is named is an error, with the reason.
func TestUnfitDevices(t *testing.T) {
	needSoft(t)
	t.Setenv("SOFTHCA_MODE", "efa")
	reasons := map[string]string{
		"efa0": "transport is unspecified (EFA)", "irdma0": "iWARP", "nosrq0": "making a shared receive queue",
	}
	var log notes
	e := newEnd(t, 0, 2, func(o *Options) { o.Debug = log.log })
	if e.at.device != "softhca0" {
		t.Errorf("it uses %s", e.at.device)
	}
	reasons["mlx5_9"] = "there is no such device"
	for device, reason := range reasons {
		if device != "mlx5_9" && len(log.with(device+" why ")) != 1 {
			t.Errorf("the log does not say why %s is not used: %q", device, log.text)
		}
		for _, list := range []string{device, "softhca0," + device + ":1"} {
			opt := options(t, 0, 2, func(string, ...any) {})
			opt.Devices = list
			_, err := New(opt)
			if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "names "+device) ||
				!strings.Contains(err.Error(), reason) {
				t.Errorf("GORUN_VERBS_DEV=%s: %v, want %q", list, err, reason)
			}
		}
	}
}

// A device that says that it has shared receive queues, and refuses to make one, fails its trial and is left out.
func TestTrial(t *testing.T) {
	needSoft(t)
	t.Setenv("SOFTHCA_MODE", "efa")
	library, _ := library(t)
	if err := load(library); err != nil {
		t.Fatal(err)
	}
	h, err := open("nosrq0", "/")
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	for range 2 { // what was made is given back
		if _, err := h.try(1, 0); err == nil || !strings.Contains(err.Error(), "shared receive queue") {
			t.Errorf("nosrq0 passes its trial: %v", err)
		}
	}
	soft, err := open("softhca0", "/")
	if err != nil {
		t.Fatal(err)
	}
	defer soft.close()
	for range 2 {
		if inline, err := soft.try(1, 0); err != nil || inline < inlineMax {
			t.Errorf("softhca0 fails its trial: %d, %v", inline, err)
		}
	}
}

// Queue pairs give the GID where either port requires it, and between subnets.
func TestGlobalRoutes(t *testing.T) {
	needSoft(t)
	watchdog(t)
	none := func(*Options) {}
	for _, c := range [][2][]string{
		{{"SOFTHCA_MODE=vf", "SOFTHCA_SUBNET=0"}, {"SOFTHCA_MODE=ib", "SOFTHCA_SUBNET=0"}},
		{{"SOFTHCA_MODE=ib", "SOFTHCA_SUBNET=1"}, {"SOFTHCA_MODE=ib", "SOFTHCA_SUBNET=2"}},
	} {
		talkBoth(t, endIn(t, 0, none, c[0]...), endIn(t, 1, none, c[1]...))
	}
}

// Packets have the service level that was asked for; the fabric loses others.
func TestServiceLevel(t *testing.T) {
	needSoft(t)
	watchdog(t)
	level := func(o *Options) { o.ServiceLevel = 3 }
	a, b := endIn(t, 0, level, "SOFTHCA_SL=3"), endIn(t, 1, level)
	talkBoth(t, a, b)
	if r := a.ownRMA(); r == nil {
		t.Error("the rank does not reach its own memory")
	}
}

// Where libibverbs does not say of what type a GID is, the kernel's files do. Without them a GID of RoCE v1 is as
// good, and the peer has one of v2.
func TestTypesOfOldLibrary(t *testing.T) {
	needSoft(t)
	watchdog(t)
	root := t.TempDir()
	for i, kind := range []string{"IB/RoCE v1", "RoCE v2", "IB/RoCE v1", "RoCE v2"} {
		plant(t, root, fmt.Sprintf("sys/class/infiniband/softhca0/ports/1/gid_attrs/types/%d", i), kind)
		plant(t, root, fmt.Sprintf("sys/class/infiniband/softhca0/ports/1/gid_attrs/ndevs/%d", i), "eth7")
	}
	plant(t, root, "sys/class/infiniband/softhca0/ports/1/link_layer", "Ethernet")
	old := endIn(t, 0, func(o *Options) { o.Root = root }, "SOFTHCA_MODE=roce", "SOFTHCA_GID_EX=0")
	if old.at.gidIndex != 3 || old.at.net != "eth7" {
		t.Errorf("it uses GID %d of %q (%s)", old.at.gidIndex, old.at.net, old.at.why)
	}
	talkBoth(t, old, endIn(t, 1, func(*Options) {}, "SOFTHCA_GID_EX=1"))
}

func plant(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Ranks of a host take turns among equal ports, and a list chooses among them.
func TestPortsByTurns(t *testing.T) {
	needSoft(t)
	t.Setenv("SOFTHCA_MODE", "two_ports")
	for _, c := range []struct {
		list        string
		local, port int
	}{
		{"", 0, 1}, {"", 1, 2}, {"", 2, 1}, {"", 7, 2},
		{"softhca0:2", 0, 2}, {"softhca0:2,softhca0:1", 1, 2}, {"!softhca0:2", 1, 1},
	} {
		e := newEnd(t, 0, 2, func(o *Options) { o.Devices, o.LocalRank = c.list, c.local })
		if e.at.number != c.port {
			t.Errorf("local rank %d of %q uses port %d, want %d", c.local, c.list, e.at.number, c.port)
		}
	}
}

// A list that names both ports of a bond has one of them used, and the log says so. A port that is of no bond, and is
// not there, stays an error.
func TestBondIsNamed(t *testing.T) {
	needSoft(t)
	t.Setenv("SOFTHCA_MODE", "two_ports")
	t.Setenv("SOFTHCA_IFINDEX", "1") // lo, which every machine has
	for list, says := range map[string]int{"softhca0:1,softhca0:2": 1, "softhca0": 0, "softhca0:2": 0, "": 0} {
		var log notes
		e := newEnd(t, 0, 2, func(o *Options) { o.Devices, o.LocalRank, o.Log = list, 1, log.log })
		if want := 1 + strings.Count(list, ":2")*(1-says); e.at.number != want || len(log.with("of a bond")) != says {
			t.Errorf("%q: port %d, want %d; the log has %q", list, e.at.number, want, log.text)
		}
	}
	opt := options(t, 0, 2, func(string, ...any) {})
	opt.Devices = "softhca0:1,softhca0:2,softhca0:3"
	if _, err := New(opt); err == nil || !strings.Contains(err.Error(), "softhca0:3") {
		t.Errorf("a third port is named: %v", err)
	}
}

// A host has 64 adapters on 8 NUMA nodes, and as many ranks, each bound to CPUs of one node: each rank has an adapter
// of its own, on its node. Ranks that are not bound take turns.
func TestFanOfDevices(t *testing.T) {
	const nodes, each = 8, 8
	root := t.TempDir()
	for n := range nodes {
		row := slices.Repeat([]string{"32"}, nodes)
		row[n], row[n^1] = "10", "12" // a socket has two nodes
		plant(t, root, fmt.Sprintf("sys/devices/system/node/node%d/distance", n), strings.Join(row, " "))
		for i := range each { // named so that neighbours are on different nodes
			plant(t, root, fmt.Sprintf("sys/class/infiniband/mlx5_%d/device/numa_node", i*nodes+n), fmt.Sprint(n))
		}
	}
	all := func(of ...int) (all []candidate) {
		for i := range nodes * each {
			name := fmt.Sprintf("mlx5_%d", i)
			all = append(all, candidate{at: port{device: name, number: 1, rate: 400000}, far: distance(root, name, of)})
		}
		return all
	}
	used := map[string]int{}
	for local := range nodes * each {
		node := local / each
		c := order(all(node), local)[0]
		var number int
		if _, err := fmt.Sscanf(c.at.device, "mlx5_%d", &number); err != nil || number%nodes != node || c.far != 10 {
			t.Errorf("rank %d on node %d: %s, at distance %d, %v", local, node, c.at.device, c.far, err)
		}
		used[c.at.device]++
	}
	if len(used) != nodes*each {
		t.Errorf("%d adapters are used by %d ranks", len(used), nodes*each)
	}
	clear(used)
	for local := range nodes * each {
		used[order(all(), local)[0].at.device]++
	}
	if len(used) != nodes*each {
		t.Errorf("%d adapters are used by %d ranks that are not bound", len(used), nodes*each)
	}
	// The node's own adapters fail: those of its socket are next.
	if next := order(all(2), 0)[each]; next.far != 12 {
		t.Errorf("behind the nearest comes %s at distance %d", next.at.device, next.far)
	}
}

// Ranks share out the ports of one fabric only. What is slow, of another link layer or subnet, or software comes last,
// however near it is, and whatever is listed first.
func TestOneFabric(t *testing.T) {
	ib := func(device string, rate int, prefix byte) port {
		return port{device: device, number: 1, layer: layerInfiniBand, rate: rate, gid: [16]byte{prefix}}
	}
	all := []candidate{
		{at: port{device: "rxe0", layer: layerEthernet, rate: 400000, hosted: true}, far: 10},
		{at: port{device: "eth", layer: layerEthernet, rate: 100000}, far: 10},
		{at: ib("slow", 100000, 1), far: 10},
		{at: ib("a", 200000, 1), far: 20},
		{at: ib("storage", 200000, 2), far: 10},
		{at: ib("b", 200000, 1), far: 20},
	}
	for _, other := range []candidate{{at: port{device: "eth2", layer: layerEthernet, rate: 200000}, far: 10},
		{at: ib("storage", 200000, 2), far: 10}} {
		if c := order(append([]candidate{other}, all...), 0)[0]; c.at.device != "a" {
			t.Errorf("where %s is listed first, %s is", other.at.device, c.at.device)
		}
	}
	for local, want := range []string{"a b", "b a", "a b"} {
		var got []string
		for _, c := range order(slices.Clone(all), local) {
			got = append(got, c.at.device)
		}
		if s := strings.Join(got, " "); !strings.HasPrefix(s, want+" ") || len(got) != len(all) {
			t.Errorf("local rank %d: %s, want first %s", local, s, want)
		}
	}
	if order(nil, 3) != nil {
		t.Error("of no ports there is one")
	}
}

// The ports of a bond count as one: the first. Soft-RoCE over the network device of an adapter is no port of a bond,
// whichever of the two libibverbs lists first.
func TestBond(t *testing.T) {
	s := search{found: []candidate{{at: port{device: "mlx5_0", number: 1, net: "bond0"}}, {at: port{device: "mlx5_2"}}}}
	for net, want := range map[string]string{"bond0": "mlx5_0:1", "eth1": "", "": ""} {
		if got := s.bonded(&port{device: "mlx5_1", number: 1, net: net}); got != want {
			t.Errorf("a port of %q is of the bond of %q, want %q", net, got, want)
		}
	}
	s = search{found: []candidate{{at: port{device: "rxe0", number: 1, net: "eth0", hosted: true}}}}
	if got := s.bonded(&port{device: "mlx5_0", number: 1, net: "eth0"}); got != "" {
		t.Errorf("the adapter is left out for %s", got)
	}
}

// Rates are of the specification's bits.
func TestRate(t *testing.T) {
	for mbits, bits := range map[int][2]uint8{
		100000: {2, 32}, 200000: {2, 64}, 400000: {2, 128}, 56000: {2, 16}, 0: {0, 32},
	} {
		if got := rate(bits[0], bits[1]); got != mbits {
			t.Errorf("width %d and speed %d: %d Mb/s, want %d", bits[0], bits[1], got, mbits)
		}
	}
}
