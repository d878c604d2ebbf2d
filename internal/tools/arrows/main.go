// Arrows prints which files and packages lean on which, and how many of these arrows run back up.
//
//	go run ./internal/tools/arrows [-v] [FOLDER ...]
//
// A room is a file of the root package, of pml or of launcher, the packages with many files, or any other package. An
// arrow leads from a room to one that it imports, or, between files of a package, whose functions, types, variables,
// constants and methods it uses, as Go's type checker resolves the names. Rooms stand in the order in which the fewest
// arrows run back up, as far as a greedy search finds it (Eades, Lin and Smyth): an arrow that does belongs to a
// circle.
//
// Tests, kits of tests, programs of the folder examples and generated files are no rooms. -v lists the arrows that run
// back up.
//
// Owns: what counts as an arrow.
// May call: the standard library.
// Never: be part of a build; change a file.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/gorun-mpi/mpi"

// byFile are the packages whose files are rooms of their own.
var byFile = map[string]bool{".": true, "pml": true, "launcher": true}

// house is what has been read.
type house struct {
	fset    *token.FileSet
	files   map[string][]*source // by folder
	arrows  map[[2]string]bool
	lines   map[string]int
	defines map[string]map[string]string // by folder and name: the file, or "" where several do
}

type source struct {
	name string
	ast  *ast.File
}

func main() {
	verbose := flag.Bool("v", false, "list the arrows that run back up")
	flag.Parse()
	h := newHouse()
	if err := h.read("."); err != nil {
		fmt.Fprintln(os.Stderr, "arrows:", err)
		os.Exit(1)
	}
	order, back := h.backward()
	for _, dir := range slices.Sorted(maps.Keys(byFile)) {
		n, lines := 0, 0
		for _, f := range h.files[dir] {
			n++
			lines += h.lines[f.name]
		}
		fmt.Printf("%-10s %3d files, %6d lines\n", cmp.Or(strings.TrimPrefix(dir, "."), "mpi"), n, lines)
	}
	fmt.Printf("%d rooms, %d arrows, %d of them run back up\n", len(order), len(h.arrows), len(back))
	if *verbose {
		for _, a := range back {
			fmt.Println(a[0], "->", a[1])
		}
	}
}

func newHouse() *house {
	return &house{fset: token.NewFileSet(), files: map[string][]*source{}, arrows: map[[2]string]bool{},
		lines: map[string]int{}, defines: map[string]map[string]string{}}
}

// backward draws all arrows, and returns the rooms in order and the arrows that run back up.
func (h *house) backward() (order []string, back [][2]string) {
	for dir, files := range h.files {
		for _, f := range files {
			h.imports(dir, f)
		}
		if byFile[dir] {
			h.between(dir)
		}
	}
	order = h.order()
	place := map[string]int{}
	for i, r := range order {
		place[r] = i
	}
	for a := range h.arrows {
		if place[a[0]] > place[a[1]] {
			back = append(back, a)
		}
	}
	slices.SortFunc(back, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return order, back
}

// read parses the product's Go files below dir.
func (h *house) read(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir():
			if p != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "examples" ||
				name == "testkit" || name == "e2e" || name == "transporttest" || name == "authtest") {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return h.add(filepath.ToSlash(p), string(text))
	})
}

func (h *house) add(name, text string) error {
	f, err := parser.ParseFile(h.fset, name, text, parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(f) {
		return err
	}
	folder := path.Dir(name)
	h.files[folder] = append(h.files[folder], &source{name, f})
	h.lines[name] = strings.Count(text, "\n")
	h.define(folder, name, f)
	return nil
}

// define notes what a file defines.
func (h *house) define(dir, file string, f *ast.File) {
	if h.defines[dir] == nil {
		h.defines[dir] = map[string]string{}
	}
	note := func(name string) {
		if was, twice := h.defines[dir][name]; twice && was != file {
			h.defines[dir][name] = "" // a twin for another system, or a method of several types
			return
		}
		h.defines[dir][name] = file
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			note(d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					note(s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						note(n.Name)
					}
				}
			}
		}
	}
}

// room is that of a file.
func room(dir, file string) string {
	if byFile[dir] {
		return file
	}
	return dir + "/"
}

// imports draws the arrows to other packages. Where these are many rooms, to the files whose names are used.
func (h *house) imports(dir string, f *source) {
	for _, spec := range f.ast.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		if p != module && !strings.HasPrefix(p, module+"/") {
			continue
		}
		to := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(p, module), "/"), ".")
		if !byFile[to] {
			h.arrow(room(dir, f.name), to+"/")
			continue
		}
		local := path.Base(p)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, is := n.(*ast.SelectorExpr); is {
				if x, is := s.X.(*ast.Ident); is && x.Name == local && h.defines[to][s.Sel.Name] != "" {
					h.arrow(room(dir, f.name), h.defines[to][s.Sel.Name])
				}
			}
			return true
		})
	}
}

// between draws the arrows between the files of a package. Other packages are not read: a name of theirs stays
// unresolved, and leads to no file of this one. Twins for other systems define names twice; the first counts.
func (h *house) between(dir string) {
	var files []*ast.File
	for _, f := range h.files[dir] {
		files = append(files, f.ast)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: nothing{}, Error: func(error) {}, DisableUnusedImportCheck: true}
	pkg, _ := conf.Check(dir, h.fset, files, &info)
	for id, o := range info.Uses {
		named := o.Parent() == pkg.Scope()
		if f, ok := o.(*types.Func); ok {
			o, named = f.Origin(), true // methods have no parent
		}
		if named && o.Pkg() == pkg {
			h.arrow(h.fset.Position(id.Pos()).Filename, h.fset.Position(o.Pos()).Filename)
		}
	}
}

// nothing imports empty packages.
type nothing struct{}

func (nothing) Import(p string) (*types.Package, error) {
	empty := types.NewPackage(p, path.Base(p))
	empty.MarkComplete()
	return empty, nil
}

func (h *house) arrow(from, to string) {
	if from != to {
		h.arrows[[2]string{from, to}] = true
	}
}

// order puts rooms that lean on others in front of these.
func (h *house) order() []string {
	out, in := map[string]map[string]bool{}, map[string]map[string]bool{}
	for dir, files := range h.files {
		for _, f := range files {
			r := room(dir, f.name)
			out[r], in[r] = map[string]bool{}, map[string]bool{}
		}
	}
	for a := range h.arrows {
		if out[a[0]] != nil && out[a[1]] != nil {
			out[a[0]][a[1]], in[a[1]][a[0]] = true, true
		}
	}
	var first, last []string
	for len(out) > 0 {
		// Rooms that lean on no other stand at the end, rooms on which no other leans in front, of the rest the one with
		// the most arrows out, compared with those in, comes next.
		best, score := "", 0
		for _, r := range slices.Sorted(maps.Keys(out)) {
			s := len(out[r]) - len(in[r])
			switch {
			case len(out[r]) == 0:
				s = -1 << 30
			case len(in[r]) == 0:
				s = 1 << 30
			}
			if best == "" || s > score || s == -1<<30 {
				if best, score = r, s; s == -1<<30 {
					break
				}
			}
		}
		if score == -1<<30 {
			last = append(last, best)
		} else {
			first = append(first, best)
		}
		for to := range out[best] {
			delete(in[to], best)
		}
		for from := range in[best] {
			delete(out[from], best)
		}
		delete(out, best)
		delete(in, best)
	}
	slices.Reverse(last)
	return append(first, last...)
}
