package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func TestMain(m *testing.M) { os.Exit(proc.Main(m)) }

// tagDay is the time of the tag in the checkouts of these tests.
const tagDay = "2026-11-27T23:30:00-01:00" // the 28th in UTC

// project makes a checkout of a small gorun, with one commit, and the tag v0.1.0 on it.
func project(t *testing.T, changelog string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module example.org/gorun\n\ngo 1.26.0\n",
		"LICENSE":           "a licence\n",
		"CHANGELOG.md":      changelog,
		"cmd/gorun/main.go": "package main\n\nimport _ \"net\"\n\nvar release string\n\nfunc main() { println(release) }\n",
	} {
		write(t, filepath.Join(dir, name), text, 0o666)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-q", "-m", "x: begin"},
		{"tag", "-a", "-m", "0.1.0", "v0.1.0"}} {
		git(t, dir, args...)
	}
	return dir
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(text), mode)); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org", "GIT_AUTHOR_DATE="+tagDay, "GIT_COMMITTER_DATE="+tagDay)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

const announced = "# Changelog\n\n## 0.1.0 - 2026-11-28\n\nAll.\n\n## 0.0.1 - 2025-01-01\n"

// docker puts a docker into PATH that saves an image of a few bytes, and returns the file of its command lines.
func docker(t *testing.T) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	write(t, filepath.Join(dir, "docker"), "#!/bin/sh\necho \"$@\" >>"+log+"\n[ $1 != save ] || echo the image\n", 0o777)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return log
}

// targets are this system, and without -short another one, for which the build compiles Go's runtime.
func targets() []target {
	all := []target{{"linux", runtime.GOARCH}}
	if !testing.Short() {
		all = append(all, target{"linux", map[string]string{"amd64": "arm64"}[runtime.GOARCH]})
	}
	return slices.DeleteFunc(all, func(t target) bool { return t.arch == "" })
}

// Two runs of one commit, in two folders, give the same files byte for byte. The checksums are of all files, the
// binary is static and knows its version, and the image is the one that docker has built of that version.
func TestRelease(t *testing.T) {
	log := docker(t)
	t.Setenv("CGO_ENABLED", "1") // with which net needs a library
	var outs []string
	for range 2 {
		dir := project(t, announced)
		stale := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "LICENSE"), stale, stale); err != nil {
			t.Fatal(err)
		}
		r := release{root: dir, out: filepath.Join(t.TempDir(), "new", "out"), targets: targets(), log: io.Discard}
		write(t, filepath.Join(r.out, "gorun_0.0.1_linux_amd64.tar.gz"), "of an earlier run", 0o666)
		if err := r.make(); err != nil {
			t.Fatal(err)
		}
		outs = append(outs, r.out)
	}
	want := []string{"SHA256SUMS", "gorun-mpi_0.1.0_image.tar.gz", "gorun_0.1.0.cdx.json"}
	for _, target := range targets() {
		want = append(want, "gorun_0.1.0_linux_"+target.arch+".tar.gz")
	}
	slices.Sort(want)
	first, second := contents(t, outs[0]), contents(t, outs[1])
	if got := names(first); !slices.Equal(got, want) {
		t.Errorf("the files are %q, want %q", got, want)
	}
	for _, name := range want {
		if !bytes.Equal(first[name], second[name]) {
			t.Errorf("%s differs between two runs of one commit", name)
		}
	}
	checkSums(t, first)
	image := gunzip(t, first["gorun-mpi_0.1.0_image.tar.gz"])
	lines, err := os.ReadFile(log)
	if string(image) != "the image\n" || err != nil || !strings.Contains(string(lines),
		"build --quiet --build-arg VERSION=v0.1.0 -t gorun-mpi:0.1.0 .\nsave gorun-mpi:0.1.0\n") {
		t.Errorf("the image is %q (%v), by\n%s", image, err, lines)
	}
	for _, target := range targets() {
		folder := "gorun_0.1.0_linux_" + target.arch
		files := untar(t, first[folder+".tar.gz"])
		if got := names(files); !slices.Equal(got, []string{folder + "/CHANGELOG.md", folder + "/LICENSE", folder + "/gorun",
			folder + "/licenses/std/LICENSE"}) {
			t.Errorf("the archive has %q", got)
		}
		binary := filepath.Join(t.TempDir(), "gorun")
		write(t, binary, string(files[folder+"/gorun"]), 0o777)
		if err := static(binary); err != nil {
			t.Error(err)
		}
		if target.arch != runtime.GOARCH {
			continue
		}
		if out, err := exec.Command(binary).CombinedOutput(); string(out) != "v0.1.0\n" {
			t.Errorf("the binary says that it is %q (%v)", out, err)
		}
	}
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files, err := os.ReadDir(dir)
	found := map[string][]byte{}
	for _, f := range files {
		body, readErr := os.ReadFile(filepath.Join(dir, f.Name()))
		found[f.Name()], err = body, errors.Join(err, readErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func names(files map[string][]byte) (all []string) {
	for name := range files {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func checkSums(t *testing.T, files map[string][]byte) {
	t.Helper()
	summed := map[string]string{}
	for line := range strings.Lines(string(files[sums])) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		summed[name] = sum
	}
	for name, body := range files {
		sum := sha256.Sum256(body)
		if name != sums && summed[name] != hex.EncodeToString(sum[:]) {
			t.Errorf("the checksum of %s is %s, and %s has %q", name, hex.EncodeToString(sum[:]), sums, summed[name])
		}
	}
	if len(summed) != len(files)-1 {
		t.Errorf("%s has %d lines for %d files", sums, len(summed), len(files)-1)
	}
}

func gunzip(t *testing.T, body []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// untar returns the files of an archive, and checks that each has the time of the commit and no owner.
func untar(t *testing.T, body []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	when, _ := time.Parse(time.RFC3339, tagDay)
	for r := tar.NewReader(bytes.NewReader(gunzip(t, body))); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if mode := map[bool]int64{true: 0o755, false: 0o644}[strings.HasSuffix(h.Name, "/gorun")]; !h.ModTime.Equal(when) ||
			h.Uid != 0 || h.Uname != "" || h.Mode != mode {
			t.Errorf("%s is of %v, owner %d %q, mode %o", h.Name, h.ModTime, h.Uid, h.Uname, h.Mode)
		}
	}
}

// What is no release is refused before anything is built, and the error says what to do.
func TestReleaseRefused(t *testing.T) {
	without := func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "docker"), "#!/bin/sh\nexit 1\n", 0o777)
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	}
	for name, c := range map[string]struct {
		changelog, want string
		before          func(*testing.T)
	}{
		"another day": {"# Changelog\n\n## 0.1.0 - 2026-11-27\n", `the tag v0.1.0 needs "0.1.0 - 2026-11-28"`, nil},
		"unreleased":  {"# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-11-28\n", `CHANGELOG.md is "Unreleased"`, nil},
		"no section":  {"# Changelog\n", `CHANGELOG.md is ""`, nil},
		"no docker":   {announced, "leave the image out with -no-image", without},
	} {
		t.Run(name, func(t *testing.T) {
			if c.before != nil {
				c.before(t)
			}
			r := release{root: project(t, c.changelog), out: filepath.Join(t.TempDir(), "out"), targets: targets(),
				log: io.Discard}
			if err := r.make(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := os.Stat(r.out); err == nil {
				t.Error("files have been made")
			}
		})
	}
}

// A commit after the tag, and a change that is not committed, is a snapshot with a name of its own.
func TestSnapshot(t *testing.T) {
	dir := project(t, "# Changelog\n\n## Unreleased\n")
	r := release{root: dir}
	write(t, filepath.Join(dir, "LICENSE"), "another\n", 0o666)
	if err := r.identify(); err != nil || r.tagged || r.version != "v0.1.0-dirty" {
		t.Errorf("%q, %v", r.version, err)
	}
	git(t, dir, "commit", "-q", "-a", "-m", "x: change")
	if err := r.identify(); err != nil || r.tagged || !strings.HasPrefix(r.version, "v0.1.0-1-g") {
		t.Errorf("%q, %v", r.version, err)
	}
}

// A binary with an interpreter is refused.
func TestStatic(t *testing.T) {
	if err := static("/bin/sh"); err == nil || !strings.Contains(err.Error(), "linked dynamically") {
		t.Errorf("/bin/sh: %v", err)
	}
}

// The bill of this project has every module of go.mod with its version, and says of each whether gorun has it. The
// archive has the licences of those.
func TestBill(t *testing.T) {
	mod, root := proc.CheckoutText(t, "go.mod")
	modules, err := modulesOf(proc.Gorun(t))
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{}
	for _, m := range modules {
		linked[m] = true
	}
	r := release{root: root, out: t.TempDir(), version: "v9.9.9", when: time.Unix(1e9, 0).UTC()}
	if err := r.bill(linked); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(filepath.Join(r.out, "gorun_9.9.9.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(body, &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Spec != "1.5" || b.Metadata.Timestamp != "2001-09-09T01:46:40Z" ||
		b.Metadata.Component.URL != "pkg:golang/github.com/gorun-mpi/mpi@v9.9.9" {
		t.Errorf("the bill begins\n%.600s", body)
	}
	listed := map[string]component{}
	for _, c := range b.Components {
		listed[c.Name] = c
	}
	required := regexp.MustCompile(`(?m)^\s*(?:require )?(\S+\.\S+) (v\S+)`).FindAllStringSubmatch(mod, -1)
	for _, m := range required {
		c, scope := listed[m[1]], map[bool]string{true: "required", false: "optional"}[linked[m[1]]]
		if c.Version != m[2] || c.URL != "pkg:golang/"+m[1]+"@"+m[2] || c.Scope != scope {
			t.Errorf("the bill has %+v for %s %s, %s", c, m[1], m[2], scope)
		}
	}
	if len(required) < 10 || len(b.Components) != len(required)+1 {
		t.Errorf("the bill has %d components, and go.mod %d modules", len(b.Components), len(required))
	}
	if std := listed["std"]; std.Version != strings.TrimPrefix(runtime.Version(), "go") || std.Scope != "required" {
		t.Errorf("the standard library is %+v", std)
	}
	if !linked["github.com/spf13/cobra"] || linked["gonum.org/v1/plot"] {
		t.Errorf("gorun has the modules %v", modules)
	}
	entries, err := r.entries(filepath.Join(root, "go.mod"), modules)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append(modules, "std") {
		if !slices.ContainsFunc(entries, func(e entry) bool {
			return strings.HasPrefix(e.name, "licenses/"+m+"/LICENSE") && len(e.body) > 100
		}) {
			t.Errorf("the archive has no licence of %s", m)
		}
	}
}

// Licences have several names. A module without one cannot go into an archive.
func TestLicences(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"LICENSE", "License.md", "NOTICE.txt", "COPYING", "LICENSES/x", "licensed.go",
		"go.mod"} {
		write(t, filepath.Join(dir, name), "module example.org/x\n", 0o666)
	}
	got, err := licences(dir)
	if want := []string{"COPYING", "LICENSE", "License.md", "NOTICE.txt"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q (%v), want %q", got, err, want)
	}
	for _, name := range append(got, "CHANGELOG.md") {
		write(t, filepath.Join(dir, "LICENSES", name), "", 0o666)
	}
	write(t, filepath.Join(dir, "LICENSES", "go.mod"), "module example.org/y\n\nreplace example.org/x => "+dir+
		"\n\nrequire example.org/x v0.0.0\n", 0o666)
	r := release{root: filepath.Join(dir, "LICENSES")}
	if _, err := r.entries("/bin/sh", []string{"example.org/x"}); err != nil {
		t.Error(err)
	}
	for _, name := range got {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.entries("/bin/sh", []string{"example.org/x"}); err == nil || !strings.Contains(err.Error(),
		"example.org/x is linked into gorun, and "+dir+" has no licence") {
		t.Errorf("%v", err)
	}
}

// The Dockerfile builds gorun with the flags of the archives.
func TestDockerfileBuildsAlike(t *testing.T) {
	text, _ := proc.CheckoutText(t, "Dockerfile")
	f := flags("$VERSION")
	want := fmt.Sprintf("go build %s %s -ldflags=%q ", f[0], f[1], strings.TrimPrefix(f[2], "-ldflags="))
	if !strings.Contains(text, want) {
		t.Errorf("the Dockerfile has no %s", want)
	}
}
