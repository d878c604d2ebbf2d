package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func TestMPMD(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := start(t, "-l", "-n", "1", "RANK", "print=a", "env=X", ":", "-n", "2", "-x", "X=b c", "-wdir", dir, "RANK",
		"env=X", "pwd", ":", "sh", "-c", "echo $PMI_RANK of $PMI_SIZE")
	j.wait(0)
	want := fmt.Sprintf("[0] X=\n[0] a\n[1] %s\n[1] X=b c\n[2] %s\n[2] X=b c\n[3] 3 of 4\n", dir, dir)
	if got := sorted(j.out.String()); got != sorted(want) {
		t.Errorf("output\n%s\nwant\n%s", got, sorted(want))
	}
	// After "--" a colon is an argument like any other; before it, it separates.
	start(t, "-n", "1", "--", "expr", "1", ":", "1").wait(0).prints("1\n")
	start(t, "-n", "1", "echo", "a", ":", "-n", "1", "--", "echo", "b", ":", "c").wait(0).printsLines("a", "b : c")
	start(t, "-n", "1", "--").wait(2).says("no program is named")
	start(t, "RANK", ":", "-n", "2").wait(2).says("no program is named after the colon")
	start(t, "RANK", ":", "--timeout", "3", "RANK").wait(2).says("--timeout", "after a colon")
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	j := prepare(t, "-n", "2", "-x", "FROM_HERE", "-x", "NOT_SET", "-genv", "GENV", "a b", "-x", "OMPI_KEPT=1", "sh",
		"-c", "test $PMI_RANK = 0 && env")
	j.cmd.Env = append(j.cmd.Env, "FROM_HERE=here", "PMI_SIZE=99", "PMI_PORT=x:1", "PMI_ID=3", "PMIX_RANK=7",
		"PMIX_NAMESPACE=n", "OMPI_COMM_WORLD_SIZE=99", "GORUN_JOB=other", "GORUN_LOCAL_SIZE=99",
		"MPI_LOCALNRANKS=99", "HYDI_CONTROL_FD=9", "PRTE_LAUNCHED=1")
	j.start().wait(1).says("warning: -x NOT_SET")
	have := map[string]string{}
	for _, l := range strings.Split(j.out.String(), "\n") {
		name, value, _ := strings.Cut(l, "=")
		if _, twice := have[name]; twice && name != "" {
			t.Errorf("%s is there twice", name)
		}
		have[name] = value
	}
	for name, want := range map[string]string{
		"FROM_HERE": "here", "GENV": "a b", "OMPI_KEPT": "1", "PMI_SIZE": "2", "PMI_RANK": "0", "PMI_FD": "3",
		"GORUN_LOCAL_SIZE": "2", "GORUN_LOCAL_RANK": "0", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "0",
		"GORUN_CPUS": fmt.Sprint(cpuset.Read().Usable()),
	} {
		if have[name] != want {
			t.Errorf("%s=%q, want %q", name, have[name], want)
		}
	}
	if !strings.HasPrefix(have["GORUN_JOB"], "gorun_") {
		t.Errorf("GORUN_JOB=%q", have["GORUN_JOB"])
	}
	for _, name := range []string{"PMI_PORT", "PMI_ID", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE",
		"HYDI_CONTROL_FD", "PRTE_LAUNCHED"} {
		if _, ok := have[name]; ok {
			t.Errorf("%s of the outer job has come through", name)
		}
	}
}

// --report and --cpuprofile are settings of the ranks, which may run in another folder, and outdo the ones that are
// there.
func TestFolderFlags(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for flag, name := range map[string]string{"--report": "GORUN_REPORT", "--cpuprofile": "GORUN_CPUPROFILE"} {
		j := prepare(t, "-n", "1", flag, "out", "--wdir", t.TempDir(), "sh", "-c", "echo $"+name)
		j.cmd.Env = append(j.cmd.Env, name+"=/elsewhere")
		j.start().wait(0).prints(filepath.Join(here, "out") + "\n")
		start(t, "-n", "1", flag, "", "sh").wait(2).says(flag, "it is empty")
	}
}

// With --cpuprofile a rank that is told to end because of another one has time to write.
func TestTimeForProfile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := "trap 'sleep 0.5; echo written; exit' TERM; test $PMI_RANK = 1 && { while [ ! -e " + dir + "/ready ]; do " +
		"sleep 0.01; done; exit 3; }; : >" + dir + "/ready; while :; do sleep 0.01; done"
	start(t, "-n", "2", "--cpuprofile", dir, "sh", "-c", script).wait(3).prints("written\n")
}

// falseDebugger is a dlv that prints its arguments and runs the program.
func falseDebugger(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\necho dlv $1 $2 $3 $5 with $GORUN_TIMEOUT\nprogram=$4\nshift 5\nexec $program \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "dlv"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A rank runs under the debugger, with its arguments, and the others do not.
func TestDebug(t *testing.T) {
	t.Parallel()
	withDebugger := func(args ...string) *job {
		j := prepare(t, args...)
		j.cmd.Env = append(j.cmd.Env, "PATH="+falseDebugger(t)+":"+os.Getenv("PATH"), "GOFLAGS=")
		return j
	}
	const dlv = "dlv exec --headless --listen=127.0.0.1:0 -- with "
	withDebugger("-n", "2", "--debug", "1", "-l", "RANK", "print=x").start().wait(0).
		printsLines("[1] "+dlv+"24h", "[0] x", "[1] x").says("rank 1 waits under dlv", "dlv connect ADDRESS")
	j := withDebugger("-n", "1", "--debug", "0", "RANK", "print=x")
	j.cmd.Env = append(j.cmd.Env, "GORUN_TIMEOUT=7s")
	j.start().wait(0).printsLines(dlv+"7s", "x")
	dir := module(t, hello)
	withDebugger("-n", "1", "--debug", "0", dir, "a", "b c").start().wait(0).printsLines(dlv+"24h", "built [a b c]")
	j = withDebugger("-n", "1", "--debug", "0", "--dry-run", dir, "a").start().wait(0)
	for _, part := range []string{"go build '-gcflags=all=-N -l' ", "dlv exec --headless --listen=127.0.0.1:0 " + dir +
		" -- a\n"} {
		if !strings.Contains(j.out.String(), part) {
			t.Errorf("the plan has no %q:\n%s", part, &j.out)
		}
	}
	start(t, "-n", "2", "--debug", "2", "true").wait(2).says("--debug 2: use a rank from 0 to 1")
	j = prepare(t, "-n", "2", "--debug", "1", "/bin/true")
	j.cmd.Env = append(j.cmd.Env, "PATH=/nowhere", "HOME=/nowhere", "GOPATH=", "GOBIN=")
	j.start().wait(2).says("--debug 1: dlv is not in PATH", "go install github.com/go-delve/delve/cmd/dlv@latest")
	bin := filepath.Join(t.TempDir(), "bin")
	if err := os.Rename(falseDebugger(t), bin); err != nil {
		t.Fatal(err)
	}
	j = prepare(t, "-n", "1", "--debug", "0", "/bin/echo", "x")
	j.cmd.Env = append(j.cmd.Env, "PATH=/nowhere", "GOPATH=/nowhere:"+filepath.Dir(bin))
	j.start().wait(0).printsLines(dlv+"24h", "x")
}

// --race has packages built with the race detector.
func TestRace(t *testing.T) {
	t.Parallel()
	start(t, "-n", "1", "--race", "/bin/true").wait(2).says("--race is for Go packages", "/bin/true", "go build -race")
	dir := module(t, "package main\n\nimport \"fmt\"\n\nvar race = false\n\nfunc main() { fmt.Println(\"race\", race) }\n")
	with := "//go:build race\n\npackage main\n\nfunc init() { race = true }\n"
	if err := os.WriteFile(filepath.Join(dir, "race.go"), []byte(with), 0o666); err != nil {
		t.Fatal(err)
	}
	if j := start(t, "-n", "1", "--race", "--dry-run", dir).wait(0); !strings.Contains(j.out.String(), "go build -race ") {
		t.Errorf("the plan is %s", &j.out)
	}
	if testing.Short() {
		return // the rest builds the runtime
	}
	j := prepare(t, "-n", "1", "--race", dir)
	j.cmd.Env = append(j.cmd.Env, "GOFLAGS=")
	j.start().wait(0).prints("race true\n")
}

// The job's secret is in no environment, command line or log.
func TestSecretIsNotShown(t *testing.T) {
	t.Parallel()
	j := prepare(t, "-n", "2", "RANK", "join", "fence", "finalize")
	j.cmd.Env = append(j.cmd.Env, "GORUN_LOG=trace")
	j.start().wait(0).says("rank started")
	if strings.Contains(j.err.String(), "secret") {
		t.Errorf("the log speaks of the secret:\n%s", j.err.String())
	}
}

func TestBinding(t *testing.T) {
	t.Parallel()
	host := cpuset.Read()
	n := host.Usable()
	if runtime.GOOS != "linux" || host.Quota != 0 {
		t.Skip("needs Linux without a CPU quota")
	}
	// Equal shares: GOMAXPROCS of the ranks together is the number of CPUs.
	for _, ranks := range []int{1, n} {
		j := start(t, "-n", fmt.Sprint(ranks), "--report-bindings", "RANK", "cpus").wait(0)
		sum := 0
		for _, l := range strings.Split(strings.TrimSpace(j.out.String()), "\n") {
			var r, c, g int
			fmt.Sscanf(l, "rank %d NumCPU %d GOMAXPROCS %d", &r, &c, &g)
			if c != g {
				t.Errorf("%s", l)
			}
			sum += g
		}
		if sum != n {
			t.Errorf("%d ranks have %d CPUs of %d", ranks, sum, n)
		}
		if strings.Count(j.err.String(), "is bound to CPU") != ranks || strings.Contains(j.err.String(), "outnumber") {
			t.Errorf("said:\n%s", j.err.String())
		}
	}
	// More ranks than CPUs: no rank is bound, each has one of Go's processors, and one line says so.
	j := start(t, "-n", fmt.Sprint(n+1), "--report-bindings", "RANK", "cpus").wait(0)
	if strings.Count(j.out.String(), fmt.Sprintf("NumCPU %d GOMAXPROCS 1\n", n)) != n+1 ||
		strings.Count(j.err.String(), "outnumber") != 1 ||
		strings.Count(j.err.String(), "is not bound") != n+1 {
		t.Errorf("%s%s", j.out.String(), j.err.String())
	}
	start(t, "-n", "1", "--bind-to", "core", "--report-bindings", "RANK", "cpus").wait(0).
		says("rank 0 on host", "(core ")
	start(t, "-n", "1", "--bind-to", "numa", "RANK", "cpus").wait(0)
	j = start(t, "-n", "1", "--bind-to", "none", "RANK", "cpus").wait(0)
	j.prints(fmt.Sprintf("rank 0 NumCPU %d GOMAXPROCS %d\n", n, n))
	j = start(t, "-n", fmt.Sprint(n+1), "--bind-to", "none", "RANK", "cpus").wait(0)
	if strings.Count(j.out.String(), fmt.Sprintf("GOMAXPROCS %d\n", n)) != n+1 {
		t.Errorf("--bind-to none and more ranks than CPUs:\n%s", j.out.String())
	}
}

// Nothing outside the inherited mask is used.
func TestInheritedMask(t *testing.T) {
	t.Parallel()
	host := cpuset.Read()
	if runtime.GOOS != "linux" || len(host.CPUs) < 2 {
		t.Skip("needs Linux and two CPUs")
	}
	taskset := proc.RequireProgram(t, "taskset", "util-linux")
	last := host.CPUs[len(host.CPUs)-1].ID
	for _, mode := range []string{"auto", "core", "numa", "none"} {
		j := prepare(t, "-n", "2", "--bind-to", mode, "sh", "-c", "grep Cpus_allowed_list /proc/self/status")
		j.cmd.Args = append([]string{"taskset", "-c", fmt.Sprint(last), j.cmd.Path}, j.cmd.Args[1:]...)
		j.cmd.Path = taskset
		j.start().wait(0).says("2 ranks on 1 usable CPU")
		want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", last)
		j.prints(want + want)
	}
}

// module makes a package that reports what it is, in a module of its own.
func module(t *testing.T, body string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "prog")
	os.MkdirAll(dir, 0o777)
	os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/prog\n\ngo 1.24\n"), 0o666)
	os.WriteFile(filepath.Join(dir, "main.go"), []byte(body), 0o666)
	return dir
}

const hello = `package main

import (
	"fmt"
	"os"
)

func main() { fmt.Println("built", os.Args[1:]) }
`

func TestBuild(t *testing.T) {
	t.Parallel()
	dir := module(t, hello)
	temp := t.TempDir()
	run := func(args ...string) *job {
		j := prepare(t, args...)
		j.cmd.Env = append(j.cmd.Env, "TMPDIR="+temp, "GOFLAGS=")
		return j
	}
	run("-n", "2", dir, "-n", "7").start().wait(0).prints("built [-n 7]\nbuilt [-n 7]\n")
	run("-n", "1", dir+"/main.go").start().wait(0).prints("built []\n")
	run("-n", "1", dir, "a", ":", dir, "a").start().wait(0).prints("built [a]\nbuilt [a]\n")
	j := run("-n", "1", "example.com/prog")
	j.cmd.Dir = dir
	j.start().wait(0).prints("built []\n")
	j = run("-n", "1", ".")
	j.cmd.Dir = dir
	j.start().wait(0).prints("built []\n")
	j = run("-n", "1", "--wdir", "/", "./prog")
	j.cmd.Dir = filepath.Dir(dir)
	j.start().wait(0).prints("built []\n")
	run("-n", "1", module(t, "package main\n\nfunc main() { nonsense }\n")).start().wait(126).
		says("undefined: nonsense", "building")
	run("-n", "1", module(t, "package prog\n")).start().wait(126).says("package is not main")
	run("-n", "1", "example.com/nowhere/at/all").start().wait(126).says("there is no file example.com/nowhere/at/all")
	j = run("-n", "1", dir)
	j.cmd.Env = append(j.cmd.Env, "PATH=/nowhere", "GOROOT=/nowhere")
	if _, err := os.Stat("/usr/local/go/bin/go"); err != nil {
		j.start().wait(126).says("the go command is not in PATH")
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left in TMPDIR: %v", left)
	}
}

// A package gets the optional transports whose headers the C compiler finds, once said, and keeps the tags of GOFLAGS;
// without a compiler, or where cgo is off, it gets none.
// A package in a repository of which git tells nothing (another user's checkout, one that is damaged) is built.
func TestBuildWithoutRevision(t *testing.T) {
	t.Parallel()
	dir := module(t, hello)
	os.Mkdir(filepath.Join(dir, ".git"), 0o777)
	j := prepare(t, "-n", "1", dir)
	j.cmd.Env = append(j.cmd.Env, "GOFLAGS=")
	j.start()
	j.wait(0).prints("built []\n")
}

func TestBuildTags(t *testing.T) {
	t.Parallel()
	dir := module(t, "package main\n\nimport \"fmt\"\n\nvar tags = \"tags\"\n\nfunc main() { fmt.Println(tags) }\n")
	for _, tag := range []string{"ofi", "own", "ucx", "verbs"} {
		os.WriteFile(filepath.Join(dir, tag+".go"), fmt.Appendf(nil,
			"//go:build %s\n\npackage main\n\nfunc init() { tags += \" %[1]s\" }\n", tag), 0o666)
	}
	bin := t.TempDir()
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(tool, filepath.Join(bin, "go")); err != nil {
		t.Fatal(err)
	}
	cc := filepath.Join(t.TempDir(), "cc")
	os.WriteFile(cc, []byte("#!/bin/sh\necho gorun_tag verbs\necho gorun_tag ucx\necho gorun_tag ofi\n"), 0o777)
	bad := filepath.Join(t.TempDir(), "cc")
	os.WriteFile(bad, []byte("#!/bin/sh\necho gorun_tag ucx\nexit 1\n"), 0o777)
	for _, c := range []struct{ env, want string }{
		{"CGO_ENABLED=1 CC=" + cc, "tags ofi own ucx verbs\n"},
		{"CGO_ENABLED=1 CC=" + bad, "tags own\n"},
		{"CGO_ENABLED=0 CC=" + cc, "tags own\n"},
		{"CGO_ENABLED=1 GOARCH=" + runtime.GOARCH + " CC=/nowhere/cc", "tags own\n"},
		{"PATH=" + bin, "tags own\n"},
	} {
		j := prepare(t, "-n", "1", dir, ":", "-n", "1", dir)
		j.cmd.Env = append(append(j.cmd.Env, "GOFLAGS=-tags=own", "CGO_ENABLED=", "CC="), strings.Fields(c.env)...)
		j.start().wait(0).prints(c.want + c.want)
		said, want := strings.Count(j.err.String(), "-tags verbs,ucx,ofi"), strings.Count(c.want, "ucx")
		if said != want || want == 0 && j.err.String() != "" {
			t.Errorf("%s: said %d times:\n%s", c.env, said, j.err.String())
		}
	}
}

// Whenever gorun is ended while a build runs, nothing stays in the temporary folder.
func TestBuildInterrupted(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		// A package that has to be compiled, and takes its time.
		var big strings.Builder
		fmt.Fprintf(&big, "package main\n\nimport \"time\"\n\n"+
			"var stamp = %d\n\nfunc main() { time.Sleep(time.Hour) }\n", time.Now().UnixNano())
		for i := range 3000 {
			fmt.Fprintf(&big, "func f%d(a, b map[string]int) int { "+
				"for k, v := range a { b[k+\"%d\"] += v * stamp }; return len(b) }\n", i, i)
		}
		temp := t.TempDir()
		j := prepare(t, "-n", "2", module(t, big.String()))
		j.cmd.Env = append(j.cmd.Env, "TMPDIR="+temp, "GOFLAGS=")
		j.start()
		proc.Eventually(t, "the compiler", func() bool {
			begun, _ := filepath.Glob(temp + "/gorun-*/go-build*/b001/*")
			return len(begun) > 0
		})
		j.cmd.Process.Signal(s)
		if s == syscall.SIGINT {
			j.wait(130)
		} else {
			j.cmd.Wait()
		}
		proc.Eventually(t, "an empty TMPDIR after "+s.String(), func() bool {
			left, _ := os.ReadDir(temp)
			return len(left) == 0 && len(j.processes()) == 0
		})
		proc.Eventually(t, "the cleaner to be gone", func() bool { return len(j.cleaners()) == 0 })
	}
}

// mpichCompiled is what MPICH's compiler makes of these words.
func mpichCompiled(t *testing.T, name string, words ...string) string {
	t.Helper()
	mpicc := proc.RequireProgram(t, "mpicc.mpich", "libmpich-dev")
	file := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command(mpicc, append([]string{"-o", file}, words...)...).CombinedOutput(); err != nil {
		t.Fatalf("mpicc.mpich: %v\n%s", err, out)
	}
	return file
}

// mpichProgram is a program of MPICH's, which knows nothing of us.
func mpichProgram(t *testing.T) string {
	t.Helper()
	return mpichCompiled(t, "prog", "testdata/mpich.c")
}

func TestMPICH(t *testing.T) {
	t.Parallel()
	prog := mpichProgram(t)
	for _, n := range []int{1, 2, 4} {
		j := start(t, "-n", fmt.Sprint(n), prog, "ring").wait(0)
		for r := range n {
			if want := fmt.Sprintf("hello from %d of %d\n", r, n); !strings.Contains(j.out.String(), want) {
				t.Errorf("no %q in\n%s", want, j.out.String())
			}
		}
		if want := fmt.Sprintf("ring %d\n", n); !strings.Contains(j.out.String(), want) {
			t.Errorf("no %q in\n%s", want, j.out.String())
		}
	}
	j := start(t, "-n", "3", prog, "abort").wait(7)
	j.says("called Abort with code 7")
	start(t, "-n", "1", prog, "appnum", ":", "-n", "2", prog, "appnum").wait(0)
	start(t, "-n", "3", prog, "exit").wait(5).says("rank 1", "exited with code 5")
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		says string
	}{
		{"-n 0 x", `"-n, --np"|use a whole number of 1 or more`},
		{"-n four x", "four|use a whole number"},
		{"-n", "-n needs a value"},
		{"-np", "--np needs a value"},
		{"--bind-to board x", "--bind-to|use auto, none, core, numa, socket, l3cache or hwthread"},
		{"--timeout soon x", "--timeout|30, 90s or 5m"},
		{"--timeout -1 x", "--timeout|30, 90s or 5m"},
		{"--kill-delay 0 x", "--kill-delay"},
		{"--timout 3 x", "--timout|did you mean --timeout?"},
		{"--tagoutput x", "did you mean --tag-output?"},
		{"-z x", "no flag -z"},
		{"--nonsense x", "no flag --nonsense"},
		{"-x =1 x", "NAME=VALUE"},
		{"-x -n 2 x", `"-n"|NAME=VALUE`},
		{"-genv A", "-genv needs a name and a value"},
		{"--stdin 1 true", "--stdin 1|rank from 0 to 0"},
		{"-n 2", "no program is named"},
		{"-n 99999999 true", "1 to 65536 ranks"},
		{"info x", `gorun info takes flags only, and "x" is not a flag|Run 'gorun info --help'`},
	} {
		j := prepare(t)
		j.cmd.Args = append(j.cmd.Args[:1], strings.Fields(c.args)...)
		j.start().wait(2).says(strings.Split(c.says, "|")...).prints("")
	}
	j := prepare(t, "true")
	j.cmd.Env = append(j.cmd.Env, "GORUN_EAGER_MAX=12x")
	j.start().wait(2).says("GORUN_EAGER_MAX", "12x")
	j = prepare(t, "true")
	j.cmd.Env = append(j.cmd.Env, "GORUN_EAGERMAX=12")
	j.start().wait(0).says("did you mean GORUN_EAGER_MAX?")
	// Settings that come by -x are looked at like those of the environment, once each.
	j = prepare(t, "-n", "2", "-x", "GORUN_EAGERMAX=12", "-x", "GORUN_SPINN", "true", ":",
		"-x", "GORUN_EAGERMAX=12", "true")
	j.cmd.Env = append(j.cmd.Env, "GORUN_SPINN=1")
	j.start().wait(0).saysOnce("did you mean GORUN_EAGER_MAX?", "did you mean GORUN_SPIN?")
	start(t, "true", ":", "-x", "GORUN_EAGER_MAX=12x", "true").wait(2).says("GORUN_EAGER_MAX", "12x")
	start(t, "-n", "2", "-x", "GORUN_TEST_ANYTHING=1", "true").wait(0).saysOnce()
}

func TestFlagsOfOtherLaunchers(t *testing.T) {
	t.Parallel()
	start(t, "-np", "1", "--oversubscribe", "--allow-run-as-root", "--map-by", "core", "-genvall", "-wdir=/",
		"-prepend-rank", "pwd").wait(0).
		prints("[0] /\n")
	start(t, "-ln2", "pwd").wait(0)
	start(t, "-n2", "--", "true").wait(0)
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("GORUN_TEST_REWRITE") != "" {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed (GORUN_TEST_REWRITE=1 go test, and read the difference):\n%s", file, got)
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "2", "--dry-run", "--bind-to", "none", "sh", "-c", "exit 3", ":", "-n", "1", "--wdir", "/tmp",
		"-x", "A=b c", "true", "it's")
	j.wait(0)
	name, _ := os.Hostname()
	out := strings.ReplaceAll(j.out.String(), name, "HOST")
	out = regexp.MustCompile(`which has .*`).ReplaceAllString(out, "which has CPUs")
	golden(t, "dry-run.txt", []byte(out))
}

// Help, man page and completion know every flag.
func TestPages(t *testing.T) {
	t.Parallel()
	pages := map[string]string{}
	for name, args := range map[string][]string{
		"help": {"--help"}, "none": nil, "man": {"man"}, "info": {"info"}, "version": {"--version"},
		"bash": {"completion", "bash"}, "zsh": {"completion", "zsh"}, "fish": {"completion", "fish"},
		"complete flag": {"__complete", "--bi"}, "complete value": {"__complete", "--bind-to", ""},
	} {
		j := prepare(t)
		j.cmd.Args = append(j.cmd.Args[:1], args...)
		j.start().wait(0)
		pages[name] = j.out.String()
	}
	code := 0
	root := newRoot(os.Stdin, os.Stdout, os.Stderr, &code)
	golden(t, "help.txt", []byte(pages["help"]))
	if pages["help"] != pages["none"] {
		t.Error("gorun without arguments prints something else than gorun --help")
	}
	root.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if !strings.Contains(pages["help"], "--"+f.Name) || !strings.Contains(pages["man"], `\fB--`+f.Name+`\fP`) {
			t.Errorf("--%s is missing on a page", f.Name)
		}
	})
	for name, want := range map[string]string{
		"version": "gorun ", "complete flag": "--bind-to", "complete value": "numa", "bash": "__start_gorun",
		"zsh": "_gorun", "fish": "gorun",
		"info": "GORUN_UNEXPECTED_MAX  64MiB", "man": `.TH "GORUN" "1"`,
	} {
		if !strings.Contains(pages[name], want) {
			t.Errorf("%s: no %q in\n%s", name, want, clip(pages[name]))
		}
	}
	if runtime.GOOS == "linux" && !regexp.MustCompile(`process_vm_readv +(yes|no:)`).MatchString(pages["info"]) {
		t.Errorf("info says nothing of process_vm_readv:\n%s", pages["info"])
	}
	if !regexp.MustCompile(`(?m)^waiting ranks +spin for .* sleep in the kernel$\s+more than \d+: yield the CPU`).
		MatchString(pages["info"]) {
		t.Errorf("info does not say what waiting ranks do:\n%s", pages["info"])
	}
}

// 64 ranks that do nothing: the launcher's own cost stays out of the way.
func TestManyRanks(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "64", "RANK", "join", "fence", "finalize").wait(0)
	j.took(j.started)
}
