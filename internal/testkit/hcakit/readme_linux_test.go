package hcakit_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The README of the software HCA is its only manual: each knob and each counter is in it.
func TestReadme(t *testing.T) {
	const dir = "../../../softdevices/softhca/"
	readme := text(t, dir+"README.md")
	knobs := regexp.MustCompile(`strcmp\(n, "([A-Z_]+)"\)`).FindAllStringSubmatch(text(t, dir+"knobs.c"), -1)
	counters := regexp.MustCompile(`X\(([a-z_]+)\)`).FindAllStringSubmatch(text(t, dir+"base.h"), -1)
	if len(knobs) < 10 || len(counters) < 30 {
		t.Fatalf("%d knobs and %d counters found", len(knobs), len(counters))
	}
	for _, k := range knobs {
		if !strings.Contains(readme, "`SOFTHCA_"+k[1]+"`") {
			t.Errorf("README.md has no knob SOFTHCA_%s", k[1])
		}
	}
	for _, c := range counters {
		if !strings.Contains(readme, "`"+c[1]+"`") && c[1] != "n" {
			t.Errorf("README.md has no counter %s", c[1])
		}
	}
}

func text(t *testing.T, path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
