package procs

import (
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// startShells starts ranks that run scripts.
func startShells(t *testing.T, b *Local, scripts ...string) (pids []int) {
	t.Helper()
	for rank, script := range scripts {
		pids = append(pids, startShell(t, b, Spec{Rank: rank}, script))
	}
	return pids
}

// startShell starts a rank that has no input and output.
func startShell(t *testing.T, b *Local, s Spec, script string) (pid int) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	s.Path, s.Argv = "/bin/sh", []string{"sh", "-c", script}
	s.Stdin, s.Stdout, s.Stderr, s.Control = null, null, null, null
	if pid, err = b.Start(&s); err != nil {
		t.Fatal(err)
	}
	return pid
}

// Only a lazy rank may wake late, it and what it starts.
func TestLazy(t *testing.T) {
	b := NewLocal(2, false, nil)
	defer b.Close()
	for rank, lazy := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "slack")
		startShell(t, b, Spec{Rank: rank, Lazy: lazy}, "cat /proc/self/timerslack_ns >"+path)
		<-b.Exits()
		got, err := os.ReadFile(path)
		if want := fmt.Sprintln(int(lazySlack)); err != nil || string(got) == want != lazy {
			t.Errorf("lazy %v: %q, %v", lazy, got, err)
		}
	}
}

// The ends of ranks are reported with and without a watch for deaths, which so many ranks leave no descriptors for.
func TestExits(t *testing.T) {
	NewLocal(1, false, nil).Close() // os/signal keeps a goroutine from its first use on
	before := leak.Take()
	for _, size := range []int{3, 1 << 20} {
		b := NewLocal(size, false, nil)
		if watched := b.deaths != nil; watched != (size == 3) {
			t.Errorf("a job of %d ranks has a watch for deaths: %v", size, watched)
		}
		pids := startShells(t, b, "exit 3", "kill -9 $$", "sleep 0.1")
		want := []Exit{{Rank: 0, Pid: pids[0], Code: 3},
			{Rank: 1, Pid: pids[1], Signal: syscall.SIGKILL}, {Rank: 2, Pid: pids[2]}}
		for range want {
			select {
			case e := <-b.Exits():
				w := want[e.Rank]
				if w.Host = b.Host(e.Rank); e != w {
					t.Errorf("of %d ranks: %+v, want %+v", size, e, w)
				}
			case <-time.After(time.Minute):
				t.Fatalf("of %d ranks: an end is not reported", size)
			}
		}
		b.Close()
	}
	if err := before.Check(time.Minute); err != nil {
		t.Error(err)
	}
}

// Deaths are heard of in their order, however late: the first failure decides the exit code.
func TestDeathsComeInOrder(t *testing.T) {
	n := 200 // more than are heard of at once, which are 64
	if testing.Short() {
		n = 100
	}
	d := newDeathWatch(n)
	if d == nil {
		t.Skip("needs pidfds and 1100 descriptors")
	}
	defer d.close()
	var cmds []*exec.Cmd
	for range n {
		cmd := exec.Command("/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cmd.Process.Kill(); cmd.Wait() }()
		if cmds = append(cmds, cmd); !d.add(cmd.Process.Pid) {
			t.Fatal("a process cannot be watched")
		}
	}
	var want, got []int
	for _, i := range rand.Perm(n) {
		pid := cmds[i].Process.Pid
		want = append(want, pid)
		syscall.Kill(pid, syscall.SIGKILL)
		proc.Eventually(t, "a death", func() bool { _, ended := peek(pid); return ended })
	}
	d.all(func(pid int) bool { got = append(got, pid); return len(got) < n })
	if !slices.Equal(got, want) {
		t.Errorf("processes died in the order %v and were reported in the order %v", want, got)
	}
}

// Until the cleaner is dead the numbers of the ranks' process groups are not given up: gorun might be killed now, and
// the cleaner would kill what has got such a number.
func TestCleanerEndsBeforeRanksAreReaped(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		b := NewLocal(8, false, []string{"/bin/sleep", "1000"})
		pids := startShells(t, b, "exit 0", "exit 0", "exit 0", "exit 0", "exit 0", "exit 0", "exit 0", "exit 0")
		helper := 0
		proc.Eventually(t, "the cleaner", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			helper = b.helper
			return helper != 0
		})
		closed := make(chan struct{})
		go func() { defer close(closed); b.Close() }()
		for watching := true; watching; {
			select {
			case <-closed:
				watching = false
			default:
			}
			for _, pid := range pids {
				if syscall.Kill(pid, 0) != syscall.ESRCH {
					continue
				}
				if _, lives := proc.Lookup(helper); lives {
					t.Fatalf("rank's process %d has been reaped and the cleaner lives", pid)
				}
			}
		}
	}
}

// A cleaner that does not read, being stopped for example, keeps gorun neither from starting ranks nor from ending.
func TestCleanerDoesNotRead(t *testing.T) {
	const groups = 20000 // more than a pipe holds
	begun := make(chan *cleaner, 1)
	c := newCleanerTask(groups, func(mark string, groups ...int) (*cleaner, error) {
		c, err := startCleaner([]string{"/bin/sleep", "1000"}, mark, groups...)
		begun <- c
		return c, err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.prepare("GORUN_JOB=gorun_x")
		for i := range groups {
			c.add(1<<30 + i)
		}
		<-begun
		time.Sleep(10 * time.Millisecond) // the pipe is full now, or soon
		c.stop()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the cleaner to read")
	}
}

// When its launcher is gone the cleaner kills what has the job's mark, in any session, and nothing else.
func TestCleanerKillsMarked(t *testing.T) {
	const mark = "GORUN_JOB=gorun_of_TestCleanerKillsMarked"
	run := func(env string) *exec.Cmd {
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.Env = []string{"A=b", env, "C=d"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
	marked, other, longer := run(mark), run("GORUN_JOB=gorun_other"), run(mark+"x")
	proc.Eventually(t, "the end of its start, before which a process has no environment", func() bool {
		p, _ := proc.Lookup(marked.Process.Pid)
		return slices.Contains(p.Env(), mark)
	})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := &cleaner{pipe: w}
	c.mark(mark)
	w.Close()
	Clean(r)
	if err := marked.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the marked process: %v", err)
	}
	for _, cmd := range []*exec.Cmd{other, longer} {
		if _, lives := proc.Lookup(cmd.Process.Pid); !lives {
			t.Errorf("a process with %s is dead", cmd.Env[1])
		}
	}
}

// A process whose environment is empty at first, since it execs just then, is killed too, however long it is held up.
// One whose environment stays empty is waited for a while, and left.
func TestKillMarkedInExec(t *testing.T) {
	defer func(e, d time.Duration) { emptyFor, searching = e, d }(emptyFor, searching)
	searching = time.Hour
	const mark = "GORUN_JOB=gorun_of_TestKillMarkedInExec"
	for _, empty := range []int{1, 30, 1 << 30} {
		emptyFor = time.Hour
		if empty > 30 {
			emptyFor = 10 * time.Millisecond
		}
		cmd := exec.Command("/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		reads := 0
		environments(t, func(pid int) ([]byte, error) {
			if pid != cmd.Process.Pid || !livesOn(cmd) {
				return nil, os.ErrPermission
			}
			if reads++; reads <= empty {
				return nil, nil
			}
			return []byte("A=b\x00" + mark + "\x00"), nil
		})
		killMarked(mark)
		lives := livesOn(cmd)
		cmd.Process.Kill()
		cmd.Wait()
		if lives != (empty > 30) {
			t.Errorf("its environment is empty for %d looks: %d looks, and it lives: %v", empty, reads, lives)
		}
	}
}

// A zombie and a thread of the kernel will never show an environment, so that the search does not wait for them. A
// process that has memory may, and one whose first thread has ended shows it by the others.
func TestWhoHasAnEnvironment(t *testing.T) {
	defer func(was time.Duration) { emptyFor = was }(emptyFor)
	emptyFor = time.Hour
	const mark = "GORUN_JOB=gorun_of_TestWhoHasAnEnvironment"
	run := func(program string, env ...string) *exec.Cmd {
		cmd := exec.Command(program, "1000")
		cmd.Env = env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
	dead, bare := run("/bin/sleep", mark), run("/bin/sleep", []string{}...)
	headless := run(os.Args[0], mark, noHead+"=1")
	dead.Process.Kill()
	proc.Eventually(t, "a zombie, and a process without its first thread", func() bool {
		return !livesOn(dead) && !livesOn(headless)
	})
	for _, c := range []struct {
		what string
		pid  int
		want finding
	}{
		{"a zombie", dead.Process.Pid, unmarked},
		{"a process without an environment", bare.Process.Pid, unsure},
		{"a process without its first thread", headless.Process.Pid, marked},
	} {
		for look, m := 0, newMarkSearch(mark); look < 3; look++ {
			if f := m.look(c.pid); f != c.want {
				t.Errorf("%s, look %d: finding %d; want %d", c.what, look, f, c.want)
			}
		}
	}
	if newMarkSearch(mark).look(2) == unsure && statOf(2).parent == 0 { // kthreadd, but in a container
		t.Error("a thread of the kernel may show an environment")
	}
}

// noHead is a variable that has this test binary end its first thread.
const noHead = "GORUN_TEST_NO_HEAD"

func init() { // runs on the first thread
	if os.Getenv(noHead) != "" {
		syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
}

// environments has the environments of processes read by another function for the rest of a test.
func environments(t *testing.T, read func(pid int) ([]byte, error)) {
	was := environ
	t.Cleanup(func() { environ = was })
	environ = read
}

// livesOn reports whether the child of cmd lives: it is neither gone nor a zombie.
func livesOn(cmd *exec.Cmd) bool {
	state := statOf(cmd.Process.Pid).state
	return state != "" && state != "Z"
}

// On a host where there is always a process that has just been started, or always one more that has the mark, the
// search for a mark ends all the same; and what has the mark then is killed.
func TestKillMarkedWhereAllFork(t *testing.T) {
	defer func(was time.Duration) { searching = was }(searching)
	searching = 10 * time.Millisecond
	const mark = "GORUN_JOB=gorun_of_TestKillMarkedWhereAllFork"
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	began, looks := time.Now(), 0
	environments(t, func(pid int) ([]byte, error) {
		switch pid {
		case os.Getpid(): // of each look
			if looks++; looks%2 == 0 {
				return []byte("A=b\x00"), nil // another process with the number of one that has ended
			}
			return nil, nil
		case cmd.Process.Pid: // a signal can be sent to it also when it is a zombie
			if time.Since(began) > searching {
				return []byte(mark + "\x00"), nil
			}
			return nil, nil
		}
		return nil, os.ErrPermission
	})
	killMarked(mark)
	proc.Eventually(t, "the end of the process that showed its mark at last", func() bool { return !livesOn(cmd) })
	if looks >= 500 {
		t.Errorf("%d looks", looks)
	}
}

// What one look misses is killed after the next, and what has another owner lives.
func TestKillOrphansLooksTwice(t *testing.T) {
	const mark = "GORUN_JOB=gorun_of_TestKillOrphansLooksTwice"
	var cmds [3]*exec.Cmd // one of another owner, what it has left behind, and what a rank has
	for i := range cmds {
		cmds[i] = exec.Command("/bin/sleep", "1000")
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
		defer cmds[i].Wait()
		defer cmds[i].Process.Kill()
	}
	looks := 0
	environments(t, func(pid int) ([]byte, error) {
		if pid != cmds[2].Process.Pid {
			return []byte("A=b\x00"), nil
		}
		if looks++; looks == 1 {
			return nil, os.ErrNotExist
		}
		return []byte(mark + "\x00"), nil
	})
	killOrphans(map[int]bool{cmds[0].Process.Pid: true}, mark, "")
	for i, cmd := range cmds {
		if lives := livesOn(cmd); lives != (i < 2) {
			t.Errorf("process %d lives: %v", i, lives)
		}
	}
}

// Where others mark what they start, what they have left behind lives, as does what may be theirs. All else is killed,
// also what has an empty environment.
func TestKillOrphansOfRanksOnly(t *testing.T) {
	defer func(was time.Duration) { emptyFor = was }(emptyFor)
	emptyFor = 10 * time.Millisecond
	shown := map[int]string{} // by pid
	var cmds []*exec.Cmd
	for _, text := range []string{"", "A=b\x00" + edgeMark + "\x00", "hidden",
		strings.Repeat("\x00", 40) + "1\x00", // as ssh's master connection has it, whose title is written over it
		"", "A=b\x00" + edgeMark + "1\x00"} {
		cmd := exec.Command("/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		shown[cmd.Process.Pid] = text
		cmds = append(cmds, cmd)
	}
	environments(t, func(pid int) ([]byte, error) {
		if shown[pid] == "hidden" {
			return nil, os.ErrPermission
		}
		return []byte(shown[pid]), nil
	})
	killOrphans(map[int]bool{cmds[0].Process.Pid: true}, "GORUN_JOB=gorun_x", edgeMark)
	for i, cmd := range cmds {
		if lives := livesOn(cmd); lives != (i < 4) {
			t.Errorf("process %d with %q lives: %v", i, shown[cmd.Process.Pid], lives)
		}
	}
}

// The kernel's lists name the children of all threads, those that have ended too, and no other process.
func TestChildrenOfThreads(t *testing.T) {
	var want []int
	var hold sync.WaitGroup
	over := make(chan struct{})
	defer hold.Wait()
	defer close(over)
	for i := range 3 {
		started := make(chan int)
		hold.Go(func() {
			runtime.LockOSThread() // the thread ends with this function, and another has its children then
			cmd := exec.Command("/bin/sleep", []string{"1000", "0", "1000"}[i])
			if err := cmd.Start(); err != nil {
				t.Error(err)
				started <- 0
				return
			}
			started <- cmd.Process.Pid
			<-over
			cmd.Process.Kill()
			cmd.Wait()
		})
		want = append(want, <-started)
	}
	proc.Eventually(t, "the end of the second", func() bool {
		return statOf(want[1]).state == "Z"
	})
	pids, known := childrenOfThreads()
	if !known {
		t.Skip("this kernel has no lists of children")
	}
	for _, pid := range pids {
		if parent := statOf(pid).parent; parent != os.Getpid() && parent != 0 {
			t.Errorf("process %d is a child of %d, not of this process", pid, parent)
		}
	}
	for _, c := range want {
		if !slices.Contains(pids, c) {
			t.Errorf("child %d is not among %v", c, pids)
		}
	}
	for _, c := range children() {
		if c.pid == want[1] && !c.dead || c.pid == want[0] && c.dead {
			t.Errorf("child %d, the %dth: dead is %v", c.pid, slices.Index(want, c.pid), c.dead)
		}
	}
}

// The first job of a process that reaps all its children leaves the ranks of a second one alone.
func TestSpawnedJob(t *testing.T) {
	first := NewLocal(2, true, nil)
	defer first.Close()
	before := len(first.others)
	startShells(t, first, "sleep 1000")
	for range 20 {
		b := NewSpawned(first, 2, []string{"/bin/sleep", "1000"})
		other := NewSpawned(first, 1, nil)
		startShells(t, other, "exit 5")
		startShells(t, b, "true & true & exit 3", "true & kill -9 $$") // the orphans are the first job's
		var got []int
		for range 2 {
			select {
			case e := <-b.Exits():
				got = append(got, e.Status())
			case <-time.After(time.Minute):
				t.Fatal("the end of a rank is not reported")
			}
		}
		if slices.Sort(got); !slices.Equal(got, []int{3, 137}) {
			t.Fatalf("the ranks have ended with %v", got)
		}
		if e := <-other.Exits(); e.Status() != 5 {
			t.Fatalf("%v", e)
		}
		other.Close()
		b.Close()
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	if n := len(first.others) - before; n > 0 {
		t.Errorf("%d processes that have been reaped count as others", n)
	}
}

// What the ranks of a spawned job have left behind ends with that job, in any session.
func TestSpawnedJobLeavesNothing(t *testing.T) {
	first := NewLocal(1, false, nil)
	defer first.Close()
	const mark = "GORUN_JOB=gorun_of_TestSpawnedJobLeavesNothing"
	left := func() []proc.Info {
		return proc.List(func(p proc.Info) bool { return slices.Contains(p.Env(), mark) })
	}
	for _, outer := range []*Local{first, nil} {
		b := NewSpawned(outer, 1, nil)
		startShell(t, b, Spec{Env: []string{mark, "PATH=" + os.Getenv("PATH")}}, "setsid sleep 1000 & exit 0")
		<-b.Exits()
		proc.Eventually(t, "the process that is left", func() bool { return len(left()) == 1 })
		b.Close()
		proc.Eventually(t, "its end", func() bool { return len(left()) == 0 })
	}
}
