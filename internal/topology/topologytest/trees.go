package topologytest

import (
	"embed"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The trees are text, because real names of /sys have colons, which the zip of a Go module may not:
//
//	sys/devices/pci0000:00:            a folder
//	  vendor = 0x15b3                  a file in it, with its line; quoted as in Go if it has several
//	  driver -> ../../bus/pci/...      a symbolic link in it
//
//go:embed trees/*.txt
var trees embed.FS

// Entry is one file, or one symbolic link if it has a target.
type Entry struct {
	Path, Text, Target string
}

// Load returns the tree of a name: dgx, h100, roce, soft-roce or laptop.
func Load(t testing.TB, name string) (all []Entry) {
	t.Helper()
	b, err := trees.ReadFile("trees/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := ""
	for i, line := range strings.Split(string(b), "\n") {
		switch {
		case line == "" || line[0] == '#':
		case line[0] != ' ':
			dir = strings.TrimSuffix(line, ":")
		default:
			e, ok := parse(dir, strings.TrimSpace(line))
			if !ok {
				t.Fatalf("trees/%s.txt:%d: %q is no file and no link", name, i+1, line)
			}
			all = append(all, e)
		}
	}
	return all
}

func parse(dir, line string) (Entry, bool) {
	if name, target, ok := strings.Cut(line, " -> "); ok {
		return Entry{Path: filepath.Join(dir, name), Target: target}, true
	}
	name, text, ok := strings.Cut(line, " =")
	if text = strings.TrimSpace(text); strings.HasPrefix(text, `"`) {
		quoted, err := strconv.Unquote(text)
		return Entry{Path: filepath.Join(dir, name), Text: quoted}, ok && err == nil
	}
	return Entry{Path: filepath.Join(dir, name), Text: text + "\n"}, ok
}

// Plant makes the files below a folder of the test's own, which it returns.
func Plant(t testing.TB, all []Entry) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, e := range all {
		PlantOne(t, root, e)
	}
	return root
}

// PlantOne makes one file.
func PlantOne(t testing.TB, root string, e Entry) {
	t.Helper()
	path := filepath.Join(root, e.Path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil && e.Target != "" {
		err = os.Symlink(e.Target, path)
	} else if err == nil {
		err = os.WriteFile(path, []byte(e.Text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var addresses = map[string]string{
	"bond0":     "10.1.2.3/24 2001:db8:0:1::3/64 fe80::ba59:9fff:feaa:20/64",
	"bond0.100": "10.1.100.3/24",
	"ens4":      "10.3.0.3/16",
	"enp10s0":   "10.9.0.7/16",
	"rx0":       "10.99.0.1/24",
}

// Addrs are the addresses that the network devices of the trees have.
func Addrs(name string) (all []netip.Prefix) {
	for text := range strings.FieldsSeq(addresses[name]) {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
