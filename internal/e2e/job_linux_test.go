package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// markVar is in the environment of every process of one job.
const markVar = "GORUN_TEST_MARK"

// briefVar is in the environment of the jobs of a test with -short.
const briefVar = "GORUN_TEST_BRIEF"

// brief: this is a rank that moves less, since its test is short or the race detector makes everything slow.
var brief = proc.Race || os.Getenv(briefVar) != ""

// jobEnv are settings of all jobs, so that the tests can be run over another transport.
var jobEnv = strings.Fields(os.Getenv("GORUN_TEST_JOB_ENV"))

// roles are the programs that the test binary can be. Their arguments are os.Args[1:].
var roles = map[string]func() error{}

// role adds a program whose ranks join with mpi.Main.
func role(name string, body func(ctx context.Context, w *mpi.Comm) error) {
	roles[name] = func() error { mpi.Main(body); return nil }
}

// withoutReadv adds a program like role, in which process_vm_readv is forbidden, and withoutWritev one without
// process_vm_writev.
func withoutReadv(name string, body func(ctx context.Context, w *mpi.Comm) error) {
	roleAfter(proc.ForbidReadv, name+" without readv", body)
}

func withoutWritev(name string, body func(ctx context.Context, w *mpi.Comm) error) {
	roleAfter(proc.ForbidWritev, name+" without writev", body)
}

// roleAfter adds a program like role, which first forbids a system call.
func roleAfter(forbid func() error, name string, body func(ctx context.Context, w *mpi.Comm) error) {
	roles[name] = func() error {
		if err := forbid(); err != nil {
			return err
		}
		mpi.Main(body)
		return nil
	}
}

func TestMain(m *testing.M) {
	proc.RunRole(roles)
	proc.Parallel(4)
	os.Exit(hcakit.Main(m))
}

// spec describes a job.
type spec struct {
	n     int
	role  string
	args  []string // of the role
	flags []string // of the launcher
	env   []string // settings of the job; the test's own GORUN_* do not get through
	hydra bool     // started by mpiexec.hydra
	bare  bool     // started without a launcher
	prog  string   // instead of the test binary

	endless bool // the test looks whether it goes on
}

// job is one that has been started.
type job struct {
	t        *testing.T
	cmd      *exec.Cmd
	mark     string
	launcher string
	bare     bool
	over     sync.Once // of end
	failed   error     // of Wait; after end
	patient  bool      // its launcher ends before its ranks
	endless  bool
	temp     string   // TMPDIR of the job
	before   []string // what shared folders held
	out, err proc.Buffer
	started  time.Time
	ended    time.Time
}

// start starts a job, which ends with the test at the latest, however that ends.
func start(t *testing.T, s spec) *job {
	t.Helper()
	prog := program(t, s.prog)
	j := &job{t: t, mark: fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), time.Now().UnixNano()), temp: t.TempDir(),
		before: traces(), endless: s.endless}
	args := append(slices.Clone(s.flags), "-n", strconv.Itoa(s.n), prog)
	switch {
	case s.bare:
		j.launcher, j.bare, args = prog, true, nil
	case s.hydra:
		j.launcher, j.patient = proc.RequireProgram(t, "mpiexec.hydra", "mpich"), true
	default:
		j.launcher = proc.Alias(t, proc.Gorun(t))
	}
	j.cmd = exec.Command(j.launcher, append(args, s.args...)...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GORUN_") && !strings.HasPrefix(kv, "PMI") {
			j.cmd.Env = append(j.cmd.Env, kv)
		}
	}
	j.cmd.Env = append(j.cmd.Env, proc.RoleVar+"="+s.role, markVar+"="+j.mark, "TMPDIR="+j.temp,
		"XDG_CONFIG_HOME="+j.temp,  // no tuned file of the user
		"GORACE=atexit_sleep_ms=0") // each end of a rank would take a second
	if testing.Short() {
		j.cmd.Env = append(j.cmd.Env, briefVar+"=1")
	}
	j.cmd.Env = append(append(j.cmd.Env, jobEnv...), s.env...)
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.err
	j.cmd.WaitDelay = patience / 2 // a process that keeps the pipes is a failure and no hang
	j.started = time.Now()
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.kill)
	return j
}

// program is prog, or the test binary if that is "".
func program(t *testing.T, prog string) string {
	t.Helper()
	if prog != "" {
		return prog
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// run starts a job and expects it to end with an exit code.
func run(t *testing.T, s spec, code int) *job {
	t.Helper()
	return start(t, s).wait(code)
}

// startAgain starts a job, and again up to so many times where the machine, and not the code, was in its way.
func startAgain(t *testing.T, s spec, times int, fit func(*job) bool) *job {
	t.Helper()
	j := start(t, s)
	for range times {
		if j.end(); fit(j) {
			break
		}
		t.Logf("once more, after %v\n%s%s", j.cmd.ProcessState, clip(j.out.String()), clip(j.err.String()))
		j = start(t, s)
	}
	return j
}

// patience is how long a job may take before it is taken for dead: a guard that no slow machine meets, and no claim.
const patience = 90 * time.Second

// end waits for the end of the job.
func (j *job) end() {
	j.t.Helper()
	j.over.Do(func() {
		limit := patience
		if j.endless {
			limit = math.MaxInt64
		}
		watchdog := time.AfterFunc(limit, j.dump)
		j.failed = j.cmd.Wait()
		j.ended = time.Now()
		if !watchdog.Stop() {
			j.t.Errorf("the job did not end within %v; goroutines of its ranks below", patience)
		}
	})
}

// wait expects the end of the job, its exit code, and nothing left.
func (j *job) wait(code int) *job {
	j.t.Helper()
	j.end()
	if errors.Is(j.failed, exec.ErrWaitDelay) {
		j.t.Error("a process holds the job's output after its end")
	}
	if got := j.cmd.ProcessState.ExitCode(); got != code {
		j.t.Errorf("exit code %d, want %d", got, code)
	}
	j.nothingLeft()
	if j.t.Failed() {
		j.t.Logf("%q\nstdout:\n%s\nstderr:\n%s", j.cmd.Args, clip(j.out.String()), clip(j.err.String()))
	}
	return j
}

// dump has one rank after the other print its goroutines, while the others stand still, and ends the job.
func (j *job) dump() {
	ranks := slices.DeleteFunc(j.processes(), func(p proc.Info) bool { return !j.bare && p.Exe() == j.launcher })
	for _, p := range ranks {
		syscall.Kill(p.PID, syscall.SIGSTOP)
	}
	for _, p := range ranks {
		syscall.Kill(p.PID, syscall.SIGQUIT)
		syscall.Kill(p.PID, syscall.SIGCONT)
		isHere := func(q proc.Info) bool { return q.PID == p.PID }
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && slices.ContainsFunc(j.processes(), isHere); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	j.kill()
}

// kill ends what is left of the job, by SIGKILL.
func (j *job) kill() {
	if j.ended.IsZero() {
		j.cmd.Process.Kill()
	}
	for _, p := range j.processes() {
		syscall.Kill(p.PID, syscall.SIGKILL)
	}
}

// processes lists those of the job that live. gorun's cleaner has nothing of the job's in its environment, but is the
// same program, which has a path of its own for each job.
func (j *job) processes() []proc.Info {
	return proc.List(func(p proc.Info) bool {
		return slices.Contains(p.Env(), markVar+"="+j.mark) || !j.bare && !j.patient && p.Exe() == j.launcher
	})
}

// traces lists what a job of ours could have left in folders that all programs share.
func traces() []string {
	shm, _ := filepath.Glob("/dev/shm/*")
	tmp, _ := filepath.Glob("/tmp/gorun-*")
	return append(shm, tmp...)
}

// others are files in /dev/shm that belong to other programs, which may be running at the same time.
var others = regexp.MustCompile(`^/dev/shm/(open_mpi\.|vader_segment|mpich_|sem\.|psm|osc_|sm_segment|ucx_)`)

// traces lists what was not there before the job.
func (j *job) traces() []string {
	return slices.DeleteFunc(traces(), func(f string) bool {
		return slices.Contains(j.before, f) || others.MatchString(f)
	})
}

func (j *job) nothingLeft() {
	j.t.Helper()
	// hydra does not wait for the processes that it kills, and a gorun that was killed itself leaves that to its
	// cleaner, which ends last.
	if j.patient || j.cmd.ProcessState.ExitCode() == -1 {
		for end := time.Now().Add(patience); time.Now().Before(end) && len(j.processes()) > 0; {
			time.Sleep(2 * time.Millisecond)
		}
	}
	for _, p := range j.processes() {
		j.t.Errorf("the job has ended and process %v lives", p)
	}
	// Another package's tests may be running, and programs that others does not know: their files go with them.
	left := j.traces()
	for end := time.Now().Add(patience); time.Now().Before(end) && len(left) > 0; left = j.traces() {
		time.Sleep(20 * time.Millisecond)
	}
	for _, f := range left {
		j.t.Errorf("the job has left %s behind", f)
	}
	temp, _ := os.ReadDir(j.temp)
	for _, f := range temp {
		j.t.Errorf("the job has left %s in TMPDIR", f.Name())
	}
}

// clip leaves out what does not help: of goroutine dumps all but this module's functions and their arguments, and the
// middle of a long text.
func clip(s string) string {
	most := 12000
	if strings.Contains(s, "SIGQUIT: quit") {
		most = 60000
		blocks := strings.Split(s, "\n\n")
		goroutine := regexp.MustCompile(`(?m)^goroutine \d+ `)
		isRegisters := regexp.MustCompile(`(?m)^r(ax|ip|flags) `).MatchString
		blocks = slices.DeleteFunc(blocks, func(b string) bool {
			return isRegisters(b) || goroutine.MatchString(b) && !strings.Contains(b, "gorun-mpi/mpi")
		})
		for i, b := range blocks {
			if goroutine.MatchString(b) {
				blocks[i] = regexp.MustCompile(`(?m)^(\t|created by|[a-z./]+\.).*\n?`).ReplaceAllStringFunc(b, func(line string) string {
					if strings.HasPrefix(line, "github.com/gorun-mpi/mpi") {
						return strings.TrimPrefix(line, "github.com/gorun-mpi/")
					}
					return ""
				})
			}
		}
		s = strings.Join(blocks, "\n")
	}
	if len(s) > most {
		return s[:most/2] + "\n...\n" + s[len(s)-most/2:]
	}
	return s
}

// says expects regular expressions, each in the job's output or among its errors.
func (j *job) says(patterns ...string) *job {
	j.t.Helper()
	for _, p := range patterns {
		if j.count(p) == 0 {
			j.t.Errorf("no process prints %q but:\n%s%s", p, clip(j.out.String()), clip(j.err.String()))
		}
	}
	return j
}

// count is how often a regular expression occurs.
func (j *job) count(pattern string) int {
	return len(j.find(pattern))
}

// find returns the occurrences of a regular expression with their groups, in lines of the output and of the errors.
func (j *job) find(pattern string) [][]string {
	re := regexp.MustCompile(`(?m)` + pattern)
	return append(re.FindAllStringSubmatch(j.out.String(), -1), re.FindAllStringSubmatch(j.err.String(), -1)...)
}
