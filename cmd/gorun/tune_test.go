package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/tune"
	"github.com/gorun-mpi/mpi/internal/tuned"
)

// tuneJob prepares gorun tune with a configuration directory of its own, and returns that.
func tuneJob(t *testing.T, args ...string) (j *job, dir string) {
	dir = t.TempDir()
	j = prepare(t)
	j.cmd.Args = append([]string{j.cmd.Args[0], "tune"}, args...)
	j.cmd.Env = append(j.cmd.Env, "XDG_CONFIG_HOME="+dir)
	return j, dir
}

func noFiles(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("%s has %v, %v", dir, left, err)
	}
}

// briefTune is long enough for a measurement on a machine that is busy with other tests: with 1s there may be none.
const briefTune = "5s"

// gorun tune writes a file that gorun info names and ranks get, whichever algorithms have won.
func TestTune(t *testing.T) {
	t.Parallel()
	j, dir := tuneJob(t, "--time", briefTune, "-n", "2")
	j.cmd.Env = append(j.cmd.Env, "GORUN_TUNED=/nowhere") // a file that the result may replace
	j.start().wait(0).says("gorun tune: measuring 2 ranks on ")
	path := filepath.Join(dir, "gorun", "tuned.json")
	for _, want := range []string{"Measured: ", "Noise: ", "Written to " + path} {
		if !strings.Contains(j.out.String(), want) {
			t.Errorf("no %q in\n%s", want, j.out.String())
		}
	}
	f, err := tuned.Find(path, nil)
	if err != nil || f == nil || f.Host.Ranks != 2 || f.Host.Transport == "" || f.Host.CPUs < 1 || f.Host.Date == "" {
		t.Fatalf("%+v, %v", f, err)
	}
	// By hand, since no algorithm may have won.
	text := strings.Replace(f.Text(), `"collectives":[`, `"collectives":[{"operation":"barrier","over":"any","cpus":"any",`+
		`"algorithm":"tree"},`, 1)
	text = strings.Replace(text, "},]", "}]", 1)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	env := append(prepare(t).cmd.Env, "XDG_CONFIG_HOME="+dir)
	info := prepare(t)
	info.cmd.Args, info.cmd.Env = []string{info.cmd.Args[0], "info"}, env
	if info.start().wait(0); !strings.Contains(info.out.String(), path+" (lines: ") {
		t.Errorf("gorun info does not name the file:\n%s", clip(info.out.String()))
	}
	table := prepare(t)
	table.cmd.Args, table.cmd.Env = []string{table.cmd.Args[0], "info", "--collectives"}, env
	if out := table.start().wait(0).out.String(); !strings.Contains(out, "\ntuned, before the table: "+path+"\n") ||
		!strings.Contains(out, "barrier    any") {
		t.Errorf("gorun info --collectives does not have the lines first:\n%s", clip(out))
	}
	ranks := prepare(t, "-n", "2", "RANK", "env=GORUN_TUNED")
	ranks.cmd.Env = append(ranks.cmd.Env, "XDG_CONFIG_HOME="+dir)
	for line := range strings.Lines(ranks.start().wait(0).out.String()) {
		var got tuned.File
		err := json.Unmarshal([]byte(strings.TrimPrefix(line, "GORUN_TUNED=")), &got)
		if err != nil || got.Path != path || len(got.Collectives) != 1+len(f.Collectives) {
			t.Errorf("%v in %s", err, line)
		}
	}
	if n := strings.Count(ranks.out.String(), "GORUN_TUNED={"); n != 2 {
		t.Errorf("%d ranks have the text:\n%s", n, ranks.out.String())
	}
}

// --dry-run writes nothing, and --json prints one value.
func TestTuneDryRun(t *testing.T) {
	t.Parallel()
	j, dir := tuneJob(t, "--time", briefTune, "-n", "2", "--dry-run", "--json")
	j.start().wait(0)
	var r tuneResult
	d := json.NewDecoder(strings.NewReader(j.out.String()))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil || d.More() || r.Written || r.Measured == 0 || r.File == nil ||
		r.Path != filepath.Join(dir, "gorun", "tuned.json") {
		t.Errorf("%v: %+v", err, r)
	}
	noFiles(t, dir)
}

// Lines of other numbers of ranks stay in the file, which says of which machine it is.
func TestTuneAdds(t *testing.T) {
	t.Parallel()
	j, dir := tuneJob(t, "--time", briefTune, "-n", "2")
	path := filepath.Join(dir, "gorun", "tuned.json")
	old := tuned.File{Version: tuned.Version, EagerMax: 4096, Host: tuned.Host{Ranks: 64, Transport: "shm"},
		Collectives: []collectives.Line{{Operation: "reduce", LeastBytes: 1, Bytes: 2, LeastRanks: 33, Ranks: 64,
			Via: "shm", CPUs: "any", Algorithm: "chain"}}}
	if err := old.Write(path); err != nil {
		t.Fatal(err)
	}
	j.start().wait(0)
	f, err := tuned.Find(path, nil)
	if err != nil || !slices.Contains(f.Collectives, old.Collectives[0]) || f.Host.Ranks != 2 ||
		f.EagerMax != 4096 || f.Host.Online < 1 || f.Host.CPU != cpuset.ReadMachine().Model {
		t.Errorf("%+v, %v", f, err)
	}
	const want = "From before: 1 lines of the file are for other ranks, and stay."
	if !strings.Contains(j.out.String(), want) {
		t.Errorf("no %q in\n%s", want, j.out.String())
	}
}

// A file of another machine, or one that cannot be read, is replaced, and gorun tune says so before it measures.
func TestTuneReplaces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"version": 1, "measured": {"online_cpus": 5000}, "eager_max": 4096}`: ", which was measured on another " +
			"machine: 5000 CPUs, here ",
		"{\n}": ", which cannot be read: version: it is missing",
	} {
		j, dir := tuneJob(t, "--time", briefTune, "-n", "2")
		path := filepath.Join(dir, "x.json")
		j.cmd.Args = append(j.cmd.Args, "-o", path)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		j.start().wait(0).says("gorun tune: the result will replace " + path + want)
		if f, err := tuned.Find(path, nil); err != nil || f.EagerMax != 0 || f.Host.Online > 4999 {
			t.Errorf("%+v, %v", f, err)
		}
	}
}

// Ranks that outnumber CPUs are reported once, by gorun tune and not by each of its jobs.
func TestTuneCrowded(t *testing.T) {
	t.Parallel()
	j, _ := tuneJob(t, "--time", briefTune, "-n", fmt.Sprint(cpuset.Read().Usable()+1), "--dry-run")
	j.start().wait(0)
	if n := strings.Count(j.err.String(), "outnumber"); n != 1 {
		t.Errorf("said %d times:\n%s", n, j.err.String())
	}
}

// gorun info says that a file was measured on another machine.
func TestInfoTunedElsewhere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, []byte(`{"version": 1, "measured": {"cpu": "Abacus"}}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--json"}} {
		j := prepare(t)
		j.cmd.Args = append([]string{j.cmd.Args[0], "info"}, flags...)
		j.cmd.Env = append(j.cmd.Env, "GORUN_TUNED="+path)
		out := j.start().wait(0).out.String()
		if got := strings.Contains(out, `Abacus`) && (strings.Contains(out, "; measured on another machine: CPU ") ||
			strings.Contains(out, `"measured_elsewhere": "CPU \"Abacus`)); !got && cpuset.ReadMachine().Model != "" {
			t.Errorf("%q:\n%s", flags, clip(out))
		}
	}
}

// The table of what was found has a second part for gains that are smaller than the noise.
func TestPrintGains(t *testing.T) {
	won := tune.Gain{Operation: "bcast", Bytes: 1 << 14, From: "direct", To: "shared", Ratio: 0.5, Noise: 0.1}
	left := tune.Gain{Operation: "reduce", Bytes: 1 << 10, From: "knomial", To: "chain", Ratio: 0.85, Noise: 0.2}
	const none, alone = "No algorithm is better", "Left alone, since the noise is larger than the gain"
	for _, c := range []struct {
		found     tune.Result
		want, not []string
	}{
		{tune.Result{}, []string{none}, []string{alone, "operation"}},
		{tune.Result{Gains: []tune.Gain{won}}, []string{"bcast      16K    direct"}, []string{none, alone, "noise"}},
		{tune.Result{Noisy: []tune.Gain{left}}, []string{none, alone, "reduce     1K", "0.85", "  20 %"}, nil},
	} {
		var out strings.Builder
		err := printGains(&out, &c.found)
		for _, want := range c.want {
			if err != nil || !strings.Contains(out.String(), want) {
				t.Errorf("%v, no %q in\n%s", err, want, out.String())
			}
		}
		for _, not := range c.not {
			if strings.Contains(out.String(), not) {
				t.Errorf("%q in\n%s", not, out.String())
			}
		}
	}
}

// The user reads what becomes of each earlier line.
func TestPrintEarlier(t *testing.T) {
	var out strings.Builder
	printEarlier(&out, tune.Earlier{}, 4)
	printEarlier(&out, tune.Earlier{Removed: 3, Kept: 2, Other: 1}, 4)
	const want = "From before: 1 lines of the file are for other ranks, and stay.\n" +
		"From before: 2 lines for 4 ranks stay, since this run has not measured their sizes, or found noise.\n" +
		"From before: 3 lines for 4 ranks are gone, since this run has measured their sizes again.\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// Ctrl-C ends gorun tune and its ranks, and leaves no file.
func TestTuneInterrupted(t *testing.T) {
	t.Parallel()
	j, dir := tuneJob(t, "--time", "1h", "-n", "2", "-o", filepath.Join(t.TempDir(), "x.json"))
	j.start()
	proc.Eventually(t, "the ranks", func() bool { return len(j.processes()) >= 3 })
	j.cmd.Process.Signal(syscall.SIGINT)
	j.wait(130)
	noFiles(t, dir)
	noFiles(t, filepath.Dir(j.cmd.Args[len(j.cmd.Args)-1]))
}

func TestTuneUsage(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"-n 1: a rank alone has nothing to choose":   {"-n", "1"},
		"--time 10ms is too short":                   {"--time", "0.01"},
		"-o /nowhere/x: there is no folder /nowhere": {"-o", "/nowhere/x"},
		"-o / is not a regular file":                 {"-o", "/"},
		"unknown flag: --hosts":                      {"--hosts", "a,b"},
		"gorun tune takes flags only":                {"./program"},
	} {
		j, dir := tuneJob(t, args...)
		j.start().wait(2).says(want)
		noFiles(t, dir)
	}
}

// Programs of one job cannot choose by different files.
func TestTunedPrograms(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, []byte(`{"version": 1}`), 0o666); err != nil {
		t.Fatal(err)
	}
	start(t, "-n", "1", "-x", "GORUN_TUNED="+path, "RANK", ":", "-n", "1", "-x", "GORUN_TUNED=off", "RANK").wait(2).
		says("the tuned file "+path, "no tuned file", "set GORUN_TUNED for the whole job")
}

// Lines that hold for other ranks than those asked for are left out, and a range ends where the next one begins.
func TestPrintTuned(t *testing.T) {
	line := func(least, most int64) collectives.Line {
		return collectives.Line{Operation: "reduce", LeastBytes: least, Bytes: most, Via: "shm", CPUs: "crowded",
			Algorithm: "binomial"}
	}
	f := &tuned.File{Path: "/f", Collectives: []collectives.Line{line(256<<10, 1<<20-1), line(1<<20, 1<<20),
		line(1, 511)}}
	for _, c := range []struct {
		roomy bool
		want  []string
	}{
		{true, []string{"/f\nIt has no lines for roomy ranks.\n\n"}},
		{false, []string{"/f\noperation", "256K–<1M", "  1M  ", "1–511"}},
	} {
		var out strings.Builder
		err := printTuned(&out, f, c.roomy)
		for _, want := range c.want {
			if err != nil || !strings.Contains(out.String(), want) {
				t.Errorf("roomy %v: %v, no %q in\n%s", c.roomy, err, want, out.String())
			}
		}
	}
}

// A time is printed as users type it.
func TestShortTime(t *testing.T) {
	for d, want := range map[time.Duration]string{2 * time.Minute: "2m", 10 * time.Minute: "10m", time.Hour: "1h",
		90 * time.Second: "1m30s", 30 * time.Second: "30s", 100 * time.Minute: "1h40m", time.Second / 2: "500ms"} {
		if got := shortTime(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
