//go:build unix

package topology

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/gorun-mpi/mpi/internal/topology/topologytest"
)

// What a file of the kernel's should not have in it.
var junk = []string{
	"", "\n", "\x00\x01\x02", "-1", "0", "99999999999999999999999", "0xffffffffffffffffffff", "0x", ":", "4:",
	": ACTIVE", "../../..", "..", "\x1b[31mred\x1b[0m\a", "\xff\xfe\xfd", strings.Repeat("x", 1<<17),
	strings.Repeat("0,", 4000), "0-2147483647", "fe80::1%eth0", "10.0.0.1", "::",
	"a\tb\rc\nd", strings.Repeat("ü", 200), "Model: ", "RoCE v2", "0000:00:00.0",
}

// fit complains of what should not be printed.
func fit(t *testing.T, what string, h Host) {
	t.Helper()
	texts := []string{}
	for _, d := range h.Devices {
		texts = append(texts, d.Name, d.Kind, d.Firmware, d.NodeGUID, d.Board, d.Slot.Address(), d.Driver)
		for _, p := range d.Ports {
			texts = append(texts, p.State, p.Phys, p.Link, p.Rate)
			if _, why := ChooseGID(p); why == "" {
				t.Errorf("%s: a GID without a reason", what)
			}
			for _, g := range p.GIDs {
				texts = append(texts, g.Net)
			}
			for _, n := range p.Nets {
				texts = append(append(texts, n.Name, n.State), n.Members...)
			}
		}
	}
	for _, g := range h.GPUs {
		texts = append(texts, g.Name, g.Driver, g.Slot.Address())
		for _, d := range h.Devices {
			h.Distance(g, d)
		}
	}
	texts = append(texts, h.Support.Version, h.Support.Kernel)
	for _, p := range h.Pairs() {
		if texts = append(texts, p.By); (p.Can == Yes) != (p.By != "") || (p.Can == Yes) == (p.Why != "") {
			t.Errorf("%s: GPUDirect is %+v", what, p)
		}
		if strings.ContainsFunc(p.Why+p.Mend, unicode.IsControl) {
			t.Errorf("%s: %q would be printed", what, p.Why+p.Mend)
		}
	}
	for _, s := range texts {
		if strings.ContainsFunc(s, unicode.IsControl) || len(s) > longestText+len("…") {
			t.Fatalf("%s: %.200q would be printed", what, s)
		}
	}
}

// within fails when a reading does not come back: it is a guard against hanging, and no measure.
func within(t *testing.T, what string, root string) Host {
	t.Helper()
	done := make(chan Host, 1)
	go func() { done <- Read(Source{Root: root, Addrs: topologytest.Addrs}) }()
	select {
	case h := <-done:
		return h
	case <-time.After(time.Minute):
		t.Fatalf("%s: the reading does not end", what)
		return Host{}
	}
}

// All files at once have the same junk.
func TestJunkEverywhere(t *testing.T) {
	for _, name := range []string{"dgx", "h100", "roce", "soft-roce"} {
		all := topologytest.Load(t, name)
		root := topologytest.Plant(t, all)
		for i, text := range junk {
			for _, e := range all {
				if e.Target != "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(root, e.Path), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			what := fmt.Sprintf("%s full of junk %d", name, i)
			fit(t, what, within(t, what, root))
		}
	}
}

// One thing is wrong at a time: the file is missing, a folder, a pipe without a writer, a link to nowhere or to
// itself, not to be read. The rest is read as before.
func TestOneIsOdd(t *testing.T) {
	all := topologytest.Load(t, "roce")
	root := topologytest.Plant(t, all)
	whole := within(t, "the whole", root)
	done := map[string]bool{}
	for _, e := range all {
		kind := path.Base(path.Dir(e.Path)) + "/" + path.Base(e.Path) // one file of each kind
		if done[kind] {
			continue
		}
		done[kind] = true
		at := filepath.Join(root, e.Path)
		for what, damage := range map[string]func() error{
			"missing":          func() error { return nil },
			"a folder":         func() error { return os.Mkdir(at, 0o755) },
			"a pipe":           func() error { return syscall.Mkfifo(at, 0o644) },
			"a link to itself": func() error { return os.Symlink(filepath.Base(at), at) },
			"a link nowhere":   func() error { return os.Symlink("../../no/where", at) },
			"secret":           func() error { return os.WriteFile(at, []byte("4: ACTIVE\n"), 0) },
		} {
			if err := os.Remove(at); err != nil {
				t.Fatal(err)
			}
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			what = e.Path + ": " + what
			h := within(t, what, root)
			fit(t, what, h)
			missing, most := len(whole.Devices)-len(h.Devices), 0
			if strings.HasPrefix(e.Path, "sys/class/infiniband/") {
				most = 1
			}
			if missing > most {
				t.Errorf("%s: %d devices are lost", what, missing)
			}
			os.Remove(at)
			topologytest.PlantOne(t, root, e)
		}
	}
}

// A pipe whose writer says nothing is the worst that can lie where a file should.
func TestPipeWithWriter(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sys/class/infiniband/x")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fw_ver"), 0o644); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(filepath.Join(dir, "fw_ver"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if h := within(t, "a pipe", root); len(h.Devices) != 1 || h.Devices[0].Firmware != "" {
		t.Errorf("%+v", h)
	}
}

func FuzzFiles(f *testing.F) {
	for _, text := range append(junk, "4: ACTIVE", "0x1f", "100 Gb/sec (4X EDR)",
		"fe80:0000:0000:0000:ba59:9f03:00aa:bbcc", "IB/RoCE v1", "0-1,3", "Model: \t A100\n",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build", "6.8.0-45-generic",
		"# CONFIG_A is not set\nCONFIG_DMA_SHARED_BUFFER=y\n") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		line := clean(text)
		if strings.ContainsFunc(line, unicode.IsControl) || len(line) > longestText+len("…") ||
			clean(line) != line && len(line) <= longestText {
			t.Errorf("%q is cleaned to %q", text, line)
		}
		parseState(line)
		_ = parseRate(line)
		_ = parseGIDType(line, line)
		if n := parseCount(text); n < 0 {
			t.Errorf("%q counts %d", text, n)
		}
		if a, ok := parseGID(line); ok && (!a.Is6() || a.Zone() != "" || a.IsUnspecified()) {
			t.Errorf("%q is the GID %v", text, a)
		}
		if k, ok := parsePKey(line); ok && k == 0 {
			t.Errorf("%q is P_Key 0", text)
		}
		if model := parseModel(text); strings.ContainsFunc(model, unicode.IsControl) {
			t.Errorf("%q is the model %q", text, model)
		}
		if version, open := parseDriver(text); strings.ContainsFunc(version, unicode.IsControl) ||
			open == Yes && !strings.Contains(text, "Open Kernel Module") {
			t.Errorf("%q is the driver %q, open %q", text, version, open)
		}
		parseConfig(strings.NewReader(text), "DMA_SHARED_BUFFER")
		if major, minor, ok := parseRelease(text); ok && (major < 0 || minor < 0) {
			t.Errorf("%q is the release %d.%d", text, major, minor)
		}
		s := parseSlot(text)
		if (s.Bridge == "") != (len(s.Chain) == 0) {
			t.Errorf("%q is the slot %v", text, s)
		}
		near, switches := distance(s, s, 0, 0)
		if len(s.Chain) > 0 && (near != PIX || switches != 1) || len(s.Chain) == 0 && near != Unknown {
			t.Errorf("%q is %s to itself", text, near)
		}
		if natural(text, text) != 0 {
			t.Errorf("%q is not equal to itself", text)
		}
	})
}

func TestNatural(t *testing.T) {
	order := []string{"mlx5_0", "mlx5_2", "mlx5_10", "mlx5_bond_0", "mlx50_1", "rxe0"}
	for i, a := range order {
		for j, b := range order {
			if got := natural(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
}

// A file without end costs what a file of the kernel's may have, and no more.
func TestLongFile(t *testing.T) {
	root := topologytest.Plant(t, []topologytest.Entry{{Path: "long", Text: strings.Repeat("x", 1<<20)}})
	if s, err := newTree(root).read("long"); err != nil || len(s) != longestFile {
		t.Errorf("%d bytes, %v", len(s), err)
	}
}
