package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const before = `package p

//go:noinline
func f(x int) (y int) { // a comment
	if x > 0 {
		return 1
	}
loop:
	for i := range x {
		switch {
		case i > 3:
			y++
			fallthrough
		default:
			break loop
		}
	}
	select {
	default:
		func() { y-- }()
	}
	return
}
`

const after = `package p; import pauses "m/internal/pauses"

//go:noinline
func f(x int) (y int) { // a comment
	pauses.Here(7); if x > 0 {
		pauses.Here(8); return 1
	}
pauses.Here(9); loop:
	for i := range x {
		pauses.Here(10); switch {
		case i > 3:
			pauses.Here(11); y++
			pauses.Here(12); fallthrough
		default:
			pauses.Here(13); break loop
		}
	}
	pauses.Here(14); select {
	default:
		pauses.Here(15); func() { pauses.Here(16); y-- }()
	}
	pauses.Here(17); return
}
`

func TestEveryStatementKeepsItsLine(t *testing.T) {
	got, n, err := withPauses("f.go", []byte(before), "m/internal/pauses", 7)
	if err != nil || n != 11 || string(got) != after {
		t.Errorf("%d, %v\n%s", n, err, got)
	}
	for _, src := range []string{"package p\n", "package p\n\n//go:nosplit\nfunc f() { f() }\n"} {
		if got, n, err := withPauses("f.go", []byte(src), "m/internal/pauses", 0); err != nil || n != 0 ||
			string(got) != src {
			t.Errorf("%q became %q: %d, %v", src, got, n, err)
		}
	}
}

// A test that a pause at the wrong moment makes fail does fail, also where time stands still, and nothing is written
// into its module.
func TestFindsARace(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n\ngo 1.26\n")
	write("m.go", "package m\n")
	write("m_test.go", `package m

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRace(t *testing.T) {
	for range 300 {
		said := make(chan bool, 1)
		go func() {
			n := 0
`+strings.Repeat("			n++\n", 12)+`			said <- n > 0
		}()
		time.Sleep(500 * time.Microsecond)
		if len(said) == 0 {
			t.Fatal("nothing is said yet")
		}
	}
}

func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for range 300 {
			if time.Since(start) != 0 {
				t.Fatal("time went by")
			}
		}
	})
}
`)
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	var out strings.Builder
	err := run(t.Context(), 1, "", []string{"test", "-count=1", "."}, &out, &out)
	if err == nil || !strings.Contains(out.String(), "m_test.go:30: nothing is said yet") ||
		strings.Contains(out.String(), "time went by") {
		t.Errorf("%v\n%s", err, &out)
	}
	if files, err := os.ReadDir("."); err != nil || len(files) != 3 {
		t.Errorf("%v in the module, %v", files, err)
	}
}
