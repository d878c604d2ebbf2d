package hcakit_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/softlib"
)

// sources is the folder of the software HCA.
const sources = "../../../softdevices/softhca/"

// The README of the software HCA is its only manual: each knob and each counter is in it.
func TestReadme(t *testing.T) {
	readme := softlib.Text(t, sources+"README.md")
	knobs := regexp.MustCompile(`strcmp\(n, "([A-Z_]+)"\)`).FindAllStringSubmatch(softlib.Text(t, sources+"knobs.c"), -1)
	counters := regexp.MustCompile(`X\(([a-z_]+)\)`).FindAllStringSubmatch(softlib.Text(t, sources+"base.h"), -1)
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
