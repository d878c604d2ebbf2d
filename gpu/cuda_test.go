//go:build cuda && linux && cgo

package gpu

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	runTests = cudakit.Main
	for role, body := range map[string]func(w *mpi.Comm){"job": job, "windows": windows, "pinned": pinned} {
		roles[role] = func() error {
			mpi.Main(func(_ context.Context, world *mpi.Comm) (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = fmt.Errorf("%s: %v", testLines(), p)
					}
				}()
				body(world)
				return nil
			})
			return nil
		}
	}
}

// jobWays are the transports of TestJobOverSoftCUDA, with what each needs in the environment.
var jobWays = map[string]func(*testing.T) []string{
	"shm": func(*testing.T) []string { return nil },
	"tcp": func(*testing.T) []string { return nil },
}

// Ranks that are processes and do not share their device memory put messages into each other's pinned memory.
func TestPinnedJobOverSoftCUDA(t *testing.T) {
	overSoftCUDA(t, "pinned", map[string]func(*testing.T) []string{
		"shm": func(*testing.T) []string { return []string{"GORUN_CUDA_SHARE=0"} },
	})
}

// Ranks that are processes make calls of all kinds by the driver of CUDA, over a software GPU: within a host through
// shared memory and memory that they map of each other, by TCP, and by a software adapter.
func TestJobOverSoftCUDA(t *testing.T) { overSoftCUDA(t, "job", jobWays) }

// So do ranks with windows, which map each other's memory whatever brings their messages.
func TestWindowsOverSoftCUDA(t *testing.T) {
	overSoftCUDA(t, "windows", map[string]func(*testing.T) []string{"shm": jobWays["shm"], "tcp": jobWays["tcp"]})
}

func overSoftCUDA(t *testing.T, role string, ways map[string]func(*testing.T) []string) {
	for transports, env := range ways {
		t.Run(transports, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			again := proc.Again()
			knob, left := cudakit.Left(t)
			cmd := exec.CommandContext(ctx, proc.Gorun(t), append([]string{"-n", "3"}, again.Args...)...)
			cmd.Env = append(cudakit.Env(t, "SOFTCUDA_DEVICES=2", "SOFTCUDA_SEED=7", knob),
				"GORUN_TRANSPORTS="+transports, proc.RoleVar+"="+role)
			cmd.Env = append(cmd.Env, env(t)...)
			out, err := cmd.CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("all is well")) {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, line := range left() {
				// The driver keeps its streams and events, one and a pool for each device.
				if !strings.Contains(line, ": streams ") && !strings.Contains(line, ": events ") {
					t.Error("left: ", line)
				}
			}
		})
	}
}

// pinned is job of a rank that ends with the pinned memory of its neighbours mapped.
func pinned(w *mpi.Comm) {
	job(w)
	maps := ok(os.ReadFile("/proc/self/maps"))
	files := map[string]bool{}
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); len(f) > 5 && strings.HasPrefix(f[5], "/memfd:gorun-pinned") {
			files[f[4]] = true
		}
	}
	check(len(files) == 3, "the pinned memory of %d ranks is mapped", len(files))
}

// job is what each rank does.
func job(w *mpi.Comm) {
	local := ok(Local(w))
	check(local >= 0 && local < 2, "device %d of 2", local)
	device, size, me := w.Rank()%2, w.Size(), w.Rank()
	next, before := (me+1)%size, (me+size-1)%size
	host := func(s Slice[byte]) []byte {
		b := make([]byte, s.Len())
		must(s.CopyTo(b))
		return b
	}
	for n, size := range []int{0, 1, 333, 300_001, 5<<20 + 7} {
		out, in := ok(Alloc[byte](device, size)), ok(Alloc[byte](device, size))
		must(out.CopyFrom(message(size, me)))
		ok(Sendrecv(w, out, next, n, in, before, n))
		same(host(in), message(size, before))

		sum, small := ok(Alloc[byte](1-device, size)), make([]byte, 77)
		must(mpi.WaitAll(ok(Irecv(w, in, next, n)), ok(mpi.Irecv(w, small, next, n+50)),
			ok(Iallreduce(w, out, sum, mpi.BitXor)), ok(mpi.Isend(w, message(77, me), before, n+50)),
			ok(Isend(w, out, before, n))))
		same(host(in), message(size, next))
		same(small, message(77, next))
		want := make([]byte, size)
		must(mpi.Allreduce(w, message(size, me), want, mpi.BitXor))
		same(host(sum), want)

		send, recv := ok(SendInit(w, out, next, n)), ok(RecvInit(w, in, before, n))
		for round := range 3 {
			must(out.CopyFrom(message(size, me+round)))
			must(mpi.StartAll(send, recv))
			must(mpi.WaitAll(send, recv))
			same(host(in), message(size, before+round))
		}
		must(send.Free())
		must(recv.Free())

		// One side is the host.
		if me == 0 {
			must(mpi.Send(w, message(size, 30), 1, n))
			must(Send(w, out, 1, n))
		} else if me == 1 {
			ok(Recv(w, in, 0, n))
			same(host(in), message(size, 30))
			b := make([]byte, size)
			ok(mpi.Recv(w, b, 0, n))
			same(b, message(size, 2))
		}
		must(mpi.Barrier(w))
		free(out, in, sum)
	}
	for round := range 10 { // addresses are used again
		const size = 100_000
		s := ok(Alloc[byte](device, size))
		part := ok(Wrap[byte](s.Addr()+7, size-7))
		must(part.CopyFrom(message(size-7, round*3+me)))
		if me == 0 {
			for rank := 1; rank < w.Size(); rank++ {
				must(Send(w, part, rank, 0))
			}
		} else {
			ok(Recv(w, part, 0, mpi.AnyTag))
			same(host(part), message(size-7, round*3))
		}
		free(s)
	}
	must(mpi.Barrier(w))
	drain()
	if me == 0 {
		fmt.Println("all is well")
	}
}
