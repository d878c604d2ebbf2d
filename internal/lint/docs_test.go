package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func docs(t *tree) []*file {
	return t.sorted(func(f *file) bool { return strings.HasSuffix(f.path, ".md") })
}

// outsideCode is the text without its code blocks, line by line: lines inside of blocks are empty.
func outsideCode(text string) []string {
	lines := strings.Split(text, "\n")
	inside := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			inside = !inside
		}
		if inside || fence {
			lines[i] = ""
		}
	}
	return lines
}

var (
	link     = regexp.MustCompile(`!?\[[^\]]*\]\(([^)\s]+)\)`)
	span     = regexp.MustCompile("`([^`]+)`")
	heading  = regexp.MustCompile(`^#+ +(.*)$`)
	pathLike = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.*-]+)*/?$`)
)

// links checks that a relative link leads to a file, and its part behind # to a heading.
func links(t *tree) (wrong []string) {
	for _, f := range docs(t) {
		for i, line := range outsideCode(f.text) {
			for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(line, "x"), -1) {
				target, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
					continue
				}
				to := f.path
				if target != "" {
					to = path.Join(f.dir(), target)
				}
				if !t.exists(to) {
					wrong = append(wrong, fmt.Sprintf("%s:%d: the link to %s leads nowhere", f.path, i+1, m[1]))
				} else if anchor != "" && t.files[to] != nil && !hasHeading(t.files[to].text, anchor) {
					wrong = append(wrong, fmt.Sprintf("%s:%d: the link to %s: %s has no such heading", f.path, i+1, m[1], to))
				}
			}
		}
	}
	return wrong
}

func hasHeading(text, anchor string) bool {
	return slices.ContainsFunc(outsideCode(text), func(line string) bool {
		m := heading.FindStringSubmatch(line)
		return m != nil && slug(m[1]) == anchor
	})
}

// slug is what GitHub makes of a heading.
func slug(heading string) string {
	kept := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_', r > 127:
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == ' ':
			return '-'
		}
		return -1
	}, heading)
	return kept
}

// The page of recipes tells a reader which files to make.
var recipes = []string{"docs/adding-a-transport.md"}

// pathsInDocs checks that what a document quotes as a path of this repository (`pml/wait.go`, `examples/heat`) exists.
func pathsInDocs(t *tree) (wrong []string) {
	tops := map[string]bool{}
	for p := range t.files {
		if top, _, deep := strings.Cut(p, "/"); deep {
			tops[top] = true
		}
	}
	for _, f := range docs(t) {
		if slices.Contains(recipes, f.path) {
			continue
		}
		for i, line := range outsideCode(f.text) {
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				p := strings.TrimSuffix(strings.TrimPrefix(m[1], "./"), "/")
				top, _, deep := strings.Cut(p, "/")
				isFile := !deep && (strings.HasSuffix(p, ".go") || strings.HasSuffix(p, ".md"))
				if !pathLike.MatchString(p) || !(deep && tops[top] || isFile) || matchesAny(t, p) {
					continue
				}
				wrong = append(wrong, fmt.Sprintf("%s:%d: there is no %s", f.path, i+1, m[1]))
			}
		}
	}
	return wrong
}

var docName = regexp.MustCompile(`\bdocs/[A-Za-z0-9_/-]+\.md\b`)

// docsInCode reports documents that a Go file names (docs/decisions/tcp.md) and that do not exist.
func docsInCode(t *tree) (wrong []string) {
	for _, f := range t.sorted(func(f *file) bool { return f.isGo() && f.dir() != "internal/lint" }) {
		for i, line := range strings.Split(f.text, "\n") {
			for _, name := range docName.FindAllString(line, -1) {
				if !t.exists(name) {
					wrong = append(wrong, fmt.Sprintf("%s:%d: there is no %s", f.path, i+1, name))
				}
			}
		}
	}
	return wrong
}

func matchesAny(t *tree, p string) bool {
	if t.exists(p) {
		return true
	}
	for name := range t.files {
		for ; name != "."; name = path.Dir(name) {
			if ok, _ := path.Match(p, name); ok {
				return true
			}
		}
	}
	return false
}

// public is what package mpi exports: functions, types, constants, variables; methods and fields as Type.Name.
func public(t *tree) map[string]bool {
	names := map[string]bool{}
	// Methods of a type that the root gives another package's name are in that package.
	aliased := func(f *file) bool { return f.dir() == "internal/mpierr" }
	for _, f := range t.sorted(func(f *file) bool {
		return f.ast != nil && (f.dir() == "." || aliased(f)) && !f.isTest()
	}) {
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					if !aliased(f) {
						names[d.Name.Name] = true
					}
				} else if r := receiver(d); r != "" {
					names[r+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names[n.Name] = true
						}
					case *ast.TypeSpec:
						names[s.Name.Name] = true
						if st, ok := s.Type.(*ast.StructType); ok {
							for _, field := range st.Fields.List {
								for _, n := range field.Names {
									names[s.Name.Name+"."+n.Name] = true
								}
							}
						}
					}
				}
			}
		}
	}
	for name := range names {
		for _, part := range strings.Split(name, ".") {
			if !ast.IsExported(part) {
				delete(names, name)
			}
		}
	}
	return names
}

func receiver(d *ast.FuncDecl) string {
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	switch x := typ.(type) {
	case *ast.IndexExpr:
		typ = x.X
	case *ast.IndexListExpr:
		typ = x.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

var ourName = regexp.MustCompile(`\bmpi\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)

// namesInDocs checks that `mpi.X` and `mpi.T.M` in a document are things that package mpi exports.
func namesInDocs(t *tree) (wrong []string) {
	names := public(t)
	for _, f := range docs(t) {
		for i, line := range outsideCode(f.text) {
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				for _, n := range ourName.FindAllStringSubmatch(m[1], -1) {
					name := n[1]
					if n[2] != "" {
						name += "." + n[2]
					}
					if !names[name] {
						wrong = append(wrong, fmt.Sprintf("%s:%d: package mpi has no %s", f.path, i+1, name))
					}
				}
			}
		}
	}
	return wrong
}

// namesOfFile is how a document lists what a file declares: `pml/send.go` (Send, Isend).
var namesOfFile = regexp.MustCompile("`([A-Za-z0-9_/]+\\.go)`\\s\\((\\w+(?:,\\s\\w+)*)\\)")

// functionsInDocs checks that what a document lists in this way is in the file.
func functionsInDocs(t *tree) (wrong []string) {
	for _, f := range docs(t) {
		for _, m := range namesOfFile.FindAllStringSubmatch(strings.Join(outsideCode(f.text), "\n"), -1) {
			in := t.files[m[1]]
			if in == nil || in.ast == nil {
				continue // pathsInDocs says so
			}
			for _, name := range regexp.MustCompile(`\w+`).FindAllString(m[2], -1) {
				if !declares(in, name) {
					wrong = append(wrong, fmt.Sprintf("%s: %s has no function or method %s", f.path, m[1], name))
				}
			}
		}
	}
	return wrong
}

func declares(f *file, name string) bool {
	return slices.ContainsFunc(f.ast.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Name.Name == name
	})
}

const namesPage = "docs/mpi-names.md"

// publicNamesMapped checks that each function, method and error class is on the page for readers who know it by its MPI
// name.
func publicNamesMapped(t *tree) (wrong []string) {
	page := t.files[namesPage]
	if page == nil {
		return []string{namesPage + " is missing"}
	}
	told := map[string]bool{}
	for _, n := range ourName.FindAllStringSubmatch(page.text, -1) {
		told[n[1]] = true
		if n[2] != "" {
			told[n[1]+"."+n[2]] = true
		}
	}
	for _, name := range sortedKeys(public(t)) {
		typ, member, isMember := strings.Cut(name, ".")
		if slices.Contains([]string{"Error", "Unwrap", "String"}, member) || isMember && slices.Contains([]string{"Error", "Stats"}, typ) {
			continue
		}
		if !told[name] {
			wrong = append(wrong, fmt.Sprintf("%s does not mention mpi.%s: say which MPI function it is, or that MPI has none", namesPage, name))
		}
	}
	return wrong
}

var mpiName = regexp.MustCompile(`\bMPI_\w*[A-Za-z]\b`)

// mpiNamesTrue checks that package mpi lacks what the page calls missing, and an error class is in the row of its MPI
// name.
func mpiNamesTrue(t *tree) (wrong []string) {
	page := t.files[namesPage]
	if page == nil {
		return nil
	}
	names, classes := public(t), errorClasses(t)
	for i, line := range strings.Split(page.text, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		here := strings.TrimSpace(cells[2])
		for _, name := range mpiName.FindAllString(cells[1], -1) {
			for _, ours := range goNames(name) {
				if (here == "no" || here == "not yet") && names[ours] {
					wrong = append(wrong, fmt.Sprintf("%s:%d: it says %q of %s, and package mpi has %s", namesPage, i+1, here, name, ours))
				}
			}
		}
		for _, m := range ourName.FindAllStringSubmatch(here, -1) {
			if class, ok := classes[m[1]]; ok && strings.HasPrefix(here, "`mpi.Err") && !strings.Contains(cells[1], class) {
				wrong = append(wrong, fmt.Sprintf("%s:%d: the MPI name of %s is %s", namesPage, i+1, m[1], class))
			}
		}
	}
	return wrong
}

// goNames are the names that a function of MPI would have here: MPI_Comm_split is CommSplit or Comm.Split.
func goNames(name string) []string {
	var words []string
	for _, w := range strings.Split(strings.TrimPrefix(name, "MPI_"), "_") {
		words = append(words, strings.ToUpper(w[:1])+strings.ToLower(w[1:]))
	}
	rest := strings.Join(words[1:], "")
	return []string{words[0] + rest, words[0] + "." + rest}
}

// errorClasses are the variables that are a &Class{text, MPI name}; "(none)" where the name is empty.
func errorClasses(t *tree) map[string]string {
	classes := map[string]string{}
	for _, f := range t.sorted(func(f *file) bool { return f.ast != nil && f.dir() == "." && !f.isTest() }) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			pointer, _ := spec.Values[0].(*ast.UnaryExpr)
			if pointer == nil {
				return true
			}
			lit, _ := pointer.X.(*ast.CompositeLit)
			if lit == nil || len(lit.Elts) != 2 {
				return true
			}
			if typ, _ := lit.Type.(*ast.Ident); typ == nil || typ.Name != "Class" {
				return true
			}
			name, _ := strconv.Unquote(lit.Elts[1].(*ast.BasicLit).Value)
			classes[spec.Names[0].Name] = cmp.Or(name, "(none)")
			return true
		})
	}
	return classes
}

// programs are the blocks of Go code in a document that begin with "package main".
func programs(text string) (found []string) {
	for _, m := range regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

const (
	readme       = "README.md"
	readmeLength = 20 // lines of code: not blank, no comment
)

// TestPrograms compiles and vets every program that a document shows.
func TestPrograms(t *testing.T) {
	tr := checkout(t)
	if tr.files[readme] == nil || len(programs(tr.files[readme].text)) == 0 {
		t.Fatal("README.md shows no program")
	}
	if n := codeLines(programs(tr.files[readme].text)[0]); n > readmeLength {
		t.Errorf("the program of README.md has %d lines; a first look is worth %d", n, readmeLength)
	}
	for _, f := range docs(tr) {
		for i, text := range programs(f.text) {
			if out, err := vetProgram(t, text); err != nil {
				t.Errorf("%s, program %d: %v\n%s", f.path, i+1, err, out)
			}
		}
	}
}

func codeLines(text string) (n int) {
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// vetProgram runs go vet, which compiles, on a program in a module of its own, as a user's would be.
func vetProgram(t *testing.T, text string) (string, error) {
	t.Helper()
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(root + "/go.sum")
	if err != nil {
		t.Fatal(err)
	}
	const ours = "github.com/gorun-mpi/mpi"
	dir := t.TempDir()
	for name, content := range map[string]string{
		"main.go": text,
		"go.sum":  string(sum),
		"go.mod": strings.Replace(string(mod), "module "+ours+"\n", "module example.org/program\n", 1) +
			"\nrequire " + ours + " v0.0.0\nreplace " + ours + " => " + abs + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "vet", "-mod=mod", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
