package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name string
	mode int64
	body []byte
}

// writeArchive writes a compressed tar of one folder. Nothing in it depends on the machine or the hour.
func writeArchive(w io.Writer, folder string, when time.Time, entries []entry) error {
	return compress(w, func(w io.Writer) error {
		t := tar.NewWriter(w)
		for _, e := range entries {
			h := &tar.Header{Name: path.Join(folder, e.name), Mode: e.mode, Size: int64(len(e.body)), ModTime: when}
			if err := t.WriteHeader(h); err != nil {
				return err
			}
			if _, err := t.Write(e.body); err != nil {
				return err
			}
		}
		return t.Close()
	})
}

func compress(w io.Writer, write func(io.Writer) error) error {
	z := gzip.NewWriter(w) // whose header has neither name nor time
	return errors.Join(write(z), z.Close())
}

// entries are the files of an archive: the binary, our licence and changelog, and the licences of what is linked in.
func (r *release) entries(binary string, modules []string) ([]entry, error) {
	var all []entry
	add := func(name, file string, mode int64) error {
		body, err := os.ReadFile(file)
		all = append(all, entry{name, mode, body})
		return err
	}
	err := errors.Join(add("gorun", binary, 0o755), add("LICENSE", filepath.Join(r.root, "LICENSE"), 0o644),
		add("CHANGELOG.md", filepath.Join(r.root, "CHANGELOG.md"), 0o644))
	if err != nil {
		return nil, err
	}
	goroot, err := r.command(nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	folders := []string{"std\t" + goroot}
	if len(modules) > 0 {
		list, err := r.command(nil, "go", append([]string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}, modules...)...)
		if err != nil {
			return nil, err
		}
		folders = append(folders, strings.Split(list, "\n")...)
	}
	for _, line := range folders {
		module, dir, _ := strings.Cut(line, "\t")
		found, err := licences(dir)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s is linked into gorun, and %s has no licence, which the archive must have", module, dir)
		}
		for _, name := range found {
			if err := add(path.Join("licenses", module, name), filepath.Join(dir, name), 0o644); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// licences are the files of a module that must go with its binary.
func licences(dir string) (names []string, err error) {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		word, _, _ := strings.Cut(strings.ToUpper(f.Name()), ".")
		if f.Type().IsRegular() && slices.Contains([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE"}, word) {
			names = append(names, f.Name())
		}
	}
	return names, err
}
