// Arrows prints which files and packages lean on which, and how many of these arrows run back up.
//
//	go run ./internal/tools/arrows [-v] [FOLDER ...]
//
// A room is a file of the root package, of pml or of launcher, the packages with many files, or any other package. An
// arrow leads from a room to one that it imports, or, between files of a package, whose functions, types, variables,
// constants and methods it uses, as Go's type checker resolves the names. Rooms stand in the order in which the fewest
// arrows run back up, as far as a greedy search and moves of single rooms find it: an arrow that does belongs to a
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
	files   map[string][]*source          // by folder
	arrows  map[[2]string]map[string]bool // the names that a room uses of another
	lines   map[string]int
	defines map[string]map[string]string // by folder and name: the file, or "" where several do
}

type source struct {
	name string
	ast  *ast.File
}

func main() {
	verbose := flag.Bool("v", false, "list the arrows that run back up, and the names behind them")
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
			fmt.Printf("%s -> %s: %s\n", a[0], a[1], strings.Join(slices.Sorted(maps.Keys(h.arrows[a])), ", "))
		}
	}
}

func newHouse() *house {
	return &house{fset: token.NewFileSet(), files: map[string][]*source{}, arrows: map[[2]string]map[string]bool{},
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
			h.arrow(room(dir, f.name), to+"/", p)
			continue
		}
		local := path.Base(p)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, is := n.(*ast.SelectorExpr); is {
				if x, is := s.X.(*ast.Ident); is && x.Name == local && h.defines[to][s.Sel.Name] != "" {
					h.arrow(room(dir, f.name), h.defines[to][s.Sel.Name], s.Sel.Name)
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
			h.arrow(h.fset.Position(id.Pos()).Filename, h.fset.Position(o.Pos()).Filename, o.Name())
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

func (h *house) arrow(from, to, name string) {
	if from == to {
		return
	}
	a := [2]string{from, to}
	if h.arrows[a] == nil {
		h.arrows[a] = map[string]bool{}
	}
	h.arrows[a][name] = true
}

// order puts rooms that lean on others in front of these: circle by circle, and in a circle as few arrows run back up
// as the search finds.
func (h *house) order() (order []string) {
	g := h.graph()
	for _, circle := range g.circles() {
		order = append(order, circle.improve(circle.greedy())...)
	}
	return order
}

// graph has, for each room, those on which it leans.
type graph map[string]map[string]bool

func (h *house) graph() graph {
	g := graph{}
	for dir, files := range h.files {
		for _, f := range files {
			g[room(dir, f.name)] = map[string]bool{}
		}
	}
	for a := range h.arrows {
		if g[a[0]] != nil && g[a[1]] != nil {
			g[a[0]][a[1]] = true
		}
	}
	return g
}

func (g graph) rooms() []string { return slices.Sorted(maps.Keys(g)) }

// circles are the largest sets of rooms of which each leans on each other, be it through others (Tarjan), with the
// arrows between them; a set that leans on another comes before it.
func (g graph) circles() (all []graph) {
	number, low := map[string]int{}, map[string]int{}
	var stack []string
	var visit func(r string)
	visit = func(r string) {
		number[r] = len(number) + 1
		low[r] = number[r]
		stack = append(stack, r)
		for _, to := range slices.Sorted(maps.Keys(g[r])) {
			if number[to] == 0 {
				visit(to)
				low[r] = min(low[r], low[to])
			} else if slices.Contains(stack, to) {
				low[r] = min(low[r], number[to])
			}
		}
		if low[r] == number[r] {
			i := slices.Index(stack, r)
			all = append(all, g.among(stack[i:]))
			stack = stack[:i]
		}
	}
	for _, r := range g.rooms() {
		if number[r] == 0 {
			visit(r)
		}
	}
	slices.Reverse(all)
	return all
}

// among is the part of g between these rooms.
func (g graph) among(rooms []string) graph {
	part := graph{}
	for _, r := range rooms {
		part[r] = map[string]bool{}
		for to := range g[r] {
			if slices.Contains(rooms, to) {
				part[r][to] = true
			}
		}
	}
	return part
}

// greedy is a first order: of the rooms that are left, the one with the most arrows out, compared with those in, comes
// next.
func (g graph) greedy() (order []string) {
	score := map[string]int{}
	for r := range g {
		for to := range g[r] {
			score[r]++
			score[to]--
		}
	}
	left := g.rooms()
	for len(left) > 0 {
		best := slices.MaxFunc(left, func(a, b string) int { return cmp.Compare(score[a], score[b]) })
		order = append(order, best)
		left = slices.DeleteFunc(left, func(r string) bool { return r == best })
		for _, r := range left {
			if g[best][r] {
				score[r]++
			}
			if g[r][best] {
				score[r]--
			}
		}
	}
	return order
}

// improve moves rooms, one at a time, to where fewer arrows run back up, until no room has such a place.
func (g graph) improve(order []string) []string {
	// below is what the arrows back up grow by when r, which stands above s, goes below it.
	below := func(r, s string) (n int) {
		if g[r][s] {
			n++
		}
		if g[s][r] {
			n--
		}
		return n
	}
	for moved := true; moved; {
		moved = false
		for _, r := range slices.Clone(order) {
			at := slices.Index(order, r)
			best, least := at, 0
			for i, sum := at+1, 0; i < len(order); i++ {
				if sum += below(r, order[i]); sum < least {
					best, least = i, sum
				}
			}
			for i, sum := at-1, 0; i >= 0; i-- {
				if sum -= below(r, order[i]); sum < least {
					best, least = i, sum
				}
			}
			if best != at {
				order = slices.Insert(slices.Delete(order, at, at+1), best, r)
				moved = true
			}
		}
	}
	return order
}
