package main

import (
	"debug/elf"
	"encoding/json"
	goversion "go/version"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// instruction is a line of a Dockerfile.
type instruction struct{ name, rest string }

func dockerfile(t *testing.T) (all []instruction) {
	t.Helper()
	text, _ := proc.CheckoutText(t, "Dockerfile")
	for line := range strings.Lines(text) {
		if name, rest, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" && name[0] != '#' {
			all = append(all, instruction{name, rest})
		}
	}
	return all
}

// What the Dockerfile copies is there, its Go is new enough, and what it runs makes static programs, which are at the
// place of its entry point in the image, for the account that manifests name, and know their version. Docker itself is
// not run.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	mod, root := proc.CheckoutText(t, "go.mod")
	wanted := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(mod)[1]
	ignored, _ := proc.CheckoutText(t, ".dockerignore")
	var env []string
	var build, made, installed, entry, user string
	for _, i := range dockerfile(t) {
		words := strings.Fields(i.rest)
		switch i.name {
		case "FROM":
			if has, ok := strings.CutPrefix(words[0], "golang:"); ok && goversion.Compare("go"+has, "go"+wanted) < 0 {
				t.Errorf("Go %s of the image is older than that of go.mod, %s", has, wanted)
			}
		case "COPY":
			if words[0] == "--from=build" {
				made, installed = words[1], words[2]
				continue
			}
			for _, file := range words[:len(words)-1] {
				if _, err := os.Stat(filepath.Join(root, file)); err != nil {
					t.Error(err)
				}
				if slices.Contains(strings.Fields(ignored), file) {
					t.Errorf("%s is copied, and .dockerignore leaves it out", file)
				}
			}
		case "ARG", "ENV":
			env = append(env, i.rest)
		case "RUN":
			if strings.HasPrefix(i.rest, "go build ") {
				build = i.rest
			}
		case "USER":
			user = i.rest
		case "ENTRYPOINT":
			var argv []string
			if err := json.Unmarshal([]byte(i.rest), &argv); err != nil || len(argv) != 1 {
				t.Fatalf("ENTRYPOINT %s: %v", i.rest, err)
			}
			entry = argv[0]
		}
	}
	// Manifests name gorun without a folder: it must be in one that PATH has without being set.
	if entry != "/usr/local/bin/gorun" || entry != path.Join(installed, "gorun") || user != "65532:65532" ||
		!strings.Contains(build, " -o "+made+" ") {
		t.Errorf("built by %s, copied from %s to %s, started as %s by %s", build, made, installed, entry, user)
	}
	manifest := call(t, "k8s", "manifest", "--image", "x", "--pods", "2", "/prog").out
	if !strings.Contains(manifest, `"runAsUser": 65532`) {
		t.Errorf("the manifest is of another account than %s:\n%s", user, manifest)
	}
	if testing.Short() {
		t.Skip("-short: a build with -trimpath compiles all again")
	}
	out := t.TempDir()
	c := exec.Command("sh", "-c", strings.Replace(build, made, out+"/", 1))
	c.Dir, c.Env = root, append(append(os.Environ(), env...), "VERSION=v9.9.9")
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, said)
	}
	for _, name := range []string{"gorun", "pi"} {
		f, err := elf.Open(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s is dynamically linked", name)
			}
		}
		f.Close()
	}
	run := exec.Command(filepath.Join(out, "gorun"), "-n", "2", filepath.Join(out, "pi"))
	if said, err := run.CombinedOutput(); err != nil || !strings.Contains(string(said), "3.14") {
		t.Errorf("%v: %s", err, said)
	}
	said, err := exec.Command(filepath.Join(out, "gorun"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(said), "gorun v9.9.9 ") {
		t.Errorf("%v: %s", err, said)
	}
}
