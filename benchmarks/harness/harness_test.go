package harness

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files; read them before committing")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%swant\n%s", path, got, want)
	}
}

func latency() Program {
	return Program{
		Name: "latency", Title: "OSU MPI Latency Test", About: "Measures.", Ranks: 2, Takes: "mixMcfa",
		Defaults: LatencyDefaults(), Buffers: func(Options) int64 { return 2 },
		Draw: func(string, Drawing) error { return nil },
	}
}

func TestReportGolden(t *testing.T) {
	each := func(ns ...int64) []int64 { return ns }
	tests := []struct {
		name string
		unit Unit
		opts Options
		rows []Result
	}{
		{"latency.txt", Microseconds, Options{}, []Result{
			{Size: 1, PerRound: 2, Iteration: 360}, {Size: 4194304, PerRound: 2, Iteration: 490_123},
			{Size: 1 << 30, PerRound: 2, Iteration: 123_456_789_012},
		}},
		{"latency_full.txt", Microseconds, Options{Full: true}, []Result{
			{Size: 8, PerRound: 2, Iteration: 400, Each: each(100, 200, 400, 400, 500, 600, 700, 800, 900, 2000)},
		}},
		{"latency_tails.txt", Microseconds, Options{Tails: Tails{P50: true, P99: true}}, []Result{
			{Size: 8, PerRound: 2, Iteration: 400, Each: each(100, 200, 400, 400, 500, 600, 700, 800, 900, 2000)},
		}},
		{"mbw_mr_norate.txt", Rates, Options{NoRate: true}, []Result{
			{Size: 1, PerRound: 256, Messages: 256, Iteration: 30_615},
		}},
		{"latency_validation.txt", Microseconds, Options{Validate: true},
			[]Result{{Size: 8, PerRound: 2, Iteration: 400}}},
		{"latency_full_validation.txt", Microseconds, Options{Full: true, Validate: true}, []Result{
			{Size: 8, PerRound: 2, Iteration: 400, Each: each(400)},
		}},
		{"bw.txt", Megabytes, Options{}, []Result{{Size: 65536, PerRound: 65536 * 64, Iteration: 300_000}}},
		{"bw_full.txt", Megabytes, Options{Full: true}, []Result{
			{Size: 1024, PerRound: 65536, Iteration: 20_000, Each: each(10_000, 20_000, 30_000)},
		}},
		{"mbw_mr.txt", Rates, Options{}, []Result{
			{Size: 1, PerRound: 256, Messages: 256, Iteration: 30_615},
			{Size: 4096, PerRound: 4096 * 256, Messages: 256, Iteration: 90_000},
		}},
		{"mbw_mr_full_validation.txt", Rates, Options{Full: true, Validate: true}, []Result{
			{Size: 1, PerRound: 256, Messages: 256, Iteration: 30_615, Each: each(20_000, 30_000, 40_000)},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			p := latency()
			if test.unit == Megabytes {
				p.Title = "OSU MPI Bandwidth Test"
			}
			r := p.Report(Output{W: &out, Options: test.opts}, test.unit)
			if test.unit == Rates {
				p.Title = "OSU MPI Multiple Bandwidth / Message Rate Test"
				r.program = p
				r.Under("[ pairs: %d ] [ window size: %d ]", 4, 64)
			}
			if err := r.Header(); err != nil {
				t.Fatal(err)
			}
			for _, row := range test.rows {
				if err := r.Row(row.Size, r.values(row)...); err != nil {
					t.Fatal(err)
				}
			}
			golden(t, test.name, out.Bytes())
		})
	}
}

// The header lines of OSU 7.4, from logs of it.
func TestHeaderIsOSUs(t *testing.T) {
	tests := []struct {
		unit  Unit
		title string
		want  string
	}{
		{Microseconds, "OSU MPI Latency Test",
			"# OSU MPI Latency Test v7.4 (gorun)\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n"},
		{Megabytes, "OSU MPI Bandwidth Test",
			"# OSU MPI Bandwidth Test v7.4 (gorun)\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)\n"},
	}
	for _, test := range tests {
		var out bytes.Buffer
		p := Program{Title: test.title}
		if err := p.Report(Output{W: &out}, test.unit).Header(); err != nil {
			t.Fatal(err)
		}
		if out.String() != test.want {
			t.Errorf("got\n%swant\n%s", out.String(), test.want)
		}
	}
}

func TestWrongContentsArePrintedAndFail(t *testing.T) {
	var out bytes.Buffer
	r := latency().Report(Output{W: &out, Options: Options{MinSize: 8, MaxSize: 64, Validate: true}}, Microseconds)
	err := r.Measure(func(size int64) (Result, error) {
		return Result{Size: size, PerRound: 2, Iteration: 400, Errors: 3}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "3 messages of 8 bytes") {
		t.Errorf("error %v", err)
	}
	if !strings.HasSuffix(out.String(), "                Fail\n") || strings.Contains(out.String(), "\n16 ") {
		t.Errorf("printed %q", out.String())
	}
}

func TestRowOfWrongLength(t *testing.T) {
	table := latency().Table(Output{W: &bytes.Buffer{}}, "", "Size", Column{Head: "A"})
	if err := table.Row(1, 1.0, 2.0); err == nil {
		t.Error("two values were accepted for one column")
	}
}

// The other ranks measure and print nothing.
func TestSilentRank(t *testing.T) {
	var sizes []int64
	o := Options{MinSize: 1, MaxSize: 4, JSON: true, Plot: "/nowhere/x.svg"}
	r := latency().Report(Output{Options: o}, Microseconds)
	err := r.Measure(func(size int64) (Result, error) {
		sizes = append(sizes, size)
		return Result{}, nil
	})
	if err != nil || !slices.Equal(sizes, []int64{1, 2, 4}) {
		t.Errorf("%v, measured %v", err, sizes)
	}
}

func TestParse(t *testing.T) {
	p := latency()
	p.Takes, p.Places = "mixXTWptbMrscfazYRVwSd", true
	def := p.Defaults
	with := func(change func(*Options)) Options { o := def; change(&o); return o }
	tests := []struct {
		args string
		want Options
	}{
		{"", def},
		{"-m 64", with(func(o *Options) { o.MaxSize = 64 })},
		{"-m64", with(func(o *Options) { o.MaxSize = 64 })},
		{"-m 8:64", with(func(o *Options) { o.MinSize, o.MaxSize = 8, 64 })},
		{"-m 8:", with(func(o *Options) { o.MinSize = 8 })},
		{"-m :8", with(func(o *Options) { o.MaxSize = 8 })},
		{"-m 0:0", with(func(o *Options) { o.MinSize, o.MaxSize = 0, 0 })},
		{"--message-size=8:64", with(func(o *Options) { o.MinSize, o.MaxSize = 8, 64 })},
		{"-i 7 -x 0", with(func(o *Options) { o.Small, o.Large, o.WarmTime = Rounds{7, 0}, Rounds{7, 0}, 0 })},
		{"-x 3", with(func(o *Options) { o.Small.Warmup, o.Large.Warmup, o.WarmTime = 3, 3, 0 })},
		{"--warm-time 0.7 -x 3", with(func(o *Options) { o.Small.Warmup, o.Large.Warmup = 3, 3 })},
		{"--warm-time 0", with(func(o *Options) { o.WarmTime = 0 })},
		{"-i 7 --time 0.25", with(func(o *Options) {
			o.Small.Iterations, o.Large.Iterations, o.Time = 7, 7, 250*time.Millisecond
		})},
		{"--run-ahead --waitsome", with(func(o *Options) { o.RunAhead, o.WaitSome = true, true })},
		{"-W 1 -b multiple", with(func(o *Options) { o.Window, o.Multiple = 1, true })},
		{"-b multiple -b single", def},
		{"-c -f --alloc", with(func(o *Options) { o.Validate, o.Full, o.Alloc = true, true, true })},
		{"-t 8", with(func(o *Options) { o.Senders, o.Receivers = 8, 8 })},
		{"-t 3:5", with(func(o *Options) { o.Senders, o.Receivers = 3, 5 })},
		{"-p 4", with(func(o *Options) { o.Pairs = 4 })},
		{"-m 4K:1MiB", with(func(o *Options) { o.MinSize, o.MaxSize = 4096, 1<<20 })},
		{"-M 1GiB", with(func(o *Options) { o.MemoryMax = 1 << 30 })},
		{"-z", with(func(o *Options) { o.Tails = Tails{true, true, true} })},
		{"-zP99,p50", with(func(o *Options) { o.Tails = Tails{P50: true, P99: true} })},
		{"--tail-lat=P90", with(func(o *Options) { o.Tails = Tails{P90: true} })},
		{"-V -R 0", with(func(o *Options) { o.VaryWindow, o.NoRate, o.Window = true, true, 128 })},
		{"-V -T mpi_int", with(func(o *Options) { o.VaryWindow, o.Window, o.Type = true, 128, Int })},
		{"-R 1", def},
		{"-w create -s lock_all", with(func(o *Options) { o.WinKind, o.Sync = "create", "lock_all" })},
		{"-w create -w shared -s flush,lock", with(func(o *Options) { o.WinKind, o.Sync = "shared", "flush,lock" })},
		{"-T mpi_char", def},
		{"-T MPI_INT", with(func(o *Options) { o.Type = Int })},
		{"--json", with(func(o *Options) { o.JSON = true })},
		{"--plot a/b.svg", with(func(o *Options) { o.Plot = "a/b.svg" })},
		{"--plot=B.PNG", with(func(o *Options) { o.Plot = "B.PNG" })},
		{"-d cuda", with(func(o *Options) { o.Accelerator = Accelerator{Kind: "cuda"} })},
		{"-d cuda D H", with(func(o *Options) { o.Accelerator = Accelerator{"cuda", "DH"} })},
		{"H D -i 7 -d cuda -x 0", with(func(o *Options) {
			o.Small, o.Large, o.WarmTime, o.Accelerator = Rounds{7, 0}, Rounds{7, 0}, 0, Accelerator{"cuda", "HD"}
		})},
		{"-cf", with(func(o *Options) { o.Validate, o.Full = true, true })},
		{"-M 1073741824 -m 536870912", with(func(o *Options) { o.MemoryMax, o.MaxSize = 1<<30, 1<<29 })},
	}
	for _, test := range tests {
		got, err := p.Parse(strings.Fields(test.args))
		if err != nil || got != test.want {
			t.Errorf("%q: %+v, %v; want %+v", test.args, got, err, test.want)
		}
	}
}

// A number of iterations that is given takes the place of a time that is the program's own.
func TestIterationsInsteadOfADefaultTime(t *testing.T) {
	p := latency()
	p.Takes, p.Defaults.Time = "miT", time.Second
	for args, want := range map[string]time.Duration{"": time.Second, "-i 3": 0, "-i 3 --time 2": 2 * time.Second} {
		if o, err := p.Parse(strings.Fields(args)); err != nil || o.Time != want {
			t.Errorf("%q: %v, %v; want %v", args, o.Time, err, want)
		}
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	p := latency()
	p.Takes, p.Places = "mixXTWptbMzYRVwSd", true
	tests := []struct{ args, want string }{
		{"-m x", `"x" is not a size; use for example 4096, 64KiB or 1M`},
		{"-z P95", `"P95" is not an option`},
		{"-zP95", `"P95" is none of P50, P90 and P99`},
		{"-T mpi_double", `wanted all, mpi_char, mpi_int or mpi_float, got "mpi_double"`},
		{"-R 2", `wanted 0 or 1, got "2"`},
		{"-w heap", `wanted one of allocate, create, shared, dynamic, got "heap"`},
		{"-s lock,none", `wanted one of lock, lock_exclusive, flush, flush_local, lock_all, lock_all_flush, pscw, ` +
			`fence, got "none"`},
		{"-V -W 3", "-W cannot be used"},
		{"-m 64:8", "the minimum 64 is above the maximum 8"},
		{"-m :", `wanted [MIN:]MAX, got ":"`},
		{"-m -1", `"-1" is not a size`},
		{"-m 99999999999999999999", "is not a size"},
		{"-m 1024T", "2 buffers of 1125899906842624 bytes for each rank are more than the limit of " +
			"536870912 bytes; raise it with -M"},
		{"-i 0", "0 is below the least that makes sense, 1"},
		{"-i 3000000000", "above the greatest"},
		{"-x -1", "-1 is below"},
		{"-W 0", "0 is below"},
		{"--time x", `"x" is not a number of seconds`},
		{"--time NaN", `"NaN" is not a number of seconds`},
		{"--time -1", "-1 s is not between 0 and 3600 s"},
		{"--warm-time 1e30", "1e+30 s is not between 0 and 3600 s"},
		{"-b both", `wanted single or multiple, got "both"`},
		{"-t 0", "0 is below the least that makes sense, 1"},
		{"-t 2:", `"" is not a whole number`},
		{"-t 2:x", `"x" is not a whole number`},
		{"-t 2:3:4", `"3:4" is not a whole number`},
		{"-p 0", "0 is below the least that makes sense, 1"},
		{"--plot x.jpg", `"x.jpg" does not end in .svg or .png`},
		{"--plot x", `"x" does not end in .svg or .png`},
		{"-q", "unknown shorthand flag: 'q'"},
		{"--bogus", "unknown flag: --bogus"},
		{"-f", "unknown shorthand flag: 'f'"}, // an option of OSU that this program does not take
		{"-m", "flag needs an argument"},
		{"D D", `"D" is not an option; the places of buffers come with -d cuda`},
		{"-d openacc", `wanted cuda, got "openacc"`},
		{"-d managed", "managed memory cannot be sent"},
		{"-d cuda D", `"D": wanted D D, D H or H D`},
		{"-d cuda D M", `"D M": wanted D D, D H or H D`},
		{"-d cuda D D D", `"D D D": wanted D D, D H or H D`},
		{"-d cuda H H", "H H: no buffer is of a device; leave out -d cuda"},
		{"-d cuda -T all", "of bytes; leave out -T or -d"},
		{"4", `"4" is not an option`},
	}
	for _, test := range tests {
		_, err := p.Parse(strings.Fields(test.args))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: error %v, want %q in it", test.args, err, test.want)
			continue
		}
		if !strings.HasPrefix(err.Error(), "latency: ") ||
			!strings.HasSuffix(err.Error(), "(latency -h lists the options)") {
			t.Errorf("%q: error %v does not name the program and the way to help", test.args, err)
		}
	}
}

func TestStartSpeaksOnce(t *testing.T) {
	tests := []struct {
		args    string
		size    int
		wantOut string
		wantErr string
	}{
		{"-h", 2, "Usage: gorun -n 2 ./benchmarks/latency", ""},
		{"--help", 1, "--message-size [MIN:]MAX", ""}, // -h comes before the count of ranks
		{"-v", 2, "# OSU MPI Latency Test v7.4 (gorun)\n", ""},
		{"--bogus", 2, "", "unknown flag"},
		{"", 3, "", "needs exactly 2 ranks, this job has 3; start it with gorun -n 2"},
		{"", 1, "", "needs exactly 2 ranks, this job has 1"},
	}
	for _, test := range tests {
		for rank := range 2 {
			var out bytes.Buffer
			_, run, err := latency().Start(strings.Fields(test.args), rank, test.size, &out)
			if run {
				t.Errorf("%q on rank %d: ran", test.args, rank)
			}
			if rank != 0 && (err != nil || out.Len() > 0) {
				t.Errorf("%q: rank %d spoke: %v %s", test.args, rank, err, &out)
			}
			if rank == 0 && (err != nil) != (test.wantErr != "") {
				t.Errorf("%q: error %v, want %q", test.args, err, test.wantErr)
			}
			if rank == 0 && (!strings.Contains(out.String(), test.wantOut) ||
				err != nil && !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("%q: printed %q, error %v", test.args, &out, err)
			}
		}
	}
	if _, run, err := latency().Start(nil, 1, 2, nil); !run || err != nil {
		t.Errorf("no options: run %v, error %v", run, err)
	}
}

func TestHelpGolden(t *testing.T) {
	p := latency()
	p.Takes = "mixXTWptbMrscfazYRVwS"
	golden(t, "help.txt", []byte(p.help()))
}

func TestSizes(t *testing.T) {
	tests := []struct {
		low, high, base int64
		want            []int64
	}{
		{1, 8, 2, []int64{1, 2, 4, 8}},
		{0, 4, 2, []int64{0, 1, 2, 4}},
		{0, 0, 2, []int64{0}},
		{3, 13, 2, []int64{3, 6, 12}},
		{1, 1_000_000, 10, []int64{1, 10, 100, 1000, 10_000, 100_000, 1_000_000}},
		{1 << 62, 1<<63 - 1, 2, []int64{1 << 62}}, // no overflow
	}
	for _, test := range tests {
		o := Options{MinSize: test.low, MaxSize: test.high}
		if got := o.Sizes(test.base); !slices.Equal(got, test.want) {
			t.Errorf("%d:%d by %d: %v, want %v", test.low, test.high, test.base, got, test.want)
		}
	}
}

func TestRoundsFollowOSU(t *testing.T) {
	for _, test := range []struct {
		opts Options
		size int64
		want Rounds
	}{
		{LatencyDefaults(), 8192, Rounds{10000, 100}},
		{LatencyDefaults(), 8193, Rounds{1000, 10}},
		{BandwidthDefaults(), 8192, Rounds{100, 10}},
		{BandwidthDefaults(), 16384, Rounds{20, 2}},
	} {
		if got := test.opts.Rounds(test.size); got != test.want {
			t.Errorf("size %d: %v, want %v", test.size, got, test.want)
		}
	}
}

func TestSummarize(t *testing.T) {
	var hundred []int64
	for i := range int64(100) {
		hundred = append(hundred, 100-i)
	}
	tests := []struct {
		samples []int64
		want    Summary
	}{
		{nil, Summary{}},
		{[]int64{5}, Summary{Count: 1, Min: 5, Max: 5, Mean: 5, P50: 5, P90: 5, P99: 5, Sum: 5}},
		{[]int64{3, 1, 2}, Summary{Count: 3, Min: 1, Max: 3, Mean: 2, P50: 2, P90: 3, P99: 3, Sum: 6}},
		{hundred, Summary{Count: 100, Min: 1, Max: 100, Mean: 50, P50: 50, P90: 90, P99: 99, Sum: 5050}},
	}
	for _, test := range tests {
		if got := Summarize(test.samples); got != test.want {
			t.Errorf("%+v, want %+v", got, test.want)
		}
	}
}

func TestCheckSeesEveryKindOfWrongMessage(t *testing.T) {
	for _, n := range []int{8, 9, 4096, 70000} {
		buf := make([]byte, n)
		Fill(buf, 3, 0)
		if !Check(buf, 3, 0) {
			t.Fatalf("%d bytes: the right message is refused", n)
		}
		if Check(buf, 4, 0) || Check(buf, 2, 0) || Check(buf, 3, 1) {
			t.Errorf("%d bytes: a message of another round or sender passes", n)
		}
		for _, i := range []int{0, n / 2, n - 1} {
			buf[i] ^= 1
			if Check(buf, 3, 0) {
				t.Errorf("%d bytes: a flipped bit at %d passes", n, i)
			}
			buf[i] ^= 1
		}
		copy(buf, buf[1:])
		if Check(buf, 3, 0) {
			t.Errorf("%d bytes: a shifted message passes", n)
		}
	}
}

func TestTheLoopAllocatesNothing(t *testing.T) {
	buf := make([]byte, 1024)
	if n := testing.AllocsPerRun(100, func() { Fill(buf, 1, 2); Check(buf, 1, 2); Touch(buf) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPeakKiB(t *testing.T) {
	before := PeakKiB()
	if runtime.GOOS != "linux" {
		if before != 0 {
			t.Errorf("%d KiB on a system that is not asked", before)
		}
		return
	}
	const more = 64 << 20
	Touch(make([]byte, more))
	if after := PeakKiB(); before <= 0 || after < more>>10 {
		t.Errorf("%d KiB before and %d KiB after %d MiB were touched", before, after, more>>20)
	}
}

func TestPrintInit(t *testing.T) {
	var out bytes.Buffer
	p := Program{Name: "init", Title: "OSU MPI Init Test"}
	inits, barriers := []int64{1_500_000, 2_500_000, 5_000_000}, []int64{10_000, 20_000, 60_000}
	err := PrintInit(Output{W: &out, Ranks: 3}, p, inits, barriers, 9000)
	want := "# OSU MPI Init Test v7.4 (gorun)\nnprocs: 3, min: 1 ms, max: 5 ms, avg: 3 ms\n" +
		"# Init(us)    min 1500, max 5000, avg 3000\n# Barrier(us) min 10, max 60, avg 30\n" +
		"# Max RSS(KiB) of a rank 9000\n"
	if err != nil || out.String() != want {
		t.Errorf("%v, got\n%swant\n%s", err, &out, want)
	}
	out.Reset()
	err = PrintInit(Output{W: &out, Ranks: 3, Options: Options{JSON: true}}, p, inits, barriers, 9000)
	if o := onlyObject(t, out.Bytes()); err != nil || o["size"] != 3.0 || o["unit"] != "us" ||
		o["values"].(map[string]any)["Init(us)"] != 3000.0 || o["values"].(map[string]any)["Max RSS(KiB)"] != 9000.0 {
		t.Errorf("%v, %s", err, &out)
	}
}

func TestPairs(t *testing.T) {
	for _, c := range []struct {
		pairs, ranks, want int
		wrong              string
	}{
		{0, 2, 1, ""}, {0, 8, 4, ""}, {1, 2, 1, ""}, {1, 5, 1, ""}, {2, 5, 2, ""},
		{0, 1, 0, "this job has 1"}, {0, 5, 0, "an even number of ranks"}, {3, 5, 0, "so many pairs need 6 ranks"},
	} {
		got, err := Options{Pairs: c.pairs}.PairsOf(c.ranks)
		if got != c.want || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("-p %d of %d ranks: %d, %v", c.pairs, c.ranks, got, err)
		}
	}
}

func TestLinesOfTheHeader(t *testing.T) {
	var out bytes.Buffer
	table := Program{Title: "T"}.Table(Output{W: &out}, "MPI_CHAR", "Size", Column{Head: "A(us)"})
	table.Note("note")
	table.Under("under")
	table.Before("first")
	table.Before("second")
	if err := table.Header(); err != nil {
		t.Fatal(err)
	}
	want := "# first\n# second\n# T v7.4 (gorun)\n# under\n# Datatype: MPI_CHAR.\n# note\n" +
		"# Size                 A(us)\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

// A wrong option ends the process before it joins a job: with 2, and with a word of rank 0 alone.
func TestBefore(t *testing.T) {
	for _, c := range []struct {
		args        string
		code        int
		done        bool
		out, errors string
	}{
		{"", 0, false, "", ""},
		{"-m 4K", 0, false, "", ""},
		{"-h", 0, true, "Usage: gorun", ""},
		{"-v", 0, true, "OSU MPI Latency Test", ""},
		{"--mesage-size 4", 2, true, "", "unknown flag: --mesage-size"},
	} {
		for rank := range 2 {
			var out, wrong bytes.Buffer
			code, done := latency().Before(strings.Fields(c.args), rank, &out, &wrong)
			if code != c.code || done != c.done {
				t.Errorf("%q: %d, %v", c.args, code, done)
			}
			if rank == 0 && (!strings.Contains(out.String(), c.out) || !strings.Contains(wrong.String(), c.errors)) ||
				rank != 0 && out.Len()+wrong.Len() > 0 {
				t.Errorf("%q at rank %d: %q, %q", c.args, rank, &out, &wrong)
			}
		}
	}
}

func TestHeaderOfDevices(t *testing.T) {
	for _, c := range []struct {
		a      Accelerator
		places bool
		want   string
	}{
		{Accelerator{}, true, "# OSU MPI Latency Test v7.4 (gorun)\n# Datatype"},
		{Accelerator{"cuda", ""}, true, "# OSU MPI-CUDA Latency Test v7.4 (gorun)\n" +
			"# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n# Datatype"},
		{Accelerator{"cuda", "HD"}, true, "# Send Buffer on HOST (H) and Receive Buffer on DEVICE (D)\n# Datatype"},
		{Accelerator{"cuda", ""}, false, "# OSU MPI-CUDA Latency Test v7.4 (gorun)\n# Datatype"},
	} {
		p, out := latency(), new(bytes.Buffer)
		p.Places = c.places
		o := p.Defaults
		o.Accelerator = c.a
		if err := p.Report(Output{W: out, Options: o}, Microseconds).Header(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%+v: %s", c, out)
		}
	}
	if (Accelerator{}).Has(0) || !(Accelerator{"cuda", ""}).Has(7) || (Accelerator{"cuda", "HD"}).Has(0) ||
		!(Accelerator{"cuda", "HD"}).Has(1) {
		t.Error("the wrong ranks have their buffers on a device")
	}
}
