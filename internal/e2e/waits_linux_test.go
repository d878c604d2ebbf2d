package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
		if w.Rank() == 1 {
			_, err = mpi.Recv(w, b, 0, 6)
			return err
		}
		for i := range 3 {
			if err := mpi.Send(w, b, 1, 5+i%2*2); err != nil {
				return err
			}
		}
		_, err = mpi.Recv(w, b, 1, 0)
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
	for _, c := range []struct {
		name string
		n    int
		want []string
	}{
		{"waits cross", 2, []string{
			`^  rank 0: Ssend to 1, tag 0, 8 B, world, for \d+\.?\d* s, at waits_linux_test\.go:LINE\(mpi.Ssend\)$`,
			`^  rank 1: Ssend to 0, tag 0, 8 B, world, for `, `^  0 waits for 1 waits for 0$`}},
		{"waits skip", 4, []string{
			`^  ranks 0, 1, 3: Allreduce number 17 on rows: waits for 2, for .* s, at waits_linux_test\.go:\d+$`,
			`^  rank 2: Recv from 0, tag 9, 8 B, world, for .*, at `, `^  0 waits for 2 waits for 0$`}},
		{"waits tag", 2, []string{`^  rank 1: Recv from 0, tag 6, 8 B, world, for `,
			`^  rank 1 has 3 messages from 0, tags 5, 7, world: did the receive ask for tag 6\?$`}},
	} {
		for _, transport := range []string{"shm", "tcp"} {
			t.Run(c.name+" "+transport, func(t *testing.T) {
				t.Parallel()
				j := run(t, spec{n: c.n, role: c.name, flags: []string{"--stall", "abort"},
					env: []string{"GORUN_TRANSPORTS=" + transport}}, 125)
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

// gorun status says what the ranks of a running job do, one of them stopped, and the job goes on to its end.
func TestStatusOfAJob(t *testing.T) {
	t.Parallel()
	j := start(t, spec{n: 4, role: "waits alive", env: []string{"WAITS_SLEEP=4s"}})
	proc.Eventually(t, "rank 0", func() bool { return strings.Contains(j.out.String(), "sleeps") })
	victim := 0
	for _, p := range j.processes() {
		for _, kv := range p.Env() {
			if kv == "PMI_RANK=3" {
				victim = p.PID
			}
		}
	}
	status := func() string {
		out, err := exec.Command(j.launcher, "status", strconv.Itoa(j.cmd.Process.Pid)).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(out)
	}
	proc.Eventually(t, "all in the barrier", func() bool { return strings.Contains(status(), "ranks 1-3: Barrier") })
	syscall.Kill(victim, syscall.SIGSTOP)
	text := status()
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
