package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/internal/topology/topologytest"
)

// machineOf reads one of topologytest's trees. listed is what libibverbs would say; nil: the binary is without it.
func machineOf(t *testing.T, tree string, listed func() ([]topology.Device, error)) machine {
	t.Helper()
	defer func(d time.Duration) { patience = d }(patience)
	patience = time.Hour
	root := topologytest.Plant(t, topologytest.Load(t, tree))
	return readMachine(topology.Source{Root: root, Addrs: topologytest.Addrs}, listed, nil)
}

func page(m machine, cols int) []byte {
	var b bytes.Buffer
	m.print(&b, cols)
	return b.Bytes()
}

// A node with capabilities of all kinds, and a device in software.
func listedDGX() ([]topology.Device, error) {
	mlx5 := topology.Caps{
		Tags: topology.TagMatching{RC: true, MaxTags: 127, MaxOps: 32768, MaxSGE: 30, MaxRendezvous: 64},
		ODP: topology.ODP{Supported: true, Implicit: true, RC: []string{"send", "recv", "write", "read", "atomic",
			"srq"}}, Atomics: "HCA",
		MaxInline: 220, MaxSGE: 30, MaxSGERead: 30, MaxReads: 16, MaxServed: 16, MaxMessage: 1 << 30,
	}
	old := topology.Caps{Tags: topology.TagMatching{MaxTags: 64}, ODP: topology.ODP{Supported: true, Implicit: false},
		Atomics: "none", MaxInline: -1, MaxSGE: 32, MaxSGERead: 1, MaxReads: 4, MaxServed: 16}
	soft := topology.Caps{Tags: topology.TagMatching{RC: true, MaxTags: 1024}, Atomics: "global", MaxInline: 256,
		MaxSGE: 4, MaxSGERead: 4, MaxReads: 16, MaxServed: 16, MaxMessage: 1 << 31}
	old.ODP.RC = []string{"send"}
	active := func(mtu int) []topology.Port { return []topology.Port{{Number: 1, State: "ACTIVE", MTU: mtu}} }
	return []topology.Device{
		{Name: "mlx5_0", Library: "libibverbs.so.1", Caps: &mlx5, Ports: active(4096)},
		{Name: "mlx5_1", Library: "libibverbs.so.1",
			CapsWhy: "ibv_open_device: permission denied: may you open /dev/infiniband/uverbs1?"},
		{Name: "mlx5_2", Library: "libibverbs.so.1", Caps: &old, Ports: active(1024)},
		{Name: "softhca0", Library: "./libsofthca.so", Caps: &soft,
			Ports: []topology.Port{{Number: 1, State: "ACTIVE", Phys: "LinkUp", Link: "InfiniBand",
				LID: 1, MTU: 4096, GIDs: []topology.GID{{Addr: netip.MustParseAddr("fe80::1"), Type: topology.TypeIB}}}}},
	}, nil
}

func TestInfoFabric(t *testing.T) {
	for _, c := range []struct {
		file, tree string
		listed     func() ([]topology.Device, error)
	}{
		{"info-dgx.txt", "dgx", nil},
		{"info-dgx-verbs.txt", "dgx", listedDGX},
		{"info-h100.txt", "h100", nil},
		{"info-roce.txt", "roce", nil},
		{"info-soft-roce.txt", "soft-roce", nil},
		{"info-laptop.txt", "laptop", nil},
		{"info-laptop-verbs.txt", "laptop", func() ([]topology.Device, error) {
			return nil, errors.New("opening libibverbs: libibverbs.so.1 was not found: " +
				"install libibverbs1, or name one in the setting for it")
		}},
	} {
		golden(t, c.file, page(machineOf(t, c.tree, c.listed), 100))
	}
}

// A terminal of 80 columns gets the matrix in pieces, and no line of it is wider.
func TestInfoFabricNarrow(t *testing.T) {
	m := machineOf(t, "dgx", nil)
	for i := range 30 {
		m.Devices = append(m.Devices, topology.Device{Name: fmt.Sprintf("mlx5_%d", 11+i), Node: -1, Virtual: true})
	}
	text := string(page(m, 80))
	_, gpus, _ := strings.Cut(text, "\nGPUs\n")
	for line := range strings.Lines(gpus) {
		if len(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if n := strings.Count(gpus, "\n  0000:84:00.0"); n < 4 {
		t.Errorf("the matrix has %d pieces:\n%s", n-1, gpus)
	}
	for _, d := range m.Devices {
		if !strings.Contains(gpus, " "+d.Name) {
			t.Errorf("the matrix has no column for %s", d.Name)
		}
	}
}

// A host of many containers: its many GIDs do not drown the rest, and the one in use is shown wherever it is.
func TestInfoManyGIDs(t *testing.T) {
	p := topology.Port{Number: 1, Link: "Ethernet"}
	for i := range 200 {
		p.GIDs = append(p.GIDs, topology.GID{Index: i, Type: topology.TypeV1,
			Addr: netip.MustParseAddr(fmt.Sprintf("fe80::%x", i+1)), Net: "eth0"})
	}
	p.GIDs[150].Type = topology.TypeV2
	devices := []topology.Device{{Name: "mlx5_0", Ports: []topology.Port{p}}}
	text := string(page(machine{Host: topology.Host{Devices: devices}}, 100))
	if lines := strings.Count(text, "eth0\n"); lines > gidsMost+3 || !strings.Contains(text, "150  *") ||
		!strings.Contains(text, "184 more GIDs") {
		t.Errorf("%d lines of GIDs:\n%s", lines, text)
	}
}

// A driver that hangs costs a line and no more.
func TestInfoHang(t *testing.T) {
	root := topologytest.Plant(t, topologytest.Load(t, "soft-roce"))
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		mute := func() ([]topology.Device, error) { <-release; return nil, nil }
		start := time.Now()
		text := string(page(readMachine(topology.Source{Root: root}, mute, nil), 100))
		if !strings.Contains(text, "rxe0: capabilities are unknown: libibverbs did not answer within 10s") ||
			time.Since(start) != patience {
			t.Errorf("after %v:\n%s", time.Since(start), text)
		}
		noAnswer := func(string) []netip.Prefix { <-release; return nil }
		text = string(page(readMachine(topology.Source{Root: root, Addrs: noAnswer}, nil, nil), 100))
		if !strings.Contains(text, "/sys was not read to its end within 10s") || strings.Contains(text, "GPUs") {
			t.Errorf("a reading that hangs is printed as\n%s", text)
		}
	})
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "unknown", 1: "1 B", 1000: "1000 B", 1024: "1 KiB", 1 << 30: "1 GiB",
		1<<31 - 1: "2147483647 B", 1 << 63: "8388608 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
