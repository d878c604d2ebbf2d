package main

import (
	"slices"
	"testing"
)

// Two files of pml that name each other make a circle, in which one arrow runs back up; a package and a third file do
// not. A method that two files define is no arrow.
func TestBackward(t *testing.T) {
	h := newHouse()
	for name, text := range map[string]string{
		"pml/a.go":    "package pml\nfunc a() { b(); x.both() }\nfunc (T) both() {}",
		"pml/b.go":    "package pml\nfunc b() { a() }\nfunc b2() { a() }\nfunc (U) both() {}",
		"pml/c.go":    "package pml\nimport \"github.com/gorun-mpi/mpi/eager\"\nfunc c() { a(); eager.E() }",
		"eager/e.go":  "package eager\nfunc E() {}",
		"launcher.go": "package mpi\nimport \"github.com/gorun-mpi/mpi/pml\"\nvar _ = pml.T{}",
		"pml/t.go":    "package pml\ntype T struct{}",
	} {
		if err := h.add(name, text); err != nil {
			t.Fatal(err)
		}
	}
	order, back := h.backward()
	if len(order) != 6 || len(back) != 1 || slices.Index(order, "pml/c.go") > slices.Index(order, "eager/") {
		t.Fatalf("%v, %v", order, back)
	}
	if a := back[0]; a != [2]string{"pml/a.go", "pml/b.go"} && a != [2]string{"pml/b.go", "pml/a.go"} {
		t.Errorf("%v runs back up", a)
	}
	for _, want := range [][2]string{{"launcher.go", "pml/t.go"}, {"pml/c.go", "eager/"}, {"pml/c.go", "pml/a.go"}} {
		if h.arrows[want] == nil {
			t.Errorf("no arrow %v in %v", want, h.arrows)
		}
	}
}
