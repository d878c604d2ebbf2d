package lint

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write ARCHITECTURE.md's table of packages anew, from their doc.go")

const module = "github.com/gorun-mpi/mpi"

// room is what the comment of a package says.
type room struct {
	dir              string
	owns, may, never string
}

// rooms returns the packages of the product and of its tests, without programs, in order of their folders.
func rooms(t *tree) (list []room) {
	for _, f := range t.sorted(func(f *file) bool { return filepath.Base(f.path) == "doc.go" && f.ast != nil }) {
		if f.ast.Doc == nil || f.isMain() || strings.Contains(f.path, "testdata/") {
			continue
		}
		r := room{dir: f.dir()}
		for _, part := range []struct {
			name string
			into *string
		}{{"Owns:", &r.owns}, {"May call:", &r.may}, {"Never:", &r.never}} {
			*part.into = docPart(f.ast.Doc.Text(), part.name)
		}
		list = append(list, r)
	}
	return list
}

// docPart returns what stands behind a name such as Owns: in a package's comment, on one line.
func docPart(doc, name string) string {
	_, rest, _ := strings.Cut(doc, name)
	var words []string
	for i, line := range strings.Split(rest, "\n") {
		line = strings.TrimSpace(line)
		begins := func(n string) bool { return strings.HasPrefix(line, n) }
		if i > 0 && (line == "" || slices.ContainsFunc(docLines, begins)) {
			break
		}
		words = append(words, line)
	}
	return strings.TrimRight(strings.Join(words, " "), ".")
}

var ownPackage = regexp.MustCompile(`[a-z0-9]+(?:/[a-z0-9*]+)*`)

// callsInDocs: what a package's comment says that it may call is what it imports of this module.
func callsInDocs(t *tree) (wrong []string) {
	isRoom := map[string]bool{}
	for _, f := range t.sorted(func(f *file) bool { return f.ast != nil && !f.isTest() }) {
		isRoom[f.dir()] = true
	}
	for _, r := range rooms(t) {
		// What tests import, and the packages below, may be named.
		imports, mayBe := map[string]bool{}, map[string]bool{}
		for _, f := range t.sorted(func(f *file) bool {
			return f.ast != nil && (f.dir() == r.dir || strings.HasPrefix(f.dir(), r.dir+"/"))
		}) {
			for _, spec := range f.ast.Imports {
				p := strings.Trim(spec.Path.Value, `"`)
				if p != module && !strings.HasPrefix(p, module+"/") {
					continue
				}
				if p = strings.TrimPrefix(p, module+"/"); p == module {
					p = "mpi"
				}
				mayBe[p] = true
				if !f.isTest() && f.dir() == r.dir {
					imports[p] = true
				}
			}
		}
		said := map[string]bool{}
		for _, word := range ownPackage.FindAllString(r.may, -1) {
			if base, star := strings.CutSuffix(word, "/*"); star {
				for dir := range imports {
					if strings.HasPrefix(dir, base+"/") {
						said[dir] = true
					}
				}
			} else if isRoom[word] || word == "mpi" {
				said[word] = true
			}
		}
		for _, p := range sortedKeys(imports) {
			if !said[p] {
				wrong = append(wrong, fmt.Sprintf("%s/doc.go: the package imports %s, and its May call does not name "+
					"it", r.dir, p))
			}
		}
		for _, p := range sortedKeys(said) {
			if !mayBe[p] && p != r.dir {
				wrong = append(wrong, fmt.Sprintf("%s/doc.go: May call names %s, which the package does not import",
					r.dir, p))
			}
		}
	}
	return wrong
}

const (
	tableBegin = "<!-- generated: go test ./internal/lint -run TestTableOfRooms -rewrite -->"
	tableEnd   = "<!-- end of generated -->"
)

// architecture is ARCHITECTURE.md with the table that follows from the comments of the packages.
func architecture(t *tree) (text string, ok bool) {
	f := t.files["ARCHITECTURE.md"]
	if f == nil {
		return "", false
	}
	before, rest, ok1 := strings.Cut(f.text, tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	var b strings.Builder
	b.WriteString("\n\n| package | owns | never |\n|---|---|---|\n")
	for _, r := range rooms(t) {
		name := r.dir
		if name == "." {
			name = "mpi"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, r.owns, r.never)
	}
	b.WriteString("\n")
	return before + tableBegin + b.String() + tableEnd + after, ok1 && ok2
}

// tableOfRooms: ARCHITECTURE.md has a row for each package, with the words of its comment.
func tableOfRooms(t *tree) []string {
	text, ok := architecture(t)
	switch {
	case t.files["ARCHITECTURE.md"] == nil:
		return nil
	case !ok:
		return []string{fmt.Sprintf("ARCHITECTURE.md lacks the lines %q and %q", tableBegin, tableEnd)}
	case text == t.files["ARCHITECTURE.md"].text:
		return nil
	}
	return []string{"ARCHITECTURE.md's table is not what the packages' comments say: go test ./internal/lint -run " +
		"TestTableOfRooms -rewrite"}
}

// TestTableOfRooms writes the table if it is asked to.
func TestTableOfRooms(t *testing.T) {
	text, ok := architecture(checkout(t))
	if !ok {
		t.Fatal("ARCHITECTURE.md has no table to be generated")
	}
	if *rewrite {
		if err := os.WriteFile(filepath.Join(root, "ARCHITECTURE.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDocPart(t *testing.T) {
	const doc = "Package a is.\n\nOwns: x, and\n      more.\nMay call: y\nNever: z\n\nMore text.\n"
	for name, want := range map[string]string{"Owns:": "x, and more", "May call:": "y", "Never:": "z", "Else:": ""} {
		if got := docPart(doc, name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
}
