package program

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	os.MkdirAll("pkg", 0o755)
	os.MkdirAll("empty", 0o755)
	os.MkdirAll("sub", 0o755)
	for name, mode := range map[string]os.FileMode{
		"prog": 0o755, "plain": 0o644, "pkg/main.go": 0o644, "x.go": 0o644, "sub/other": 0o755,
	} {
		os.WriteFile(name, nil, mode)
	}
	t.Setenv("PATH", dir)
	for _, c := range []struct{ name, wdir, path, pkg, err string }{
		{"./prog", "", dir + "/prog", "", ""},
		{"prog", "", dir + "/prog", "", ""},
		{dir + "/prog", "", dir + "/prog", "", ""},
		{"./pkg", "", "", dir + "/pkg", ""},
		{"pkg/", "", "", dir + "/pkg", ""},
		{"x.go", "", "", dir + "/x.go", ""},
		{"./other", "sub", dir + "/sub/other", "", ""},
		{"./other", "", "", "", "no ./other"},
		{"./none", "", "", "", "there is no ./none"},
		{"example.com/a/b", "", "", "example.com/a/b", ""},
		{"./plain", "", "", "", "not executable"},
		{"./empty", "", "", "", "without Go files"},
		{"nothing", "", "", "", "no program nothing in PATH"},
		{"plain", "", "", "", "write ./plain"},
		{"", "", "", "", "empty"},
		{"./...", "", "", "", "no ./..."},
		{"y.go", "", "", "", "no y.go"},
	} {
		p, err := Find(c.name, c.wdir)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %+v, %v; want an error with %q", c.name, p, err, c.err)
			}
			if errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), fs.ErrNotExist.Error()) {
				t.Errorf("%q: %v: says twice that it is not there", c.name, err)
			}
		case err != nil || p.Path != c.path || p.Package != c.pkg:
			t.Errorf("%q: %+v, %v", c.name, p, err)
		}
	}
}
