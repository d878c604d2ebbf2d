package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the folder of go.mod, seen from here.
const root = "../.."

// tree is what a rule looks at. Paths are relative to the root and have slashes.
type tree struct {
	files   map[string]*file
	tracked map[string]bool // by git; nil: git could not be asked, take all of files
}

// file is one text file.
type file struct {
	path string
	size int64
	text string // "" if it is binary
	bin  bool

	fset *token.FileSet
	ast  *ast.File // of a Go file that parses; the compiler complains about others
}

func (f *file) isGo() bool   { return strings.HasSuffix(f.path, ".go") }
func (f *file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }
func (f *file) dir() string  { return path.Dir(f.path) }
func (f *file) isMain() bool { return f.ast != nil && f.ast.Name.Name == "main" }

// isKit reports whether the file is only there for tests.
func (f *file) isKit() bool {
	return f.isTest() || slices.Contains([]string{"transporttest", "authtest", "acceltest"}, path.Base(f.dir())) ||
		strings.HasPrefix(f.dir(), "internal/testkit") || strings.HasPrefix(f.dir(), "internal/e2e")
}

func (f *file) line(pos token.Pos) string {
	p := f.fset.Position(pos)
	return f.path + ":" + itoa(p.Line)
}

// newFile parses what text is.
func newFile(name, text string) *file {
	f := &file{path: name, size: int64(len(text)), text: text, bin: strings.ContainsRune(text[:min(len(text), 8000)], 0)}
	if f.bin {
		f.text = ""
	} else if f.isGo() {
		f.fset = token.NewFileSet()
		f.ast, _ = parser.ParseFile(f.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	}
	return f
}

// newTree is a tree from a list of names and texts, for the tests of the rules.
func newTree(nameAndText ...string) *tree {
	t := &tree{files: map[string]*file{}}
	for i := 0; i+1 < len(nameAndText); i += 2 {
		t.files[nameAndText[i]] = newFile(nameAndText[i], nameAndText[i+1])
	}
	return t
}

// sorted returns the files in order of their paths, for which keep holds.
func (t *tree) sorted(keep func(*file) bool) (fs []*file) {
	for _, f := range t.files {
		if keep(f) {
			fs = append(fs, f)
		}
	}
	slices.SortFunc(fs, func(a, b *file) int { return strings.Compare(a.path, b.path) })
	return fs
}

// goFiles are those of the program itself: no tests, no kits of tests.
func (t *tree) goFiles() []*file {
	return t.sorted(func(f *file) bool { return f.ast != nil && !f.isKit() })
}

func (t *tree) exists(name string) bool {
	if t.files[name] != nil {
		return true
	}
	for p := range t.files { // a folder
		if strings.HasPrefix(p, name+"/") {
			return true
		}
	}
	return false
}

// checkout reads the files of this checkout: what git tracks or would add; without git, what lies in the folder.
func checkout(t *testing.T) *tree {
	t.Helper()
	if _, err := os.Stat(root + "/go.mod"); err != nil {
		t.Fatal("the checkout is not where it should be: ", err)
	}
	all, err := gitFiles("--cached", "--others", "--exclude-standard")
	tr := &tree{files: map[string]*file{}}
	if err == nil {
		tracked, err := gitFiles("--cached")
		if err != nil {
			t.Fatal("git ls-files: ", err)
		}
		tr.tracked = map[string]bool{}
		for _, name := range tracked {
			tr.tracked[name] = true
		}
	} else if all, err = walk(); err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // deleted, and git has not been told
		}
		tr.files[name] = newFile(name, string(b))
	}
	if len(tr.goFiles()) < 50 {
		t.Fatalf("only %d Go files were found", len(tr.goFiles()))
	}
	return tr
}

func gitFiles(args ...string) ([]string, error) {
	cmd := exec.Command("git", append([]string{"ls-files", "-z"}, args...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

func walk() (names []string, err error) {
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		if d.IsDir() && name != "." && (d.Name() == ".git" || name == "bin") {
			return filepath.SkipDir
		}
		if !d.IsDir() {
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	return names, err
}
