package tuned

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func TestMain(m *testing.M) { os.Exit(proc.Main(m)) }

var file = File{Version: Version, Host: Host{Host: "this", CPUs: 2, Ranks: 4, Crowded: true, Transport: "shm"},
	Collectives: []collectives.Line{{Operation: "bcast", LeastBytes: 1024, Bytes: 65536, LeastRanks: 3, Ranks: 4,
		Via: "shm", CPUs: "crowded", Algorithm: "shared"}}, EagerMax: 8192}

// A file that was written is read again, also as the text that ranks get, and then says where it was.
func TestWriteAndFind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "tuned.json")
	if err := file.Write(path); err != nil {
		t.Fatal(err)
	}
	read, err := Find(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	handed, err := Find(read.Text(), []string{"/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*File{read, handed} {
		if f.Path != path || f.Host != file.Host || f.EagerMax != 8192 || f.Digest() != file.Digest() ||
			len(f.Collectives) != 1 {
			t.Errorf("%+v", f)
		}
	}
	other := file
	other.Collectives = []collectives.Line{}
	if other.Digest() == file.Digest() {
		t.Error("other lines have the same digest")
	}
	if f, err := Find(Off, []string{path}); f != nil || err != nil {
		t.Errorf("off: %+v, %v", f, err)
	}
	// The first of the places counts; one that does not exist does not.
	places := []string{filepath.Join(path, "below a file"), filepath.Join(t.TempDir(), "none"), path}
	if f, err := Find("", places); f == nil || f.Path != path || err != nil {
		t.Errorf("found: %+v, %v", f, err)
	}
	// An error of another kind, as of a folder without permission.
	places[0] = filepath.Join(path, strings.Repeat("n", 300))
	if f, err := Find("", places[:2]); f != nil || err != nil {
		t.Errorf("none: %+v, %v", f, err)
	}
}

// A file that cannot be replaced stays as it was, and no other is left.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tuned.json")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o777); err != nil { // a rename onto it fails
		t.Fatal(err)
	}
	if err := file.Write(path); err == nil {
		t.Fatal("no error")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// A file that no reader would take is not written in place of one that they take.
func TestWriteTooMuch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tuned.json")
	if err := file.Write(path); err != nil {
		t.Fatal(err)
	}
	long := file
	for range 400 {
		long.Collectives = append(long.Collectives, file.Collectives[0])
	}
	err := long.Write(path)
	if err == nil || !strings.Contains(err.Error(), "longer than 65536 bytes; remove lines from it") {
		t.Error(err)
	}
	if f, err := Read(path); err != nil || f.Digest() != file.Digest() {
		t.Errorf("%+v, %v", f, err)
	}
}

// Only what both machines name is compared.
func TestElsewhere(t *testing.T) {
	here := Here{CPU: "A", Online: 4, Transports: []string{"shm", "tcp"}}
	for _, c := range []struct {
		measured Host
		here     Here
		want     string
	}{
		{Host{CPU: "A", Online: 4, CPUs: 2, Transport: "shm"}, here, ""},
		{Host{CPUs: 2, Host: "other"}, here, ""},
		{Host{CPU: "B", Online: 8, Transport: "ucx"}, Here{}, ""},
		{Host{CPU: "B\n", Online: 4}, here, `CPU "B\n", here "A"`},
		{Host{CPU: "A", Online: 8, Transport: "ucx"}, here, `8 CPUs, here 4; over "ucx", here over shm, tcp`},
	} {
		f := File{Host: c.measured}
		if got := f.Elsewhere(c.here); got != c.want {
			t.Errorf("%+v at %+v: %q, want %q", c.measured, c.here, got, c.want)
		}
	}
}

// Every text is either a whole file or an error that says where it is wrong.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:              "it is empty",
		`[]`:            "line 1: the file: it is of type array; write an object",
		`{"version": 1`: "line 1: unexpected EOF",
		"{\n\"version\": 1,\n\"colectives\": []}":      `line 3: unknown field "colectives"`,
		"{\n\"version\": 1,\n\n\"eager_max\": \"8K\"}": `line 4: eager_max: it is of type string; write a whole number`,
		"{\"version\": 1,\n}":                          `line 2: invalid character '}'`,
		`{"version": 2, "more": 1}`:                    `it has version 2; this library reads version 1`,
		`{}`:                                           `version: it is missing`,
		"{\"version\": 1}\n{}":                         `line 1: there is more after the closing bracket`,
		`{"version": 1, "eager_max": -1}`:              `eager_max: -1 is not a number of bytes`,
		`{"version": 1, "collectives": [{"operation": "bcast", "over": "any", "cpus": "any", "algorithm": "best"}]}`: `collectives, ` +
			`entry 1: algorithm: bcast has no algorithm "best"`,
		`{"version": 1, "eager_max": 1.5}`: `eager_max: it is of type number; write a whole number`,
		`{"version": 1, "collectives": [{"operation": "bcast", "algorithm": "chain", "cpus": "any"}]}`: `entry 1: over: it is ` +
			`missing; write one of any, shm, net`,
		`{"version": 1, "collectives": [{}` + strings.Repeat(`,{}`, mostLines) + `]}`: `at most 512 are read`,
		`{"version": 1, "measured": {"cpu": "` + strings.Repeat("x", 201) +
			`"}}`: `measured: cpu or transport is longer`,
		`{"version": 1}` + strings.Repeat(" ", mostText): `it is longer than 65536 bytes`,
	} {
		f, err := Parse([]byte(text))
		if f != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: a file %v, %v; want %s", text, f != nil, err, want)
		}
	}
}

// What is no regular file is not read: a pipe would hang.
func TestNoFile(t *testing.T) {
	for _, path := range []string{os.DevNull, t.TempDir()} {
		if _, err := Find(path, nil); err == nil || !strings.Contains(err.Error(), path+" (named by GORUN_TUNED): it "+
			"is not a regular file; mend it, write it anew with `gorun tune`, or set GORUN_TUNED=off") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Find(filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(file.Text()))
	f.Add([]byte(`{"version": 1, "collectives": [{"operation": "barrier"}], "eager_max": 1e3}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := Parse(text)
		if (read == nil) == (err == nil) {
			t.Fatalf("%+v, %v", read, err)
		}
		if err != nil {
			return
		}
		again, err := Parse([]byte(read.Text()))
		if err != nil || again.Digest() != read.Digest() {
			t.Fatalf("%s: %v", read.Text(), err)
		}
	})
}
