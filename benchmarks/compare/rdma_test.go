package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// What perftest 6.06 printed in a guest, shortened in its head only.
const (
	latTable = `---------------------------------------------------------------------------------------
                    Send Latency Test
 Dual-port       : OFF		Device         : rxe0
 Max inline data : 0[B]
 local address: LID 0000 QPN 0x0011 PSN 0xdfc583
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:99:00:01
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 8       500          58.50          4128.88      100.90   	       190.48      	347.17 		2010.69 		4128.88
---------------------------------------------------------------------------------------
`
	bwTable = `---------------------------------------------------------------------------------------
                    RDMA_Read BW Test
 local address: LID 0000 QPN 0x0014 PSN 0x9a72cf OUT 0x80 RKey 0x000573 VAddr 0x007fc4f2eb6000
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 262144     200              40.00              37.50  		   0.000149
---------------------------------------------------------------------------------------
`
)

func TestReadPerftest(t *testing.T) {
	lat := line{8, []float64{190.48, 58.50, 4128.88, 500, 100.90}} // as latency -f has them
	for _, c := range []struct {
		out  string
		want []line
	}{
		{latTable, []line{lat}},
		{latTable + latTable, []line{lat, lat}},
		{bwTable, []line{{262144, []float64{39.3216}}}}, // its MB are 2^20 bytes
		{strings.ReplaceAll(bwTable, "MB/sec", "MiB/sec"), []line{{262144, []float64{39.3216}}}},
	} {
		if got, err := readPerftest(c.out); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v, %v; want %v of\n%s", got, err, c.want, c.out)
		}
	}
	cut := func(s, at string) string { return s[:strings.Index(s, at)] }
	for want, bad := range map[string]string{
		"printed no table":             cut(latTable, " #bytes"),
		"ended after \"#bytes #iter":   cut(latTable, " 8  "),
		"printed no line of numbers":   cut(latTable, " 8  ") + latTable[strings.Index(latTable, " #bytes"):],
		"not a line of a benchmark":    cut(latTable, " 8  ") + "Completion with error at client\n",
		"not a number in":              strings.Replace(latTable, "58.50", "-nan", 1),
		"can be read: \"#bytes #iter":  strings.Replace(latTable, "t_min[usec]", "t_min[cycles]", 1),
		"\"262144 200\"":               cut(bwTable, "  40.00"),
		"Gb/sec] BW average[Gb/sec] M": strings.ReplaceAll(bwTable, "MB/sec", "Gb/sec"),
		"after it \"8 500 58.50":       cut(latTable, "  4128.88"),
	} {
		if got, err := readPerftest(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("read as %v, %v; want an error with %q of\n%s", got, err, want, bad)
		}
	}
}

func TestCommandsInAGuest(t *testing.T) {
	libraries := librariesInGuest(
		library{name: gorun, dir: "/d/v"}, library{name: openMPI, dir: "/d/o"}, library{name: perftest})
	var shown []string
	for _, name := range []string{"rdma-latency", "rdma-bw", "rdma-bw-alloc"} {
		m, _ := find(plan(false, 0), name)
		for i, l := range libraries {
			if l.name != m.libraries[i] {
				t.Errorf("%s: %s is in the place of %s", name, l.name, m.libraries[i])
			}
			shown = append(shown, l.shown(m, m.runs[0], i == 0))
		}
	}
	const bench = "scripts/guest --timeout 600 -- scripts/guest-bench 7 "
	if want := []string{
		bench + "gorun latency -m 8:8 -i 500 -x 20 -f",
		bench + "openmpi latency -m 8:8 -i 500 -x 20",
		bench + "perftest ib_send_lat -s 8 -n 500",
		bench + "gorun bw -W 64 -m 262144:262144 -i 3 -x 1",
		bench + "openmpi bw -W 64 -m 262144:262144 -i 3 -x 1",
		bench + "perftest ib_read_bw -s 262144 -n 200",
		bench + "gorun bw --alloc -W 64 -m 262144:262144 -i 3 -x 1",
		bench + "openmpi bw --alloc -W 64 -m 262144:262144 -i 3 -x 1",
		bench + "perftest ib_read_bw -s 262144 -n 200",
	}; !reflect.DeepEqual(shown, want) {
		t.Errorf("shown:\n%s", strings.Join(shown, "\n"))
	}
	for i, want := range []string{"gorun /d/v/bw", "openmpi /d/o/bw", "perftest"} {
		l := libraries[i]
		if got := strings.Join(l.launch(2, filepath.Join(l.dir, "bw")), " "); got != bench+want {
			t.Errorf("%s, want %s", got, bench+want)
		}
	}
}

// withPerftest is two rounds of two short runs each, of which one of perftest hung. Open MPI prints no typical time.
func withPerftest() (*result, measurement) {
	m, _ := find(plan(false, 0), "rdma-latency")
	libraries := librariesInGuest(library{name: gorun}, library{name: openMPI}, library{name: perftest})
	r := newResult(&m, libraries, machine{}, settings{rounds: 2})
	s := &r.Runs[0]
	s.Times = 2
	of := func(mean, typical float64) line { return line{8, []float64{mean, 1, 99, 500, typical, 50, 60}} }
	s.Rounds[0] = [][]line{{of(180, 110), of(200, 130)}, {of(160, 100), of(170, 120)}}
	s.Rounds[1] = [][]line{{{8, []float64{190}}, {8, []float64{210}}}, {{8, []float64{200}}, {8, []float64{230}}}}
	s.Rounds[2] = [][]line{{{8, []float64{150, 1, 99, 500, 100}}},
		{{8, []float64{140, 1, 99, 500, 90}}, {8, []float64{900, 1, 99, 500, 104}}}}
	return r, m
}

func TestPageWithPerftest(t *testing.T) {
	r, m := withPerftest()
	page := r.page(m)
	for _, want := range []string{
		`## one way, mean (µs), lower is better

| bytes | gorun | Open MPI | perftest | ratio | to perftest |
|-:|-:|-:|-:|-:|-:|
| 8 | 177.5 · 14% | 207.5 · 7% | 335.0 · 110% | 0.86 | 0.79 |

## one way, typical (median) (µs), lower is better

| bytes | gorun | Open MPI | perftest | ratio | to perftest |
|-:|-:|-:|-:|-:|-:|
| 8 | 115.0 · 9% | – | 98.5 · 3% | – | 1.17 |

`,
		"- perftest: 1 of 4 runs failed or hung, and are left out " +
			"(`scripts/guest --timeout 600 -- scripts/guest-bench 7 perftest ib_send_lat",
		"Cells are median · spread (greatest less smallest, of the median). Ratios are ours / the best peer, the " +
			"median of the ratios of each round, and the same to perftest, which is no peer but the limit. Rounds: 2 " +
			"of 2 runs each, whose median counts, ",
		"soft-RoCE", "QEMU emulates", "not the speed of any hardware",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no\n%s\nin\n%s", want, page)
		}
	}
	if strings.Contains(page, "gorun: ") {
		t.Errorf("all runs of ours were good:\n%s", page)
	}
	text := index([]*result{r}, "")
	for _, want := range []string{
		"| [Latency over RDMA](rdma-latency.md) | one way, mean, lower is better | 0.86 at 8 bytes | 0.79 at 8 ",
		"| one way, typical (median), lower is better | – | 1.17 at 8 bytes |",
		"## [Latency over RDMA](rdma-latency.md)", "not the speed of any hardware",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the index has no %q:\n%s", want, text)
		}
	}
}

// The peers of an emulated machine are too slow for the quick set.
func TestQuickBootsNoGuest(t *testing.T) {
	for _, m := range plan(true, 0) {
		if m.guest {
			t.Errorf("%s is in the quick set", m.name)
		}
	}
}

// writeScript makes a shell script in the working folder.
func writeScript(t *testing.T, path, text string) {
	t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
	if err != nil {
		t.Fatal(err)
	}
}

// fakeGuest puts a script in the place of scripts/guest, in a folder of its own that becomes the working folder.
func fakeGuest(t *testing.T, text string) (dir string) {
	dir = t.TempDir()
	t.Chdir(dir)
	writeScript(t, guestScript, text)
	return dir
}

// TestNoGuest checks that where there can be none, the measurements are left out with the reason, and one guest is
// tried. Where one fails, that is an error.
func TestNoGuest(t *testing.T) {
	for code, unavailable := range map[int]bool{77: true, 125: false, 1: false} {
		dir := fakeGuest(t, fmt.Sprintf(
			"echo asked $* >>asked\nexec >&2\necho first\necho 'guest: only root can'\nexit %d\n", code))
		bed := newTestbed(context.Background(), dir, make([]library, 3))
		for _, m := range rdmaPlan() {
			_, err := bed.libraries(m)
			if errors.Is(err, errUnavailable) != unavailable || err == nil ||
				!strings.HasSuffix(err.Error(), ": only root can") {
				t.Errorf("%s, exit code %d: %v", m.name, code, err)
			}
		}
		if asked, _ := os.ReadFile("asked"); string(asked) != "asked -- uname -sr\n" {
			t.Errorf("exit code %d: asked %q", code, asked)
		}
	}
	t.Chdir(t.TempDir())
	if _, err := guestKernel(context.Background()); !errors.Is(err, errUnavailable) {
		t.Errorf("where the script is not there: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := guestKernel(ctx); err == nil || errors.Is(err, errUnavailable) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestRunsInAGuest checks that what short runs print is one round; complaints about some of them are passed on.
func TestRunsInAGuest(t *testing.T) {
	fakeGuest(t, `case $* in
*ib_send_lat*) echo 'guest-bench: run 2 of 7 hung' >&2; cat lat lat ;;
*) echo 8 1; echo 8 3 ;;
esac
`)
	if err := os.WriteFile("lat", []byte(latTable), 0o644); err != nil {
		t.Fatal(err)
	}
	m, _ := find(plan(false, 0), "rdma-latency")
	bed := testbed{tools: library{name: perftest, version: "6"}, kernel: "Linux 6"}
	want := []string{"MPICH 4", "perftest 6", "in the guest Linux 6"}
	if got := bed.facts(m, machine{Versions: want[:1]}).Versions; !reflect.DeepEqual(got, want) {
		t.Errorf("facts: %q, want %q", got, want)
	}
	libraries := librariesInGuest(library{name: gorun},
		library{name: openMPI, absent: "mpicc.openmpi" + notInstalled}, bed.tools)
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = writing
	r := newResult(&m, libraries, machine{}, settings{rounds: 2})
	r.measure(context.Background(), &m, libraries, &session{estimate: newEstimate(nil, 2)})
	os.Stderr = stderr
	writing.Close()
	text := make([]byte, 1<<16)
	n, _ := reading.Read(text)
	reading.Close()
	if strings.Count(string(text[:n]), "guest-bench: run 2 of 7 hung\n") != 2 {
		t.Errorf("standard error has %q", text[:n])
	}
	if got := r.series(8, latencyMean).values[0]; !reflect.DeepEqual(got, []float64{2, 2}) {
		t.Errorf("ours: %v", got)
	}
	if got := r.series(8, latencyTypical).values[2]; !reflect.DeepEqual(got, []float64{100.9, 100.9}) {
		t.Errorf("perftest: %v", got)
	}
	if got := r.cell(1, 8, summarize(nil, nil), 1); got != "–" || r.Runs[0].Failed[1] == "" {
		t.Errorf("Open MPI is not there: %q, %q", got, r.Runs[0].Failed[1])
	}
	if left, all := r.Runs[0].leftOut(2); left != 10 || all != 14 {
		t.Errorf("%d of %d short runs of perftest are left out, want 10 of 14", left, all)
	}
}

// TestGuestBench checks that runs that fail, hang or print nothing are named and left out, with all that they started,
// and the others count. It needs no guest: its programs use no RDMA.
func TestGuestBench(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it is a script for guests, which are Linux")
	}
	if testing.Short() {
		t.Skip("-short: a run that hangs is waited for, for 10 s")
	}
	for _, program := range []struct{ name, pkg string }{
		{"bash", "bash"}, {"setsid", "util-linux"}, {"pkill", "procps"}, {"timeout", "coreutils"}, {"grep", "grep"},
	} {
		proc.RequireProgram(t, program.name, program.pkg)
	}
	bench, err := filepath.Abs("../../" + benchScript)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	// The first run is good, the second fails, the third hangs, the fourth says nothing, the fifth is good.
	text := `#!/bin/bash
echo "$GORUN_TRANSPORTS $*" >>ran
n=$(wc -l <ran)
echo "# run $n"
case $n in
2) echo trouble >&2; exit 3 ;;
3) (trap '' TERM; exec sleep 1000) & echo $! >slept; wait ;;
4) ;;
*) echo "8 0.$n" ;;
esac
`
	if err := errors.Join(os.WriteFile("gorun", []byte(text), 0o755), os.WriteFile("latency", nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (stdout, stderr string, code int) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, bench, args...)
		var o, e strings.Builder
		cmd.Stdout, cmd.Stderr = &o, &e
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return o.String(), e.String(), cmd.ProcessState.ExitCode()
	}
	stdout, stderr, code := run("-t", "10", "5", "gorun", dir+"/latency", "-m", "8:8")
	if stdout != "# run 1\n8 0.1\n# run 5\n8 0.5\n" || code != 0 {
		t.Errorf("printed %q, exit code %d", stdout, code)
	}
	if want := "guest-bench: run 2 of 5 failed with status 3\ntrouble\nguest-bench: run 3 of 5 took more than 10 s\n" +
		"guest-bench: run 4 of 5 printed no number\n"; stderr != want {
		t.Errorf("standard error has %q, want %q", stderr, want)
	}
	if ran, _ := os.ReadFile("ran"); string(ran) != strings.Repeat("verbs -n 2 "+dir+"/latency -m 8:8\n", 5) {
		t.Errorf("ran %q", ran)
	}
	slept, _ := os.ReadFile("slept")
	pid, err := strconv.Atoi(strings.TrimSpace(string(slept)))
	if err != nil {
		t.Fatal(err)
	}
	// It was killed, which takes a moment.
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("what hung has left %s", stat)
		}
	}
	syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // it may have become a child of this process, a subreaper
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"1 perftest false",
			"run 1 of 1 failed with status 1\nguest-bench: none of 1 runs was good: perftest false\n", 1},
		{"1 perftest no-such-tool", "no-such-tool is missing", 77},
		{"1 gorun elsewhere/latency", "elsewhere/gorun is missing", 77},
		{"0 perftest false", "guest-bench [-t SECS] TIMES perftest", 2},
		{"-t 0 1 perftest false", "guest-bench [-t SECS] TIMES perftest", 2},
		{"1 mpich latency", "guest-bench [-t SECS] TIMES openmpi", 2},
		{"1 gorun", "guest-bench [-t SECS] TIMES gorun", 2},
	} {
		stdout, stderr, code := run(strings.Fields(c.args)...)
		if stdout != "" || !strings.Contains(stderr, c.want) || code != c.code {
			t.Errorf("%s: %q, %q, exit code %d", c.args, stdout, stderr, code)
		}
	}
}
