package api

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// apidiff returns the program of that name, of the version that the Makefile names, and has make build it at need.
func apidiff(t *testing.T) string {
	t.Helper()
	makefile, root := proc.CheckoutText(t, "Makefile")
	name := regexp.MustCompile(`(?m)^APIDIFF\s*= (\S+)$`).FindStringSubmatch(makefile)[1]
	path := filepath.Join(root, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	c := exec.Command("make", "-C", root, name)
	c.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "MAKE") })
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
	return path
}

// scripts/api fails on a name that is gone or means something else, and names it; it passes on a new name, and on a
// break that accepted.txt names.
func TestAPI(t *testing.T) {
	tool := apidiff(t)
	script, _ := proc.CheckoutText(t, "scripts/api")
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, []byte(text), 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	compare := func(args ...string) (string, error) {
		c := exec.Command(filepath.Join(dir, "scripts/api"), append([]string{tool}, args...)...)
		c.Env = append(os.Environ(), "GOWORK=off")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	const old = "package m\n\ntype T struct{ N int }\n\nfunc F[E any](e E) {}\n\nfunc G(n int) {}\n"
	write("scripts/api", script)
	write("go.mod", "module example.org/m\n\ngo 1.26.0\n")
	write("m.go", old)
	const waits = "package gpu\n\nfunc Wait() {}\n"
	write("gpu/gpu.go", waits)
	const saves = "package checkpoint\n\nfunc Save() {}\n"
	write("checkpoint/checkpoint.go", saves)
	write("internal/tools/api/accepted.txt", "# nothing\n")
	if out, err := compare(); err == nil || !strings.Contains(out, "make api-baseline writes it") {
		t.Errorf("without a baseline: %v\n%s", err, out)
	}
	if out, err := compare("write"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		name, mpi, gpu, checkpoint, accepted string
		want                                 []string // nil: it passes
	}{
		{name: "unchanged"},
		{name: "new names", mpi: strings.Replace(old, "N int", "N, M int", 1) + "\nfunc H() {}\n"},
		{name: "a name is gone", mpi: strings.Replace(old, "func G", "func g", 1), want: []string{"- G: removed"}},
		{name: "a field is gone", mpi: strings.Replace(old, "N int", "n int", 1), want: []string{"- T.N: removed"}},
		{name: "another type", mpi: strings.Replace(old, "n int)", "n int64)", 1), want: []string{"- G: changed from"}},
		{name: "in gpu", gpu: "package gpu\n", want: []string{"- Wait: removed"}},
		{name: "in checkpoint", checkpoint: "package checkpoint\n", want: []string{"- Save: removed"}},
		{name: "accepted", mpi: strings.Replace(old, "func G", "func g", 1), accepted: "# of 0.2.0\n- G: removed\n"},
		{name: "one of two accepted", mpi: strings.Replace(strings.Replace(old, "func G", "func g", 1), "N int", "n int", 1),
			accepted: "- G: removed\n", want: []string{"- T.N: removed"}},
		{name: "does not compile", mpi: "package m\n\nfunc F() { return 1 }\n", want: []string{"loading example.org/m"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			write("m.go", cmp.Or(c.mpi, old))
			write("gpu/gpu.go", cmp.Or(c.gpu, waits))
			write("checkpoint/checkpoint.go", cmp.Or(c.checkpoint, saves))
			write("internal/tools/api/accepted.txt", c.accepted)
			out, err := compare()
			if (err == nil) != (c.want == nil) {
				t.Errorf("%v\n%s", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if strings.Contains(out, "- G: removed") && strings.Contains(c.accepted, "G") {
				t.Errorf("it names what is accepted:\n%s", out)
			}
		})
	}
}
