package topology

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/topology/topologytest"
)

func TestSupport(t *testing.T) {
	for tree, want := range map[string]Support{
		"dgx":  {Version: "535.129.03", Open: No, Kernel: "5.15.0-1053-nvidia", Modules: []string{"nvidia_peermem"}},
		"h100": {Version: "580.159.04", Open: Yes, Kernel: "6.18.44-fc-v657-gpu", DMABuf: Yes},
		"roce": {}, "soft-roce": {}, "laptop": {},
	} {
		if got := readFixture(t, tree).Support; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", tree, got, want)
		}
	}
}

// The module that a rank looks for is the one that gorun info names, for each adapter.
func TestPeerModule(t *testing.T) {
	for tree, want := range map[string]bool{"dgx": true, "h100": false, "laptop": false} {
		root := topologytest.Plant(t, topologytest.Load(t, tree))
		for _, d := range append(Read(Source{Root: root}).Devices, Device{Name: "softhca0"}) {
			if name, loaded := PeerModule(root, d.Name); name != peermem || loaded != want {
				t.Errorf("%s, %s: %s %v", tree, d.Name, name, loaded)
			}
		}
	}
	efa := []topologytest.Entry{
		{Path: "sys/class/infiniband/rdmap0/device/driver", Target: "../../../../bus/pci/drivers/efa"},
		{Path: "sys/module/nvidia_peermem/refcnt", Text: "0\n"},
	}
	root := topologytest.Plant(t, efa)
	if name, loaded := PeerModule(root, "rdmap0"); name != peermemEFA || loaded {
		t.Errorf("efa with another's module: %s %v", name, loaded)
	}
}

// GPUs and adapters that are alike share an answer, and each pair has one.
func TestPairs(t *testing.T) {
	const (
		none = "; nvidia_peermem is not loaded"
		mlx4 = "dma-buf needs an RDMA driver that takes it: mlx5, efa, bnxt_re or irdma (this device has mlx4_core)" + none
		amd  = "messages use the memory of NVIDIA's GPUs only"
	)
	two := []string{"0000:00:06.0", "0000:00:07.0"}
	for tree, want := range map[string][]Pairs{
		"dgx": {{[]string{"0000:03:00.0", "0000:07:00.0", "0000:83:00.0", "0000:84:00.0"},
			[]string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_10"}, Direct{Can: Yes, By: "nvidia_peermem"}}},
		"h100": {{two, []string{"mlx4_0"}, Direct{Can: No, Why: mlx4, Mend: "modprobe nvidia_peermem"}},
			{two, []string{"mlx5_0"}, Direct{Can: Yes, By: "dma-buf"}}},
		"roce": {{[]string{"0000:b0:00.0"}, []string{"mlx4_0", "mlx5_2", "mlx5_bond_0"}, Direct{Can: No, Why: amd}}},
	} {
		h := readFixture(t, tree)
		got := h.Pairs()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", tree, got, want)
		}
		for _, g := range h.GPUs {
			for _, d := range h.Devices {
				n := 0
				for _, p := range got {
					if slices.Contains(p.GPUs, g.Slot.Address()) && slices.Contains(p.Devices, d.Name) {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%s: %d answers for %s and %s", tree, n, g.Slot.Address(), d.Name)
				}
			}
		}
	}
}

// Two GPUs that differ are not mixed up.
func TestPairsOfDifferentGPUs(t *testing.T) {
	h := readFixture(t, "h100")
	h.GPUs[1].Driver = "nouveau"
	all := h.Pairs()
	if len(all) != 3 || !slices.Equal(all[2].GPUs, []string{"0000:00:07.0"}) ||
		!slices.Equal(all[2].Devices, []string{"mlx4_0", "mlx5_0"}) || !strings.Contains(all[2].Why, "nouveau") {
		t.Errorf("%+v", all)
	}
}

// Whatever is missing is named, with what mends it.
func TestDirectNeeds(t *testing.T) {
	for _, c := range []struct {
		what      string
		spoil     func(h *Host, g *GPU, d *Device)
		can       Answer
		by        string
		why, mend string // parts
	}{
		{"nothing", func(*Host, *GPU, *Device) {}, Yes, "dma-buf", "", ""},
		{"software", func(_ *Host, _ *GPU, d *Device) { d.Virtual = true }, No, "", "is software", ""},
		{"no driver", func(_ *Host, g *GPU, _ *Device) { g.Driver = "" }, No, "", "has no driver", "NVIDIA's driver"},
		{"another driver", func(_ *Host, g *GPU, _ *Device) { g.Driver = "vfio-pci" }, No, "", "is vfio-pci", "install"},
		{"modules", func(h *Host, _ *GPU, _ *Device) { h.Support.Open = No }, No, "", "needs NVIDIA's open kernel modules; " +
			"nvidia_peermem is not", "install NVIDIA's open kernel modules, or modprobe nvidia_peermem"},
		{"modules unknown", func(h *Host, _ *GPU, _ *Device) { h.Support.Open = Unsaid }, Unsaid, "",
			"/proc/driver/nvidia/version does not say", "open kernel modules"},
		{"CUDA knows better", func(h *Host, g *GPU, _ *Device) {
			h.Support.Open, g.CUDA = Unsaid, &CUDA{DMABuf: true}
		}, Yes, "dma-buf", "", ""},
		{"CUDA refuses", func(_ *Host, g *GPU, _ *Device) { g.CUDA = &CUDA{} }, No, "", "CUDA says", "open kernel"},
		{"kernel", func(h *Host, _ *GPU, _ *Device) { h.Support.Kernel = "5.11.22-el8" }, No, "", "needs Linux 5.12",
			"install Linux 5.12, or modprobe"},
		{"the first kernel", func(h *Host, _ *GPU, _ *Device) { h.Support.Kernel = "5.12.0" }, Yes, "dma-buf", "", ""},
		{"a later kernel", func(h *Host, _ *GPU, _ *Device) { h.Support.Kernel = "10.0-rc1" }, Yes, "dma-buf", "", ""},
		{"kernel unknown", func(h *Host, _ *GPU, _ *Device) { h.Support.Kernel = "" }, Unsaid, "", "osrelease", "5.12"},
		{"configuration", func(h *Host, _ *GPU, _ *Device) { h.Support.DMABuf = No }, No, "", "CONFIG_DMA_SHARED_BUFFER",
			"such a kernel"},
		{"configuration unknown", func(h *Host, _ *GPU, _ *Device) { h.Support.DMABuf = Unsaid }, Yes, "dma-buf", "", ""},
		{"several", func(h *Host, _ *GPU, _ *Device) { h.Support.Open, h.Support.Kernel = No, "4.18.0" }, No, "",
			"NVIDIA's open kernel modules and Linux 5.12; nvidia_peermem", "modules and Linux 5.12, or modprobe"},
		{"unknown and refused", func(h *Host, _ *GPU, d *Device) { h.Support.Open, d.Driver = Unsaid, "mlx4_core" }, No, "",
			"mlx4_core", "modprobe nvidia_peermem"},
		{"refused and unknown", func(h *Host, _ *GPU, d *Device) { h.Support.Open, d.Driver = No, "" }, No, "", "does not name",
			"modprobe nvidia_peermem"},
		{"adapter unknown", func(_ *Host, _ *GPU, d *Device) { d.Driver = "" }, Unsaid, "", "does not name", "modprobe"},
		{"part of an adapter", func(_ *Host, _ *GPU, d *Device) { d.Driver = "mlx5_core.sf" }, Yes, "dma-buf", "", ""},
		{"Broadcom", func(_ *Host, _ *GPU, d *Device) { d.Driver = "bnxt_en" }, Yes, "dma-buf", "", ""},
		{"Intel", func(_ *Host, _ *GPU, d *Device) { d.Driver = "ice" }, Yes, "dma-buf", "", ""},
		{"EFA", func(_ *Host, _ *GPU, d *Device) { d.Driver = "efa" }, Yes, "dma-buf", "", ""},
		{"EFA without dma-buf", func(h *Host, _ *GPU, d *Device) { h.Support.Open, d.Driver = No, "efa" }, No, "",
			"efa_nv_peermem is not loaded", "modprobe efa_nv_peermem"},
		{"EFA's module", func(h *Host, _ *GPU, d *Device) {
			h.Support.Open, d.Driver, h.Support.Modules = No, "efa", []string{"nvidia_peermem", "efa_nv_peermem"}
		}, Yes, "efa_nv_peermem", "", ""},
		{"EFA's module for another", func(h *Host, _ *GPU, _ *Device) {
			h.Support.Open, h.Support.Modules = No, []string{"efa_nv_peermem"}
		}, No, "", "nvidia_peermem is not loaded", "modprobe nvidia_peermem"},
		{"peer memory", func(h *Host, _ *GPU, d *Device) {
			h.Support.Kernel, d.Driver, h.Support.Modules = "4.18.0", "mlx4_core", []string{"nv_peer_mem"}
		}, Yes, "nv_peer_mem", "", ""},
		{"both", func(h *Host, _ *GPU, _ *Device) { h.Support.Modules = []string{"nvidia_peermem"} }, Yes, "dma-buf", "", ""},
	} {
		h := Host{Support: Support{Version: "580.1", Open: Yes, Kernel: "6.8.0", DMABuf: Yes}}
		g, d := GPU{Driver: "nvidia"}, Device{Name: "mlx5_0", Driver: "mlx5_core"}
		c.spoil(&h, &g, &d)
		got := h.Direct(g, d)
		if got.Can != c.can || got.By != c.by || !strings.Contains(got.Why, c.why) || !strings.Contains(got.Mend, c.mend) ||
			(c.can == Yes) != (got.Why == "") || c.mend == "" && got.Mend != "" {
			t.Errorf("%s: %+v, want %q by %q, %q, %q", c.what, got, c.can, c.by, c.why, c.mend)
		}
	}
}

func TestParseDriver(t *testing.T) {
	for text, want := range map[string]struct {
		version string
		open    Answer
	}{
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)  \nGCC version:  gcc " +
			"version 15.3.0 (GCC) \n": {"580.159.04", Yes},
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021\n":        {"470.57.02", No},
		"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  550.54.15  Release Build (dvs-builder)": {"550.54.15", Yes},
		"NVRM version: Kernel Module 1" + strings.Repeat(".1", 999):                                        {"", No},
		"NVRM version: something new\n":            {"", Unsaid},
		"GCC version:  gcc version 15.3.0 (GCC)\n": {"", Unsaid},
		"": {"", Unsaid},
	} {
		if version, open := parseDriver(text); version != want.version || open != want.open {
			t.Errorf("%q: %q, open %q, want %+v", text, version, open, want)
		}
	}
}

// The kernel's own file is read, then the one in /boot; one that was cut off says nothing.
func TestKernelConfig(t *testing.T) {
	zip := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		z.Close()
		return b.String()
	}
	const on, off = "CONFIG_64BIT=y\nCONFIG_DMA_SHARED_BUFFER=y\nCONFIG_X=m\n", "CONFIG_64BIT=y\n# CONFIG_DMA_SHARED_BUFFER is " +
		"not set\n"
	cut := zip(strings.Repeat("CONFIG_64BIT=y\n", 1000) + off)
	for what, c := range map[string]struct {
		own, boot string
		want      Answer
	}{
		"on":                 {zip(on), "", Yes},
		"off":                {zip(off), on, No},
		"not in it":          {zip("CONFIG_64BIT=y\n"), "", No},
		"in /boot":           {"", on, Yes},
		"off in /boot":       {"", off, No},
		"nowhere":            {"", "", Unsaid},
		"not zipped":         {on, "", Unsaid},
		"cut off":            {cut[:len(cut)-12], on, Yes},
		"another file":       {zip("hello\nx=y\n"), "", Unsaid},
		"without end":        {zip(strings.Repeat("CONFIG_A=y\n", 500000)), "", Unsaid},
		"a line with no end": {zip(strings.Repeat("x", 1<<20)), "", Unsaid},
	} {
		all := topologytest.Load(t, "h100")
		all = slices.DeleteFunc(all, func(e topologytest.Entry) bool { return strings.HasPrefix(e.Path, "boot/") })
		root := topologytest.Plant(t, all)
		for name, text := range map[string]string{"proc/config.gz": c.own, "boot/config-6.18.44-fc-v657-gpu": c.boot} {
			if text != "" {
				topologytest.PlantOne(t, root, topologytest.Entry{Path: name, Text: text})
			}
		}
		if got := Read(Source{Root: root}).Support.DMABuf; got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// A kernel's release leads to no file outside of /boot.
func TestKernelRelease(t *testing.T) {
	root := topologytest.Plant(t, topologytest.Load(t, "h100"))
	for path, text := range map[string]string{"proc/sys/kernel/osrelease": "/../../secret\n", "secret": "CONFIG_A=y\n"} {
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := Read(Source{Root: root}).Support.DMABuf; got != Unsaid {
		t.Errorf("a file outside of /boot was read: %q", got)
	}
}

func TestMergeGPUs(t *testing.T) {
	at := func(address string, c *CUDA) GPU {
		return GPU{Name: "H100", Driver: "nvidia", Node: -1, Slot: Slot{Chain: []string{address}}, CUDA: c}
	}
	h := readFixture(t, "h100")
	if h.GPUs[0].CUDA != nil || h.GPUs[0].CUDAWhy != cudaNotAsked {
		t.Errorf("%+v", h.GPUs[0])
	}
	h.MergeGPUs([]GPU{
		at("00000000:00:07.0", &CUDA{Number: 0, Memory: 80 << 30, Peers: []string{"0000:FF:00.0"}}),
		at("0000:FF:00.0", &CUDA{Number: 1, Peers: []string{"00000000:00:07.0"}}),
	}, nil)
	if len(h.GPUs) != 3 || h.GPUs[0].CUDA != nil || !strings.Contains(h.GPUs[0].CUDAWhy, "CUDA_VISIBLE_DEVICES") {
		t.Fatalf("%+v", h.GPUs)
	}
	second, third := h.GPUs[1], h.GPUs[2]
	if second.Slot.Address() != "0000:00:07.0" || second.CUDA == nil || second.CUDA.Memory != 80<<30 ||
		second.CUDAWhy != "" || third.Slot.Address() != "0000:FF:00.0" ||
		!slices.Equal(third.CUDA.Peers, []string{"0000:00:07.0"}) || second.Node != -1 || second.Slot.Bridge == "" {
		t.Errorf("%+v\n%+v", second, third)
	}
	h = readFixture(t, "h100")
	h.MergeGPUs(nil, errors.New("cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)\n"))
	if h.GPUs[1].CUDAWhy != "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)" {
		t.Errorf("%+v", h.GPUs[1])
	}
}
