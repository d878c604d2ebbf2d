// Release makes the files of a release: archives with a static gorun for each system, a bill of materials, the
// container image, and the checksums of all.
//
//	release [-o DIR] [-no-image]
//
// It runs in a checkout. A commit with a tag such as v0.1.0 is a release, which CHANGELOG.md must announce with the day
// of the tag. Any other commit is a snapshot, named by git describe. Of one commit and one version of Go all files but
// the image are the same byte for byte, on any machine.
//
// Exit codes: 0: all is made; 1: a part failed; 2: usage.
//
//	Owns:     the names and the contents of these files, and which commit may be a release
//	May call: no package of this module; git, go and docker as programs
//	Never:    tag, push, sign or upload
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const (
	failed = 1
	usage  = 2
)

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.SetOutput(stderr)
	r := release{root: ".", log: stdout, targets: []target{{"linux", "amd64"}, {"linux", "arm64"}}}
	fs.StringVar(&r.out, "o", filepath.Join("bin", "release"), "the `folder` of the files")
	fs.BoolVar(&r.noImage, "no-image", false, "leave the container image out")
	if fs.Parse(args) != nil {
		return usage
	}
	if fs.NArg() > 0 {
		fmt.Fprintln(stderr, "release: there are no arguments")
		return usage
	}
	if err := r.make(); err != nil {
		fmt.Fprintln(stderr, "release:", err)
		return failed
	}
	return 0
}

// target is a system that gets a binary.
type target struct{ os, arch string }

// release is one run.
type release struct {
	root, out string
	targets   []target
	noImage   bool
	log       io.Writer

	version string    // the tag, or what git describe says
	tagged  bool      // version is a tag
	when    time.Time // of the commit: the time of all files
}

// make makes all files.
func (r *release) make() error {
	if err := r.identify(); err != nil {
		return err
	}
	hasDocker := !r.noImage && exec.Command("docker", "info").Run() == nil
	if r.tagged && !r.noImage && !hasDocker {
		return errors.New("docker does not run here, so the release would have no image: start docker, or leave the image " +
			"out with -no-image")
	}
	if err := r.empty(); err != nil {
		return err
	}
	linked, err := r.archives()
	if err == nil {
		err = r.bill(linked)
	}
	if err == nil && hasDocker {
		err = r.image()
	}
	if err == nil {
		err = r.checksums()
	}
	if err == nil && !hasDocker {
		fmt.Fprintln(r.log, "release: without the container image")
	}
	return err
}

var (
	releaseTag = regexp.MustCompile(`^v\d+\.\d+\.\d+(-rc\.\d+)?$`)
	section    = regexp.MustCompile(`(?m)^## (.*)$`)
)

// identify finds the version and the time of the commit. It refuses a tag that CHANGELOG.md does not announce.
func (r *release) identify() (err error) {
	if r.version, err = r.git("describe", "--tags", "--always", "--dirty", "--match", "v[0-9]*"); err != nil {
		return err
	}
	if r.when, err = r.unix("log", "-1", "--format=%ct"); err != nil {
		return err
	}
	if r.tagged = releaseTag.MatchString(r.version); !r.tagged {
		return nil
	}
	day, err := r.unix("for-each-ref", "--format=%(creatordate:unix)", "refs/tags/"+r.version)
	if err != nil {
		return err
	}
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	first := ""
	if m := section.FindSubmatch(changes); m != nil {
		first = string(m[1])
	}
	if want := strings.TrimPrefix(r.version, "v") + " - " + day.Format(time.DateOnly); first != want {
		return fmt.Errorf("the first section of CHANGELOG.md is %q, and the tag %s needs %q, with the day of the tag (UTC): "+
			"mend the file, commit it, and tag that commit", first, r.version, want)
	}
	return nil
}

// unix is the time that a command of git prints.
func (r *release) unix(args ...string) (time.Time, error) {
	text, err := r.git(args...)
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

func (r *release) git(args ...string) (string, error) { return r.command(nil, "git", args...) }

// command runs a program in the checkout and returns what it prints.
func (r *release) command(env []string, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir, c.Env = r.root, append(os.Environ(), env...)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, said.Bytes())
	}
	return strings.TrimSpace(out.String()), nil
}

// empty makes the folder, and removes the files of an earlier run there.
func (r *release) empty() error {
	if err := os.MkdirAll(r.out, 0o777); err != nil {
		return err
	}
	for _, pattern := range []string{"gorun_*", "gorun-mpi_*", sums} {
		old, err := filepath.Glob(filepath.Join(r.out, pattern))
		for _, file := range old {
			err = cmp.Or(err, os.Remove(file))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// number is the version as the names of files have it.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// flags are flags of go build. The Dockerfile has the same.
func flags(version string) []string {
	return []string{"-trimpath", "-buildvcs=false", "-ldflags=-s -X main.release=" + version}
}

// plain is the environment of go build: no setting of this machine.
var plain = []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0"}

// archives makes an archive for each target, and returns the modules in their binaries.
func (r *release) archives() (linked map[string]bool, err error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	linked = map[string]bool{}
	for _, t := range r.targets {
		name := fmt.Sprintf("gorun_%s_%s_%s", r.number(), t.os, t.arch)
		fmt.Fprintln(r.log, "release:", name)
		binary := filepath.Join(dir, t.os+"-"+t.arch)
		env := append([]string{"GOOS=" + t.os, "GOARCH=" + t.arch}, plain...)
		args := append(append([]string{"build"}, flags(r.version)...), "-o", binary, "./cmd/gorun")
		if _, err := r.command(env, "go", args...); err != nil {
			return nil, err
		}
		if err := static(binary); err != nil {
			return nil, err
		}
		modules, err := modulesOf(binary)
		if err != nil {
			return nil, err
		}
		entries, err := r.entries(binary, modules)
		if err != nil {
			return nil, err
		}
		if err := writeFile(filepath.Join(r.out, name+".tar.gz"), func(w io.Writer) error {
			return writeArchive(w, name, r.when, entries)
		}); err != nil {
			return nil, err
		}
		for _, m := range modules {
			linked[m] = true
		}
	}
	return linked, nil
}

// static reports what is wrong with a binary that needs an interpreter or a library at its start.
func static(binary string) error {
	f, err := elf.Open(binary)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return fmt.Errorf("%s is linked dynamically: a release has static binaries, without cgo", binary)
		}
	}
	return nil
}

// image builds the container image by the Dockerfile, and saves it.
func (r *release) image() error {
	name := "gorun-mpi:" + r.number()
	fmt.Fprintln(r.log, "release:", name)
	_, err := r.command(nil, "docker", "build", "--quiet", "--build-arg", "VERSION="+r.version, "-t", name, ".")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.out, "gorun-mpi_"+r.number()+"_image.tar.gz"), func(w io.Writer) error {
		var said bytes.Buffer
		c := exec.Command("docker", "save", name)
		c.Stderr = &said
		return compress(w, func(w io.Writer) error {
			c.Stdout = w
			if err := c.Run(); err != nil {
				return fmt.Errorf("docker save %s: %w\n%s", name, err, said.Bytes())
			}
			return nil
		})
	})
}

const sums = "SHA256SUMS"

// checksums writes a line for each file, as sha256sum -c reads it.
func (r *release) checksums() error {
	files, err := os.ReadDir(r.out) // in order
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.out, sums), func(w io.Writer) error {
		for _, f := range files {
			body, err := os.ReadFile(filepath.Join(r.out, f.Name()))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%x  %s\n", sha256.Sum256(body), f.Name()); err != nil {
				return err
			}
		}
		return nil
	})
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
