package lint

import (
	"slices"
	"strings"
	"testing"
)

// Every rule, with a checkout that breaks it and one that keeps it.
func TestCustomsCanFail(t *testing.T) {
	broken := map[string]bool{} // rules that have been seen to fail
	const doc = "// Package a is.\n//\n// Owns: x.\n// May call: y.\n// Never: z.\npackage a\n"
	for _, c := range []struct {
		rule string
		tree *tree
		want string // part of the only complaint; "": there is none
	}{
		{"package docs", newTree("a/doc.go", doc), ""},
		{"package docs", newTree("a/a.go", "package a"), "no package comment in a/doc.go"},
		{"package docs", newTree("a/doc.go", strings.Replace(doc, "Never:", "Hardly ever:", 1)), `"Never:"`},
		{"package docs", newTree("a/doc.go", strings.Replace(doc, "Owns: x.", "Owns:", 1)), `"Owns:"`},
		{"package docs", newTree("examples/a/main.go", "// A.\npackage main"), ""},
		{"package docs", newTree("examples/a/main.go", "package main"), "examples/a/main.go"},

		{"calls in docs", newTree("a/doc.go", strings.Replace(doc, "call: y", "call: b (its errors), c/*", 1), "b/b.go", "package b",
			"a/a.go", "package a\nimport (\n_ \"github.com/gorun-mpi/mpi/b\"\n_ \"github.com/gorun-mpi/mpi/c/d\")"), ""},
		{"calls in docs", newTree("a/doc.go", doc, "a/a.go", "package a\nimport _ \"github.com/gorun-mpi/mpi\""), "does not name it"},
		{"calls in docs", newTree("a/doc.go", strings.Replace(doc, "call: y", "call: b", 1), "b/b.go", "package b"),
			"which the package does not import"},

		{"table of rooms", newTree("a/doc.go", doc, "ARCHITECTURE.md", "x"), "lacks the lines"},
		{"table of rooms", newTree("a/doc.go", doc, "ARCHITECTURE.md", "x\n"+tableBegin+"\n"+tableEnd), "is not what"},
		{"table of rooms", newTree("a/doc.go", doc, "ARCHITECTURE.md", tableBegin+
			"\n\n| package | owns | never |\n|---|---|---|\n| `a` | x | z |\n\n"+tableEnd), ""},

		{"exported docs", newTree("a/a.go", "package a\nfunc F() {}"), "a/a.go:2: F"},
		{"exported docs", newTree("a/a.go", "package a\n// F does.\nfunc F() {}\nfunc g() {}"), ""},
		{"exported docs", newTree("a/a.go", "package a\n// T is.\ntype T int\nfunc (t *T) M() {}"), "M is exported"},
		{"exported docs", newTree("a/a.go", "package a\ntype t int\nfunc (t *t) M() {}"), ""},
		{"exported docs", newTree("a/a.go", "package a\n// T is.\ntype T int\nfunc (T) String() string { return \"\" }"), ""},
		{"exported docs", newTree("a/a.go", "package a\nconst C = 1"), "C is exported"},
		{"exported docs", newTree("a/a.go", "package a\nconst C = 1 // one"), ""},
		{"exported docs", newTree("a/a.go", "package a\n// T is.\ntype T int\nconst (\n\tA T = iota\n\tB\n)"), ""},
		{"exported docs", newTree("a/a.go", "package a\ntype T struct{}"), "T is exported"},
		{"exported docs", newTree("a/a_test.go", "package a\nfunc TestF() {}"), ""},

		{"reports whether", newTree("a/a.go", "package a\n// f: it is so.\nfunc f() bool { return true }"), "a/a.go:3: the comment of f"},
		{"reports whether", newTree("a/a.go", "package a\n// f does a thing. It reports\n// whether it is done.\nfunc f() (done bool) { return true }"), ""},
		{"reports whether", newTree("a/a.go", "package a\n// Arm implements b.Device.\nfunc Arm() bool { return true }\nfunc g() bool { return true }"), ""},
		{"reports whether", newTree("a/a.go", "package a\n// f: it is so, or not.\nfunc f() (bool, error) { return true, nil }"), ""},

		{"packages of tests", newTree("scripts/deps", "packages=(gcc valgrind)",
			"a/a_test.go", "package a\nvar _ = proc.RequireProgram(t, \"cc\", \"gcc valgrind\")"), ""},
		{"packages of tests", newTree("scripts/deps", "packages=(gcc)",
			"a/a_test.go", "package a\nvar _ = proc.RequireProgram(t, p.name, \"gcc munge\")"), "does not install munge"},
		{"packages of tests", newTree("scripts/deps", "packages=(gcc)",
			"a/a_test.go", "package a\nvar _ = proc.Installed(\"mpich\")"), "does not install mpich"},

		{"unfinished words", newTree("a/a.go", "package a\n// TO"+"DO: more"), "a/a.go:2"},
		{"unfinished words", newTree("a/a.go", "package a\n// a st"+"ub for now"), "a/a.go:2"},
		{"unfinished words", newTree("scripts/x", "# FIX"+"ME\n"), "scripts/x:1"},
		{"unfinished words", newTree("a/a.go", "package a\nvar to"+"do, stubborn int // XXXI"), ""},

		{"package names", newTree("internal/util/x.go", "package util"), "util is no name"},
		{"package names", newTree("pml/helpers.go", "package pml"), "helpers is no name"},
		{"package names", newTree("types.go", "package mpi"), ""},

		{"typed atomics", newTree("a/a.go", "package a\nimport \"sync/atomic\"\nvar n int32\nfunc f() { atomic.AddInt32(&n, 1) }"), "atomic.AddInt32"},
		{"typed atomics", newTree("a/a.go", "package a\nimport at \"sync/atomic\"\nvar n int32\nfunc f() { at.LoadInt32(&n) }"), "atomic.LoadInt32"},
		{"typed atomics", newTree("a/a.go", "package a\nimport \"sync/atomic\"\nvar n atomic.Int32\nfunc f() { n.Add(1) }"), ""},

		{"who waits", newTree("pml/send.go", "package pml\nimport \"time\"\nfunc f() { time.Sleep(1) }"), "pml/send.go:3"},
		{"who waits", newTree("pml/send.go", "package pml\nfunc f(e *Engine) { e.dev.Park(true) }"), "pml/send.go:2"},
		{"who waits", newTree("pml/send.go", "package pml\nfunc f(c chan int) { <-c }"), "pml/send.go:2"},
		{"who waits", newTree("pml/send.go", "package pml\nimport \"runtime\"\nfunc f() { runtime.Gosched() }"), "pml/send.go:3"},
		{"who waits", newTree("pml/wait.go", "package pml\nfunc f(e *Engine) { e.dev.Park(true) }"), ""},
		{"who waits", newTree("pml/wait.go", "package pml"), "does not"},
		{"who waits", newTree("transport/shm/shm.go", "package shm\nfunc (d *Device) Park(hold bool) {}"), ""},
		{"the engine does not nap", newTree("pml/wait.go", "package pml\nimport \"time\"\nfunc f() { time.Sleep(1) }"), "pml/wait.go:3"},
		{"the engine does not nap", newTree("pml/peer.go", "package pml\nimport \"time\"\nvar _ = time.AfterFunc"), "pml/peer.go:3"},
		{"the engine does not nap", newTree("pml/lock.go", "package pml\nimport \"time\"\nfunc f() { time.Sleep(1) }"), ""},
		{"who waits", newTree("launcher/a.go", "package launcher\nimport \"time\"\nfunc f() { time.Sleep(1) }"), "launcher/a.go:3"},

		{"skips have reasons", newTree("a/a_test.go", "package a\nfunc f(t *testing.T) { t.Skip() }"), "a/a_test.go:2"},
		{"skips have reasons", newTree("a/a_test.go", "package a\nfunc f(t *testing.T) { t.Skip(\"\") }"), "a/a_test.go:2"},
		{"skips have reasons", newTree("a/a_test.go", "package a\nfunc f(t *testing.T) { t.SkipNow() }"), "a/a_test.go:2"},
		{"skips have reasons", newTree("a/a_test.go", "package a\nfunc f(t *testing.T) { t.Skip(\"needs Linux\") }"), ""},

		{"settings", newTree("a/a.go", "package a\nvar x = \"GORUN_EAGERMAX\""), "a/a.go:2: GORUN_EAGERMAX"},
		{"settings", newTree("README.md", "Set GORUN_SPINN=0."), "README.md:1: GORUN_SPINN"},
		{"settings", newTree("a/a.go", "package a\nvar x = \"GORUN_EAGER_MAX\" // and GORUN_TEST_X, and GORUN_*"), ""},

		{"no large binaries", newTree("a.bin", "\x00"+strings.Repeat("a", largest)), "a.bin"},
		{"no large binaries", newTree("a.bin", "\x00", "a.txt", strings.Repeat("a", largest+1)), ""},

		{"linters start from none", newTree(".golangci.yml", "linters:\n  default: all\n"), "default: none"},
		{"linters start from none", newTree(), "default: none"},
		{"linters start from none", newTree(".golangci.yml", "linters:\n  default: none # each on purpose\n"), ""},

		{"links", newTree("docs/a.md", "[b](b.md)"), "b.md leads nowhere"},
		{"links", newTree("docs/a.md", "![b](../b.png)", "b.png", "\x00"), ""},
		{"links", newTree("docs/a.md", "[b](b.md#two-words) [c](https://x.y/z) `[d](d.md)`", "docs/b.md", "## Two words"), ""},
		{"links", newTree("docs/a.md", "[b](b.md#three)", "docs/b.md", "## Two words"), "no such heading"},
		{"links", newTree("docs/a.md", "```\n[b](b.md)\n```"), ""},

		{"documents in code", newTree("a.go", "package a // docs/b.md, docs/c.md", "docs/c.md", ""), "a.go:1: there is no docs/b.md"},
		{"documents in code", newTree("a.go", "package a // docs/d/c.md", "docs/d/c.md", ""), ""},
		{"paths in docs", newTree("a.md", "see `pml/sleep.go`", "pml/wait.go", "package pml"), "no pml/sleep.go"},
		{"paths in docs", newTree("a.md", "see `pml/wait.go`, `pml`, `./pml`, `pml/*.go`, `and/or`, `transport/tcp`", "pml/wait.go", "package pml"), ""},
		{"paths in docs", newTree("a.md", "see `bytes.go`"), "no bytes.go"},

		{"names in docs", newTree("a.md", "`mpi.Sent`", "send.go", "package mpi\nfunc Send() {}"), "no Sent"},
		{"names in docs", newTree("a.md", "`mpi.Request.Start`", "r.go", "package mpi\ntype Request struct{}"), "no Request.Start"},
		{"names in docs", newTree("a.md", "`mpi.Send`, `mpi.R.Do`, `mpi.R.F`", "r.go", "package mpi\nfunc Send() {}\ntype R struct{ F int }\nfunc (r *R) Do() {}"), ""},

		{"functions in docs", newTree("a.md", "`a/a.go` (F, M)", "a/a.go", "package a\nfunc F() {}"),
			"a/a.go has no function or method M"},
		{"functions in docs", newTree("a.md", "`a/a.go` (F,\nM), `a/a.go` (T: not a list)",
			"a/a.go", "package a\nfunc F() {}\nfunc (t T) M() {}"), ""},

		{"public names are mapped", newTree("r.go", "package mpi\nfunc Send() {}"), "is missing"},
		{"public names are mapped", newTree("r.go", "package mpi\nfunc Send() {}", namesPage, "nothing"), "mpi.Send"},
		{"public names are mapped", newTree("r.go", "package mpi\nfunc Send() {}\nfunc send() {}", namesPage, "mpi.Send"), ""},

		{"MPI names are true", newTree("r.go", "package mpi\nfunc Bcast() {}", namesPage, "| `MPI_Bcast` | not yet | |"), "package mpi has Bcast"},
		{"MPI names are true", newTree("r.go", "package mpi\ntype Comm int\nfunc (c Comm) Split() {}", namesPage, "| `MPI_Comm_split` | no | |"), "package mpi has Comm.Split"},
		{"MPI names are true", newTree("r.go", "package mpi\nfunc Send() {}", namesPage, "| `MPI_Send` | `mpi.Send` | |\n| `MPI_Bcast` | not yet | |"), ""},
		{"MPI names are true", newTree("r.go", "package mpi\nvar ErrTag error = &Class{\"tag\", \"MPI_ERR_TAG\"}", namesPage, "| `MPI_ERR_RANK` | `mpi.ErrTag` | |"), "MPI_ERR_TAG"},
		{"MPI names are true", newTree("r.go", "package mpi\nvar ErrX error = &Class{\"x\", \"\"}", namesPage, "| (none) | `mpi.ErrX` | |"), ""},

		{"plain prose", newTree("a.md", "The rate is\nthat of a copy."), `a.md:2: "that of": repeat the noun`},
		{"plain prose", newTree("a.md", "| ranks | Those of a host |"), `"Those of"`},
		{"plain prose", newTree("a.md", "Of these there are none."), `"are none"`},
		{"plain prose", newTree("a.md", "Nobody waits."), `"Nobody"`},
		{"plain prose", newTree("a.md", "It is fast beside the other."), `"beside"`},
		{"plain prose", newTree("a.md", "It sends. What the device\nreports is late."), `a.md:1: a sentence begins with "What the device reports"`},
		{"plain prose", newTree("a.md", "- What is late\n  is lost."), `"What is late is"`},
		{"plain prose", newTree("a.md", "# What is here\n\nIt says what it is. What is late?\nWhat does it\nreport? | What |\n"), ""},
		{"plain prose", newTree("a.md", "`that of` besides <!-- that of -->\n<!--\nNobody\n-->\n```\nthat of\n```\n\n    that of\n"), ""},
		{"plain prose", newTree("docs/decisions/a.md", "that of", "b.md", "That is often so."), "repeat the noun"},
		{"plain package docs", newTree("a/doc.go", "// Package a has its own lines and those\n// of b.\npackage a"), `"those of": repeat the noun`},
		{"plain package docs", newTree("a/doc.go", "// Package a sends. What it sends\n// is late.\npackage a"), `"What it sends is"`},
		{"plain package docs", newTree("a/doc.go", "// Package a sends. What does it send?\npackage a\n\n// those of\nvar x int"), ""},

		{"width of docs", newTree("a.md", strings.Repeat("é ", 60)+"é"), "a.md:1: the line has 121 columns"},
		{"width of docs", newTree("a.md", strings.Repeat("é ", 60)+"\n|"+strings.Repeat("a ", 90)+"\n    "+strings.Repeat("a ", 90)), ""},

		{"short README", newTree("README.md", strings.Repeat("a\n", readmeLines+1)), "171 lines, of at most 170"},
		{"short README", newTree("README.md", strings.Repeat("a\n", readmeLines), "a.md", strings.Repeat("a\n", 999)), ""},
	} {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.name == c.rule })
		if i < 0 {
			t.Fatalf("there is no rule %q", c.rule)
		}
		got := rules[i].check(c.tree)
		broken[c.rule] = broken[c.rule] || len(got) > 0
		switch {
		case c.want == "" && len(got) != 0:
			t.Errorf("%s: %q, want no complaint\n%v", c.rule, got, texts(c.tree))
		case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
			t.Errorf("%s: %q, want one complaint with %q\n%v", c.rule, got, c.want, texts(c.tree))
		}
	}
	for _, r := range rules {
		if !broken[r.name] {
			t.Errorf("no case breaks the rule %q", r.name)
		}
	}
}

func TestProgramsCanFail(t *testing.T) {
	const good = "package main\n\nimport \"github.com/gorun-mpi/mpi\"\n\nfunc main() { println(mpi.AnyTag) }\n"
	found := programs("Text\n```go\n" + good + "```\n```go\nx := 1\n```\n")
	if len(found) != 1 || found[0] != good {
		t.Fatalf("programs found: %q", found)
	}
	if out, err := vetProgram(t, good); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := vetProgram(t, strings.Replace(good, "AnyTag", "NoTag", 1)); err == nil || !strings.Contains(out, "NoTag") {
		t.Fatalf("a program with a name that does not exist passes: %v\n%s", err, out)
	}
	if n := codeLines(good + "\n// no code\n"); n != 3 {
		t.Fatalf("%d lines, want 3", n)
	}
}

func texts(t *tree) (all []string) {
	for _, f := range t.sorted(func(*file) bool { return true }) {
		all = append(all, f.path+": "+f.text[:min(len(f.text), 200)])
	}
	return all
}
