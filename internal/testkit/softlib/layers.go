package softlib

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// object is what the linker sees of one file in C.
type object struct {
	defines, uses []string
}

// CheckLayers compiles each file of the library by itself and checks its symbols against the README's table of layers: a
// file calls the files before it only. The table has at least so many files.
func (l *Library) CheckLayers(t *testing.T, least int) {
	l.Build(t) // skips where there is no compiler
	sources := l.Sources(t)
	order, headers := layers(t, Text(t, filepath.Join(sources, "README.md")))
	if len(order) < least {
		t.Fatalf("README.md: the table of layers has %d files", len(order))
	}
	files, err := filepath.Glob(filepath.Join(sources, "*.c"))
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]object{}
	for _, path := range files {
		name := filepath.Base(path)
		if !slices.Contains(order, name) {
			t.Errorf("README.md: the table of layers has no %s", name)
		}
		if header := "#include \"" + headers[name] + "\""; !strings.Contains(Text(t, path), header) {
			t.Errorf("%s: its layer's header is missing: %s", name, header)
		}
		objects[name] = compile(t, path)
	}
	for _, name := range order {
		if _, ok := objects[name]; !ok {
			t.Errorf("README.md: the table of layers has %s, which does not exist", name)
		}
	}
	for _, wrong := range climbs(order, objects) {
		t.Error(wrong)
	}
}

// layers returns the files of the README's table of layers in their order, and for each its layer's header.
func layers(t *testing.T, readme string) (order []string, headers map[string]string) {
	_, section, _ := strings.Cut(readme, "## Layers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	row := regexp.MustCompile("(?m)^\\| [a-z]+, `([a-z]+\\.h)` \\| ([^|]*) \\|")
	file := regexp.MustCompile("`([a-z_]+\\.c)`")
	headers = map[string]string{}
	for _, r := range row.FindAllStringSubmatch(section, -1) {
		for _, f := range file.FindAllStringSubmatch(r[2], -1) {
			if headers[f[1]] != "" {
				t.Errorf("README.md: the table of layers has %s twice", f[1])
			}
			order, headers[f[1]] = append(order, f[1]), r[1]
		}
	}
	return order, headers
}

// climbs returns the symbols that a file uses and a later file of order defines.
func climbs(order []string, objects map[string]object) (wrong []string) {
	definer := map[string]string{}
	for name, o := range objects {
		for _, symbol := range o.defines {
			definer[symbol] = name
		}
	}
	for i, name := range order {
		for _, symbol := range objects[name].uses {
			if slices.Contains(order[i+1:], definer[symbol]) {
				wrong = append(wrong, fmt.Sprintf("%s uses %s of %s, which is above it", name, symbol, definer[symbol]))
			}
		}
	}
	return wrong
}

// compile returns the symbols of the object file of one file.
func compile(t *testing.T, path string) (o object) {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(path)+".o")
	cc := exec.Command(proc.RequireProgram(t, "cc", "gcc libc6-dev"), "-std=gnu11", "-O0", "-fPIC", "-c", "-o", out,
		path)
	if text, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", path, err, text)
	}
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		switch {
		case elf.ST_BIND(s.Info) == elf.STB_LOCAL:
		case s.Section == elf.SHN_UNDEF:
			o.uses = append(o.uses, s.Name)
		default:
			o.defines = append(o.defines, s.Name)
		}
	}
	slices.Sort(o.uses)
	return o
}

// Text returns what is in a file.
func Text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
