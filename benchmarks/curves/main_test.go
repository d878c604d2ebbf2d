package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const simulated = `{"operation":"bcast","algorithm":"binomial","model":"cluster","ranks":64,"per_host":8,` +
	`"bytes":8,"seconds":1e-5}
{"operation":"bcast","algorithm":"chain","model":"cluster","ranks":64,"per_host":8,"bytes":8,"seconds":1e-3}
{"operation":"bcast","algorithm":"binomial","model":"cluster","ranks":64,"per_host":8,"bytes":1024,"seconds":2e-5}
{"operation":"scan","algorithm":"doubling","model":"cluster","ranks":64,"per_host":8,"bytes":8,"seconds":2e-5}
`

func TestDraw(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.svg")
	if err := draw(strings.NewReader(simulated), path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bcast, 64 ranks", "scan, 64 ranks", "binomial", "chain", "8 ranks per host"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
	for _, bad := range []string{"", "ranks bytes\n", "[]"} {
		if draw(strings.NewReader(bad), path) == nil {
			t.Errorf("%q is drawn", bad)
		}
	}
}
