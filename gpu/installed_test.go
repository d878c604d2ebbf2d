//go:build cuda && linux && cgo

package gpu

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	roles["one process"] = func() error {
		return mpi.RunLocal(3, checkInstalled)
	}
	roles["rank"] = func() error { // gorun starts it
		world, err := mpi.Init()
		if err != nil {
			return err
		}
		return errors.Join(checkInstalled(world), checked(world, job), checked(world, func(c *mpi.Comm) {
			windowsOn(c, len(ok(Devices())), os.Getenv("GORUN_CUDA_SHARE") != "0")
		}), mpi.Finalize())
	}
}

// checked is body as a rank, which complains by panicking.
func checked(c *mpi.Comm, body func(c *mpi.Comm)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("rank %d of %d: %s: %v", c.Rank(), c.Size(), testLines(), p)
		}
	}()
	body(c)
	return nil
}

// TestInstalled makes calls of this package on one device, as scripts/gpu-check does with the installed driver: it starts
// this test with GORUN_TEST_GPU=installed, and the role rank with gorun, which also does what TestJobOverSoftCUDA and
// TestWindowsOverSoftCUDA do. Otherwise the driver is the software GPU. The
// ranks are in another process, since the driver keeps descriptors.
func TestInstalled(t *testing.T) {
	var env []string
	if os.Getenv("GORUN_TEST_GPU") != "installed" {
		env = append(env, "GORUN_CUDA_LIB="+cudakit.Build(t))
	}
	if out, err := proc.Run(t, "one process", env...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// checkInstalled is what each rank does.
func checkInstalled(c *mpi.Comm) error { return checked(c, installed) }

func installed(c *mpi.Comm) {
	device := ok(Local(c))
	next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	for n, size := range []int{0, 1, 333, 5_000, 65_537, 300_001, 2<<20 - 1, 2 << 20, 2<<20 + 1, 5<<20 + 7} {
		sent, want := message(size, 10*n+c.Rank()), message(size, 10*n+prev)
		a, b := ok(Alloc[byte](device, size)), ok(Alloc[byte](device, size))
		must(a.CopyFrom(sent))
		got := func() []byte {
			host := make([]byte, size)
			must(b.CopyTo(host))
			return host
		}
		// From device to device.
		r := ok(Irecv(c, b, prev, 1))
		must(Send(c, a, next, 1))
		ok(r.Wait())
		same(got(), want)
		// From host to device, and from device to host.
		must(b.CopyFrom(make([]byte, size)))
		r = ok(Irecv(c, b, prev, 2))
		must(mpi.Send(c, sent, next, 2))
		ok(r.Wait())
		same(got(), want)
		host := make([]byte, size)
		r = ok(mpi.Irecv(c, host, prev, 3))
		must(Ssend(c, a, next, 3))
		ok(r.Wait())
		same(host, want)
		// A part of a slice, in memory that Wrap has found.
		if size > 100 {
			w := ok(Wrap[byte](a.Addr(), size))
			st := ok(Sendrecv(c, w.Slice(1, size-50), next, 4, b.Slice(7, size), prev, 4))
			check(st.Bytes == int64(size-51), "%d bytes", st.Bytes)
			same(got()[7:size-44], want[1:size-50])
		}
		all := ok(Alloc[byte](device, c.Size()*size))
		must(Allgather(c, a, all))
		host = make([]byte, c.Size()*size)
		must(all.CopyTo(host))
		for rank := range c.Size() {
			same(host[rank*size:(rank+1)*size], message(size, 10*n+rank))
		}
		free(a, b, all)
	}
	// A reduction has the bits of that of the host.
	numbers := make([]float64, 100_003)
	for i := range numbers {
		numbers[i] = 1 / float64(3+i*7+c.Rank())
	}
	want, got := make([]float64, len(numbers)), make([]float64, len(numbers))
	must(mpi.Allreduce(c, numbers, want, mpi.Sum))
	in, out := ok(Alloc[float64](device, len(numbers))), ok(Alloc[float64](device, len(numbers)))
	must(in.CopyFrom(numbers))
	must(Allreduce(c, in, out, mpi.Sum))
	must(out.CopyTo(got))
	same(bytesOf(got), bytesOf(want))
	// Ordered by the default stream, also in place.
	must(in.On(0).CopyFrom(numbers))
	must(Allreduce(c, InPlace[float64](), in.On(0), mpi.Sum))
	clear(got)
	must(in.On(0).CopyTo(got))
	same(bytesOf(got), bytesOf(want))
	ok(Sendrecv(c, in.On(0), next, 6, out.On(0), prev, 6))
	clear(got)
	must(out.CopyTo(got))
	same(bytesOf(got), bytesOf(want))
	free(in, out)
	// Memory that has been freed, and memory of the host.
	isError(Send(c, in, next, 5), mpi.ErrBuffer, "has been freed")
	_, err := Wrap[float64](uint64(addressOf(bytesOf(got))), 1)
	isError(err, mpi.ErrBuffer, "no device has memory")
	drain()
}
