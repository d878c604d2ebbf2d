package topology

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Limits: nothing that is meant to be in these trees is longer.
const (
	longestFile = 16 << 10
	longestText = 96
	mostEntries = 4096
)

// tree reads files below a root. What cannot be read is empty.
type tree struct {
	root string // real: without symbolic links
}

func newTree(root string) tree {
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	return tree{root}
}

func (t tree) path(name string) string { return filepath.Join(t.root, filepath.FromSlash(name)) }

var errNotRegular = errors.New("not a regular file")

// open opens a file. It never blocks: a pipe in place of a file is opened without waiting for its writer, and refused.
func (t tree) open(name string) (*os.File, error) {
	f, err := os.OpenFile(t.path(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// exists reports whether there is a file or folder.
func (t tree) exists(name string) bool {
	_, err := os.Stat(t.path(name))
	return err == nil
}

// read returns the beginning of a file.
func (t tree) read(name string) (string, error) {
	f, err := t.open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, longestFile))
	return string(b), err
}

// text returns the first line of a file, fit to be printed.
func (t tree) text(name string) string {
	s, err := t.read(name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(s, "\n")
	return clean(line)
}

// number returns the number in a file.
func (t tree) number(name string) (int, bool) { return parseNumber(t.text(name)) }

// link returns the last element of what a symbolic link points to: how /sys names a driver.
func (t tree) link(name string) string {
	to, err := os.Readlink(t.path(name))
	if err != nil {
		return ""
	}
	return clean(filepath.Base(to))
}

// real returns where a path leads in the end, from the root on, with slashes.
func (t tree) real(name string) string {
	to, err := filepath.EvalSymlinks(t.path(name))
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(t.root, to)
	if err != nil {
		return ""
	}
	return filepath.ToSlash(rel)
}

// list returns the names in a folder, so ordered that mlx5_10 comes after mlx5_9.
func (t tree) list(dir string) []string {
	f, err := os.OpenFile(t.path(dir), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(mostEntries)
	slices.SortFunc(names, natural)
	return names
}

// natural compares digits as numbers and all else as text.
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		dx, dy := digits(x), digits(y)
		if dx == 0 || dy == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		nx, ny := strings.TrimLeft(x[:dx], "0"), strings.TrimLeft(y[:dy], "0")
		if c := cmp.Or(cmp.Compare(len(nx), len(ny)), cmp.Compare(nx, ny)); c != 0 {
			return c
		}
		x, y = x[dx:], y[dy:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits is how many digits a text begins with.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

// indices returns the names in a folder that are numbers, in order.
func (t tree) indices(dir string) (all []int) {
	for _, name := range t.list(dir) {
		if n, err := strconv.Atoi(name); err == nil && n >= 0 && strconv.Itoa(n) == name {
			all = append(all, n)
		}
	}
	return all
}

// clean makes a text of unknown origin fit for one cell of a table: one line, no control characters, not too long.
func clean(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !strconv.IsPrint(r) || r == utf8.RuneError:
			return -1
		}
		return r
	}, s))
	if len(s) <= longestText {
		return s
	}
	cut := longestText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
