//go:build ucx && linux && cgo

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	role("left alone", leftAlone)
	role("exchanges", exchanges)
	roles["ucx unavailable"] = func() error {
		_, err := mpi.Init()
		fmt.Printf("unavailable %v: %v\n", errors.Is(err, mpi.ErrUnavailable), err)
		os.Exit(3)
		return nil
	}
}

// overUCX are the settings under which UCX moves messages on one host.
var overUCX = map[string][]string{
	"shared memory": {"GORUN_TRANSPORTS=ucx", "UCX_TLS=posix,sysv,cma,self"},
	"tcp":           {"GORUN_TRANSPORTS=ucx", "UCX_TLS=tcp,self"},
}

// eachUCX runs test for each of them, at the same time.
func eachUCX(t *testing.T, test func(t *testing.T, env []string)) {
	t.Parallel()
	for name, env := range overUCX {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, env)
		})
	}
}

// silent expects that UCX has printed nothing.
func (j *job) silent() *job {
	j.t.Helper()
	if line := regexp.MustCompile(`.*\bUCX +[A-Z]+ .*`).FindString(j.err.String() + j.out.String()); line != "" {
		j.t.Errorf("UCX prints: %s", line)
	}
	return j
}

func TestUCXPeerDies(t *testing.T) {
	eachUCX(t, func(t *testing.T, env []string) {
		for name := range ways {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dies(t, "peer dies", name, env...).silent()
			})
		}
	})
}

func TestUCXStopped(t *testing.T) {
	eachUCX(t, func(t *testing.T, env []string) { stoppedAtFirstContact(t, env...) })
}

func TestUCXIdle(t *testing.T) {
	eachUCX(t, func(t *testing.T, env []string) {
		idles(t, 2, []string{"recv", "probe", "barrier", "large send"}, env...)
	})
}

// exchanges: 10,000 messages each way, ten at a time, and collective calls.
func exchanges(_ context.Context, w *mpi.Comm) error {
	peer, out, in := 1-w.Rank(), make([]int, 10*2000), make([]int, 2000)
	requests := make([]*mpi.Request, 10)
	for i := range 1000 {
		size := []int{1, 1, 100, 2000}[i%4]
		for k := range requests {
			out[k*size] = i*len(requests) + k
			r, err := mpi.Isend(w, out[k*size:][:size], peer, tagGo)
			if err != nil {
				return err
			}
			requests[k] = r
		}
		for k := range requests {
			if _, err := mpi.Recv(w, in[:size], peer, tagGo); err != nil {
				return err
			}
			if want := i*len(requests) + k; in[0] != want {
				return fmt.Errorf("message %d has %d", want, in[0])
			}
		}
		if err := mpi.WaitAll(requests...); err != nil {
			return err
		}
	}
	sum := make([]int, 1)
	for i := range 50 {
		if err := mpi.Allreduce(w, []int{i}, sum, mpi.Sum); err != nil {
			return err
		}
		if sum[0] != 2*i {
			return fmt.Errorf("sum %d is %d", i, sum[0])
		}
		if err := mpi.Bcast(w, in, i%2); err != nil {
			return err
		}
	}
	return mpi.Barrier(w)
}

// Ranks with one processor each get on, whether they wait in turns of UCX or asleep.
func TestUCXOneProcessor(t *testing.T) {
	eachUCX(t, func(t *testing.T, env []string) {
		for _, spin := range []string{"0s", "1s"} {
			t.Run(spin, func(t *testing.T) {
				t.Parallel()
				one := slices.Concat(env, []string{"GOMAXPROCS=1", "GORUN_SPIN=" + spin})
				run(t, spec{n: 2, role: "exchanges", env: one}, 0).silent()
			})
		}
	})
}

// How rank 1 is while rank 0, which has sends to it under way, ends.
var absent = map[string]func(w *mpi.Comm) error{
	"stopped":    func(*mpi.Comm) error { return syscall.Kill(os.Getpid(), syscall.SIGSTOP) },
	"computing":  func(*mpi.Comm) error { time.Sleep(time.Hour); return nil },
	"in a call":  func(w *mpi.Comm) error { return recvByte(w, 0) },
	"in a probe": func(w *mpi.Comm) error { _, err := mpi.Probe(w, 0, tagSmall); return err },
}

// leftAlone: rank 1 receives nothing of what rank 0 sends, and rank 0 ends as the argument says.
func leftAlone(_ context.Context, w *mpi.Comm) error {
	if err := connectAll(w); err != nil {
		return err
	}
	if w.Rank() == 1 {
		return absent[os.Args[1]](w)
	}
	for _, size := range []int{8, 8 << 10, large} {
		if _, err := mpi.Issend(w, make([]byte, size), 1, tagGo); err != nil {
			return err
		}
		if _, err := mpi.Isend(w, make([]byte, size), 1, tagGo); err != nil {
			return err
		}
	}
	time.Sleep(100 * time.Millisecond) // rank 1 is there, and the transfers have begun; if not, less is tested
	switch os.Args[2] {
	case "abort":
		mpi.Abort(7)
	case "panic":
		panic("it ends")
	}
	return errors.New("it ends")
}

// A job ends though sends are under way to a rank that is stopped or never receives them.
func TestUCXLeftAlone(t *testing.T) {
	eachUCX(t, func(t *testing.T, env []string) {
		for how := range absent {
			for end, code := range map[string]int{"abort": 7, "panic": 1, "error": 1} {
				t.Run(how+"/"+end, func(t *testing.T) {
					t.Parallel()
					run(t, spec{n: 2, role: "left alone", args: []string{how, end}, env: env}, code).silent()
				})
			}
		}
	})
}

// Where there is no libucp, it is too old, or nothing is left to it, Init fails with ErrUnavailable and says why.
func TestUCXUnavailable(t *testing.T) {
	t.Parallel()
	old := filepath.Join(t.TempDir(), "libucp.so.0")
	c := exec.Command(proc.RequireProgram(t, "gcc", "gcc"), "-shared", "-fPIC", "-x", "c", "-o", old, "-")
	c.Stdin = strings.NewReader("void ucp_get_version(unsigned *a, unsigned *b, unsigned *c)" +
		"{ *a = 1; *b = 12; *c = 1; }")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct{ env, want string }{
		{"GORUN_UCX_LIB=/nowhere/libucp.so.0", `ucx: .*opening /nowhere/libucp.so.0: .*No such file`},
		{"GORUN_UCX_LIB=" + old, `ucx: .*it is version 1.12.1; 1.13 and later`},
		{"UCX_TLS=nonsense", `ucx: .*no transport of UCX is left: see UCX_TLS and UCX_NET_DEVICES`},
	} {
		t.Run(c.env, func(t *testing.T) {
			t.Parallel()
			run(t, spec{n: 2, role: "ucx unavailable", env: []string{"GORUN_TRANSPORTS=ucx", c.env}}, 3).silent().
				says(`^unavailable true: mpi: Init: .*` + c.want)
		})
	}
}

// Over UCX the ranks say what they wait for, and never that they stand.
func TestUCXWaits(t *testing.T) {
	eachUCX(t, func(t *testing.T, env []string) {
		j := run(t, spec{n: 2, role: "waits cross", env: env, flags: []string{"--stall", "500ms", "--timeout", "6s"}}, 124)
		j.silent().says(`^  rank 0: Ssend to 1, tag 0, 8 B, world, .*at waits_linux_test\.go:\d+$`,
			`^  0 waits for 1 waits for 0$`)
		if j.count("can move") > 0 {
			t.Errorf("gorun said\n%s", j.err.String())
		}
	})
}
