package gpu

import (
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// A copy is whole whatever the number of chunks, with all places of the pinned memory used again.
func TestCopy(t *testing.T) {
	p := useMachine(t, acceltest.Options{Seed: 5, Delay: 50 * time.Microsecond})
	for _, n := range []int{0, 1, 333, chunk - 1, chunk, chunk + 1, chunks*chunk + 1, 2*chunks*chunk + 7} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			want := message(n, 1)
			s := ok(Alloc[byte](0, n))
			must(s.CopyFrom(want))
			same(contents(rank{d: p}, s), want)
			got := make([]byte, n)
			must(s.CopyTo(got))
			same(got, want)
			if n > 2 {
				part := s.Slice(1, n-1)
				got = make([]byte, n-2)
				must(part.CopyTo(got))
				same(got, want[1:n-1])
			}
			isError(s.CopyTo(make([]byte, n+1)), mpi.ErrCount, "gpu.CopyTo: the slice of the device has")
			isError(s.CopyFrom(make([]byte, n+1)), mpi.ErrCount, "gpu.CopyFrom: the slice of the device has")
			must(s.Free())
		})
	}
	type pair struct {
		A int32
		B float64
	}
	s := ok(Alloc[pair](0, 3))
	must(s.Slice(1, 2).CopyFrom([]pair{{7, 8}}))
	var one [1]pair
	must(s.Slice(1, 3).Slice(0, 1).CopyTo(one[:]))
	if one[0] != (pair{7, 8}) {
		t.Error(one)
	}
	must(s.Free())
}

// A copy that fails, at its start or its end, is an error, and leaves no copy under way: Left would name it.
func TestCopyFails(t *testing.T) {
	p := useMachine(t, acceltest.Options{Seed: 6, Delay: 50 * time.Microsecond})
	host := make([]byte, 3*chunk)
	s := ok(Alloc[byte](0, len(host)))
	for _, method := range []string{"Copy", "CopyEnd"} {
		for nth := 1; nth <= 3; nth++ {
			p.Fail(method, nth)
			isError(s.CopyFrom(host), mpi.ErrDevice, "gpu.CopyFrom: ")
			p.Fail(method, nth)
			isError(s.CopyTo(host), mpi.ErrDevice, "gpu.CopyTo: ")
		}
	}
	drain()
	p.Fail("Pin", 1)
	isError(s.CopyTo(host), mpi.ErrNoMemory, "gpu.CopyTo: pinning")
	must(s.Free())
}

// A copy with a stream waits for what is on the stream at the time of the call.
func TestCopyWithStream(t *testing.T) {
	p := useMachine(t, acceltest.Options{Seed: 7, Delay: time.Millisecond})
	s := ok(Alloc[byte](0, 6))
	stream := p.Stream(0)
	stream.Hold()
	stream.Launch(func() { p.Write(s.Addr(), []byte("kernel")) })
	got := make(chan string)
	go func() {
		host := make([]byte, 6)
		must(s.On(stream.Handle()).CopyTo(host))
		got <- string(host)
	}()
	for p.Calls("Mark") == 0 {
		time.Sleep(time.Millisecond)
	}
	behind := make(chan struct{})
	stream.Launch(func() { <-behind })
	if p.Calls("Copy") > 0 {
		t.Error("a copy is started before the stream has come so far")
	}
	stream.Release()
	if s := <-got; s != "kernel" {
		t.Errorf("copied %q", s)
	}
	close(behind)
	stream.Sync()
	must(s.Free())
}

// Pinned memory is used again, and the idle part of it is bounded.
func TestStages(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	s := ok(Alloc[byte](0, 100))
	for range 5 {
		must(s.CopyFrom(make([]byte, 100)))
	}
	if n := p.Calls("Pin"); n != 1 {
		t.Errorf("memory was pinned %d times for five copies", n)
	}
	a, _ := take(p, stagesIdle)
	b, _ := take(p, stageStep+1)
	if len(b.mem) != 2*stageStep || len(a.mem) != stagesIdle {
		t.Errorf("%d and %d bytes", len(a.mem), len(b.mem))
	}
	a.giveBack()
	b.giveBack()
	if stages.bytes > stagesIdle || len(stages.idle) != 1 || len(stages.idle[0].mem) != len(b.mem) {
		t.Errorf("%d bytes are kept in %d pieces; want what was used last", stages.bytes, len(stages.idle))
	}
	must(s.Free())
}
