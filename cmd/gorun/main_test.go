package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// The test binary is gorun, its cleaner, and the ranks.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == cleanerWord:
		procs.Clean(os.Stdin)
	case len(os.Args) > 2 && os.Args[1] == reach.Word:
		os.Exit(agent(os.Args))
	case filepath.Base(os.Args[0]) == "srun":
		os.Exit(srun(os.Args[1:]))
	case os.Getenv(proc.RoleVar) == "gorun":
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	case os.Getenv(proc.RoleVar) == "rank":
		os.Exit(rank(os.Args[1:]))
	case len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__"): // by visitHere in a test: not all tests once more
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	default:
		proc.Parallel(8)
		os.Exit(proc.Main(m))
	}
}

// srun starts tasks on this host as Slurm's does on several, with its standard input for all of them.
func srun(args []string) int {
	var hosts []string
	for len(args) > 0 && args[0][0] == '-' {
		switch args[0] {
		case "-w":
			hosts = strings.Split(args[1], ",")
			fallthrough
		case "-N", "-n":
			args = args[1:]
		}
		args = args[1:]
	}
	var tasks []*exec.Cmd
	var inputs []io.Writer
	for _, host := range hosts {
		task := exec.Command(args[0], args[1:]...)
		task.Env = []string{"SLURM_JOB_ID=7", "SLURMD_NODENAME=" + host} // --export=NONE
		task.Stdout, task.Stderr = os.Stdout, os.Stderr
		in, err := task.StdinPipe()
		if err == nil {
			err = task.Start()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "srun: error:", err)
			return 1
		}
		tasks, inputs = append(tasks, task), append(inputs, in)
	}
	go func() {
		io.Copy(io.MultiWriter(inputs...), os.Stdin)
		for _, in := range inputs {
			in.(io.Closer).Close()
		}
	}()
	code := 0
	for _, task := range tasks {
		if err := task.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "srun: error:", err)
			code = 1
		}
	}
	return code
}

// rank is the program under gorun. Its words are orders; "2:exit" is for rank 2 only.
func rank(words []string) int {
	me := os.Getenv("PMI_RANK")
	if os.Getenv(pmi.EnvSpawned) != "" { // it has the words of the rank whose place it takes
		words = []string{"join", "fence", "where", "finalize"}
	}
	for i := 0; i < len(words); i++ {
		word := words[i]
		if to, order, ok := strings.Cut(word, ":"); ok {
			word = order
			if to != me {
				continue
			}
		}
		order, arg, _ := strings.Cut(word, "=")
		n, _ := strconv.Atoi(arg)
		switch order {
		case "join":
			joinJob()
		case "finalize":
			if err := client.Finalize(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		case "fence":
			if err := client.Fence(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		case "spawn":
			q := pmi.Spawn{Ranks: 1, Command: "/bin/sh", Args: []string{"-c", arg}}
			if _, err := client.Spawn(context.Background(), q); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		case "replace", "try": // the ranks of a list, by as many that say where they are
			if err := replace(arg); err != nil {
				fmt.Fprintln(os.Stderr, err)
				if order == "replace" {
					return 1
				}
			}
		case "await": // a file of the test
			for _, err := os.Stat(arg); err != nil; _, err = os.Stat(arg) {
				time.Sleep(2 * time.Millisecond)
			}
		case "where":
			fmt.Printf("new rank %s on %s%s\n", me, os.Getenv("HOSTNAME"), os.Getenv("SLURMD_NODENAME"))
		case "exchange":
			fmt.Println(exchange(n))
		case "orphan": // whatever has started this rank
			syscall.Kill(os.Getppid(), syscall.SIGKILL)
			proc.AwaitEnd()
		case "freeze": // the agent of this host, which gorun hears no more
			syscall.Kill(os.Getppid(), syscall.SIGSTOP)
			proc.AwaitEnd()
		case "abort":
			client.Abort(n, "the test wants it")
			proc.AwaitEnd() // gorun ends us
		case "exit":
			return n
		case "kill":
			syscall.Kill(os.Getpid(), syscall.Signal(n))
			proc.AwaitEnd()
		case "deaf": // to signals that can be ignored
			signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
		case "tell": // which signal came
			c := make(chan os.Signal, 1)
			signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1)
			signal.Notify(c, passedOn...)
			fmt.Println("ready")
			if s := <-c; arg != "" {
				os.WriteFile(arg, []byte(s.String()), 0o600)
			} else {
				fmt.Println("got", s)
			}
		case "sleep":
			fmt.Println("ready")
			time.Sleep(time.Hour)
		case "child", "daemon":
			child(order == "daemon")
		case "print":
			fmt.Println(arg)
		case "prompt":
			fmt.Print(arg)
		case "complain":
			fmt.Fprintln(os.Stderr, arg)
		case "flood":
			flood(me, arg)
		case "pour": // without end
			for text := []byte(strings.Repeat("so much ", 30) + "\n"); ; {
				os.Stdout.Write(text)
			}
		case "lines": // n bytes
			writeLines(me, n)
		case "cat":
			io.Copy(os.Stdout, os.Stdin)
		case "line":
			var s string
			fmt.Scanln(&s)
			fmt.Println("read", s)
		case "env":
			fmt.Printf("%s=%s\n", arg, os.Getenv(arg))
		case "exe":
			path, _ := os.Readlink("/proc/self/exe")
			fmt.Println(path)
		case "pwd":
			dir, _ := os.Getwd()
			fmt.Println(dir)
		case "cpus":
			fmt.Printf("rank %s NumCPU %d GOMAXPROCS %d\n", me, runtime.NumCPU(), runtime.GOMAXPROCS(0))
		default:
			fmt.Fprintln(os.Stderr, "unknown order", word)
			return 99
		}
	}
	return 0
}

// passedOn are signals by which batch systems, terminals and users tell a program something.
var passedOn = []os.Signal{
	syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGWINCH,
}

var client *pmi.Client

func joinJob() {
	c, err := pmi.Join(context.Background())
	if err != nil || c == nil {
		fmt.Fprintln(os.Stderr, "join:", c, err)
		os.Exit(98)
	}
	client = c
}

// replace has ranks started in the places of others.
func replace(list string) error {
	var q pmi.Spawn
	for text := range strings.SplitSeq(list, ",") {
		rank, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		q.Dead = append(q.Dead, rank)
	}
	q.Ranks = len(q.Dead)
	if err := q.Keep(pmi.PlacesKey, nil); err != nil {
		return err
	}
	_, err := client.Spawn(context.Background(), q)
	return err
}

// exchange puts a number, and returns the sum of what all ranks have put.
func exchange(n int) (sum int) {
	ctx := context.Background()
	err := client.Put(ctx, fmt.Sprintf("number-%d", client.Rank()), []byte(strconv.Itoa(n)))
	if err == nil {
		err = client.Fence(ctx)
	}
	for rank := 0; rank < client.Size() && err == nil; rank++ {
		var text []byte
		text, err = client.Get(ctx, fmt.Sprintf("number-%d", rank))
		k, _ := strconv.Atoi(string(text))
		sum += k
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(97)
	}
	return sum
}

// child leaves a process behind that holds this rank's streams, in its group or in a session of its own.
func child(daemon bool) {
	cmd := exec.Command("sleep", "1000")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: daemon}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// flood prints lines in pieces that tear each line apart, to both streams. arg is how many, and perhaps a file that is
// made if the machine has torn one apart for so long that gorun may show its beginning.
func flood(me, arg string) {
	lines, slow, _ := strings.Cut(arg, ",")
	n, _ := strconv.Atoi(lines)
	for i := range n {
		l := fmt.Sprintf("%s %d %s end\n", me, i, strings.Repeat(me, 50))
		to := []io.Writer{os.Stdout, os.Stderr}[i%2]
		begin := time.Now()
		io.WriteString(to, l[:20])
		io.WriteString(to, l[20:])
		if slow != "" && time.Since(begin) > 50*time.Millisecond {
			os.WriteFile(slow, nil, 0o600)
		}
	}
}

// lineSize is the length of the lines of writeLines. Each has the rank and its own number.
const lineSize = 64

func writeLines(me string, bytes int) {
	var part []byte
	for i := range bytes / lineSize {
		part = fmt.Appendf(part, "%4s %8d %0*d\n", me, i, lineSize-15, 0)
		if len(part) >= 1<<15 || i == bytes/lineSize-1 {
			os.Stdout.Write(part)
			part = part[:0]
		}
	}
}

// job is gorun as a process, started by a test.
type job struct {
	t        testing.TB
	cmd      *exec.Cmd
	gorun    string // the path of its program, which is the cleaner's too
	mark     string // in the environment of all processes of this job
	out, err proc.Buffer
	started  time.Time
}

// tooLong is how long one step may take before it is taken for hanging: no claim about speed.
const tooLong = time.Minute

const markVar = "GORUN_TEST_MARK"

// prepare makes the command; args are gorun's. The word RANK in them is the test's rank program.
func prepare(t testing.TB, args ...string) *job {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	full := []string{"-x", proc.RoleVar + "=rank"}
	literal := false
	for _, a := range args {
		if a == "RANK" {
			a = self
		}
		full = append(full, a)
		literal = literal || a == "--"
		if a == ":" && !literal {
			full = append(full, "-x", proc.RoleVar+"=rank")
		}
	}
	j := &job{t: t, cmd: exec.Command(proc.Alias(t, self), full...),
		mark: fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), time.Now().UnixNano())}
	j.gorun = j.cmd.Path
	j.cmd.Env = append(os.Environ(), proc.RoleVar+"=gorun", markVar+"="+j.mark,
		"XDG_CONFIG_HOME="+filepath.Join(filepath.Dir(self), "none")) // no tuned file of the user
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.err
	// So that a descendant that keeps our pipes is a failure of the test and no hang.
	j.cmd.WaitDelay = tooLong / 2
	return j
}

func start(t *testing.T, args ...string) *job {
	t.Helper()
	return prepare(t, args...).start()
}

func (j *job) start() *job {
	j.t.Helper()
	j.started = time.Now()
	if err := j.cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { // of a test that has failed
		j.cmd.Process.Kill()
		for _, p := range j.processes() {
			syscall.Kill(p.PID, syscall.SIGKILL)
		}
	})
	return j
}

// wait expects an exit code, and nothing left.
func (j *job) wait(code int) *job {
	j.t.Helper()
	j.end(code)
	j.nothingLeft()
	return j
}

// end expects an exit code.
func (j *job) end(code int) {
	j.t.Helper()
	limit := time.AfterFunc(5*tooLong, func() {
		j.cmd.Process.Signal(syscall.SIGQUIT)
		time.AfterFunc(10*time.Second, func() { j.cmd.Process.Kill() })
	})
	err := j.cmd.Wait()
	if !limit.Stop() {
		j.t.Errorf("gorun did not end within %v", 5*tooLong)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		j.t.Error("a process holds gorun's output after its end")
	}
	if got := j.cmd.ProcessState.ExitCode(); got != code {
		j.t.Errorf("gorun %q exited with %d, want %d", j.cmd.Args[3:], got, code)
	}
	if j.t.Failed() {
		j.t.Logf("stdout:\n%s\nstderr:\n%s", clip(j.out.String()), clip(j.err.String()))
	}
}

func clip(s string) string {
	if len(s) > 3000 {
		return s[:1500] + "\n...\n" + s[len(s)-1500:]
	}
	return s
}

// took logs how long the end took since a moment. No test asserts it: what does not end is a thousand seconds late.
func (j *job) took(since time.Time) *job {
	j.t.Helper()
	j.t.Logf("all was over after %v", time.Since(since))
	return j
}

// processes lists those of the job that live.
func (j *job) processes() []proc.Info {
	return proc.List(func(p proc.Info) bool { return slices.Contains(p.Env(), markVar+"="+j.mark) })
}

func (j *job) nothingLeft() {
	j.t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	if left := j.processes(); len(left) > 0 {
		j.t.Errorf("gorun has ended and these live: %v", left)
	}
	if left := j.cleaners(); len(left) > 0 {
		j.t.Errorf("gorun has ended and its cleaner lives: %v", left)
	}
}

// ready waits until n ranks have printed "ready".
func (j *job) ready(n int) *job {
	j.t.Helper()
	proc.Eventually(j.t, "the ranks", func() bool { return strings.Count(j.out.String(), "ready\n") >= n })
	return j
}

func (j *job) says(parts ...string) *job {
	j.t.Helper()
	for _, p := range parts {
		if !strings.Contains(j.err.String(), p) {
			j.t.Errorf("gorun did not say %q but:\n%s", p, clip(j.err.String()))
		}
	}
	return j
}

func (j *job) prints(want string) *job {
	j.t.Helper()
	if got := j.out.String(); got != want {
		j.t.Errorf("the output is\n%s\nwant\n%s", clip(got), clip(want))
	}
	return j
}

// saysOnce expects these texts once each, and a warning for each of them only.
func (j *job) saysOnce(parts ...string) *job {
	j.t.Helper()
	for _, p := range parts {
		if n := strings.Count(j.err.String(), p); n != 1 {
			j.t.Errorf("gorun said %q %d times:\n%s", p, n, clip(j.err.String()))
		}
	}
	if n := strings.Count(j.err.String(), "warning:"); n != len(parts) {
		j.t.Errorf("gorun warned %d times, want %d:\n%s", n, len(parts), clip(j.err.String()))
	}
	return j
}

// printsLines expects these lines in any order.
func (j *job) printsLines(want ...string) *job {
	j.t.Helper()
	if got := sorted(j.out.String()); got != sorted(strings.Join(want, "\n")+"\n") {
		j.t.Errorf("the output is\n%s\nwant the lines %q", clip(got), want)
	}
	return j
}
