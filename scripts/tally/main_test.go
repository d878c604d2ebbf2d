package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	in := `{"Action":"start","Package":"m/good"}
{"Action":"output","Package":"m/good","Test":"TestA","Output":"quiet words\n"}
{"Action":"pass","Package":"m/good","Test":"TestA/one"}
{"Action":"pass","Package":"m/good","Test":"TestA"}
{"Action":"output","Package":"m/good","Test":"TestS","Output":"=== RUN   TestS\n"}
{"Action":"output","Package":"m/good","Test":"TestS","Output":"    x_test.go:3: no such device\n"}
{"Action":"skip","Package":"m/good","Test":"TestS"}
{"Action":"pass","Package":"m/good","Elapsed":1.25}
{"Action":"output","Package":"m/bad","Test":"TestB","Output":"wanted 1, got 2\n"}
{"Action":"fail","Package":"m/bad","Test":"TestB"}
{"Action":"output","Package":"m/bad","Output":"FAIL\n"}
{"Action":"fail","Package":"m/bad","Elapsed":0.1}
{"Action":"output","Package":"m/crash","Test":"TestC","Output":"panic: boom\n"}
{"Action":"fail","Package":"m/crash","Elapsed":0.1}
{"ImportPath":"m/broken [m/broken.test]","Action":"build-output","Output":"x.go:1: undefined: y\n"}
{"ImportPath":"m/broken [m/broken.test]","Action":"build-fail"}
{"Action":"fail","Package":"m/broken","Elapsed":0}
{"Action":"skip","Package":"m/none","Elapsed":0}
go: a line of the go command
`
	var out strings.Builder
	c, err := tally(strings.NewReader(in), &out)
	if want := (counts{passed: 2, failed: 3, skipped: 1}); err != nil || c != want {
		t.Errorf("%+v, %v; want %+v", c, err, want)
	}
	for _, want := range []string{
		"ok    m/good 1.2s\n", "skip  m/good TestS: x_test.go:3: no such device\n",
		"FAIL  m/bad TestB\nwanted 1, got 2\n", "panic: boom\n", "x.go:1: undefined: y\n", "go: a line of the go command\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "quiet words") {
		t.Error("the output of a test that passed was printed")
	}
}

func TestAppendCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counts")
	for _, c := range []counts{{1, 2, 3}, {4, 0, 0}} {
		if err := appendCounts(path, c); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "1 2 3\n4 0 0\n" {
		t.Errorf("%q, %v", got, err)
	}
}
