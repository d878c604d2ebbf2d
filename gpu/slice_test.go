package gpu

import (
	"math"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// Each reason why memory cannot be wrapped, or made, is named.
func TestWrapErrors(t *testing.T) {
	p := useMachine(t, acceltest.Options{Devices: 2, Memory: 1 << 20})
	mem := p.UserAlloc(1, 1000, acceltest.Ordinary)
	managed := p.UserAlloc(0, 1000, acceltest.Moving)
	gone := p.UserAlloc(0, 500, acceltest.Ordinary)
	p.UserFree(gone)
	host := ok(syscall.Mmap(-1, 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE))
	defer syscall.Munmap(host)
	must(p.Pin(host[:4096]))

	wrapped := func(_ Slice[float64], err error) error { return err }
	must(wrapped(Wrap[float64](mem.Base, 125)))
	must(wrapped(Wrap[float64](mem.Base+8, 124)))
	for _, c := range []struct {
		err   error
		class error
		text  string
	}{
		{wrapped(Wrap[float64](mem.Base, 126)), mpi.ErrBuffer, "gpu.Wrap: 1008 bytes at 0xd00000000000 are asked for, and the allocation there is 1000 bytes"},
		{wrapped(Wrap[float64](mem.Base+8, 125)), mpi.ErrBuffer, "ask for fewer elements"},
		{wrapped(Wrap[float64](mem.Base, math.MaxInt)), mpi.ErrCount, "9223372036854775807 elements of 8 bytes were asked for"},
		{wrapped(Wrap[float64](mem.Base, math.MaxInt/16)), mpi.ErrBuffer, "ask for fewer elements"},
		{wrapped(Wrap[float64](mem.Base, -1)), mpi.ErrCount, "-1 elements"},
		{wrapped(Wrap[float64](mem.Base+4, 1)), mpi.ErrBuffer, "is no multiple of 8, as the address of a float64 is"},
		{wrapped(Wrap[float64](managed.Base, 1)), mpi.ErrBuffer, "is managed memory, which moves between host and device"},
		{wrapped(Wrap[float64](gone.Base, 1)), mpi.ErrBuffer, "or it has been freed"},
		{wrapped(Wrap[float64](addressOf(host), 1)), mpi.ErrBuffer, "is pinned memory of the host; use a Go slice"},
		{wrapped(Wrap[float64](addressOf(host[4096:]), 1)), mpi.ErrBuffer, "it is memory of the host"},
		{wrapped(Alloc[float64](2, 1)), mpi.ErrCount, "gpu.Alloc: there is no device 2; this process has 2"},
		{wrapped(Alloc[float64](-1, 1)), mpi.ErrCount, "no device -1"},
		{wrapped(Alloc[float64](0, -1)), mpi.ErrCount, "-1 elements"},
		{wrapped(Alloc[float64](0, 1<<20)), mpi.ErrNoMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
	} {
		isError(c.err, c.class, c.text)
	}
	type bad struct{ P *int }
	_, err := Wrap[bad](mem.Base, 1)
	isError(err, mpi.ErrType, "gpu.Wrap: gpu.bad.P is a *int, which holds a pointer")
	_, err = Alloc[bad](0, 1)
	isError(err, mpi.ErrType, "gpu.Alloc: gpu.bad.P is a *int")
	p.Fail("Query", 1)
	isError(wrapped(Wrap[float64](mem.Base, 1)), mpi.ErrDevice, "CUDA_ERROR_UNKNOWN")

	p.UserFree(mem)
	p.UserFree(managed)
	must(p.Unpin(host[:4096]))
}

// A program without a driver, and one whose driver does not answer, get ErrUnavailable, and no panic.
func TestNoDriver(t *testing.T) {
	if out, err := proc.Run(t, "no driver", "GORUN_CUDA_LIB=/dev/null/none"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	useDriver(t, acceltest.New(acceltest.Options{NoDriver: true}).Process())
	nothingAnswers("libcuda.so.1")
}

func init() {
	roles["no driver"] = func() error {
		nothingAnswers("no accelerator driver")
		return nil
	}
}

func nothingAnswers(why string) {
	_, err := Wrap[byte](4096, 1)
	isError(err, mpi.ErrUnavailable, why)
	_, err = Alloc[byte](0, 1)
	isError(err, mpi.ErrUnavailable, why)
	_, err = Devices()
	isError(err, mpi.ErrUnavailable, why)
	must(mpi.RunLocal(2, func(w *mpi.Comm) error {
		_, err := Local(w)
		isError(err, mpi.ErrUnavailable, why)
		return nil
	}))
	ok(Wrap[byte](0, 0)) // nothing needs a device
}

// What a Slice says of itself, and that a wrong part of it is an error where it is used.
func TestSlice(t *testing.T) {
	useMachine(t, acceltest.Options{Devices: 2})
	s := ok(Alloc[int32](1, 10))
	part := s.Slice(2, 7)
	if part.Len() != 5 || part.Addr() != s.Addr()+8 || part.Device() != 1 || s.Slice(10, 10).Len() != 0 || part.Err() != nil {
		t.Errorf("%+v of %+v", part, s)
	}
	var zero Slice[int32]
	if zero.Len() != 0 || zero.Addr() != 0 || zero.Device() != mpi.Undefined || zero.Err() != nil ||
		zero.Slice(0, 0).Err() != nil {
		t.Error("the zero Slice is not empty")
	}
	for _, wrong := range []Slice[int32]{part.Slice(0, 6), part.Slice(-1, 2), part.Slice(3, 2), zero.Slice(0, 1),
		s.Slice(0, 11).Slice(0, 0)} {
		isError(wrong.Err(), mpi.ErrCount, "gpu.Slice: the elements from")
		isError(wrong.CopyTo(nil), mpi.ErrCount, "gpu.CopyTo: the elements from")
		isError(wrong.Free(), mpi.ErrCount, "gpu.Free: the elements from")
		run(t, 1, func(c *mpi.Comm) {
			isError(Send(c, wrong, 0, 3), mpi.ErrCount, "gpu.Send to rank 0 tag 3: the elements from")
			_, err := Irecv(c, wrong, 0, 3)
			isError(err, mpi.ErrCount, "gpu.Irecv from rank 0 tag 3: the elements from")
			_, err = Sendrecv(c, s, 0, 0, wrong, 0, 0)
			isError(err, mpi.ErrCount, "gpu.Sendrecv")
			_, err = Sendrecv(c, wrong, 0, 0, s, 0, 0)
			isError(err, mpi.ErrCount, "gpu.Sendrecv")
			isError(Allreduce(c, s, wrong, mpi.Sum), mpi.ErrCount, "gpu.Allreduce: the elements from")
			isError(Allreduce(c, wrong, s, mpi.Sum), mpi.ErrCount, "gpu.Allreduce: the elements from")
		})
	}
	must(part.Free()) // the allocation
	isError(s.Free(), mpi.ErrNoMemory, "freed already")
	isError(zero.Free(), mpi.ErrNoMemory, "zero Slice")
	isError(s.Err(), mpi.ErrBuffer, "has been freed")
	isError(s.CopyTo(make([]int32, 10)), mpi.ErrBuffer, "has been freed")
	run(t, 1, func(c *mpi.Comm) {
		isError(Send(c, s, 0, 0), mpi.ErrBuffer, "gpu.Send to rank 0 tag 0: the device memory at 0x")
		_, err := Recv(c, s, mpi.AnySource, 0)
		isError(err, mpi.ErrBuffer, "gpu.Recv")
		isError(Bcast(c, s, 0), mpi.ErrBuffer, "gpu.Bcast")
	})
}

// Memory of Wrap stays its owner's, and is not used after the owner has freed it, whatever lies there then.
func TestWrapped(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	mem := p.UserAlloc(0, 1000, acceltest.Ordinary)
	s := ok(Wrap[int16](mem.Base, 500))
	must(s.CopyFrom(make([]int16, 500)))
	must(s.Free())
	if m := ok(p.Query(mem.Base)); m.Kind != accel.OnBoard {
		t.Error("Free has given back memory of Wrap")
	}
	s = ok(Wrap[int16](mem.Base, 500))
	p.UserFree(mem)
	isError(s.Err(), mpi.ErrBuffer, "has been freed by its owner")
	again := p.UserAlloc(0, 1000, acceltest.Ordinary)
	if again.Base != mem.Base {
		t.Fatal("the address is not used again")
	}
	isError(s.Slice(3, 4).CopyTo(make([]int16, 1)), mpi.ErrBuffer, "has been freed by its owner")
	p.UserFree(again)
}

func TestDevices(t *testing.T) {
	useMachine(t, acceltest.Options{Devices: 3})
	if all := ok(Devices()); len(all) != 3 || all[2].PCI != "0000:12:00.0" || all[0].Memory != 4<<30 {
		t.Errorf("%+v", all)
	}
}
