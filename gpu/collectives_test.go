package gpu

import (
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/join"
)

// vector is n numbers whose sum depends on the order of the additions.
func vector(n, rank int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Ldexp(1+float64((i*31+rank*17)%97)/97, (i*7+rank*13)%60)
	}
	return v
}

// bothWays makes a call on the host, with send and recv, and on the device, and compares all that is in the buffers
// then. A nil buffer is a zero Slice.
func bothWays(r rank, send, recv []float64, host func(send, recv []float64) error, device func(send,
	recv Slice[float64]) error,
) {
	var ds, dr Slice[float64]
	if send != nil {
		ds = of(r, send)
	}
	other := r
	other.device = (r.device + 1) % len(ok(r.d.Devices()))
	if recv != nil {
		dr = of(other, recv)
	}
	must(host(send, recv))
	must(device(ds, dr))
	if send != nil {
		same(contents(r, ds), bytesOf(send))
		free(ds)
	}
	if recv != nil {
		same(contents(r, dr), bytesOf(recv))
		free(dr)
	}
}

// waited makes a blocking call of a nonblocking one.
func waited(r *mpi.Request, err error) error { return wait(r, err) }

// testCollectives makes all calls with vectors of n elements for each rank.
func testCollectives(r rank, n int) {
	c, size, me := r.Comm, r.Size(), r.Rank()
	type f = func(send, recv []float64) error
	type g = func(send, recv Slice[float64]) error
	empty := func(n int) []float64 { return make([]float64, n) }
	for root := range size {
		atRoot := func(v []float64) []float64 {
			if me != root {
				return nil
			}
			return v
		}
		for _, blocking := range []bool{true, false} {
			pick := func(b, i g) g {
				if blocking {
					return b
				}
				return i
			}
			bothWays(r, nil, vector(n, me), func(_, b []float64) error { return mpi.Bcast(c, b, root) },
				pick(func(_, b Slice[float64]) error { return Bcast(c, b, root) },
					func(_, b Slice[float64]) error { return waited(Ibcast(c, b, root)) }))
			gather := f(func(s, d []float64) error { return mpi.Gather(c, s, d, root) })
			dgather := pick(func(s, d Slice[float64]) error { return Gather(c, s, d, root) },
				func(s, d Slice[float64]) error { return waited(Igather(c, s, d, root)) })
			bothWays(r, vector(n, me), atRoot(empty(n*size)), gather, dgather)
			inPlace := vector(n, me)
			if me == root {
				inPlace = nil
			}
			bothWays(r, inPlace, vector(n*size, me), gather, dgather) // others' recv is not used
			scatter := f(func(s, d []float64) error { return mpi.Scatter(c, s, d, root) })
			dscatter := pick(func(s, d Slice[float64]) error { return Scatter(c, s, d, root) },
				func(s, d Slice[float64]) error { return waited(Iscatter(c, s, d, root)) })
			bothWays(r, vector(n*size, me), empty(n), scatter, dscatter)
			keep := empty(n)
			if me == root {
				keep = nil
			}
			bothWays(r, atRoot(vector(n*size, me)), keep, scatter, dscatter)
			reduce := f(func(s, d []float64) error { return mpi.Reduce(c, s, d, mpi.Sum, root, mpi.Ordered) })
			dreduce := pick(func(s, d Slice[float64]) error { return Reduce(c, s, d, mpi.Sum, root, mpi.Ordered) },
				func(s, d Slice[float64]) error { return waited(Ireduce(c, s, d, mpi.Sum, root, mpi.Ordered)) })
			bothWays(r, vector(n, me), vector(n, me+9), reduce, dreduce)
			bothWays(r, inPlace, vector(n, me), reduce, dreduce)
		}
	}
	for _, call := range []struct {
		host         f
		device       []g
		send, recv   int // elements
		inPlaceSizes int
	}{
		{func(s, d []float64) error { return mpi.Allgather(c, s, d) },
			[]g{func(s, d Slice[float64]) error { return Allgather(c, s, d) },
				func(s, d Slice[float64]) error { return waited(Iallgather(c, s, d)) }}, n, n * size, n * size},
		{func(s, d []float64) error { return mpi.Alltoall(c, s, d) },
			[]g{func(s, d Slice[float64]) error { return Alltoall(c, s, d) },
				func(s, d Slice[float64]) error { return waited(Ialltoall(c, s, d)) }}, n * size, n * size, n * size},
		{func(s, d []float64) error { return mpi.Allreduce(c, s, d, mpi.Sum) },
			[]g{func(s, d Slice[float64]) error { return Allreduce(c, s, d, mpi.Sum) },
				func(s, d Slice[float64]) error { return waited(Iallreduce(c, s, d, mpi.Sum)) }}, n, n, n},
		{func(s, d []float64) error { return mpi.ReduceScatterBlock(c, s, d, mpi.Prod, mpi.Ordered) },
			[]g{func(s, d Slice[float64]) error { return ReduceScatterBlock(c, s, d, mpi.Prod, mpi.Ordered) },
				func(s, d Slice[float64]) error {
					return waited(IreduceScatterBlock(c, s, d, mpi.Prod, mpi.Ordered))
				}}, n * size, n, n * size},
	} {
		for _, device := range call.device {
			bothWays(r, vector(call.send, me), empty(call.recv), call.host, device)
			bothWays(r, nil, vector(call.inPlaceSizes, me), call.host, device)
		}
	}
}

// Every collective call gives the bits that the call for memory of the host gives.
func TestCollectives(t *testing.T) {
	sizes := []int{0, 1, 7, 1000}
	if !testing.Short() {
		sizes = append(sizes, 100_001)
	}
	everyWay(t, 3, func(r rank) {
		for _, n := range sizes {
			testCollectives(r, n)
		}
	})
}

// One rank's buffers are of the host, and the others' of devices: the calls match.
func TestCollectiveWithHost(t *testing.T) {
	everyWay(t, 3, func(r rank) {
		want := make([]float64, 50)
		must(mpi.Allreduce(r.Comm, vector(50, r.Rank()), want, mpi.Sum))
		if r.Rank() == 1 {
			must(mpi.Allreduce(r.Comm, nil, vector(50, 1), mpi.Sum))
			return
		}
		s := of(r, vector(50, r.Rank()))
		must(Allreduce(r.Comm, InPlace[float64](), s, mpi.Sum))
		same(contents(r, s), bytesOf(want))
		free(s)
	})
}

// A result that cannot be copied to the device is the call's error, once, in every way to collect it, and the others'
// results are not touched by it.
func TestCollectiveCopyFails(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	for _, method := range []string{"Copy", "CopyEnd"} {
		run(t, 1, func(c *mpi.Comm) {
			r := rank{c, p, 0}
			s, d := of(r, vector(4, 0)), alloc[float64](r, 4)
			p.Fail(method, 1)
			isError(Allreduce(c, s, d, mpi.Sum), mpi.ErrDevice, "gpu.Allreduce: ")
			p.Fail(method, 2)
			isError(Allreduce(c, s, d, mpi.Sum), mpi.ErrDevice, "gpu.Allreduce: ")
			p.Fail(method, 1)
			_, err := Iallreduce(c, s, d, mpi.Sum)
			isError(err, mpi.ErrDevice, "gpu.Iallreduce: ")
			start := func() (failing, good *mpi.Request) {
				failing = ok(Iallreduce(c, s, d, mpi.Sum))
				p.Fail(method, 1)
				return failing, ok(mpi.Ibarrier(c))
			}
			const text = "gpu.Iallreduce: "
			a, b := start()
			_, err = a.Wait()
			isError(err, mpi.ErrDevice, text)
			must(wait(b, nil))
			a, b = start()
			done := false
			for !done {
				done, _, err = a.Test()
			}
			isError(err, mpi.ErrDevice, text)
			must(wait(b, nil))
			a, b = start()
			isError(mpi.WaitAll(b, a), mpi.ErrDevice, text)
			a, b = start()
			sts, err := mpi.WaitAllStatus(b, a)
			isError(err, mpi.ErrDevice, text)
			check(len(sts) == 2, "%d statuses", len(sts))
			a, b = start()
			i, _, err := mpi.WaitAny(a)
			isError(err, mpi.ErrDevice, text)
			check(i == 0, "request %d", i)
			must(wait(b, nil))
			a, b = start()
			b.Wait()
			index, sts, err := mpi.WaitSome(nil, a)
			isError(err, mpi.ErrDevice, text)
			check(len(index) == 1 && index[0] == 1 && len(sts) == 1, "%v %v", index, sts)
			a, b = start()
			must(wait(b, nil))
			all := ok(mpi.AppendSome(nil, a))
			check(len(all) == 1 && all[0].Index == 0, "%v", all)
			isError(all[0].Err, mpi.ErrDevice, text)
			a, b = start()
			for done = false; !done; {
				done, err = mpi.TestAll(a, b)
			}
			isError(err, mpi.ErrDevice, text)
			a, b = start()
			must(wait(b, nil))
			for done = false; !done; {
				i, done, _, err = mpi.TestAny(a)
			}
			isError(err, mpi.ErrDevice, text)
			a, b = start()
			must(wait(b, nil))
			for index = nil; len(index) == 0; {
				index, _, err = mpi.TestSome(a)
			}
			isError(err, mpi.ErrDevice, text)
			_, err = a.Wait()
			check(err != nil, "a request is collected twice")
			free(s, d)
		})
	}
}

// A buffer that one rank cannot use is an error at all ranks where calls are compared, as under RunLocal. All can go on.
func TestCollectiveMistakeOfOneRank(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	run(t, 3, func(c *mpi.Comm) {
		r := rank{c, p, 0}
		s := of(r, vector(4, c.Rank()))
		part, gone := s, s
		if c.Rank() == 1 {
			part, gone = s.Slice(2, 9), of(r, vector(4, 1))
			free(gone)
		}
		says := func(err, class error, text string) {
			isError(err, class, text)
			told := strings.Contains(err.Error(), "rank 1 calls it wrongly")
			check(told == (c.Rank() != 1), "rank %d: %v", c.Rank(), err)
		}
		says(Bcast(c, part, 0), mpi.ErrCount, "the elements from 2 up to 9")
		says(Bcast(c, gone, 0), mpi.ErrBuffer, "has been freed")
		says(waited(Iallreduce(c, InPlace[float64](), part, mpi.Sum)), mpi.ErrCount, "the elements from 2 up to 9")
		must(mpi.Barrier(c)) // no rank copies any more
		if c.Rank() == 1 {
			p.Fail("Copy", 1)
		}
		err := Bcast(c, s, 1)
		isError(err, mpi.ErrDevice, "CUDA_ERROR_UNKNOWN")
		check(strings.Contains(err.Error(), "rank 1 cannot call it") == (c.Rank() != 1), "rank %d: %v", c.Rank(), err)
		must(mpi.Barrier(c))
		free(s)
	})
}

// So is memory that a rank cannot pin for its buffers.
func TestCollectiveCannotPin(t *testing.T) {
	m := newMachine(t, acceltest.Options{})
	drivers := []*acceltest.Process{m.Process(), m.Process(), m.Process()}
	useDriver(t, drivers[0])
	run(t, 3, func(c *mpi.Comm) {
		r := rank{c, drivers[c.Rank()], 0}
		s := of(r, vector(40_000, c.Rank()))
		in := InPlace[float64]()
		for _, call := range []func() error{
			func() error { return Allreduce(c, in, s, mpi.Max) },
			func() error { return waited(Iallreduce(c, in, s, mpi.Max)) },
			func() error { return Bcast(c, s, 0) },
		} {
			if c.Rank() == 1 {
				drain() // else the memory of the last call serves
				r.d.Fail("Pin", 1)
			}
			err := call()
			isError(err, mpi.ErrNoMemory, "pinning 524288 bytes of the host to copy through: Pin: CUDA_ERROR_UNKNOWN")
			check(strings.Contains(err.Error(), "rank 1 cannot call it") == (c.Rank() != 1), "rank %d: %v", c.Rank(), err)
			must(call())
		}
		free(s)
	})
}

// Where calls are not compared, a rank whose device fails makes the call without its elements. The ranks that need them
// get an error, no rank waits for ever, and all can go on: through a board, and by messages between hosts.
func TestCollectiveOfUnableRank(t *testing.T) {
	t.Setenv("GORUN_COLL_CHECK", "0")
	for _, hosts := range []int{1, 3} {
		m := newMachine(t, acceltest.Options{})
		drivers := []*acceltest.Process{m.Process(), m.Process(), m.Process()}
		useDriver(t, drivers[0])
		run(t, 3, func(c *mpi.Comm) {
			r := rank{c, drivers[c.Rank()], 0}
			for _, n := range []int{6, 60_000} {
				failInCollectives(r, n)
			}
		}, func(o *join.Options) { o.Host = func(rank int) int { return rank % hosts } })
	}
}

// failInCollectives has the device of rank 1 fail once in each call with vectors of n elements for each rank.
func failInCollectives(r rank, n int) {
	const allNeed, firstNeeds, noneNeeds = 0, 1, 2 // whether a rank needs what rank 1 gives
	c, me := r.Comm, r.Rank()
	send, recv, one := of(r, vector(3*n, me)), of(r, vector(3*n, 9)), alloc[float64](r, n)
	part := send.Slice(0, n)
	for i, call := range []struct {
		who int
		do  func() error
	}{
		{allNeed, func() error { return Allreduce(c, send, recv, mpi.Max) }},
		{allNeed, func() error { return waited(Iallreduce(c, send, recv, mpi.Max)) }},
		{allNeed, func() error { return Allreduce(c, send, recv, mpi.Max, mpi.Ordered) }},
		{allNeed, func() error { return Allgather(c, part, recv) }},
		{allNeed, func() error { return waited(Iallgather(c, part, recv)) }},
		{allNeed, func() error { return Alltoall(c, send, recv) }},
		{allNeed, func() error { return waited(Ialltoall(c, send, recv)) }},
		{allNeed, func() error { return ReduceScatterBlock(c, send, one, mpi.Max) }},
		{allNeed, func() error { return Bcast(c, recv, 1) }},
		{allNeed, func() error { return waited(Ibcast(c, recv, 1)) }},
		{allNeed, func() error { return Scatter(c, send, one, 1) }},
		{firstNeeds, func() error { return Gather(c, part, recv, 0) }},
		{firstNeeds, func() error { return waited(Igather(c, part, recv, 0)) }},
		{firstNeeds, func() error { return Reduce(c, send, recv, mpi.Max, 0) }},
		{noneNeeds, func() error { return Bcast(c, recv, 0) }}, // it fails when it stores the result
	} {
		must(mpi.Barrier(c))
		if me == 1 {
			r.d.Fail("Copy", 1)
		}
		err := call.do()
		switch {
		case me == 1:
			isError(err, mpi.ErrDevice, "Copy: CUDA_ERROR_UNKNOWN")
		case err != nil || call.who == allNeed || call.who == firstNeeds && me == 0:
			check(call.who != noneNeeds, "call %d: %v", i, err)
			isError(err, mpi.ErrPeerFailed, "could not go on, and its own error says why")
		}
		must(call.do())
	}
	want := make([]float64, 3*n)
	must(mpi.Allreduce(c, vector(3*n, me), want, mpi.Max))
	must(Allreduce(c, send, recv, mpi.Max))
	same(contents(r, recv), bytesOf(want))
	free(send, recv, one)
}

// A rank whose device fails takes part in a call without memory as long as the buffers: memory may be what it lacks. So
// it is through a board, by messages between hosts, and in a call that is not blocking.
func TestUnableRankTakesNoMemory(t *testing.T) {
	t.Setenv("GORUN_COLL_CHECK", "0")
	const n, most = 1 << 20, 3 << 20 // elements of 8 bytes; bytes
	for _, hosts := range []int{1, 2} {
		m := newMachine(t, acceltest.Options{})
		drivers := []*acceltest.Process{m.Process(), m.Process()}
		useDriver(t, drivers[0])
		run(t, 2, func(c *mpi.Comm) {
			r := rank{c, drivers[c.Rank()], 0}
			send, recv, one := alloc[float64](r, n), alloc[float64](r, n), alloc[float64](r, n/2)
			for i, call := range []func() error{
				func() error { return Allreduce(c, send, recv, mpi.Max) },
				func() error { return waited(Iallreduce(c, send, recv, mpi.Max)) },
				func() error { return Allreduce(c, InPlace[float64](), recv, mpi.Max, mpi.Ordered) },
				func() error { return Bcast(c, send, 1) },
				func() error { return Alltoall(c, send, recv) },
				func() error { return Allgather(c, one, recv) },
				func() error { return ReduceScatterBlock(c, send, one, mpi.Max) },
				func() error { return waited(Iscatter(c, send, one, 1)) },
			} {
				for range 3 { // the other rank has a board, plans and scratch then
					must(call())
				}
				must(mpi.Barrier(c))
				before := allocated()
				if c.Rank() == 1 {
					r.d.Fail("Copy", 1)
				}
				err := call()
				grown := allocated() - before
				check(err != nil, "call %d: no error", i)
				check(c.Rank() == 0 || grown < most, "hosts %d, call %d: %d bytes are allocated", hosts, i, grown)
				must(mpi.Barrier(c))
			}
			free(send, recv, one)
		}, func(o *join.Options) { o.Host = func(rank int) int { return rank % hosts } })
	}
}

// allocated is how many bytes the Go heap has given out so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Wrong arguments are the errors of the call of package mpi, with this package's name.
func TestCollectiveErrors(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	run(t, 1, func(c *mpi.Comm) {
		r := rank{c, p, 0}
		h, h2 := make([]float64, 4), make([]float64, 3)
		s, s2 := of(r, h), of(r, h2)
		var zero Slice[float64]
		freed := ok(c.Dup())
		must(freed.Free())
		for i, pair := range [][2]error{
			{mpi.Bcast(c, h, 3), Bcast(c, s, 3)},
			{mpi.Bcast(nil, h, 0), Bcast(nil, s, 0)},
			{mpi.Bcast(freed, h, 0), Bcast(freed, s, 0)},
			{mpi.Gather(c, h, h2, 0), Gather(c, s, s2, 0)},
			{mpi.Gather(c, h, h2, -1), Gather(c, s, s2, -1)},
			{mpi.Scatter(c, h, h2, 0), Scatter(c, s, s2, 0)},
			{mpi.Allgather(c, h, h2), Allgather(c, s, s2)},
			{mpi.Alltoall(c, h, h2), Alltoall(c, s, s2)},
			{mpi.Reduce(c, h, h2, mpi.Sum, 0), Reduce(c, s, s2, mpi.Sum, 0)},
			{mpi.Reduce(c, h, h2, nil, 0), Reduce(c, s, s2, nil, 0)},
			{mpi.Reduce(c, nil, nil, mpi.Sum[float64], 9), Reduce(c, zero, zero, mpi.Sum[float64], 9)},
			{mpi.Allreduce(c, h, h2, mpi.Sum), Allreduce(c, s, s2, mpi.Sum)},
			{mpi.Allreduce(c, h, h, mpi.Sum), Allreduce(c, s, s, mpi.Sum)},
			{mpi.Allreduce(c, h[:3], h[1:], mpi.Sum), Allreduce(c, s.Slice(0, 3), s.Slice(1, 4), mpi.Sum)},
			{mpi.ReduceScatterBlock(c, h, h2, mpi.Sum), ReduceScatterBlock(c, s, s2, mpi.Sum)},
			{mpi.Allgather(c, []*int{}, []*int{}), Allgather(c, Slice[*int]{}, Slice[*int]{})},
		} {
			check(pair[0] != nil && pair[1] != nil, "call %d: %v, %v", i, pair[0], pair[1])
			want := "mpi: gpu." + pair[0].Error()[len("mpi: "):]
			check(pair[1].Error() == want, "call %d:\n%v, want\n%s", i, pair[1], want)
			isError(pair[1], class(pair[0]), "")
		}
		for i, pair := range []func() (*mpi.Request, error){
			func() (*mpi.Request, error) { return Ibcast(c, s, 3) },
			func() (*mpi.Request, error) { return Igather(c, s, s2, 0) },
			func() (*mpi.Request, error) { return Iscatter(c, s, s2, 0) },
			func() (*mpi.Request, error) { return Iallgather(c, s, s2) },
			func() (*mpi.Request, error) { return Ialltoall(c, s, s2) },
			func() (*mpi.Request, error) { return Ireduce(c, s, s2, mpi.Sum, 0) },
			func() (*mpi.Request, error) { return Iallreduce(c, s, s2, mpi.Sum) },
			func() (*mpi.Request, error) { return IreduceScatterBlock(c, s, s2, mpi.Sum) },
		} {
			_, err := pair()
			check(err != nil, "call %d is right", i)
			isError(err, class(err), "mpi: gpu.I")
		}
		free(s, s2)
	})
}

func class(err error) error {
	e, is := err.(*mpi.Error)
	check(is, "%T: %v", err, err)
	return e.Class
}

// An operator that panics is the error of the call, and the pinned memory is given back.
func TestOperatorPanics(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	run(t, 2, func(c *mpi.Comm) {
		s := of(rank{c, p, 0}, vector(4, c.Rank()))
		err := Allreduce(c, InPlace[float64](), s, func(_, _ []float64) { panic("no") })
		isError(err, mpi.ErrOp, "gpu.Allreduce")
		free(s)
	})
}

// A collective call on device memory waits for what is on its streams at the time of the call: for what writes its
// contribution, for what reads where its result goes, and not for what comes later.
func TestCollectiveWithStream(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	stream := p.Stream(0)
	run(t, 1, func(c *mpi.Comm) {
		s, d := ok(Alloc[byte](0, 6)), ok(Alloc[byte](0, 6))
		old, seen := contents(rank{c, p, 0}, d), []byte(nil)
		stream.Hold()
		stream.Launch(func() { p.Write(s.Addr(), []byte("kernel")) })
		stream.Launch(func() { seen = p.Read(d.Addr(), 6) })
		marks := p.Calls("Mark")
		done := make(chan error)
		go func() { done <- Allreduce(c, s.On(stream.Handle()), d.On(stream.Handle()), mpi.Max) }()
		for p.Calls("Mark") < marks+2 {
			time.Sleep(10 * time.Microsecond)
		}
		behind := make(chan struct{})
		stream.Launch(func() { <-behind })
		stream.Release()
		must(<-done)
		check(string(contents(rank{c, p, 0}, d)) == "kernel", "got %q", contents(rank{c, p, 0}, d))
		close(behind)
		stream.Sync()
		same(seen, old)
		q := ok(Iallreduce(c, s, d.On(stream.Handle()), mpi.Max))
		stream.Hold()
		ok(q.Wait())
		stream.Release()
		// Neither a call that fails nor one whose result goes nowhere leaves its mark.
		isError(Allreduce(c, s, d.Slice(0, 5).On(stream.Handle()), mpi.Max), mpi.ErrCount, "gpu.Allreduce")
		must(Bcast(c, d.On(stream.Handle()), 0))
		p.Fail("Copy", 1)
		isError(Allreduce(c, s.On(stream.Handle()), d.On(stream.Handle()), mpi.Max), mpi.ErrDevice, "gpu.Allreduce")
		p.Fail("MarkEnd", 2)
		isError(Allreduce(c, s.On(stream.Handle()), d.On(stream.Handle()), mpi.Max), mpi.ErrDevice, "of On")
		free(s, d)
	})
}
