package mpi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each exported name of the package is in one section of the package's comment, the twenty calls of the overview apart.
// Where a call has forms with I and Init, its name stands for them.
func TestEveryNameIsInOneGroup(t *testing.T) {
	exported := exportedNames()
	var text string
	for _, file := range ok(parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)).Comments {
		text += file.Text()
	}
	overview, groups := "", map[string][]string{}
	for _, section := range regexp.MustCompile(`(?m)^# `).Split(text, -1)[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		if strings.HasPrefix(heading, "The calls that most") {
			overview = body
			continue
		}
		listed := map[string]bool{}
		for _, name := range regexp.MustCompile(`(\w+\.)?\b[A-Z]\w*`).FindAllString(body, -1) {
			if exported[name] && !listed[name] { // methods, such as Comm.Cart, are not listed
				groups[name], listed[name] = append(groups[name], heading), true
			}
		}
	}
	for name := range exported {
		in := groups[name]
		for _, base := range basesOf(name) {
			if len(in) == 0 && exported[base] {
				in = groups[base]
			}
		}
		switch {
		case len(in) == 0:
			t.Errorf("%s is in no section of doc.go", name)
		case len(in) > 1 && !mayRepeat[name]:
			t.Errorf("%s is in the sections %q of doc.go; one of them is its own", name, in)
		}
	}
	calls := map[string]bool{}
	overview, _, _ = strings.Cut(overview, "The sections")
	for _, name := range regexp.MustCompile(`(?:Comm\.)?\b[A-Z]\w+`).FindAllString(overview, -1) {
		calls[name] = true
		if name = strings.TrimPrefix(name, "Comm."); !exported[name] && name != "Rank" && name != "Size" && name != "Split" {
			t.Errorf("the overview has %s, which is no call of the package", name)
		}
	}
	if n := len(calls); n < 18 || n > 24 {
		t.Errorf("the overview has %d calls; a reader keeps about twenty in mind", n)
	}
}

// mayRepeat are names that explain something of another section.
var mayRepeat = map[string]bool{"BcastObject": true}

func exportedNames() map[string]bool {
	names := map[string]bool{}
	for _, path := range ok(filepath.Glob("*.go")) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, d := range ok(parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)).Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = d.Recv == nil && d.Name.IsExported()
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = s.Name.IsExported()
					case *ast.ValueSpec:
						for _, name := range s.Names {
							names[name.Name] = name.IsExported()
						}
					}
				}
			}
		}
	}
	for name, is := range names {
		if !is {
			delete(names, name)
		}
	}
	return names
}

// basesOf are the calls whose forms a name may be: Isend is of Send, SendInit of Send.
func basesOf(name string) (bases []string) {
	if base, is := strings.CutSuffix(name, "Init"); is {
		bases = append(bases, base)
	}
	if len(name) > 1 && name[0] == 'I' {
		bases = append(bases, strings.ToUpper(name[1:2])+name[2:])
	}
	return bases
}
