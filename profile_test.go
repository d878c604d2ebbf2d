package mpi

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// goroutinesWith returns how many goroutines have all of these labels and no other one.
func goroutinesWith(labels string) int {
	var text bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&text, 1)
	_, groups, _ := strings.Cut(text.String(), "\n") // the total
	all := 0
	for group := range strings.SplitSeq(groups, "\n\n") {
		n := 0
		if strings.Contains(group, "\n# labels: {"+labels+"}\n") {
			fmt.Sscan(group, &n)
		}
		all += n
	}
	return all
}

// A goroutine has labels while it is in a call, and then those that it had before, if the Comm's context has them.
func TestLabels(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		const own = `"phase":"solve"`
		buf := make([]int, 1)
		if w.Rank() == 1 {
			proc.Eventually(t, "the labels of Recv", func() bool {
				return goroutinesWith(`"mpi_op":"Recv", "mpi_peer":"1", "mpi_rank":"0", `+own) > 0
			})
			must(Send(w, buf, 0, 7))
			proc.Eventually(t, "the labels of Wait", func() bool {
				return goroutinesWith(`"mpi_op":"Wait", "mpi_rank":"0"`) > 0
			})
			must(Send(w, buf, 0, 7))
			return
		}
		pprof.Do(context.Background(), pprof.Labels("phase", "solve"), func(ctx context.Context) {
			ok(Recv(w.WithContext(ctx), buf, 1, 7))
			check(goroutinesWith(own) == 1, "the labels of the program are lost")
		})
		ok(ok(Irecv(w, buf, 1, 7)).Wait())
		check(goroutinesWith(own) == 0, "the labels of the program come back")
	}, WithEnviron([]string{"GORUN_LABELS=1"}))
}

// A trace has a region for each call, and a task for each request until a wait has returned its result.
func TestRegionsAndTasks(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("go test -trace makes one already")
	}
	var text bytes.Buffer
	if err := trace.Start(&text); err != nil {
		t.Fatal(err)
	}
	defer trace.Stop()
	m := &marker{tasks: map[*Request]*trace.Task{}}
	overLoop(t)(2, func(w *Comm) {
		peer, buf := 1-w.Rank(), make([]int, 1)
		r := ok(Irecv(w, buf, peer, 7))
		m.mu.Lock()
		check(m.tasks[r] != nil, "a request that is under way has no task")
		m.mu.Unlock()
		must(Send(w, buf, peer, 7))
		ok(r.Wait())
		var s Set
		s.Add(Irecv(w, buf, peer, 8))
		s.Add(Isend(w, buf, peer, 8))
		must(s.Wait())
		must(Barrier(w))
	}, WithHooks(*m.hooks()))
	trace.Stop()
	if len(m.tasks) > 0 {
		t.Errorf("%d tasks have not ended", len(m.tasks))
	}
	for _, what := range []string{"mpi.Irecv", "mpi.Send", "mpi.Wait", "mpi.WaitAll", "mpi.Barrier",
		"Send: peer 1 in the world, tag 7, 8 bytes"} {
		if !bytes.Contains(text.Bytes(), []byte(what)) {
			t.Errorf("%s is not in the trace", what)
		}
	}
}

func init() {
	terminate := func() error { return syscall.Kill(os.Getpid(), syscall.SIGTERM) }
	for name, body := range map[string]func(ctx context.Context) error{
		"returns": func(context.Context) error { return nil },
		"fails":   func(context.Context) error { return errors.New("it has failed") },
		"panics":  func(context.Context) error { panic("it has panicked") },
		"aborts":  func(context.Context) error { Abort(3); return nil },
		"is told": func(ctx context.Context) error { err := terminate(); <-ctx.Done(); return err },
	} {
		roles["profile "+name] = func() error {
			Main(func(ctx context.Context, w *Comm) error { return errors.Join(Barrier(w), body(ctx)) })
			return nil
		}
	}
	roles["profile polls"] = func() error {
		Main(func(_ context.Context, w *Comm) error {
			for begun := time.Now(); time.Since(begun) < time.Second; { // for some dozen samples
				if _, _, err := Iprobe(w, 0, 7); err != nil {
					return err
				}
			}
			return nil
		})
		return nil
	}
	roles["profile is killed"] = func() error {
		_, err := Init()
		if err = errors.Join(err, terminate()); err != nil {
			return err
		}
		select {}
	}
}

// checkProfile checks that a profile is there, and is complete, and returns it.
func checkProfile(t *testing.T, path string) (profile []byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		profile, err = io.ReadAll(z)
	}
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return profile
}

// A rank writes its profile however it ends, as far as it has a say in it.
func TestCPUProfile(t *testing.T) {
	for name, code := range map[string]int{"returns": 0, "fails": 1, "panics": 1, "aborts": 3, "is told": 0,
		"is killed": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "of", "it")
			env := "GORUN_CPUPROFILE=" + dir
			if code == 0 {
				reexec(t, "profile "+name, env)
			} else if out, got := reexecFails(t, "profile "+name, env); got != code {
				t.Errorf("exit code %d, want %d\n%s", got, code, out)
			}
			checkProfile(t, filepath.Join(dir, "rank-0.pprof"))
		})
	}
	if out := reexec(t, "profile returns", "GORUN_CPUPROFILE=/dev/null/x"); !strings.Contains(out,
		"mpi: rank 0: no CPU profile in /dev/null/x: ") {
		t.Errorf("it says %q", out)
	}
}

// The samples of a profile have the call in which they were taken, and its peer, without another setting.
func TestSamplesHaveCalls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reexec(t, "profile polls", "GORUN_CPUPROFILE="+dir)
	profile := checkProfile(t, filepath.Join(dir, "rank-0.pprof"))
	for _, word := range []string{"mpi_op", "Iprobe", "mpi_peer", "mpi_rank"} {
		if entry := "\x32" + string(rune(len(word))) + word; !bytes.Contains(profile, []byte(entry)) {
			t.Errorf("%s is no string of the profile", word)
		}
	}
}
