package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	b := []int64{1}
	role("waits cross", func(_ context.Context, w *mpi.Comm) error { return mpi.Ssend(w, b, 1-w.Rank(), 0) })
	role("waits skip", func(_ context.Context, w *mpi.Comm) error {
		rows, err := w.Dup()
		if err == nil {
			err = rows.SetName("rows")
		}
		for range 16 {
			if err == nil {
				err = mpi.Allreduce(rows, []int64{1}, b, mpi.Sum)
			}
		}
		if err != nil {
			return err
		}
		if w.Rank() == 2 {
			_, err = mpi.Recv(w, b, 0, 9)
			return err
		}
		return mpi.Allreduce(rows, []int64{1}, b, mpi.Sum)
	})
	role("waits tag", func(_ context.Context, w *mpi.Comm) (err error) {
		peer := w.Rank() ^ 1
		if w.Rank()%2 == 1 {
			_, err = mpi.Recv(w, b, peer, 6)
			return err
		}
		for i := range 3 {
			if err := mpi.Send(w, b, peer, 5+i%2*2); err != nil {
				return err
			}
		}
		_, err = mpi.Recv(w, b, peer, 0)
		return err
	})
	role("waits ring", func(_ context.Context, w *mpi.Comm) error { // of all ranks but the last one, which dies
		last := w.Size() - 1
		if w.Rank() == last {
			die()
		}
		return mpi.Ssend(w, b, (w.Rank()+1)%last, 0)
	})
	role("waits long", func(_ context.Context, w *mpi.Comm) error { // after messages that were long enough for a device
		long := make([]byte, 256<<10)
		for tag := range 2 {
			r, err := mpi.Irecv(w, long, 1-w.Rank(), tag)
			if err == nil && tag == 0 {
				err = mpi.Send(w, make([]byte, len(long)), 1-w.Rank(), tag)
			}
			if err == nil {
				_, err = r.Wait()
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	role("waits lock", func(_ context.Context, w *mpi.Comm) error {
		win, err := mpi.WinAlloc[int64](w, 1)
		if err == nil && w.Rank() == 2 {
			err = win.Lock(1, mpi.Exclusive)
		}
		if err == nil {
			err = mpi.Barrier(w)
		}
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			return win.Lock(1, mpi.Shared)
		}
		_, err = mpi.Recv(w, b, 0, 9)
		return err
	})
	role("waits returned", func(_ context.Context, w *mpi.Comm) error {
		if w.Rank() == 1 {
			return nil
		}
		_, err := mpi.Recv(w, b, mpi.AnySource, 0)
		return err
	})
	role("waits goroutines", func(_ context.Context, w *mpi.Comm) (err error) {
		if w.Rank() == 0 {
			go mpi.Recv(w, make([]int64, 1), 1, 7)
			go mpi.Recv(w, make([]int64, 1), 1, 8)
		}
		_, err = mpi.Recv(w, b, 1-w.Rank(), 6)
		return err
	})
	role("waits alive", func(_ context.Context, w *mpi.Comm) error {
		if w.Rank() == 0 {
			fmt.Println("sleeps")
			time.Sleep(sleepOf())
		}
		return mpi.Barrier(w)
	})
	role("waits busy", func(_ context.Context, w *mpi.Comm) error {
		for began := time.Now(); w.Rank() == 0 && time.Since(began) < sleepOf(); {
			for n := 0; n < 1<<27; n++ {
			}
			if _, err := os.ReadFile("/proc/self/status"); err != nil {
				return err
			}
		}
		return mpi.Barrier(w)
	})
}

// sleepOf is how long a rank of these jobs is in no call: longer than --stall.
func sleepOf() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("WAITS_SLEEP"))
	return d
}

// line is the number of the line of this file that has a text.
func line(t *testing.T, text string) int {
	t.Helper()
	file, err := os.ReadFile("waits_linux_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(string(file), "\n") {
		if strings.Contains(l, text) {
			return i + 1
		}
	}
	t.Fatalf("no line has %q", text)
	return 0
}

// A job in which no rank can move is said by itself, with the ranks, their calls and their lines of code.
func TestJobThatStands(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"shm", "tcp"} {
		jobsThatStand(t, transport, "GORUN_TRANSPORTS="+transport)
	}
}

// jobsThatStand has gorun end jobs in which no rank can move.
func jobsThatStand(t *testing.T, over string, env ...string) {
	for _, c := range []struct {
		name string
		n    int
		want []string
	}{
		{"waits cross", 2, []string{
			`^  rank 0: Ssend to 1, tag 0, 8 B, world, for \d+\.?\d* s, at waits_linux_test\.go:LINE\(mpi.Ssend\)$`,
			`^  rank 1: Ssend to 0, tag 0, 8 B, world, for `, `^  0 waits for 1 waits for 0$`}},
		{"waits long", 2, []string{`^  rank 0: Request.Wait from 1, tag 1, 256 KiB, world, for `,
			`^  rank 1: Request.Wait from 0, tag 1, 256 KiB, world, for `}},
		{"waits skip", 4, []string{
			`^  ranks 0, 1, 3: Allreduce number 17 on rows: waits for 2, for .* s, at waits_linux_test\.go:\d+$`,
			`^  rank 2: Recv from 0, tag 9, 8 B, world, for .*, at `, `^  0 waits for 2 waits for 0$`}},
		{"waits tag", 2, []string{`^  rank 1: Recv from 0, tag 6, 8 B, world, for `,
			`^  rank 1 has 3 messages from 0, tags 5, 7, world: did the receive ask for tag 6\?$`}},
		{"waits lock", 3, []string{
			`^  rank 0: Win\.Lock of 1, world\.win1, held by 2, for .*, at waits_linux_test\.go:\d+$`,
			`^  ranks 1, 2: Recv from 0, tag 9, `, `^  0 waits for 2 waits for 0$`}},
		{"waits returned", 2, []string{
			`^  rank 0: Recv from any rank, tag 0, 8 B, world, for `,
			`^  rank 1: Finalize, for .*, at job_linux_test\.go:\d+$`}},
	} {
		t.Run(c.name+" "+over, func(t *testing.T) {
			t.Parallel()
			j := run(t, spec{n: c.n, role: c.name, flags: []string{"--stall", "abort"}, env: env}, 125)
			for _, want := range c.want {
				j.says(strings.ReplaceAll(want, `LINE\(mpi.Ssend\)`, strconv.Itoa(line(t, "error { return mpi.Ssend"))))
			}
			if said := j.err.String(); !strings.Contains(said, "no rank of the job can move") ||
				strings.Count(said, "\n") > 30 || strings.Contains(said, "goroutine ") {
				t.Errorf("gorun said\n%s", said)
			}
		})
	}
}

// The table is said once, and the job goes on as before.
func TestJobThatStandsGoesOn(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 2, role: "waits cross", flags: []string{"--stall", "1s", "--timeout", "8s"}}, 124)
	if n := j.count("no rank of the job can move"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, j.err.String())
	}
}

// A job is not called stalled while one of its ranks sleeps, computes or reads.
func TestJobThatDoesNotStand(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"waits alive", "waits busy"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			sleep, limit := "15s", "10s"
			if testing.Short() {
				sleep, limit = "3s", "500ms"
			}
			j := run(t, spec{n: 3, role: role, flags: []string{"--stall", limit}, env: []string{"WAITS_SLEEP=" + sleep}}, 0)
			if said := j.err.String(); strings.Contains(said, "can move") {
				t.Error(said)
			}
		})
	}
}

// Random programs, of up to three goroutines a rank, are not called stalled.
func TestRandomProgramsDoNotStand(t *testing.T) {
	t.Parallel()
	doNotStand(t, map[string][]string{"shm": {"GORUN_TRANSPORTS=shm"}, "tcp": {"GORUN_TRANSPORTS=tcp"}})
}

// doNotStand runs random programs with settings, for as long as a soak lasts.
func doNotStand(t *testing.T, over map[string][]string) {
	last, seed := soak(t)
	each := "5s"
	if testing.Short() {
		each = "1s"
	}
	programs, begun := uint64(0), time.Now()
	for {
		for name, env := range over {
			first := seed % 1_000_000
			j := run(t, spec{n: 5, role: "random programs", args: []string{fmt.Sprint(first), each}, env: env,
				flags: []string{"--stall", "1s"}}, 0)
			if said := j.err.String(); strings.Contains(said, "can move") {
				t.Fatalf("%s, seed %d: %s", name, seed, said)
			}
			for _, found := range j.find(`^the last seed is (\d+)$`) {
				end, _ := strconv.ParseUint(found[1], 10, 64)
				programs += end - first + 1
			}
			seed += 1000
		}
		if t.Failed() || testing.Short() || time.Since(begun) > last {
			break
		}
	}
	t.Logf("%d programs", programs)
}

// gorun status says what the ranks of a running job do, one of them stopped, and the job goes on to its end.
func TestStatusOfAJob(t *testing.T) {
	t.Parallel()
	j := start(t, spec{n: 4, role: "waits alive", env: []string{"WAITS_SLEEP=4s"}})
	proc.Eventually(t, "rank 0", func() bool { return strings.Contains(j.out.String(), "sleeps") })
	victim := j.rank(3).PID
	proc.Eventually(t, "all in the barrier", func() bool { return strings.Contains(j.status(), "ranks 1-3: Barrier") })
	syscall.Kill(victim, syscall.SIGSTOP)
	text := j.status()
	syscall.Kill(victim, syscall.SIGCONT)
	for _, want := range []string{`(?m)^rank 0: sleeps, in no call of mpi, at waits_linux_test\.go:\d+$`,
		`(?m)^ranks 1, 2: Barrier number 1 on world: waits for .*, at waits_linux_test\.go:\d+$`,
		`(?m)^rank 3: is stopped by a signal .* kill -CONT ` + strconv.Itoa(victim) + `$`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no line matches %s in\n%s", want, text)
		}
	}
	j.wait(0)
	if out, err := exec.Command(j.launcher, "status", "1").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "process 1 is no gorun") {
		t.Errorf("%v: %s", err, out)
	}
}

// gorun says of many ranks on several hosts what they wait for, in few lines, also while a rank is stopped or dead, or
// an agent does not answer. The hosts are reached by a shell that stays here.
func TestStatusOfHosts(t *testing.T) {
	t.Parallel()
	hosts, each := 8, 8
	if testing.Short() {
		hosts, each = 4, 2
	}
	n := hosts * each
	shell := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(shell, []byte("#!/bin/sh\nshift\nexec \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	const at = `, at waits_linux_test\.go:\d+$`
	for _, c := range []struct {
		role  string
		stall bool // gorun says by itself that no rank can move: no rank has ended
		want  []string
	}{
		{"waits ring", false, []string{
			fmt.Sprintf(`^ranks 0-%d on %d hosts: Ssend, each to another rank \(rank 0 to 1, rank 1 to 2, \.\.\.\), `+
				`tag 0, 8 B, world.*`, n-2, hosts) + at,
			`^0 waits for 1 waits for `, fmt.Sprintf(`^rank %d on h%d: has ended$`, n-1, hosts)}},
		{"waits skip", true, []string{
			fmt.Sprintf(`^ranks 0, 1, 3-%d on %d hosts: Allreduce number 17 on rows: waits for 2, .*`, n-1, hosts) + at,
			`^rank 2 on h\d: Recv from 0, tag 9, 8 B, world, .*` + at, `^0 waits for 2 waits for 0$`}},
		{"waits tag", true, []string{
			`^ranks 1, 3, 5, .* on \d hosts: Recv, each from another rank \(rank 1 from 0, rank 3 from 2, \.\.\.\), ` +
				`tag 6, 8 B, world.*` + at,
			`^rank 1 has 3 messages from 0, tags 5, 7, world: did the receive ask for tag 6\?$`}},
	} {
		for _, width := range []string{"32", "1"} {
			if testing.Short() && (width == "1") != (c.role == "waits skip") {
				continue
			}
			t.Run(c.role+" "+width, func(t *testing.T) {
				flags := []string{"--stall", "2s", "--launcher", "exec", "--launch-agent", shell, "--tree-width", width, "-H",
					fmt.Sprintf("h[1-%d]:%d", hosts, each)}
				if !c.stall {
					flags = append(flags, "--enable-recovery")
				}
				j := start(t, spec{n: n, role: c.role, env: []string{"GORUN_PEER_TIMEOUT=1m"}, flags: flags})
				j.shows(t, c.want...)
				if c.stall {
					proc.Eventually(t, "gorun to say so", func() bool {
						return !slices.ContainsFunc(c.want, func(want string) bool {
							return !regexp.MustCompile("(?m)^  " + want[1:]).MatchString(j.err.String())
						})
					})
				}
				if said := j.err.String(); strings.Count(said, "\n") > 30 {
					t.Errorf("gorun said\n%s", said)
				}
				victim := j.rank(1)
				syscall.Kill(victim.PID, syscall.SIGSTOP)
				j.shows(t, fmt.Sprintf(`^rank 1 on h1: is stopped by a signal .* kill -CONT %d$`, victim.PID))
				syscall.Kill(victim.PID, syscall.SIGCONT)
				first := n - 2*each // of the last host but one
				agent := j.rank(first).Parent
				syscall.Kill(agent, syscall.SIGSTOP)
				j.shows(t, fmt.Sprintf(`^ranks %d.* on .*: does not answer within 1s$`, first))
				syscall.Kill(agent, syscall.SIGCONT)
				j.shows(t, c.want...)
				j.cmd.Process.Signal(syscall.SIGTERM)
				j.end()
				j.nothingLeft()
			})
		}
	}
}

// rank finds the process of a rank.
func (j *job) rank(rank int) (found proc.Info) {
	j.t.Helper()
	for _, p := range j.processes() {
		if p.Exe() != j.launcher && slices.Contains(p.Env(), fmt.Sprintf("PMI_RANK=%d", rank)) {
			return p
		}
	}
	j.t.Fatalf("no process of rank %d", rank)
	return found
}

// shows waits until gorun status has lines that match all of these, and is short.
func (j *job) shows(t *testing.T, want ...string) {
	t.Helper()
	var text, missing string
	// Each look has each rank of the job write down its goroutines, which takes the CPUs from other tests.
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		text, missing = j.status(), ""
		for _, w := range want {
			if !regexp.MustCompile("(?m)" + w).MatchString(text) {
				missing = w
			}
		}
		if missing == "" {
			if strings.Count(text, "\n") > 30 {
				t.Errorf("gorun status prints\n%s", text)
			}
			return
		}
	}
	t.Fatalf("no line matches %s in\n%s\ngorun says\n%s", missing, text, clip(j.err.String()))
}

// status is what gorun status prints.
func (j *job) status() string {
	j.t.Helper()
	out, err := exec.Command(j.launcher, "status", strconv.Itoa(j.cmd.Process.Pid)).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

// The goroutines of each rank go to files.
func TestDumpOfGoroutines(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "new", "dumps")
	j := start(t, spec{n: 2, role: "waits goroutines", flags: []string{"--stall", "500ms", "--dump", folder}})
	proc.Eventually(t, "the table", func() bool { return strings.Contains(j.err.String(), "the goroutines of each rank") })
	j.cmd.Process.Signal(syscall.SIGQUIT)
	j.wait(131).says(`^  rank 0: Recv from 1, tag 6, 8 B, world.* at waits_linux_test\.go:\d+$`,
		`^  rank 0: Recv from 1, tag 7, 8 B, world.* at waits_linux_test\.go:\d+$`,
		`^  rank 0: Recv from 1, tag 8, 8 B, world.* at waits_linux_test\.go:\d+$`,
		`^  the goroutines of each rank are in .*/new/dumps/rank\.N\.goroutines$`)
	if text, err := os.ReadFile(filepath.Join(folder, "rank.0.goroutines")); err != nil ||
		strings.Count(string(text), "mpi.Recv[") != 3 {
		t.Errorf("%v, %s", err, text)
	}
}
