package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// With -cores N each rank has a core, and there are the pairs, the fan-in and the collective calls that N cores allow.
func TestCoresPlan(t *testing.T) {
	for cores, want := range map[int][]string{
		2: {"bibw 2", "multi_lat 2 -p 1", "mbw_mr 2 -p 1", "fan_in 2", "halo 2"},
		9: {"barrier 4 barrier", "barrier 8 barrier", "coll4 4", "coll8 8", "bibw 2", "multi_lat 8 -p 4",
			"mbw_mr 8 -p 4", "fan_in 9", "halo 9"},
		16: {"barrier 4 barrier", "barrier 8 barrier", "barrier 16 barrier", "coll4 4", "coll8 8", "coll16 16",
			"bibw 2", "multi_lat 16 -p 8", "mbw_mr 16 -p 8", "fan_in 16", "halo 16"},
	} {
		for _, quick := range []bool{false, true} {
			var got []string
			for _, m := range plan(quick, cores) {
				for _, a := range m.runs {
					got = append(got, fmt.Sprintf("%s %d %s", m.name, a.ranks, a.args))
					if strings.Contains(m.about, "more ranks than cores") || strings.Contains(a.args, " -i ") {
						t.Errorf("-cores %d: %s is measured as ranks that share cores are: %s", cores, m.name, m.about)
					}
				}
			}
			if !slices.EqualFunc(got, want, func(a, b string) bool { return strings.HasPrefix(a+" ", b+" ") }) {
				t.Errorf("-cores %d, quick %v:\n%q, want\n%q", cores, quick, got, want)
			}
		}
	}
	m, _ := find(plan(false, 16), "coll16")
	if want := "-m 8:1048576"; !strings.Contains(m.runs[0].args, want) {
		t.Errorf("coll16: %s, want %s", m.runs[0].args, want)
	}
}

// A machine without the cores is refused, with what it has, and -from needs none.
func TestCheckCores(t *testing.T) {
	for want, err := range map[string]error{
		"": checkCores(16, 32, 16),
		"-cores 16: this process may use 8 cores (16 CPUs), and each of 16 ranks needs a core": checkCores(16, 16, 8),
		"-cores 1: at least 2":  checkCores(1, 16, 16),
		"-cores -3: at least 2": checkCores(-3, 16, 16),
	} {
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	more := usableCores() + 1
	if _, err := (&settings{cores: more}).check(nil); err == nil {
		t.Errorf("-cores %d is not refused", more)
	}
	if all, err := (&settings{cores: more + 20, from: "x"}).check(nil); err != nil || len(all) == 0 {
		t.Errorf("-from with -cores %d: %v", more+20, err)
	}
	if _, err := (&settings{cores: 1, from: "x"}).check(nil); err == nil {
		t.Errorf("-from with -cores 1 is not refused")
	}
}

// The share counts a rate by its reciprocal, and no row without a peer.
func TestShare(t *testing.T) {
	for higher, want := range map[bool]share{false: {6, 2, 4}, true: {6, 2, 4}} {
		r := &result{Name: "x", Library: []string{gorun, mpich}}
		s := samples{Commands: make([]string, 2), Failed: make([]string, 2), Rounds: make([][][]line, 2)}
		for _, v := range []float64{0.5, 0.8, 0.81, 1, 1.01, 3} {
			ours := v
			if higher {
				ours = 1 / v
			}
			key := int64(100 * v)
			s.Rounds[0] = append(s.Rounds[0], []line{{key, []float64{ours}}})
			s.Rounds[1] = append(s.Rounds[1], []line{{key, []float64{1}}})
		}
		s.Rounds[0][0] = append(s.Rounds[0][0], line{1, []float64{7}})
		r.Runs = []samples{s}
		got := r.share(column{field: 1, higher: higher})
		if got != want || got.text(got.ahead) != "2 of 6, 33 %" {
			t.Errorf("higher is better: %v: %+v, want %+v", higher, got, want)
		}
	}
	if got := (share{}).text(0); got != "–" {
		t.Errorf("no cells: %s", got)
	}
}

// The results of -cores N have a folder of their own, and are refused as other results of the same name.
func TestCoresFolder(t *testing.T) {
	for cores, want := range map[int]string{0: resultsDir, 16: filepath.Join(resultsDir, "cores-16")} {
		if got, err := resultsFolder(settings{cores: cores}); err != nil || got != want {
			t.Errorf("-cores %d: %s, %v", cores, got, err)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"multi_lat", "mbw_mr"} {
		m, _ := find(plan(false, 16), name)
		r := invented(m)
		r.Cores = 16
		if err := r.write(dir, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(context.Background(), settings{from: dir, cores: 16}, plan(false, 16)); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	for _, want := range []string{"# Compared with Open MPI and MPICH, a core for each rank\n",
		"scripts/compare -cores 16",
		"[Latency, 8 pairs at once](multi_lat.md) | one way, lower is better | 0.50 at 1 bytes | – | 21 of 21, 100 %",
		"| all |  |  |  | 42 of 42, 100 % | 42 of 42, 100 % |\n"} {
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("%v, no %q in\n%s", err, want, page)
		}
	}
	for _, s := range []settings{{from: dir}, {out: dir}} {
		err := run(context.Background(), s, plan(false, 0))
		if err == nil || !strings.Contains(err.Error(), "measured with -cores 16, and asked for is -cores 0") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
