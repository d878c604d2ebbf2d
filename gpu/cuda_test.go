//go:build cuda && linux && cgo

package gpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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
	for role, body := range map[string]func(w *mpi.Comm){"job": job, "windows": windows, "GiB": gibibyte,
		"pinned": pinned} {
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

// jobSays is what the log has to say of a transport.
var jobSays = map[string]string{}

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

// A message of a gibibyte goes from device to device: within a host by one copy of memory that has a handle of IPC, and
// through pinned memory by TCP.
func TestGiBOverSoftCUDA(t *testing.T) {
	if testing.Short() {
		t.Skip("1 GiB is copied ten times")
	}
	overSoftCUDA(t, "GiB", map[string]func(*testing.T) []string{
		"shm": func(*testing.T) []string { return []string{"SOFTCUDA_VMM=0"} }, "tcp": jobWays["tcp"]})
}

// gibibyte is what each rank does. The length is odd, and no multiple of a chunk.
func gibibyte(w *mpi.Comm) {
	const size, piece = 1<<30 + 7, 16 << 20
	if w.Rank() < 2 {
		s, want, got := ok(Alloc[byte](w.Rank(), size)), make([]byte, piece), make([]byte, piece)
		if w.Rank() == 1 {
			ok(Recv(w, s, 0, 0))
		}
		for from := 0; from < size; from += piece {
			to := min(from+piece, size)
			for i := 0; i < piece; i += 8 {
				binary.NativeEndian.PutUint64(want[i:], uint64(from+i)*0x9e3779b97f4a7c15)
			}
			if w.Rank() == 0 {
				must(s.Slice(from, to).CopyFrom(want[:to-from]))
				continue
			}
			must(s.Slice(from, to).CopyTo(got[:to-from]))
			same(got[:to-from], want[:to-from])
		}
		if w.Rank() == 0 {
			must(Send(w, s, 1, 0))
		}
		free(s)
	}
	must(mpi.Barrier(w))
	drain()
	if w.Rank() == 0 {
		fmt.Println("all is well")
	}
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
			if err != nil || !bytes.Contains(out, []byte("all is well")) ||
				!bytes.Contains(out, []byte(jobSays[transports])) {
				t.Fatalf("%v; want %q\n%s", err, jobSays[transports], out)
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
	local, devices := ok(Local(w)), len(ok(Devices()))
	check(local >= 0 && local < devices, "device %d of %d", local, devices)
	device, other, size, me := w.Rank()%devices, (w.Rank()+1)%devices, w.Size(), w.Rank()
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

		sum, small := ok(Alloc[byte](other, size)), make([]byte, 77)
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

		// A matched probe; into more than there is, and into less.
		if me == 0 && size > 100 {
			must(Ssend(w, out, 1, n))
			must(Send(w, out, 1, n))
		} else if me == 1 && size > 100 {
			must(sum.CopyFrom(message(size, 99)))
			m, _, err := mpi.Mprobe(w, 0, n)
			must(err)
			st := ok(Mrecv(m, sum))
			check(st.Bytes == int64(size), "%d bytes of %d", st.Bytes, size)
			same(host(sum), message(size, 2))
			part := sum.Slice(0, 50)
			must(sum.CopyFrom(message(size, 99)))
			_, err = Recv(w, part, 0, n)
			check(errors.Is(err, mpi.ErrTruncate), "a message that is too long: %v", err)
			same(host(sum)[50:], message(size, 99)[50:])
		}

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
	{ // a column of a matrix goes into a column of another
		const rows, columns = 40, 30
		column := mpi.Vector(rows, 1, columns, mpi.Of[byte]())
		out, in := ok(Alloc[byte](device, rows*columns)), ok(Alloc[byte](other, rows*columns))
		must(out.CopyFrom(message(out.Len(), me)))
		must(in.CopyFrom(message(in.Len(), 99)))
		q := ok(IrecvLayout(w, in.Slice(3, in.Len()), column, before, 70))
		must(SendLayout(w, out.Slice(5, out.Len()), column, next, 70))
		ok(q.Wait())
		want, sent := message(in.Len(), 99), message(out.Len(), before)
		for row := range rows {
			want[row*columns+3] = sent[row*columns+5]
		}
		same(host(in), want)
		free(out, in)
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
