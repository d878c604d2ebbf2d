package settings

import (
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what is generated, instead of comparing it")

// TestGenerated checks that what is made from the list of settings is up to date. go generate runs it with -rewrite.
func TestGenerated(t *testing.T) {
	meanings := comments(t)
	for i, m := range meanings { // which may be newer than the generated ones
		Table[i].Meaning = m.text
	}
	up := func(file, text string) {
		t.Helper()
		old, err := os.ReadFile(file)
		switch {
		case err != nil:
			t.Error(err)
		case string(old) == text:
		case !*rewrite:
			t.Errorf("%s is not what the list of settings says: go generate ./internal/settings", file)
		default:
			if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
				t.Error(err)
			}
		}
	}
	up("meanings.go", meaningsFile(t, meanings))
	up("../../docs/settings.md", between(t, "../../docs/settings.md", allSettings()))
	up("../../docs/mpi-names.md", between(t, "../../docs/mpi-names.md", likeSettings()))
}

// comment is a field's comment as one line.
type comment struct{ field, text string }

func comments(t *testing.T) (all []comment) {
	file, err := parser.ParseFile(token.NewFileSet(), "values.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			all = append(all, comment{f.Names[0].Name, strings.Join(strings.Fields(f.Doc.Text()), " ")})
		}
		return true
	})
	return all
}

func meaningsFile(t *testing.T, meanings []comment) string {
	var b strings.Builder
	b.WriteString("// Code generated from the comments of Values by go generate; DO NOT EDIT.\n\n" +
		"package settings\n\nvar meanings = map[string]string{\n")
	for _, m := range meanings {
		fmt.Fprintf(&b, "%q: %q,\n", m.field, m.text)
	}
	b.WriteString("}\n")
	text, err := format.Source([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// between is the file with other text between the two marks.
func between(t *testing.T, file, text string) string {
	const begin, end = "<!-- generated: go generate ./internal/settings -->\n", "\n<!-- end of generated -->\n"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the settings: %q and %q", file, begin, end)
	}
	return before + begin + "\n" + text + end + after
}

// allSettings returns the table of docs/settings.md.
func allSettings() string {
	rows := "| variable | for | default | meaning |\n|---|---|---|---|\n"
	for _, s := range Table {
		if !s.Internal() {
			rows += fmt.Sprintf("| `%s` | %s | %s | %s |\n", s.Name, s.Of, s.Default, s.Meaning)
		}
	}
	return rows
}

// likeSettings returns the table of docs/mpi-names.md.
func likeSettings() string {
	rows := "| Open MPI, UCX | here | meaning |\n|---|---|---|\n"
	for _, s := range Table {
		if s.Like != "" {
			rows += fmt.Sprintf("| `%s` | `%s` | %s |\n", strings.ReplaceAll(s.Like, ", ", "`, `"), s.Name, short(s))
		}
	}
	return rows
}

// short is the first sentence of the meaning, without its full stop.
func short(s Setting) string {
	first, _, _ := strings.Cut(s.Meaning+" ", ". ")
	return first
}
