package benchmarks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// The programs are started by gorun with small numbers: they must end, print what a reader of OSU's output expects,
// and find nothing wrong.

const runLimit = 3 * time.Minute // a hang, not a slow machine

func start(t *testing.T, env []string, args ...string) (out, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 20 * time.Second
	var o, c bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &c
	err = cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s did not end within %v\n%s%s", strings.Join(args, " "), runLimit, &o, &c)
	}
	return o.String(), c.String(), err
}

// folder is where they are built.
var folder string

// inShort are the programs that are built and run with -short: linking all of them takes half a minute.
var inShort = []string{"latency", "mbw_mr"}

// leftOut reports whether -short leaves a program out.
func leftOut(program string) bool { return testing.Short() && !slices.Contains(inShort, program) }

// built is the folder of gorun and all programs, made by the first test that asks for it.
var built = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(folder, "bin")
	args := []string{"build", "-buildvcs=false", "-ldflags=-s", "-o", dir + string(os.PathSeparator), "../cmd/gorun"}
	mains, err := filepath.Glob("*/main.go")
	for _, main := range mains {
		if program := filepath.Dir(main); !leftOut(program) {
			args = append(args, "./"+program)
		}
	}
	if err != nil || len(mains) < 15 {
		return dir, fmt.Errorf("%d programs, %v", len(mains), err)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return dir, nil
})

func programs(t *testing.T) (bin string) {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "benchmarks-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := cudakit.Main(m)
	os.RemoveAll(folder)
	os.Exit(code)
}

// gorun is the command of a job: a program in bin and its arguments.
func gorun(bin string, ranks int, command string) []string {
	words := strings.Fields(command)
	words[0] = filepath.Join(bin, words[0])
	return append([]string{filepath.Join(bin, "gorun"), "-n", strconv.Itoa(ranks)}, words...)
}

// lines of numbers, each with so many columns after the first one.
func lines(columns, digits int) string {
	return fmt.Sprintf(`(\d+ +(\d+\.\d{%d} *){%d}( +Pass)?\n)`, digits, columns)
}

func TestPrograms(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ranks that are processes need shared memory, which is on Linux so far")
	}
	bin := programs(t)
	pt2pt := func(title, head string) string {
		return `^# OSU MPI ` + title + ` Test v7\.4 \(gorun\)\n# Datatype: MPI_CHAR\.\n` + head
	}
	tests := []struct {
		ranks   int
		command string
		want    string
	}{
		{2, "latency -m 1:64 -i 20 -x 2", pt2pt("Latency", `# Size       Avg Latency\(us\)\n`) + lines(1, 2) + `{7}$`},
		{2, "latency -m 0:0 -i 20 -x 2", `\n0 +\d+\.\d\d\n$`},
		{2, "latency -m 65536:4194304 -i 3 -x 1 -c", `Validation\n` + lines(1, 2) + `{7}$`},
		{2, "latency -m 8:8 -i 20 -f", `P99 Tail Lat\(us\)\n8 .* 20 .*\n$`},
		{2, "latency -m 8:262144 -i 3 -c --alloc", `Validation\n` + lines(1, 2) + `{16}$`},
		{2, "bw -m 1:64 -i 5 -x 1", pt2pt("Bandwidth", `# Size      Bandwidth \(MB/s\)\n`) + lines(1, 2) + `{7}$`},
		{2, "bw -m 4096:1048576 -i 2 -x 1 -W 8 -b multiple -c", `Validation\n` + lines(1, 2) + `{9}$`},
		{2, "latency -m 1:64 -i 20 -x 2 -T mpi_int -c", `# Datatype: MPI_INT\.\n# Size .*\n` + lines(1, 2) + `{5}$`},
		{2, "latency -m 4:4 -i 20 -x 2 -zP90", `P90 Tail Lat\(us\)\n` + lines(2, 2) + `$`},
		{2, "mbw_mr -m 4:1KiB -i 3 -x 1 -T all -c", `(?s)MPI_CHAR.*MPI_INT.*MPI_FLOAT.*\n` + lines(2, 2) + `{9}$`},
		{2, "mbw_mr -m 4:8 -i 3 -x 1 -V -c -b multiple -T all", `(?s)MPI_CHAR.*MPI_INT.*MPI_FLOAT.*Profile.*\n` +
			lines(5, 2) + `{2}$`},
		{2, "mbw_mr -m 4:8 -i 3 -x 1 -V", `\[ window size: varied \](?s).*Message Rate Profile\n# Size [^\n]*\n` +
			lines(5, 2) + `{2}$`},
		{2, "match -m 1:1000 -i 3 -x 1", `Unexp\. AnyBoth\(us\)\n` + lines(8, 3) + `{4}$`},
		{2, "match -m 1:10 -i 5 -x 1 -W 1", lines(8, 3) + `{2}$`},
		{4, "ring -i 50 -x 5", `\[ ranks: 4 \] \[ tokens: 1 \]\n# Size .*\n8 .* 50\n$`},
		{4, "ring -i 50 -x 5 -W 3 -m 1:2", `\[ tokens: 3 \]\n# Size .*\n1 .* 50\n2 .* 50\n$`},
		{3, "collective barrier -i 20 -x 2",
			`^# OSU MPI Barrier Latency Test v7\.4 \(gorun\)\n# Avg Latency\(us\)\n +\d+\.\d\d\n$`},
		{3, "collective allreduce -m 1:64 -i 20 -x 2 -f", `^# OSU MPI Allreduce Latency Test v7\.4 \(gorun\)\n` +
			`# Datatype: MPI_DOUBLE\.\n# Size       Avg Latency\(us\)       Min Latency\(us\)     Max Latency\(us\)` +
			`  Iterations\n(\d+( +\d+\.\d\d){3} +20\n){4}$`},
		{3, "collective bcast,reduce_scatter -m 8:16384 -i 3 -x 1 -c", `\n# Size             bcast\(us\)    ` +
			`reduce_scatter\(us\)\n` + lines(2, 2) + `{12}$`},
		{2, "collective iallreduce -m 1:64 -i 20 -x 2 -c", `^# OSU MPI Non-blocking Allreduce Latency Test v7\.4 ` +
			`\(gorun\)\n# Overall = Coll\. Init \+ Compute \+ MPI_Test \+ MPI_Wait\n` +
			`# Datatype: MPI_DOUBLE\.\n# Size .*Overlap\(%\)\n` +
			lines(4, 2) + `{4}$`},
		{3, "collective bcast_persistent -m 8:64 -i 20 -x 2 -c", `^# OSU MPI Persistent Broadcast Latency Test v7\.4 .*\n` +
			`# Datatype: MPI_CHAR\.\n# Size       Avg Latency\(us\) .*\n` + lines(1, 2) + `{4}$`},
		{1, "kernel -m 8:1024 -i 20 -x 2", `^# OSU MPI Reduction Kernel Test v7\.4 \(gorun\)\n` +
			`# Datatype: MPI_DOUBLE\.\n# Size +Sum/Copy .*\n` + lines(3, 2) + `{8}$`},
		{2, "onesided put_bw -m 8:16 -i 3 -x 1 -w shared -s lock_exclusive,lock_all_flush,fence",
			`^# OSU MPI_Put Bandwidth Test v7\.4 \(gorun\)\n# Window creation: MPI_Win_allocate_shared\n` +
				`# Synchronization: MPI_Win_lock/unlock \(exclusive\), MPI_Win_flush \(lock_all\), MPI_Win_fence\n` +
				`# Columns: Bandwidth \(MB/s\)\n# Datatype: MPI_CHAR\.\n# Size +lock_exclusive +lock_all_flush +fence\n` +
				lines(3, 2) + `{2}$`},
		{3, "onesided fence_latency -i 20 -x 2", `\n# Ranks +Latency \(us\)\n3 +\d+\.\d{4}\n$`},
		{3, "onesided fop_rate -i 20 -x 2", `^# MPI_Fetch_and_op Rate Test v7\.4 \(gorun\)\n# Window creation: .*\n` +
			`# Synchronization: MPI_Win_flush\n# Datatype: MPI_INT64_T\.\n# Ranks +Operations/s\n` + lines(1, 2) + `$`},
		{4, "init", `\nnprocs: 4, min: \d+ ms, max: \d+ ms, avg: \d+ ms\n`},
		{4, "stress -rounds 6 -seed 7 -max 1000000 -messages 400",
			`^stress: 4 ranks, seed 7: 6 rounds, 1260 messages, .* every byte was right\n$`},
	}
	for _, test := range tests {
		if leftOut(strings.Fields(test.command)[0]) {
			continue
		}
		t.Run(test.command, func(t *testing.T) {
			out, stderr, err := start(t, nil, gorun(bin, test.ranks, test.command)...)
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, stderr)
			}
			if !regexp.MustCompile(test.want).MatchString(out) {
				t.Errorf("printed\n%swant %s", out, test.want)
			}
		})
	}
	if testing.Short() { // they need more programs, and seconds
		return
	}
	t.Run("flood", func(t *testing.T) { checkFlood(t, bin) })
	t.Run("recovery", func(t *testing.T) { checkRecovery(t, bin) })
	t.Run("mistakes", func(t *testing.T) { checkMistakes(t, bin) })
}

// checkRecovery kills ranks over both transports: the exit code of such a job is the first death's, unless all dead
// ranks are started again. The other operations of recovery have their test in process.
func checkRecovery(t *testing.T, bin string) {
	for _, c := range []struct{ transports, flag, operation, title string }{
		{"shm", "--enable-recovery", "kill", "Failure Notice"}, {"tcp", "--enable-recovery", "kill", "Failure Notice"},
		{"shm", "--respawn=3", "replace", "Replace"},
	} {
		ranks, code := 4, 0
		if c.operation == "kill" {
			ranks, code = ranks+2, 128+9
		}
		want := regexp.MustCompile(`^# OSU MPI ` + c.title + ` Test v7\.4 \(gorun\)\n# Ranks .*\n4( +\d+\.\d\d){3} +2\n$`)
		args := slices.Insert(gorun(bin, ranks, "recovery "+c.operation+" -i 2 -x 1"), 1, c.flag)
		out, stderr, err := start(t, []string{"GORUN_TRANSPORTS=" + c.transports}, args...)
		got := 0
		if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
			got = ended.ExitCode()
		}
		if got != code || !want.MatchString(out) {
			t.Errorf("%s over %s: %v, printed\n%swant %v\n%s", c.operation, c.transports, err, out, want, stderr)
		}
	}
}

// checkFlood sends ten times of what the receiver may keep.
func checkFlood(t *testing.T, bin string) {
	const limit = 8 << 20
	out, stderr, err := start(t, []string{fmt.Sprint("GORUN_UNEXPECTED_MAX=", limit)},
		gorun(bin, 2, "flood -n 80000")...)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	m := regexp.MustCompile(`(?s)^received 80000 messages of 1024 bytes ` +
		`.*unexpected: (\d+) messages; they took at most (\d+) bytes`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("printed %q", out)
	}
	count, _ := strconv.Atoi(m[1])
	peak, _ := strconv.Atoi(m[2])
	if count < 40000 || peak < limit/10 || peak > limit {
		t.Errorf("%d messages were unexpected and took %d bytes, the limit being %d: no flood, or no limit",
			count, peak, limit)
	}
}

// checkMistakes checks that there is one message, no matter how many ranks, and an exit code: 2 where the command line
// is wrong in any job.
func checkMistakes(t *testing.T, bin string) {
	for _, c := range []struct {
		ranks         int
		command, want string
		code          int
	}{
		{2, "latency --bogus", "unknown flag: --bogus", 2},
		{3, "latency", "needs exactly 2 ranks, this job has 3", 1},
		{3, "ring -W 3", "the tokens must be fewer than the ranks (3)", 1},
		{2, "match -m 0:10", "the queue has 1 to", 2},
		{2, "flood -s 3", "8 bytes in each", 1},
		{2, "recovery", "which operation? There are kill, ", 2},
		{2, "recovery kill", "start it with gorun --enable-recovery -n 15 or more", 1},
		{2, "flood --bogus", "flag provided but not defined: -bogus", 2},
		{2, "flood nosuch", `flood: "nosuch" is not an option`, 2},
		{3, "stress nosuch", `stress: "nosuch" is not an option`, 2},
		{2, "init nosuch", `init: "nosuch" is not an option`, 2},
		{1, "compare nosuch", `compare: "nosuch" is not an option`, 2},
		{1, "compare -only nosuch", `-only "nosuch": there is no such measurement`, 2},
		{2, "collective", "which operation? There are allgather, ", 2},
		{2, "collective allreduce,nothing", `there is no operation "nothing"; there are allgather, `, 2},
		{2, "collective allreduce bcast", `"bcast" is not an option`, 2},
		{2, "collective allreduce -m 1:4", "the sizes of a reduction are multiples of 8; name one", 2},
		{1, "kernel -m 4:8", "and 4 is not one above 0", 2},
		{2, "onesided", "which operation? There are put_latency, ", 2},
		{2, "onesided put_bibw -s flush", "-s flush: put_bibw has pscw, fence", 2},
		{2, "onesided put_bw -W 1000", "2000 buffers of 4194304 bytes", 2},
		{2, "halo -m 0:8", "a rank computes for at least 1 us", 2},
		{2, "collective alltoall -M 1000", "4 buffers of 1048576 bytes", 1},
		{2, "bw -b none", "wanted single or multiple", 2},
		{2, "latency D D", `"D" is not an option; the places of buffers come with -d cuda`, 2},
		{2, "latency -d cuda D", `"D": wanted D D, D H or H D`, 2},
		{2, "latency -d cuda H H", "H H: no buffer is of a device; leave out -d cuda", 2},
		{2, "bw -d openacc", `wanted cuda, got "openacc"`, 2},
		{2, "bibw -d managed D D", "managed memory cannot be sent", 2},
		{2, "bw -d cuda -T mpi_int", "messages in the memory of a device are of bytes; leave out -T or -d", 2},
		{2, "collective allreduce -d cuda D D", `"D" is not an option`, 2},
		{2, "collective allgatherv -d cuda", "-d: allgatherv is no call of package gpu; there are allgather, ", 2},
		{2, "collective bcast_persistent -d cuda", "-d: bcast_persistent is no call of package gpu", 2},
		{2, "mbw_mr -d cuda", "unknown shorthand flag: 'd'", 2},
		{2, "latency -d cuda", "rank 0 has no device: mpi: gpu.Local: ", 1},
		{2, "latency -d cuda H D", "rank 1 has no device: mpi: gpu.Local: ", 1},
		{2, "collective bcast -d cuda", "rank 0 has no device: mpi: gpu.Local: ", 1},
	} {
		out, stderr, err := start(t, nil, gorun(bin, c.ranks, c.command)...)
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != c.code || out != "" || strings.Count(stderr, c.want) != 1 ||
			strings.Contains(stderr, "called Abort") {
			t.Errorf("%s: %v, want %d; printed %q and %q, want %q once", c.command, err, c.code, out, stderr, c.want)
		}
	}
}

// peers are the C programs with small numbers for two ranks, and what the lines after the comments look like.
var peers = []struct{ command, title, want string }{
	{"latency -m 1:64 -i 20 -x 2", "Latency", lines(1, 2) + `{7}$`},
	{"latency -m 65536:131072 -i 3 -x 1 --alloc", "Latency", lines(1, 2) + `{2}$`},
	{"latency_persistent -m 1:64 -i 20 -x 2", "Latency Persistent", lines(1, 2) + `{7}$`},
	{"latency_mt -m 8:8 -t 2:2 -i 50", "Multi-threaded Latency", lines(1, 2) + `$`},
	{"multi_lat -m 1:64 -i 20 -x 2", "Multi Latency", lines(1, 2) + `{7}$`},
	{"bw -m 1:64 -i 5 -x 1", "Bandwidth", lines(1, 2) + `{7}$`},
	{"bw_persistent -m 1:64 -i 5 -x 1 -b multiple", "Bandwidth Persistent", lines(1, 2) + `{7}$`},
	{"bibw -m 1:64 -i 5 -x 1", "Bi-Directional Bandwidth", lines(1, 2) + `{7}$`},
	{"mbw_mr -m 8:8 -i 20", "Multiple Bandwidth / Message Rate", `\[ pairs: 1 \] .*\n# Size.*\n` + lines(2, 2) + `$`},
	{"fan_in -m 8:16 -i 5 -x 1", "Bandwidth Congestion In", `\[ senders: 1 \] .*\n# Size.*\n` + lines(2, 2) + `{2}$`},
	{"fan_out -m 8:16 -i 5 -x 1", "Bandwidth Congestion Out",
		`\[ receivers: 1 \] .*\n# Size.*\n` + lines(2, 2) + `{2}$`},
	{"allpairs -i 200", "All-Pairs Random Traffic", `\[ ranks: 2 \] .*\n# Size.*\n` + lines(2, 2) + `$`},
	{"allpairs -i 200 --waitsome", "All-Pairs Random Traffic", `\[ ranks: 2 \] .*\n# Size.*\n` + lines(2, 2) + `$`},
	{"mbw_mr -m 8:8 -i 20 --run-ahead", "Multiple Bandwidth / Message Rate",
		`\[ pairs: 1 \] .*\n# Size.*\n` + lines(2, 2) + `$`},
	{"latency -m 8:16 --time 0.01 --warm-time 0.01", "Latency", lines(1, 2) + `{2}$`},
	{"consumer -i 50 -x 1", "Slow Consumer", `\[ computation: 7us a message \]\n# Size.*\n` + lines(2, 2) + `$`},
	{"late -i 3 --warm-time 0.01", "Late Rank", `\[ round trips: 10 \]\n# Late\(us\) .* P99\(us\)\n` + lines(4, 2) +
		`{4}$`},
	{"halo -m 20:200 -i 10 --warm-time 0.01", "Halo Exchange",
		`\[ ranks: 2 \] \[ halo: 4096 bytes \]\n# Compute .*\n(\d+ +(-?\d+\.\d\d *){6}\n){2}$`},
	{"first", "First Message", `\n# Ranks .*\n2 +\d+\.\d\d +\d+\.\d\d\n$`},
	{"overlap -m 65536:65536 -i 3", "Overlap", lines(8, 2) + `$`},
	{"match -m 1:100 -i 3 -x 1", "", lines(8, 3) + `{3}$`},
	{"ring -i 50 -x 5", "", `\[ tokens: 1 \]\n# Size .*\n8 .* 50\n$`},
	{"idle -i 1", "Idle", `\n2 +\d\.\d{4} +\d+\n$`},
	{"collective barrier -i 20 -x 2", "Barrier Latency", `\n# Avg Latency\(us\)\n +\d+\.\d\d\n$`},
	{"collective allreduce -m 1:64 -i 20 -x 2", "Allreduce Latency", lines(1, 2) + `{4}$`},
	{"collective allgather,allgatherv,alltoall,alltoallv,alltoallw,barrier,bcast,exscan,gather,gatherv," +
		"neighbor_allgather,neighbor_allgatherv,neighbor_alltoall,neighbor_alltoallv,neighbor_alltoallw,reduce," +
		"reduce_scatter,reduce_scatter_block,scan,scatter,scatterv -m 8:16 -i 3 -x 1", "Collective Latency",
		lines(21, 2) + `{2}$`},
	{"collective iallreduce -m 8:16 -i 20 -x 2", "Non-blocking Allreduce Latency", lines(4, 2) + `{2}$`},
	{"onesided put_latency -m 1:64 -i 20 -x 2", "", "^# OSU MPI_Put Latency Test v7.4 .peer.\n" +
		"# Window creation: MPI_Win_allocate\n# Synchronization: MPI_Win_flush\n# Datatype: MPI_CHAR.\n" +
		"# Size            Latency .us.\n" + lines(1, 4) + `{7}$`},
	{"onesided get_latency -m 8:16 -i 20 -x 2 -s pscw -w dynamic", "", lines(1, 4) + `{2}$`},
	{"onesided put_bw -m 8:16 -i 3 -x 1 -s lock", "", lines(1, 2) + `{2}$`},
	{"onesided get_bw -m 8:16 -i 3 -x 1 -s lock_all", "", lines(1, 2) + `{2}$`},
	{"onesided put_bibw -m 8:16 -i 3 -x 1 -w shared -s pscw,fence", "",
		`\n# Columns: Bandwidth \(MB/s\)\n.*\n# Size +pscw +fence\n` + lines(2, 2) + `{2}$`},
	{"onesided acc_latency -m 8:16 -i 20 -x 2 -s lock_exclusive,lock_all_flush,fence", "", lines(3, 4) + `{2}$`},
	{"onesided get_acc_latency -m 8:16 -i 20 -x 2 -s flush_local", "", lines(1, 4) + `{2}$`},
	{"onesided fop_latency -i 20 -x 2", "", lines(1, 4) + `$`},
	// In memory of MPI_Win_allocate the call ends Open MPI 4.1.4 with a segmentation fault.
	{"onesided cas_latency -i 5 -x 1 -w create", "", lines(1, 4) + `$`},
	{"onesided fop_rate -i 20 -x 2", "", `\n# Ranks +Operations/s\n` + lines(1, 2) + `$`},
	{"onesided fence_latency -i 20 -x 2", "", `\n# Ranks +Latency .us.\n` + lines(1, 4) + `$`},
	{"kernel -m 8:64 -i 5 -x 1", "Reduction Kernel", lines(3, 2) + `{4}$`},
	{"init", "", `\nnprocs: 2, min: \d+ ms`},
}

// TestPeers builds the C programs with each library's compiler and runs them with small numbers. That each of them is
// run is checked too.
func TestPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiling and running the C programs with two libraries takes 40 s")
	}
	sources, err := filepath.Glob("peers/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("%d programs, %v", len(sources), err)
	}
	for _, source := range sources {
		name := strings.TrimSuffix(filepath.Base(source), ".c")
		if name == "socket" || name == "memory" {
			continue // no MPI programs: compare/tcp_test.go and compare/onesided_test.go run them
		}
		if !slices.ContainsFunc(peers, func(p struct{ command, title, want string }) bool {
			return strings.Fields(p.command)[0] == name
		}) {
			t.Errorf("%s is run by no line of peers", source)
		}
	}
	for _, peer := range []struct{ name, compiler, pkg, launch string }{
		{"Open MPI", "mpicc.openmpi", "libopenmpi-dev",
			"mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -np 2"},
		{"MPICH", "mpicc.mpich", "libmpich-dev", "mpiexec.hydra -n 2"},
	} {
		t.Run(peer.name, func(t *testing.T) {
			proc.RequireProgram(t, peer.compiler, peer.pkg)
			bin := t.TempDir()
			for _, p := range peers {
				args := strings.Fields(p.command)
				binary := filepath.Join(bin, args[0])
				if _, err := os.Stat(binary); err != nil {
					compilePeer(t, peer.compiler, args[0], binary)
				}
				command := append(append(strings.Fields(peer.launch), binary), args[1:]...)
				printed, stderr, err := start(t, nil, command...)
				if err != nil || !regexp.MustCompile(p.want).MatchString(printed) {
					t.Errorf("%s: %v, printed\n%s%s", p.command, err, printed, stderr)
				}
				title := "# OSU MPI " + p.title + " Test v7.4 (peer)\n"
				if p.title != "" && !strings.Contains(printed, title) {
					t.Errorf("%s: no line %q in\n%s", p.command, title, printed)
				}
			}
		})
	}
}

func compilePeer(t *testing.T, compiler, program, binary string) {
	t.Helper()
	out, err := exec.Command(compiler, "-O1", "-pthread", "-std=gnu11", "-Wall", "-Wextra", "-Werror",
		"-Wno-stringop-overflow", "-o", binary, filepath.Join("peers", program+".c")).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}
