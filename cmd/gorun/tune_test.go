package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
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

// gorun tune writes a file that gorun info names and ranks get, whichever algorithms have won.
func TestTune(t *testing.T) {
	t.Parallel()
	j, dir := tuneJob(t, "--time", "1s", "-n", "2")
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
	j, dir := tuneJob(t, "--time", "1s", "-n", "2", "--dry-run", "--json")
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
	f := &tuned.File{Path: "/f", Collectives: []collectives.Line{line(256<<10, 1<<20-1), line(1<<20, 1<<20), line(1, 511)}}
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
