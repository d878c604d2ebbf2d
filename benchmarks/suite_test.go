package benchmarks

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"strings"
	"testing"
)

// suite is every program whose sizes are measured one by one, with the ranks it is tried with, small numbers for it,
// and what its lines look like.
var suite = []struct {
	name    string
	ranks   int
	args    string
	header  string // of the lines above the sizes
	columns int
	takes   string // -c and -f
}{
	{"latency", 2, "-m 1024:16384 -i 3 -x 1", "# OSU MPI Latency Test", 1, "cf"},
	{"latency_persistent", 2, "-m 1024:16384 -i 3 -x 1", "# OSU MPI Latency Persistent Test", 1, "cf"},
	{"latency_mt", 2, "-m 1024:16384 -i 3 -x 1 -t 3", "# Number of Sender threads: 3 \n" +
		"# Number of Receiver threads: 3\n# OSU MPI Multi-threaded Latency Test", 1, "cf"},
	{"multi_lat", 4, "-m 1024:16384 -i 3 -x 1", "# OSU MPI Multi Latency Test", 1, "cf"},
	{"bw", 2, "-m 1024:16384 -i 3 -x 1 -W 4", "# OSU MPI Bandwidth Test", 1, "cf"},
	{"bw_persistent", 2, "-m 1024:16384 -i 3 -x 1 -W 4 -b multiple", "# OSU MPI Bandwidth Persistent Test", 1, "cf"},
	{"bibw", 2, "-m 1024:16384 -i 3 -x 1 -W 4 -b multiple", "# OSU MPI Bi-Directional Bandwidth Test", 1, "cf"},
	{"mbw_mr", 5, "-m 1024:16384 -i 3 -x 1 -W 4 -p 2", "# OSU MPI Multiple Bandwidth / Message Rate Test v7.4 " +
		"(gorun)\n# [ pairs: 2 ] [ window size: 4 ]\n", 2, "cf"},
	{"fan_in", 4, "-m 1024:16384 -i 3 -x 1 -W 4 -b multiple", "# [ senders: 3 ] [ window size: 4 ]\n", 2, "cf"},
	{"fan_out", 4, "-m 1024:16384 -i 3 -x 1 -W 4 -b multiple", "# [ receivers: 3 ] [ window size: 4 ]\n", 2, "cf"},
	{"allpairs", 5, "-m 1024:16384 -i 20 -x 5 -W 2", "# [ ranks: 5 ] [ window size: 2 ]\n", 2, "c"},
	{"allpairs", 3, "-m 1024:16384 -i 20 -x 5 -W 2 --waitsome", "# [ ranks: 3 ] [ window size: 2 ]\n", 2, "c"},
	{"mbw_mr", 2, "-m 1024:16384 -i 3 -x 1 -W 4 --run-ahead", "# [ pairs: 1 ] [ window size: 4 ]\n", 2, "cf"},
	{"consumer", 2, "-m 1024:16384 -i 3 -x 1", "# [ computation: 7µs a message ]\n", 2, ""},
	{"late", 2, "-i 3 --warm-time 0.01", "# [ round trips: 10 ]\n", 4, ""},
	{"halo", 3, "-m 20:2000 -i 10 --warm-time 0.01", "# [ ranks: 3 ] [ halo: 4096 bytes ]\n", 6, ""},
	{"overlap", 2, "-m 1024:16384 -i 1 -x 0", "Isend Overlap(%)", 8, ""},
	{"collective", 3, "alltoall -m 1024:16384 -i 3 -x 1", "# OSU MPI All-to-All Personalized Exchange Latency Test",
		1, "c"},
	{"collective", 2, "ialltoall -m 1024:16384 -i 3 -x 1", "# OSU MPI Non-blocking All-to-All", 4, ""},
	{"collective", 2, "allreduce,barrier -m 1024:16384 -i 3 -x 1",
		"# Size         allreduce(us)           barrier(us)\n", 2, ""},
	{"onesided", 2, "put_bw -m 1024:16384 -i 3 -x 1 -W 4", "# OSU MPI_Put Bandwidth Test v7.4 (gorun)\n" +
		"# Window creation: MPI_Win_allocate\n# Synchronization: MPI_Win_flush\n# Datatype: MPI_CHAR.\n" +
		"# Size        Bandwidth (MB/s)", 1, "cf"},
	{"onesided", 2, "get_acc_latency -m 1024:16384 -i 3 -x 1 -w create -s lock", "# OSU MPI_Get_accumulate latency " +
		"Test v7.4 (gorun)\n# Window creation: MPI_Win_create\n# Synchronization: MPI_Win_lock/unlock\n" +
		"# Datatype: MPI_INT64_T.\n# Size            Latency (us)", 1, "cf"},
	{"ring", 3, "-m 1024:16384 -i 3 -x 1", "# [ ranks: 3 ] [ tokens: 1 ]\n", 4, ""},
	{"match", 2, "-m 1:10 -i 2 -x 1", "# Queue ", 8, ""},
}

// result is one line of --json.
type result struct {
	Program, Key, Unit, CPU, Kernel, Go, Transport, Time string
	Size, Ranks                                          int
	CPUs                                                 int
	Commit                                               *string
	Values                                               map[string]any
}

func TestSuite(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ranks that are processes need shared memory, which is on Linux so far")
	}
	bin := programs(t)
	run := func(t *testing.T, ranks int, command string) (stdout string) {
		t.Helper()
		stdout, stderr, err := start(t, nil, gorun(bin, ranks, command)...)
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", command, err, stdout, stderr)
		}
		for line := range strings.Lines(stderr) {
			if !strings.HasPrefix(line, "gorun: ") { // it warns when ranks outnumber CPUs
				t.Errorf("%s: a rank wrote to standard error: %q", command, line)
			}
		}
		return stdout
	}
	for _, p := range suite {
		if leftOut(p.name) {
			continue
		}
		t.Run(fmt.Sprintf("%s %d", p.name, p.ranks), func(t *testing.T) {
			command := p.name + " " + p.args
			table, object := command, command+" --json"
			validates, full := strings.Contains(p.takes, "c"), strings.Contains(p.takes, "f")
			if validates {
				table += " -c"
			}
			if full {
				object += " -f"
			}
			picture := filepath.Join(t.TempDir(), "a.svg")
			checkTable(t, run(t, p.ranks, table+" --plot "+picture), p.header, p.columns, validates)
			checkSVG(t, picture)
			picture = filepath.Join(t.TempDir(), "a.png")
			name := p.name
			if operation := strings.Fields(p.args)[0]; !strings.HasPrefix(operation, "-") && !strings.Contains(operation, ",") {
				name = operation
			}
			checkObjects(t, run(t, p.ranks, object+" --plot "+picture), name, p.ranks, full)
			checkPNG(t, picture)
		})
	}
	if testing.Short() { // these need more programs, and seconds
		return
	}
	t.Run("idle", func(t *testing.T) { checkIdle(t, run(t, 3, "idle -i 1"), run(t, 3, "idle -i 1 --json")) })
	t.Run("init", func(t *testing.T) { checkObjects(t, run(t, 3, "init --json"), "init", 3, false) })
	for _, ranks := range []int{2, 3} {
		t.Run(fmt.Sprintf("first %d", ranks), func(t *testing.T) {
			want := fmt.Sprintf(`\n# Ranks +First\(us\) +Second\(us\)\n%d( +\d+\.\d\d){2}\n$`, ranks)
			if out := run(t, ranks, "first"); !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("printed\n%s", out)
			}
			checkObjects(t, run(t, ranks, "first --json"), "first", ranks, false)
		})
	}
	t.Run("alloc", func(t *testing.T) {
		for _, p := range []string{"latency", "bibw", "mbw_mr"} {
			checkTable(t, run(t, 2, p+" -m 65536:262144 -i 2 -x 1 -c --alloc"), "#", -1, true)
		}
	})
	t.Run("refused", func(t *testing.T) { checkRefused(t, bin) })
}

// checkTable checks that there are comments, the header, and a line for each size; columns below 0: one or two.
func checkTable(t *testing.T, out, header string, columns int, validation bool) {
	t.Helper()
	if !strings.Contains(out, header) {
		t.Errorf("%q is not in\n%s", header, out)
	}
	count := fmt.Sprintf("{%d}", columns)
	if columns < 0 {
		count = "{1,2}"
	}
	verdict := map[bool]string{true: " +Pass", false: "( +[0-9]+)?"}[validation] // ring counts laps
	if strings.Contains(header, "[ tokens") {
		count = "{2} +[0-9]+"
	}
	line := regexp.MustCompile(`^[0-9]+( +-?[0-9]+\.[0-9]+)` + count + verdict + "$")
	sizes := 0
	for text := range strings.Lines(out) {
		text = strings.TrimSuffix(text, "\n")
		if strings.HasPrefix(text, "#") {
			continue
		}
		sizes++
		if !line.MatchString(text) {
			t.Errorf("line %q, want %s", text, line)
		}
	}
	if sizes < 2 {
		t.Errorf("%d lines in\n%s", sizes, out)
	}
}

// checkObjects checks that every line is an object that says what was measured, and on what.
func checkObjects(t *testing.T, out, program string, ranks int, full bool) {
	t.Helper()
	lines := 0
	for text := range strings.Lines(out) {
		lines++
		var r result
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if r.Program != program || r.Ranks != ranks || r.Size < 1 || r.Unit == "" || r.Key == "" ||
			len(r.Values) == 0 || r.CPU == "" || r.CPUs < 1 || r.Kernel == "" || r.Go != runtime.Version() ||
			r.Transport == "" || r.Commit == nil || r.Time == "" {
			t.Errorf("%+v from %s", r, text)
		}
		percentiles := 0
		for head, v := range r.Values {
			if n, isNumber := v.(float64); !isNumber || n < 0 {
				t.Errorf("%s is %v", head, v)
			}
			if strings.HasPrefix(head, "P99 ") {
				percentiles++
			}
		}
		if full != (percentiles == 1) {
			t.Errorf("-f %v, but %s", full, text)
		}
	}
	if lines == 0 {
		t.Error("nothing was printed")
	}
}

func checkSVG(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	elements := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := token.(xml.StartElement); ok {
			elements++
		}
	}
	if elements < 20 {
		t.Errorf("a picture of %d elements", elements)
	}
}

func checkPNG(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if picture, err := png.Decode(f); err != nil || picture.Bounds().Dx() < 800 {
		t.Errorf("%v, %v", picture, err)
	}
}

func checkIdle(t *testing.T, table, object string) {
	t.Helper()
	if !regexp.MustCompile(`\n# Ranks +CPU\(s/s\) +Max RSS\(KiB\)\n3 +\d\.\d{4} +\d+\n$`).MatchString(table) {
		t.Errorf("printed\n%s", table)
	}
	checkObjects(t, object, "idle", 3, false)
}

// checkRefused checks that what cannot be is said once, before anything is measured.
func checkRefused(t *testing.T, bin string) {
	dir := t.TempDir()
	for _, c := range []struct {
		ranks         int
		command, want string
	}{
		{2, "latency --plot " + dir + "/no/a.svg", "no such file or directory"},
		{2, "latency --plot " + dir + "/a.gif", "does not end in .svg or .png"},
		{2, "idle --plot " + dir + "/a.svg", "unknown flag: --plot"},
		{3, "mbw_mr", "needs an even number of ranks, this job has 3"},
		{3, "multi_lat -p 2", "so many pairs need 4 ranks, this job has 3"},
		{1, "fan_in", "needs at least 2 ranks, this job has 1"},
		{4, "fan_out -b multiple -m 4194304", "192 buffers of 4194304 bytes"},
		{3, "latency_mt", "needs exactly 2 ranks"},
		{2, "latency_mt -t 0", "0 is below the least that makes sense"},
		{2, "overlap -W 3", "unknown shorthand flag: 'W'"},
		{2, "halo -m 0:20", "a rank computes for at least 1 us"},
		{1, "first", "needs at least 2 ranks, this job has 1"},
		{2, "late --time -1", "-1 s is not between 0 and 3600 s"},
		{3, "onesided put_latency", "put_latency needs exactly 2 ranks, this job has 3"},
		{1, "onesided fop_rate", "needs at least 2 ranks, this job has 1"},
		{2, "latency --waitsome", "unknown flag: --waitsome"},
	} {
		stdout, stderr, err := start(t, nil, gorun(bin, c.ranks, c.command)...)
		// The lines that ranks have written.
		lines := strings.Count(stderr, "\n") - strings.Count("\n"+stderr, "\ngorun: ")
		if err == nil || stdout != "" || strings.Count(stderr, c.want) != 1 || lines != 1 {
			t.Errorf("%s: %v, printed %q and %q, want %q once", c.command, err, stdout, stderr, c.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v left behind, %v", left, err)
	}
}
