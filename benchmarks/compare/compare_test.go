package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	got, err := parse("# OSU MPI Latency Test v7.4 (gorun)\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n" +
		"1                         0.18\n\n4194304                 245.06  7\n")
	want := []line{{1, []float64{0.18}}, {4194304, []float64{245.06, 7}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	// Of a step that took less than the slowest computation, since a rank began before rank 0 read the clock.
	got, err = parse("# [ ranks: 2 ] [ halo: 4096 bytes ]\n# Compute      0% Beyond(us)\n20   -1.25   0.69\n")
	if want := []line{{20, []float64{-1.25, 0.69}}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "# only a header\n", "error: no room\n", "8 x\n", "8\n", "8.5 1\n", "8 NaN\n",
		"8 +Inf\n"} {
		if got, err := parse(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestReadInit(t *testing.T) {
	a := arguments{ranks: 16}
	out := "# OSU MPI Init Test v7.4 (peer)\nnprocs: 16, min: 1 ms, max: 2 ms, avg: 1 ms\n" +
		"# Max RSS(KiB) of a rank 14024\n"
	got, err := readInit(a, out, 250*time.Millisecond)
	if want := []line{{16, []float64{250, 14024}}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := readInit(a, "nprocs: 16\n", time.Second); err == nil {
		t.Errorf("output without the size was read as %v", got)
	}
}

func TestReadBarrier(t *testing.T) {
	got, err := readBarrier(arguments{ranks: 8}, "# OSU MPI Barrier Latency Test v7.4\n# Avg Latency(us)\n      0.23\n", 0)
	if want := []line{{8, []float64{0.23}}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "# Avg Latency(us)\n", "# Avg Latency(us)\nerror\n"} {
		if got, err := readBarrier(arguments{ranks: 8}, bad, 0); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

// Three rounds of all collective calls take five minutes, and those that are quick little of three.
func TestCollectiveCallsTakeFiveMinutes(t *testing.T) {
	for quick, most := range map[bool]float64{false: 5 * 60, true: 30} {
		sum := 0.0
		for _, m := range plan(quick, 0) {
			if m.program == "collective" || m.program == "kernel" {
				sum += 3 * m.seconds
			}
		}
		if sum == 0 || sum > most {
			t.Errorf("quick: %v: planned for %v s, and may be %v s", quick, sum, most)
		}
	}
}

// Three rounds of the quick set end within three minutes, with what the gauges take.
func TestQuickTakesThreeMinutes(t *testing.T) {
	for _, cores := range []int{0, 16} {
		sum := 0.0
		for _, m := range plan(true, cores) {
			sum += 3 * m.seconds
		}
		if sum == 0 || sum > 170 {
			t.Errorf("-cores %d: planned for %v s, and may be 170 s", cores, sum)
		}
	}
}

func TestSummarize(t *testing.T) {
	s := summarize([]float64{1, 2, 10}, []float64{1, 2})
	if s.median != 2 || s.near != 1.5 || s.spread() != 450 {
		t.Errorf("odd: %+v", s)
	}
	s = summarize([]float64{1, 2, 4, 10}, nil)
	if s.median != 3 || !math.IsNaN(s.near) || s.spread() != 300 {
		t.Errorf("even: %+v", s)
	}
	if s = summarize(nil, nil); !math.IsNaN(s.median) || !math.IsNaN(s.near) || !math.IsNaN(s.spread()) {
		t.Errorf("none: %+v", s)
	}
	if s = summarize([]float64{7}, nil); s.median != 7 || !math.IsNaN(s.spread()) {
		t.Errorf("one round has no spread: %+v", s)
	}
	if s = summarize([]float64{0, 0, 0}, nil); s.median != 0 || !math.IsNaN(s.spread()) {
		t.Errorf("zeros have no spread: %+v", s)
	}
}

// What the plan names is there to be built.
func TestPlanNamesPrograms(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, m := range slices.Concat(plan(quick, 0), plan(quick, 2), plan(quick, 16)) {
			if _, err := os.Stat("../peers/" + m.program + ".c"); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
			if _, err := os.Stat("../" + m.program + "/main.go"); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
			if len(m.runs) == 0 || len(m.columns) == 0 || m.limit == 0 || m.seconds == 0 {
				t.Errorf("%s (quick: %v) has %d runs, %d columns, limit %v, %v s",
					m.name, quick, len(m.runs), len(m.columns), m.limit, m.seconds)
			}
		}
	}
}

// Where sizes are measured, the runs together double from the least to the greatest and leave none out.
func TestSizesDouble(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, m := range slices.Concat(plan(quick, 0), plan(quick, 16)) {
			keys := invented(m).keys()
			for i := 1; m.sizes && i < len(keys); i++ {
				if keys[i] != 2*keys[i-1] {
					t.Errorf("%s (quick: %v): %d bytes are followed by %d", m.name, quick, keys[i-1], keys[i])
				}
			}
		}
	}
}

// invented is a result of a measurement as if it had been done: three rounds; ours is twice as good.
func invented(m measurement) *result {
	r := &result{Name: m.name, Rounds: 3, Library: m.libraries, Machine: machine{CPU: "Abacus", CPUs: 2}}
	if m.gauged() {
		r.Near = 0.04
	}
	n := len(m.libraries)
	for _, a := range m.runs {
		s := samples{Ranks: a.ranks, Key: a.key, Commands: []string{"a", "b", "c", "d"}[:n], Failed: make([]string, n),
			Rounds: make([][][]line, n)}
		for library := range n {
			for round := range 3 {
				var lines []line
				for _, key := range inventedKeys(a) {
					l := line{Key: key}
					for f := range 10 {
						better := 1.0
						for _, c := range m.columns {
							if c.field == f+1 && c.higher {
								better = -1
							}
						}
						worse := math.Pow(2, better*[]float64{0, 1, 1.4, -0.2}[library])
						l.Values = append(l.Values, (10+float64(round))*worse)
					}
					lines = append(lines, l)
				}
				s.Rounds[library] = append(s.Rounds[library], lines)
			}
		}
		if m.gauged() {
			s.Gauges = make([][][2]float64, n)
			for i := range s.Gauges {
				s.Gauges[i] = [][2]float64{{0.04, 0.04}, {0.05, 0.045}, {0.2, 0.21}}
			}
		}
		r.Runs = append(r.Runs, s)
	}
	return r
}

// inventedKeys are those that a run prints.
func inventedKeys(a arguments) (keys []int64) {
	words := a.words(true)
	for i, w := range words {
		if w != "-m" || a.key != 0 {
			continue
		}
		low, high, _ := strings.Cut(words[i+1], ":")
		first, _ := strconv.ParseInt(low, 10, 64)
		last, _ := strconv.ParseInt(high, 10, 64)
		for k := first; k <= last; k *= 2 {
			keys = append(keys, k)
		}
		return keys
	}
	if a.key != 0 {
		return []int64{a.key}
	}
	return []int64{int64(a.ranks)}
}

func known() (*result, measurement) {
	m := measurement{name: "latency", title: "Latency", about: "Half of a round trip.", program: "latency",
		key: "bytes", columns: oneWay()}
	r := &result{Name: "latency", Rounds: 3, Library: []string{"gorun", "Open MPI", "MPICH"},
		Machine: machine{CPU: "Abacus", CPUs: 2, Kernel: "Linux 1", Go: "go1", Versions: []string{"MPICH 4"},
			Commit: "abc", Date: "today", Load: "0.1"}}
	r.Runs = []samples{
		{Ranks: 2, Commands: []string{"gorun small", "mpirun small", "mpiexec small"}},
		{Ranks: 2, Commands: []string{"gorun large", "mpirun large", "mpiexec large"}},
	}
	for i := range r.Runs {
		r.Runs[i].Failed, r.Runs[i].Rounds = make([]string, 3), make([][][]line, 3)
	}
	for library, values := range [][]float64{{0.10, 0.14, 0.12}, {0.36, 0.30, 0.33}, {0.24, 0.20}} {
		for _, v := range values {
			lines := []line{{8, []float64{v}}, {512, []float64{3 * v}}}
			r.Runs[0].Rounds[library] = append(r.Runs[0].Rounds[library], lines)
		}
	}
	r.Near = 0.035
	r.Runs[0].Thrown = 4
	r.Runs[0].Gauges = [][][2]float64{ // the last round in the far state; MPICH failed in it
		{{0.035, 0.036}, {0.04, 0.04}, {0.28, 0.27}}, {{0.036, 0.036}, {0.04, 0.04}, {0.27, 0.28}},
		{{0.036, 0.036}, {0.04, 0.04}},
	}
	r.Runs[0].Rounds[2][0] = r.Runs[0].Rounds[2][0][:1] // MPICH has only one value for 512
	r.Runs[0].Failed[2] = "exit status 3"
	r.Runs[1].Rounds[0] = [][]line{{{16384, []float64{2}}}}
	r.Runs[1].Gauges = [][][2]float64{{{0.28, 0.3}}, nil, nil}
	r.Runs[1].Failed[1] = "did not end within 20s"
	r.Runs[1].Failed[2] = "did not end within 20s"
	return r, m
}

func TestPage(t *testing.T) {
	r, m := known()
	want := `# Latency

Half of a round trip.

![Latency](latency.svg)

## one way (µs), lower is better

| bytes | gorun | Open MPI | MPICH | ratio | near | gauge (ns) |
|-:|-:|-:|-:|-:|-:|-:|
| 8 | 0.12 · 0.12 · 33% | 0.33 · 0.33 · 18% | 0.22 · 0.22 · 18% | 0.56 | 0.56 | 36–280 |
| 512 | 0.36 · 0.36 · 33% | 0.99 · 0.99 · 18% | 0.60 · 0.60 | 0.70 | 0.70 | 36–280 |
| 16384 | 2.00 · – | failed | failed | – | – | 300 |

- MPICH: exit status 3 (` + "`mpiexec small`" + `)
- Open MPI: did not end within 20s (` + "`mpirun large`" + `)
- MPICH: did not end within 20s (` + "`mpiexec large`" + `)

Cells are median · near · spread (greatest less smallest, of the median). Ratios are ours / the best peer, the ` +
		`median of the ratios of each round. near is the same of the rounds in the machine's quiet state alone. The ` +
		`gauge is what a cache line takes from one processor to the other; in the quiet state it is 35 ns, or 1/1.5 ` +
		`to 1.5 of that. Turns thrown out, since it changed by more than that while they lasted or between the ` +
		`libraries of a round: 4. Rounds: 3, the libraries by turns.

Abacus, 2 CPUs, Linux 1, go1, MPICH 4, commit abc, today, load average at the start 0.1

Commands:

    gorun small
    mpirun small
    mpiexec small
    gorun large
    mpirun large
    mpiexec large
`
	if got := r.page(m); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A library that is not there has an empty column, and is named beneath.
func TestAbsentIsNotFailed(t *testing.T) {
	r, m := known()
	for i := range r.Runs {
		r.Runs[i].Rounds[1], r.Runs[i].Failed[1] = nil, "mpicc.openmpi"+notInstalled
	}
	page := r.page(m)
	for _, want := range []string{"| 8 | 0.12 · 0.12 · 33% | – | 0.22", "- Open MPI: mpicc.openmpi is not installed"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
}

// Where ours has no number, the table says so, and why.
func TestOursFailing(t *testing.T) {
	r, m := known()
	r.Runs[1].Rounds[0], r.Runs[1].Failed[0] = nil, "did not end within 20s"
	r.Runs[1].Rounds[2] = [][]line{{{16384, []float64{2}}}}
	got := r.page(m)
	for _, want := range []string{"| 16384 | failed | failed | 2.00 · – | – | – | 300 |\n",
		"- gorun: did not end within 20s (`gorun large`)\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant a line\n%s", got, want)
		}
	}
}

func TestIndexNamesBothEnds(t *testing.T) {
	r, _ := known()
	text := index([]*result{r}, "")
	for _, want := range []string{
		"| [Latency](latency.md) | one way, lower is better | 0.56 at 8 to 0.70 at 512 bytes; none at 1 of 3 | – | " +
			"2 of 2, 100 % | 2 of 2, 100 % |\n",
		"- Abacus, 2 CPUs",
		"![Latency](latency.svg)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the index has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "bw.md") {
		t.Errorf("the index names what was not measured:\n%s", text)
	}
	bw, _ := find(plan(false, 0), "bw")
	b := invented(bw)
	for _, lines := range b.Runs[0].Rounds[0] {
		lines[6].Values[0], lines[8].Values[0] = 3, 60 // 64 and 256 bytes
	}
	all, c := b.rows(bw.columns[0]), bw.columns[0]
	toPeer := func(w row) float64 { return w.peer }
	if got, want := b.span(bw, c, toPeer), "0.55 at 64 to 10.91 at 256 bytes"; got != want {
		t.Errorf("the ratios of bw are %q, want %q, of %+v", got, want, all)
	}
	for i, lines := range b.Runs[0].Rounds[0] {
		b.Runs[0].Rounds[0][i] = lines[14:]
	}
	if got, want := b.span(bw, c, toPeer), "2.00 at 16384 bytes; none at 14 of 23"; got != want {
		t.Errorf("ours has no number of at most 8 KiB: %q, want %q", got, want)
	}
	clear(b.Runs[0].Rounds)
	if got := b.span(bw, c, toPeer); got != "–" {
		t.Errorf("ours has no number: %q", got)
	}
}

// TestFromMakesThePagesAgain checks that what is written can be read and gives the same page.
func TestFromMakesThePagesAgain(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	m, _ := find(plan(false, 0), "latency")
	r, _ := known()
	if err := r.write(dir, m); err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), settings{from: dir, out: other}, plan(false, 0)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"latency.md", "latency.svg", "latency.json"} {
		a, err := os.ReadFile(filepath.Join(dir, name))
		b, err2 := os.ReadFile(filepath.Join(other, name))
		if err != nil || err2 != nil || len(a) == 0 || string(a) != string(b) {
			t.Errorf("%s: %v, %v, %d and %d bytes", name, err, err2, len(a), len(b))
		}
	}
	page := filepath.Join(other, "README.md")
	made, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if summaryOf(string(made)) != "" {
		t.Errorf("a new folder has a summary:\n%s", made)
	}
	const summary = "## Summary\n\nBy hand.\n"
	if err := os.WriteFile(page, []byte("old\n"+summaryBegin+summary+summaryEnd+"old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), settings{from: dir, out: other}, plan(false, 0)); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(page)
	if text := string(kept); err != nil || summaryOf(text) != summary || strings.Contains(text, "old\n") ||
		strings.Replace(text, summaryBegin+summary+summaryEnd+"\n", "", 1) != string(made) {
		t.Errorf("with a summary the page is %v\n%s", err, text)
	}
	err = run(context.Background(), settings{from: t.TempDir()}, plan(false, 0))
	if err == nil || !strings.Contains(err.Error(), "no results of latency") {
		t.Errorf("an empty folder gives %v", err)
	}
	bad := []byte(`{"libraries":["a","b"],"runs":[{"failed":[""]}]}`)
	if err := os.WriteFile(filepath.Join(dir, "latency.json"), bad, 0o644); err != nil {
		t.Fatal(err)
	}
	err = run(context.Background(), settings{from: dir}, plan(false, 0))
	if err == nil || !strings.Contains(err.Error(), "measure again") {
		t.Errorf("a bad file gives %v", err)
	}
}

func TestChoose(t *testing.T) {
	if got, err := choose(plan(true, 0), "ring,first"); err != nil || len(got) != 2 || got[0].name != "ring" {
		t.Errorf("ring,first: %d measurements, %v", len(got), err)
	}
	if _, err := choose(plan(false, 0), "latency,rings"); err == nil || !strings.Contains(err.Error(), `"rings"`) ||
		!strings.Contains(err.Error(), "latency_mt, match, ring") {
		t.Errorf("an unknown name gives %v", err)
	}
}

func TestQuickLeavesTheResultsAlone(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, c := range []struct {
		s    settings
		want string
	}{{settings{}, resultsDir}, {settings{quick: true, out: "here"}, "here"}, {settings{out: "there"}, "there"}} {
		if got, err := resultsFolder(c.s); err != nil || got != c.want {
			t.Errorf("%+v: %s, %v", c.s, got, err)
		}
	}
	if got, err := resultsFolder(settings{quick: true}); err != nil || got == resultsDir {
		t.Errorf("-quick: %s, %v", got, err)
	}
}

func TestVersionIn(t *testing.T) {
	for text, want := range map[string]string{"mpirun (Open MPI) 4.1.4\n\nReport bugs to http://x.y": "4.1.4",
		"HYDRA build details:\n  Version:       4.0.2\n": "4.0.2", "": "", "none.": ""} {
		if got := versionIn(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestBusy(t *testing.T) {
	for load, want := range map[string]bool{"0.51": true, "0.50": false, "2.00": true, "": false} {
		if got := (machine{Load: load}).busy() != ""; got != want {
			t.Errorf("load %q: warning %v", load, got)
		}
	}
}

// script makes a program that stands in for a launcher and its ranks.
func script(t *testing.T, text string) library {
	path := filepath.Join(t.TempDir(), "launcher")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return library{name: "scripted", launch: func(int, string) []string { return []string{path} }}
}

func TestAFailingPeerIsReportedAndNotTriedAgain(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	bad := script(t, "echo run >>"+runs+"; echo 'no slots' >&2; exit 3")
	good := script(t, "echo '8 0.5'")
	away := library{name: "away", absent: "mpicc.away is not installed", launch: good.launch}
	broken := library{name: "broken", broken: map[string]string{"latency": "no thread"}, launch: good.launch}
	libraries := []library{good, bad, away, broken}
	m := measurement{name: "latency", program: "latency", limit: time.Minute,
		runs: []arguments{{ranks: 2}, {ranks: 2, key: 32}}}
	r := newResult(&m, libraries, machine{}, settings{rounds: 3})
	r.measure(context.Background(), &m, libraries, &session{estimate: newEstimate(nil, 3)})
	if len(r.Runs[0].Rounds[0]) != 3 || r.Runs[0].Failed[0] != "" {
		t.Errorf("the good one: %+v", r.Runs[0])
	}
	if got := r.keys(); !reflect.DeepEqual(got, []int64{8, 32}) {
		t.Errorf("keys %v: the second run's line has the key that was given", got)
	}
	for i, want := range []string{"", "exit status 3: no slots", "mpicc.away is not installed", "no thread"} {
		if got := r.Runs[0].Failed[i]; !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("library %d: %q, want %q", i, got, want)
		}
	}
	if log, _ := os.ReadFile(runs); string(log) != "run\nrun\n" { // once for each of the arguments
		t.Errorf("the bad one ran %q", log)
	}
}

func TestAnInterruptKeepsWhatThereIs(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := script(t, "echo '8 0.5'")
	launched := 0
	stop.launch = func(launch func(int, string) []string) func(int, string) []string {
		return func(n int, p string) []string {
			if launched++; launched == 4 { // the first one is for the list of commands
				cancel()
			}
			return launch(n, p)
		}
	}(stop.launch)
	m := measurement{name: "latency", program: "latency", limit: time.Minute, runs: []arguments{{ranks: 2}}}
	r := newResult(&m, []library{stop}, machine{}, settings{rounds: 5})
	r.measure(ctx, &m, []library{stop}, &session{estimate: newEstimate(nil, 5)})
	if len(r.Runs[0].Rounds[0]) != 2 || r.Runs[0].Failed[0] != "" || r.empty() {
		t.Errorf("%+v, want two rounds and no failure", r.Runs[0])
	}
}

// TestNothingIsLeftOfAHangingPeer checks that a rank in a session of its own, which ignores SIGTERM, ends too.
func TestNothingIsLeftOfAHangingPeer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("finding processes that left their group needs /proc")
	}
	if testing.Short() {
		t.Skip("-short: a launcher that is asked to end is waited for, for 3 s")
	}
	becomeSubreaper()
	pids := filepath.Join(t.TempDir(), "pids")
	hang := script(t, `setsid sh -c 'trap "" TERM; echo $$ >>`+pids+`; while :; do sleep 0.05; done' &
trap 'exit 0' TERM; while :; do sleep 0.05; done`)
	pid := ""
	// A longer limit is tried only where the rank has not started within the one before.
	for _, limit := range []time.Duration{500 * time.Millisecond, 5 * time.Second, 30 * time.Second} {
		_, err := runOnce(context.Background(), measurement{}, arguments{}, hang, true, limit)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("did not end within %v", limit)) {
			t.Errorf("error %v", err)
		}
		text, _ := os.ReadFile(pids)
		if pid = strings.TrimSpace(string(text)); pid != "" {
			break
		}
	}
	if pid == "" {
		t.Fatal("the rank did not start")
	}
	if _, err := os.Stat("/proc/" + pid); err == nil {
		t.Errorf("the rank, process %s, is still there", pid)
	}
}

func TestMissingPeerIsNamed(t *testing.T) {
	l := library{dir: filepath.Join(t.TempDir(), "x")}
	why := l.compile(context.Background(), [2]string{"mpicc.nowhere", "mpirun.nowhere"}, nil)
	if !strings.Contains(why, "mpicc.nowhere is not installed") {
		t.Errorf("%q", why)
	}
}

func TestNoArgumentsAreDropped(t *testing.T) {
	a := arguments{args: "-m 8:8", peerArgs: "-i 5", ownArgs: "-i 500"}
	if got := a.words(false); !reflect.DeepEqual(got, []string{"-m", "8:8", "-i", "5"}) {
		t.Errorf("theirs: %q", got)
	}
	if got := a.words(true); !reflect.DeepEqual(got, []string{"-m", "8:8", "-i", "500"}) {
		t.Errorf("ours: %q", got)
	}
}
