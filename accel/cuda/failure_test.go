//go:build cuda && linux && cgo

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// round uses every method once, with memory of another process, and leaves nothing.
func (k *kernels) round(handle []byte, size int64) (err error) {
	defer func() { // of kernels
		if r := recover(); r != nil {
			err = errors.Join(err, fmt.Errorf("panic: %v", r))
		}
	}()
	add := func(more error) bool {
		err = errors.Join(err, more)
		return more == nil
	}
	_, e := k.Devices()
	if !add(e) {
		return err
	}
	host := must(mapped(1 << 16))
	defer syscall.Munmap(host)
	if add(k.Pin(host)) {
		defer func() {
			if !add(k.Unpin(host)) {
				add(k.Unpin(host)) // it is still pinned
			}
		}()
	}
	for _, n := range []int64{100, 3 << 20} {
		m, e := k.Alloc(0, n)
		if !add(e) {
			continue
		}
		_, e = k.Query(m.Base)
		add(e)
		_, _, e = k.Export(m)
		add(e)
		ev, e := k.Copy(0, m.Base, m.Base+50, 50)
		if add(e) {
			for done := false; !done && e == nil; time.Sleep(10 * time.Microsecond) {
				done, e = k.Done(0, ev)
			}
			add(e)
		}
		mark, e := k.Mark(0, 0)
		if add(e) {
			k.Drop(0, mark)
		}
		add(k.Flush(0))
		fd, e := k.DMABuf(m, m.Base, 4096)
		if add(e) {
			syscall.Close(fd)
		}
		addr, e := k.Open(0, handle, size)
		if add(e) {
			add(k.Close(0, addr))
		}
		add(k.Free(m))
	}
	var fds [2]int
	if add(syscall.Pipe(fds[:])) {
		if add(k.Notify(0, fds[1])) {
			_, e = syscall.Read(fds[0], make([]byte, 8))
			add(e)
		}
		syscall.Close(fds[0])
		syscall.Close(fds[1])
	}
	return err
}

// left is what the library has for this process, and how many descriptors there are.
func left() string {
	text := must(mapped(4096))
	defer syscall.Munmap(text)
	_ = userCall(0, "softcuda_left", address(text), uint64(len(text))) // returns a length, which is no error
	s, _, _ := strings.Cut(string(text), "\x00")
	var lines string
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "operations ") { // one that is ending
			lines += line
		}
	}
	return fmt.Sprintf("%sdescriptors %d\n", lines, leak.Files())
}

// Each call of the driver fails once. The method that needs it returns an error with the call's name, nothing is left,
// and the next round succeeds.
func TestEachCallFails(t *testing.T) {
	d := softGPU(t)
	user := newSubject(d)
	shared := map[string]accel.Memory{"cuIpcOpenMemHandle": user.User(0, 5000, 0),
		"cuMemImportFromShareableHandle": must(d.Alloc(0, 5000))}
	defer func() {
		user.FreeUser(shared["cuIpcOpenMemHandle"])
		if err := d.Free(shared["cuMemImportFromShareableHandle"]); err != nil {
			t.Error(err)
		}
	}()
	for _, how := range []string{"cuIpcOpenMemHandle", "cuMemImportFromShareableHandle"} {
		m := shared[how]
		handle, _, err := d.Export(m)
		if err != nil {
			t.Fatal(err)
		}
		rounds := func(p *peer) (first error, left string) {
			_, first = p.call(Args{Method: "Round", Bytes: handle, N: m.Size})
			for range 2 { // the second is on warm pools
				if _, err := p.call(Args{Method: "Round", Bytes: handle, N: m.Size}); err != nil {
					t.Errorf("the next round: %v", err)
				}
				out, err := p.call(Args{Method: "Left"})
				if err != nil {
					t.Fatal(err)
				}
				if now := string(out.Bytes); left != "" && now != left {
					t.Errorf("a round on warm pools makes of\n%s\nthis:\n%s", left, now)
				}
				left = string(out.Bytes)
			}
			return first, left
		}
		first, usual := rounds(newPeer(t))
		if first != nil {
			t.Fatal(first)
		}
		t.Logf("%s: a round leaves\n%s", how, usual)
		// Which calls of a name Open makes when it has something to undo.
		undoes := map[string]int{"cuMemAddressReserve": 2, "cuMemMap": 2, "cuMemSetAccess": 2}
		if how == "cuIpcOpenMemHandle" {
			undoes = map[string]int{"cuPointerGetAttributes": 4}
		}
		for _, c := range []struct {
			call string
			most int // how often a round may make the call fail
		}{{"cuMemHostRegister", 1}, {"cuMemHostUnregister", 1}, {"cuDevicePrimaryCtxRetain", 1}, {"cuStreamCreate", 1},
			{"cuCtxPushCurrent", 2}, {"cuMemCreate", 2}, {"cuMemAddressReserve", 2}, {"cuMemMap", 2}, {"cuMemSetAccess", 2},
			{"cuPointerGetAttributes", 4}, {"cuMemExportToShareableHandle", 2}, {"cuEventCreate", 1}, {"cuMemcpyAsync", 2},
			{"cuEventRecord", 2}, {"cuMemGetHandleForAddressRange", 2}, {"cuLaunchHostFunc", 1},
			{how, 2}} {
			for nth := 1; nth <= c.most; nth++ {
				call := c.call
				if testing.Short() && nth != undoes[call] && (nth > 1 || how == "cuIpcOpenMemHandle" && call != how) {
					continue
				}
				name := fmt.Sprintf("%s:%d", call, nth)
				t.Run(how+"/"+name, func(t *testing.T) {
					first, left := rounds(newPeer(t, "SOFTCUDA_FAIL="+name))
					if first == nil || !strings.Contains(first.Error(), call) {
						t.Errorf("%s fails: %v", name, first)
					}
					if left != usual {
						t.Errorf("after %s has failed a round leaves\n%s, and otherwise\n%s", name, left, usual)
					}
				})
			}
		}
	}
}

// A copy does not run any more when Done or Copy has returned an error, also if a call has failed and not the copy: its
// caller uses the memory again.
func TestDoneFails(t *testing.T) {
	d := softGPU(t)
	const size = 1 << 20
	m, host := must(d.Alloc(0, size)), must(mapped(size))
	if err := d.Pin(host); err != nil {
		t.Fatal(err)
	}
	k, want := &kernels{driver: d}, bytes.Repeat([]byte("moved"), size/5)
	k.Write(m.Base, want)
	for _, call := range []string{"cuEventQuery", "cuCtxPushCurrent"} {
		for range 5 {
			clear(host)
			ev := must(d.Copy(0, address(host), m.Base, int64(len(want))))
			orderFailure(call, 1)
			if done, err := d.Done(0, ev); err == nil || !strings.Contains(err.Error(), call) {
				t.Errorf("%s fails: %v, %v", call, done, err)
			}
			orderFailure("", 0)
			if !bytes.Equal(host[:len(want)], want) {
				t.Fatalf("%s fails: the copy still runs", call)
			}
		}
	}
	for range 10 {
		clear(host)
		orderFailure("cuEventRecord", 1)
		if _, err := d.Copy(0, address(host), m.Base, int64(len(want))); err == nil ||
			!strings.Contains(err.Error(), "cuEventRecord") {
			t.Errorf("cuEventRecord fails: %v", err)
		}
		orderFailure("", 0)
		returned := bytes.Clone(host)
		if err := userCall(0, "cuCtxSynchronize"); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(host, returned) {
			t.Fatal("cuEventRecord fails: the copy still runs when Copy has returned the error")
		}
	}
	if err := errors.Join(d.Unpin(host), d.Free(m)); err != nil {
		t.Error(err)
	}
}

// An event is used again, whether it has ended or was given up, and those for which the pool has no room are destroyed.
func TestEventsAreUsedAgain(t *testing.T) {
	d := softGPU(t)
	events := func() string { return field([]byte(left()), "events ") }
	var after string
	for round := range 3 {
		var all []accel.Event
		for range 300 {
			all = append(all, must(d.Mark(0, 0)))
		}
		for i, ev := range all {
			if i&1 == 0 {
				d.Drop(0, ev)
				continue
			}
			for !must(d.Done(0, ev)) {
				time.Sleep(10 * time.Microsecond)
			}
		}
		now := events()
		if round > 0 && now != after {
			t.Errorf("round %d: there are %s events, and %s after the round before", round, now, after)
		}
		after = now
	}
}

// A machine without the driver, with one that does not start, and one without descriptors of memory.
func TestWithout(t *testing.T) {
	d := softGPU(t)
	for _, c := range []struct{ environ, want string }{
		{"GORUN_CUDA_LIB=/nonexistent/libcuda.so.1", "no accelerator can be used: /nonexistent/libcuda.so.1: cannot open"},
		{"GORUN_CUDA_LIB=libm.so.6",
			"libm.so.6 has no cuInit: it is no libcuda of CUDA 11 or newer; install NVIDIA's driver, or"},
		{"SOFTCUDA_FAIL=cuInit:1:100", "no accelerator can be used: cuInit: CUDA_ERROR_NO_DEVICE (100); nvidia-smi shows"},
		{"SOFTCUDA_DEVICES=0", "no accelerator can be used: cuInit: CUDA_ERROR_NO_DEVICE (100)"},
	} {
		p := newPeer(t, c.environ)
		for range 2 { // the second time nothing is tried
			if _, err := p.Devices(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.environ, err, c.want)
			}
		}
		if _, err := p.Query(0); err == nil || !strings.Contains(err.Error(), accel.ErrNoDriver.Error()) {
			t.Errorf("%s: Query: %v", c.environ, err)
		}
	}
	for _, environ := range []string{"SOFTCUDA_VMM=0", "SOFTCUDA_FAIL=cuMemCreate:1:801"} {
		p := newPeer(t, environ)
		m, err := p.Alloc(0, 5000)
		if err != nil || m.Size != 5000 {
			t.Fatalf("%s: %+v, %v", environ, m, err)
		}
		p.Write(m.Base, []byte("older"))
		handle, _, err := p.Export(m)
		if err != nil {
			t.Fatalf("%s: %v", environ, err)
		}
		addr, err := d.Open(0, handle, m.Size)
		if err != nil {
			t.Fatalf("%s: %v", environ, err)
		}
		if got := (&kernels{driver: d}).Read(addr, 5); string(got) != "older" {
			t.Errorf("%s: read %q", environ, got)
		}
		if err := errors.Join(d.Close(0, addr), p.Free(m)); err != nil {
			t.Error(err)
		}
	}
}

// signals starts the driver and returns what is wrong with the signals of this process then.
func (k *kernels) signals() (wrong []byte, err error) {
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, syscall.SIGUSR1)
	defer signal.Stop(arrived)
	if _, err := k.Alloc(0, 100); err != nil {
		return nil, err
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		return nil, err
	}
	select {
	case <-arrived:
	case <-time.After(10 * time.Second):
		wrong = append(wrong, "a signal does not reach the program\n"...)
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/status")
	threads := 0
	for _, path := range tasks {
		status, _ := os.ReadFile(path)
		name, blocked := field(status, "Name:"), field(status, "SigBlk:")
		if !strings.HasPrefix(name, "softcuda") && !strings.HasPrefix(name, "cuda-") {
			continue
		}
		threads++
		if blocked != "fffffffe7ffbfeff" && blocked != "fffffffffffbfeff" && blocked != "fffffffe3ffbfeff" {
			wrong = append(wrong, fmt.Sprintf("the thread %s blocks %s\n", name, blocked)...)
		}
	}
	if threads == 0 {
		wrong = append(wrong, "no thread of the driver was found\n"...)
	}
	return wrong, nil
}

func field(status []byte, name string) string {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// The driver's threads take no signals of the program, and its handlers do not stay.
func TestSignals(t *testing.T) {
	softGPU(t)
	library := os.Getenv("GORUN_CUDA_LIB")
	folder := t.TempDir()
	if err := os.Symlink(library, filepath.Join(folder, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	rude := filepath.Join(folder, "librude.so")
	cc := exec.Command(proc.RequireProgram(t, "cc", "gcc libc6-dev"), "-std=gnu11", "-Wall", "-Wextra", "-Werror",
		"-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,-rpath,"+folder, "-o", rude, "testdata/rude.c", library)
	if text, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, environ := range [][]string{{"SOFTCUDA_SIGNALS=1"}, {"SOFTCUDA_SIGNALS=1", "GORUN_CUDA_LIB=" + rude}} {
		out, err := newPeer(t, environ...).call(Args{Method: "Signals"})
		if err != nil || len(out.Bytes) > 0 {
			t.Errorf("%v: %v\n%s", environ, err, out.Bytes)
		}
	}
}
