package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/transport"
)

// group are ranks of c.
func group(c *mpi.Comm, ranks ...int) *mpi.Group { return ok(c.Group().Incl(ranks...)) }

// epoch is a way to make operations at a rank, by which rank from makes some at this one. The operations are complete
// at both ends when it returns.
type epoch struct {
	name string
	run  func(r rank, w *Win[byte], to, from int, body func())
}

var epochs = []epoch{
	{"Fence", func(_ rank, w *Win[byte], _, _ int, body func()) {
		must(w.Fence())
		body()
		must(w.Fence())
	}},
	{"Start", func(r rank, w *Win[byte], to, from int, body func()) {
		must(w.Post(group(r.Comm, from)))
		must(w.Start(group(r.Comm, to)))
		body()
		must(w.Complete())
		must(w.Wait())
	}},
	{"Test", func(r rank, w *Win[byte], to, from int, body func()) {
		must(w.Post(group(r.Comm, from)))
		must(w.Start(group(r.Comm, to)))
		body()
		must(w.Complete())
		for !ok(w.Test()) {
		}
	}},
	{"Lock", func(r rank, w *Win[byte], to, _ int, body func()) {
		must(w.Lock(to, mpi.Exclusive))
		body()
		must(w.Unlock(to))
		must(mpi.Barrier(r.Comm))
	}},
	{"Flush", func(r rank, w *Win[byte], to, _ int, body func()) {
		must(w.Lock(to, mpi.Shared))
		body()
		must(w.Flush(to))
		must(mpi.Barrier(r.Comm))
		must(w.Unlock(to))
	}},
	{"LockAll", func(r rank, w *Win[byte], _, _ int, body func()) {
		must(w.LockAll())
		body()
		must(w.UnlockAll())
		must(mpi.Barrier(r.Comm))
	}},
	{"FlushAll", func(r rank, w *Win[byte], to, _ int, body func()) {
		must(w.LockAll())
		body()
		must(w.FlushLocal(to)) // which is another call's part of FlushAll
		must(w.FlushLocalAll())
		must(w.FlushAll())
		must(w.Sync())
		must(mpi.Barrier(r.Comm))
		must(w.UnlockAll())
	}},
}

// winLengths are of operations: none, one byte, odd, of one chunk and a byte more, of several chunks.
func winLengths() []int {
	all := []int{0, 1, 333, 70_001, chunk + 1}
	if !testing.Short() {
		all = append(all, chunk-1, chunk, 5*chunk+7)
	}
	return all
}

// Operations of each kind, in each kind of epoch, with buffers of the host and of a device, move just the elements that
// they name: to the next rank, from the next rank, and to and from the rank itself.
func TestWinOperations(t *testing.T) {
	everyWay(t, 3, func(r rank) {
		lengths := winLengths()
		most := 0
		for _, n := range lengths {
			most = max(most, n+2*margin)
		}
		me := r.Rank()
		mem, buf := alloc[byte](r, most), alloc[byte](r, most)
		w := ok(WinCreate(r.Comm, mem))
		for i, e := range epochs {
			for _, n := range lengths {
				if n > 333 && i > 0 && testing.Short() {
					continue
				}
				for _, device := range []bool{false, true} {
					operate(r, e, w, buf, n, device, (me+1)%r.Size(), (me+2)%r.Size())
					operate(r, e, w, buf, n, device, me, me)
				}
			}
		}
		must(Put(w, []byte{1}, mpi.ProcNull, 0))
		must(Get(w, buf, mpi.ProcNull, 0))
		check(w.Local().Addr() == mem.Addr() && w.Group().Size() == 3, "Local is %v, Group %v", w.Local(), w.Group())
		must(w.Free())
		free(mem, buf)
	})
}

// margin is how many bytes are watched before and behind what an operation writes.
const margin = 5

// operate puts n bytes to a rank, and gets them from there. from does so with this rank.
func operate(r rank, e epoch, w *Win[byte], buf Slice[byte], n int, device bool, to, from int) {
	me := r.Rank()
	mem := w.Local().Slice(0, n+2*margin)
	want := message(n+2*margin, 100+me)
	must(mem.CopyFrom(want))
	must(mpi.Barrier(r.Comm))
	src := message(n, to+10*me)
	e.run(r, w, to, from, func() {
		if device {
			must(buf.Slice(1, 1+n).CopyFrom(src))
			must(Put(w, buf.Slice(1, 1+n), to, margin))
		} else {
			must(Put(w, src, to, margin))
		}
	})
	copy(want[margin:], message(n, me+10*from))
	same(contents(r, mem), want)
	must(mpi.Barrier(r.Comm))

	got, there := make([]byte, n+2), message(n+2*margin, 100+to)
	copy(there[margin:], src)
	if device {
		must(buf.Slice(0, n+2).CopyFrom(got))
	}
	e.run(r, w, to, from, func() {
		if device {
			must(Get(w, buf.Slice(1, 1+n), to, margin-1))
		} else {
			must(Get(w, got[1:1+n], to, margin-1))
		}
	})
	if device {
		must(buf.Slice(0, n+2).CopyTo(got))
	}
	same(got, bytes.Join([][]byte{{0}, there[margin-1:][:n], {0}}, nil))
	must(mpi.Barrier(r.Comm))
}

// Elements have a size, and each rank a number of its own of them; one has none.
func TestWinElements(t *testing.T) {
	everyWay(t, 3, func(r rank) {
		var mem Slice[[3]int32]
		if r.Rank() > 0 {
			mem = alloc[[3]int32](r, 10*r.Rank())
		}
		w := ok(WinCreate(r.Comm, mem))
		must(w.SetName("elements"))
		check(w.Name() == "elements", "%q", w.Name())
		must(w.Fence())
		if r.Rank() == 0 {
			must(Put(w, [][3]int32{{1, 2, 3}, {4, 5, 6}}, 2, 18))
			must(Put(w, [][3]int32{}, 0, 0))
		}
		must(w.Fence())
		if r.Rank() == 2 {
			var got [2][3]int32
			must(mem.Slice(18, 20).CopyTo(got[:]))
			check(got == [2][3]int32{{1, 2, 3}, {4, 5, 6}}, "%v", got)
		}
		isError(Put(w, make([][3]int32, 1), 0, 0), mpi.ErrRange, "gpu.Put to rank 0 on elements: 1 element from element 0 on")
		isError(Get(w, make([][3]int32, 3), 1, 8), mpi.ErrRange, "3 elements from element 8 on; the window has 10 elements")
		isError(Get(w, make([][3]int32, 1), 2, -1), mpi.ErrRange, "element -1")
		must(w.Fence())
		must(w.Free())
		if r.Rank() > 0 {
			free(mem)
		}
	})
}

// A wrong call is an error of the class that package mpi has for it, with the name of the call of this package.
func TestWinErrors(t *testing.T) {
	everyWay(t, 2, func(r rank) {
		mem := alloc[int64](r, 8)
		w := ok(WinCreate(r.Comm, mem))
		one := make([]int64, 1)
		isError(Put(w, one, 1, 0), mpi.ErrEpoch, "gpu.Put to rank 1 on world.win1: no epoch is open; call Fence, Start")
		isError(Get(w, mem.Slice(0, 1), 0, 0), mpi.ErrEpoch, "gpu.Get from rank 0")
		isError(w.Unlock(0), mpi.ErrEpoch, "gpu.Unlock")
		isError(w.Flush(0), mpi.ErrEpoch, "gpu.Flush at rank 0 on world.win1: neither Lock nor LockAll")
		isError(w.Complete(), mpi.ErrEpoch, "gpu.Complete on world.win1: Start has opened no epoch")
		isError(w.Wait(), mpi.ErrEpoch, "gpu.Wait")
		isError(w.Lock(2, mpi.Shared), mpi.ErrRank, "gpu.Lock at rank 2")
		must(w.LockAll())
		isError(Put(w, one, 2, 0), mpi.ErrRank, "gpu.Put to rank 2")
		isError(Get(w, one, -7, 0), mpi.ErrRank, "gpu.Get")
		isError(Put(w, make([]int64, 2), 1, 7), mpi.ErrRange, "2 elements from element 7 on; the window has 8 elements there")
		isError(Put(w, mem.Slice(0, 9), 1, 0), mpi.ErrCount, "gpu.Put to rank 1 on world.win1: the elements from 0")
		isError(w.Fence(), mpi.ErrEpoch, "LockAll has opened an epoch")
		isError(w.Free(), mpi.ErrEpoch, "gpu.Free")
		must(w.UnlockAll())
		isError(mem.Slice(3, 4).Free(), mpi.ErrBuffer, "gpu.Free: a window has the memory, from 0xd")
		must(mpi.Barrier(r.Comm))
		must(w.Free())
		isError(Put(w, one, 1, 0), mpi.ErrComm, "gpu.Put to rank 1 on world.win1: the window has been freed")
		isError(w.Fence(), mpi.ErrComm, "gpu.Fence")
		isError(w.Free(), mpi.ErrComm, "gpu.Free")

		other := alloc[int64](r, 1)
		free(mem)
		_, err := WinCreate(r.Comm, []Slice[int64]{mem, other}[r.Rank()])
		isError(err, mpi.ErrBuffer, "has been freed")
		_, err = WinCreate(r.Comm, other.Slice(0, 1+r.Rank()))
		isError(err, mpi.ErrCount, "the elements from 0 up to 2")
		_, err = WinCreate(r.Comm, Slice[*int]{})
		isError(err, mpi.ErrType, "*int holds a pointer")
		if r.Rank() == 0 {
			_, err = WinCreate(r.Comm, Slice[int32]{})
		} else {
			_, err = mpi.WinCreate(r.Comm, []int32{1})
		}
		check(err != nil, "a window of gpu is one of mpi")
		var none *Win[int]
		for _, err := range []error{Put(none, []int{}, 0, 0), Get(none, Slice[int]{}, 0, 0), none.Fence(),
			none.Lock(0, mpi.Shared), none.Free(), none.SetName("")} {
			isError(err, mpi.ErrComm, "the window is nil")
		}
		_, err = none.Test()
		isError(err, mpi.ErrComm, "gpu.Test: the window is nil")
		check(none.WithContext(nil) == nil && none.Group() == nil && none.Name() == "" && none.Local().Len() == 0, "of nil")
		_, err = WinCreate(nil, other)
		isError(err, mpi.ErrComm, "gpu.WinCreate")
		free(other) // no window that was not made has it
	})
}

// A rank that is in no call does what it is asked.
func TestWinProgress(t *testing.T) {
	for _, w := range ways {
		var over sync.WaitGroup // of the rank that makes operations
		over.Add(1)
		w.test(t, 2, func(r rank) {
			mem := alloc[byte](r, chunk+1)
			win := ok(WinCreate(r.Comm, mem))
			if r.Rank() == 1 {
				over.Wait()
				same(contents(r, mem), message(chunk+1, 1))
			} else {
				for _, to := range []int{1, 0} {
					buf := of(r, message(chunk+1, to))
					must(win.Lock(to, mpi.Shared))
					must(Put(win, buf, to, 0))
					must(win.Flush(to))
					got := make([]byte, chunk+1)
					must(Get(win, got, to, 0))
					must(win.Unlock(to))
					same(got, message(chunk+1, to))
					free(buf)
				}
				over.Done()
			}
			must(win.Free())
			free(mem)
		})
	}
}

// Random operations, of many sizes, with and without a flush between them, have the effect that they have one after the
// other. Each rank has a part of its own of every rank's memory, so that the program has one result.
func TestWinRandom(t *testing.T) {
	programs := 10
	if testing.Short() {
		programs = 1
	}
	everyWay(t, 3, func(r rank) {
		for seed := range programs {
			winProgram(r, uint64(seed))
		}
	})
}

func winProgram(r rank, seed uint64) {
	const part = 100_000
	random := rand.New(rand.NewPCG(seed, uint64(r.Rank())))
	size, me := r.Size(), r.Rank()
	mem := of(r, make([]byte, part*size))
	buf := alloc[byte](r, part)
	w := ok(WinCreate(r.Comm, mem))
	model := make([][]byte, size) // this rank's part of each rank's memory
	for i := range model {
		model[i] = make([]byte, part)
	}
	must(mpi.Barrier(r.Comm))
	must(w.LockAll())
	for range 60 {
		to := random.IntN(size)
		at := random.IntN(part)
		n := min(part-at, 1<<random.IntN(17))
		base := int64(me * part)
		data := message(n, random.IntN(1<<16))
		switch random.IntN(5) {
		case 0:
			must(Put(w, data, to, base+int64(at)))
			must(w.FlushLocal(to))
			copy(model[to][at:], data)
		case 1:
			must(buf.Slice(0, n).CopyFrom(data))
			must(Put(w, buf.Slice(0, n), to, base+int64(at)))
			must(w.FlushLocalAll())
			copy(model[to][at:], data)
		case 2:
			must(w.Flush(to))
			got := make([]byte, n)
			must(Get(w, got, to, base+int64(at)))
			must(w.FlushLocal(to))
			same(got, model[to][at:at+n])
		case 3:
			must(w.FlushAll())
			must(Get(w, buf.Slice(part-n, part), to, base+int64(at)))
			must(w.Flush(to))
			same(contents(r, buf.Slice(part-n, part)), model[to][at:at+n])
		case 4: // many short ones, of elements that no other one of them has
			for i := at; i < min(part, at+200); i++ {
				must(Put(w, data[:1], to, base+int64(i)))
				model[to][i] = data[0]
			}
			must(w.Flush(to))
		}
		if random.IntN(2) == 0 { // puts to one place have no order without it
			must(w.Flush(to))
		} else {
			must(w.FlushAll())
		}
	}
	must(w.UnlockAll())
	must(mpi.Barrier(r.Comm))
	all := make([]byte, size*size*part) // of each rank, its parts of all ranks
	must(mpi.Allgather(r.Comm, bytes.Join(model, nil), all))
	for from := range size {
		same(contents(r, mem.Slice(from*part, (from+1)*part)), all[(from*size+me)*part:][:part])
	}
	must(w.Free())
	free(mem, buf)
}

// A copy that fails is an error of the call that waits for it, and of no later one. What cannot be mapped is asked for.
func TestWinFailures(t *testing.T) {
	everyWay(t, 2, func(r rank) {
		mem := of(r, message(1000, 5))
		w := ok(WinCreate(r.Comm, mem))
		must(w.LockAll())
		if r.Rank() == 0 {
			r.d.Fail("CopyEnd", 1)
			must(Put(w, message(1000, 6), 0, 0)) // by a copy of this rank
			isError(w.Flush(0), mpi.ErrDevice, "gpu.Flush at rank 0 on world.win1: cuEventQuery: CUDA_ERROR_LAUNCH_FAILED (719)")
			must(w.Flush(0))
			r.d.Fail("CopyEnd", 1)
			got := make([]byte, 1000)
			must(Get(w, got, 0, 0))
			isError(w.FlushAll(), mpi.ErrDevice, "gpu.FlushAll on world.win1: cuEventQuery")
			r.d.Fail("Copy", 1)
			isError(Put(w, message(1000, 6), 0, 0), mpi.ErrDevice, "gpu.Put to rank 0 on world.win1: Copy: CUDA_ERROR_UNKNOWN")
			must(w.FlushAll())
		}
		must(mpi.Barrier(r.Comm))
		must(w.UnlockAll())
		must(w.Free())
		free(mem)
	})
	for _, method := range []string{"Open", "Export", "Devices"} {
		ways[1].test(t, 2, func(r rank) {
			mem := of(r, message(1000, 5))
			r.d.Fail(method, 1)
			w := ok(WinCreate(r.Comm, mem))
			must(w.Fence())
			must(Put(w, message(100, 7), 1-r.Rank(), 10))
			must(w.Fence())
			same(contents(r, mem.Slice(10, 110)), message(100, 7))
			must(w.Free())
			free(mem)
		})
	}
}

// An operation waits for what is on the stream of its buffer at the time of the call, and holds up no other one.
func TestWinStream(t *testing.T) {
	everyWay(t, 2, func(r rank) {
		mem := of(r, make([]byte, 1000))
		buf := of(r, message(1000, 1))
		w := ok(WinCreate(r.Comm, mem.On(12345))) // which is no stream
		must(w.Fence())
		if r.Rank() == 0 {
			s := r.d.Stream(r.device)
			s.Hold()
			s.Launch(func() { r.d.Write(buf.Addr(), message(1000, 2)) })
			must(Put(w, buf.On(s.Handle()), 1, 0))
			behind := make(chan struct{})
			s.Launch(func() { <-behind })
			for range 2 * copiesMost {
				must(Put(w, []byte{9}, 0, 0)) // for which room is made by waiting for others
			}
			s.Release()
			must(w.Fence())
			close(behind)
		} else {
			must(w.Fence())
		}
		if r.Rank() == 1 {
			same(contents(r, mem), message(1000, 2))
			s := r.d.Stream(r.device)
			must(w.Lock(1, mpi.Shared))
			var before, seen []byte
			s.Hold()
			s.Launch(func() { before = r.d.Read(buf.Addr(), 1000) })
			must(Get(w, buf.On(s.Handle()), 1, 0))
			s.Release()
			must(w.Unlock(1))
			s.Launch(func() { seen = r.d.Read(buf.Addr(), 1000) })
			s.Sync()
			same(before, message(1000, 1))
			same(seen, message(1000, 2))
		} else {
			must(w.Lock(0, mpi.Shared))
			must(w.Unlock(0))
		}
		must(w.Free())
		free(mem, buf)
	})
}

// Many windows, one after the other, leave nothing.
func TestWinManyFreed(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 60
	}
	everyWay(t, 2, func(r rank) {
		mem := alloc[byte](r, 100)
		for i := range n {
			w := ok(WinCreate(r.Comm, mem))
			if i%3 == 0 {
				must(w.Fence())
				must(Put(w, []byte{byte(i)}, 1-r.Rank(), 0))
				if i%2 == 0 {
					must(w.Fence())
				}
			}
			must(w.Free())
		}
		free(mem)
		must(mpi.Barrier(r.Comm)) // the driver may be the other rank's too
		exposed.mu.Lock()
		defer exposed.mu.Unlock()
		for _, e := range exposed.all {
			check(e.mem.Driver != r.d, "a window is left")
		}
	})
}

// Several windows may have the same memory, and several goroutines use one.
func TestWinShared(t *testing.T) {
	everyWay(t, 2, func(r rank) {
		mem := of(r, make([]byte, 1000))
		first, second := ok(WinCreate(r.Comm, mem)), ok(WinCreate(r.Comm, mem.Slice(500, 1000)))
		must(first.LockAll())
		must(second.LockAll())
		var all sync.WaitGroup
		errs := make([]error, 10)
		for i := range errs {
			all.Go(func() {
				w, at := first, int64(50*i)
				if i >= 5 {
					w, at = second, int64(50*(i-5))
				}
				for range 20 {
					got := make([]byte, 50)
					errs[i] = errors.Join(errs[i], Put(w, message(50, i), 1-r.Rank(), at), w.Flush(1-r.Rank()),
						Get(w, got, 1-r.Rank(), at), w.FlushAll())
					if !bytes.Equal(got, message(50, i)) {
						errs[i] = errors.Join(errs[i], fmt.Errorf("goroutine %d has got other bytes", i))
					}
				}
			})
		}
		all.Wait()
		must(errors.Join(errs...))
		must(first.UnlockAll())
		must(second.UnlockAll())
		must(first.Free())
		isError(mem.Free(), mpi.ErrBuffer, "a window has the memory")
		must(second.Free())
		for i := range 5 {
			same(contents(r, mem.Slice(50*i, 50*i+50)), message(50, i))
			same(contents(r, mem.Slice(500+50*i, 550+50*i)), message(50, i+5))
		}
		free(mem)
	})
}

// A rank of another host is asked, and its memory is not opened, whatever a handle would do here.
func TestWinHosts(t *testing.T) {
	const ranks = 4
	m := newMachine(t, acceltest.Options{Delay: 50 * time.Microsecond})
	var drivers [ranks]*acceltest.Process
	for i := range drivers {
		drivers[i] = m.Process()
	}
	useDriver(t, drivers[0])
	run(t, ranks, func(c *mpi.Comm) {
		r := rank{c, drivers[c.Rank()], 0}
		mem := of(r, make([]byte, 1000*ranks))
		w := ok(WinCreate(c, mem.Slice(3, 1000*ranks)))
		must(w.Fence())
		for to := range ranks {
			must(Put(w, message(900, r.Rank()), to, int64(1000*r.Rank())))
		}
		must(w.Fence())
		for from := range ranks {
			same(contents(r, mem.Slice(3+1000*from, 903+1000*from)), message(900, from))
		}
		check(r.d.Calls("Open") == 1, "%d allocations are open, and one is of another rank here", r.d.Calls("Open"))
		must(w.Free())
		free(mem)
	}, func(o *join.Options) { o.Host = func(rank int) int { return rank % 2 } })
}

// The context of a Win ends its calls.
func TestWinContext(t *testing.T) {
	everyWay(t, 2, func(r rank) {
		mem := alloc[byte](r, 10)
		w := ok(WinCreate(r.Comm, mem))
		ctx, cancel := context.WithCancel(context.Background())
		with := w.WithContext(ctx)
		if r.Rank() == 0 {
			must(with.Lock(1, mpi.Exclusive))
			must(Put(with, []byte{1}, 1, 0))
			must(with.Flush(1))
		}
		must(mpi.Barrier(r.Comm))
		if r.Rank() == 1 {
			time.AfterFunc(time.Millisecond, cancel)
			isError(with.Lock(1, mpi.Exclusive), context.Canceled, "gpu.Lock")
		}
		must(mpi.Barrier(r.Comm))
		if r.Rank() == 0 {
			must(with.Unlock(1))
		}
		cancel()
		must(w.Free())
		_, err := WinCreate(r.Comm.WithContext(ctx), mem)
		isError(err, context.Canceled, "gpu.WinCreate")
		freeLater(mem) // when the ranks have made that window, and lost it
	})
}

// freeLater frees memory when no window has it any more.
func freeLater[T any](s Slice[T]) {
	for limit := time.Now().Add(hangs); ; time.Sleep(time.Millisecond) {
		if err := s.Free(); err == nil {
			return
		} else if !errors.Is(err, mpi.ErrBuffer) || time.Now().After(limit) {
			panic(err)
		}
	}
}

// A rank that dies leaves no other one waiting, and its window can be freed.
func TestWinDeath(t *testing.T) {
	for _, way := range ways {
		for step := range 4 {
			t.Run(fmt.Sprintf("%s/%d", way.name, step), func(t *testing.T) { dieInWin(t, way, step) })
		}
	}
}

func dieInWin(t *testing.T, way way, step int) {
	const dies = 1
	m := acceltest.New(way.options)
	first := m.Process()
	useDriver(t, first)
	drivers := []*acceltest.Process{first, first, first}
	if way.own {
		drivers = []*acceltest.Process{first, m.Process(), m.Process()}
	}
	var devices [3]transport.Device
	where := mpi.Option(func(o *join.Options) {
		o.Wrap = func(rank int, d transport.Device) transport.Device {
			devices[rank] = d
			return d
		}
	})
	defer time.AfterFunc(hangs, func() { panic(t.Name() + " hangs") }).Stop()
	var living sync.WaitGroup
	living.Add(2)
	var errs [3]error
	mpi.RunLocal(3, func(c *mpi.Comm) (err error) {
		r := rank{c, drivers[c.Rank()], c.Rank() % max(way.options.Devices, 1)}
		if r.Rank() != dies {
			defer living.Done()
		}
		defer func() {
			if p := recover(); p != nil {
				errs[r.Rank()] = fmt.Errorf("%s: %v", testLines(), p)
			}
		}()
		for other := range 3 { // a link to each, which tells of the end
			ok(mpi.Sendrecv(c, []byte{1}, other, 1, make([]byte, 1), other, 1))
		}
		mem := alloc[byte](r, 100_000)
		w := ok(WinCreate(c, mem))
		if r.Rank() == dies {
			for range step {
				must(w.Lock(0, mpi.Shared))
				must(Put(w, message(100_000, 1), 0, 0))
				if step < 3 { // else its lock is lost
					must(w.Unlock(0))
				} else if w.Flush(0) == nil {
					break
				}
			}
			if way.own {
				r.d.Die()
			}
			devices[dies].Close()
			living.Wait()
			return errors.New("the rank has died")
		}
		must(w.LockAll())
		for { // by a copy the memory may be reached still
			if err = errors.Join(Put(w, message(100_000, 2), dies, 0), w.Flush(dies)); err != nil {
				break
			}
			if _, err = mpi.Recv(c, make([]byte, 1), dies, 1); err != nil {
				break
			}
		}
		check(errors.Is(err, mpi.ErrPeerFailed) || errors.Is(err, mpi.ErrDevice), "rank %d: %v", r.Rank(), err)
		other := 2 - r.Rank()
		if step < 3 || r.Rank() == 0 { // the others go on
			must(Put(w, message(1000, 3), other, 0))
			must(w.Flush(other))
		} else {
			isError(Put(w, message(1000, 3), other, 0), mpi.ErrPeerFailed, "rank 1 has failed, and may have had the lock")
		}
		ok(mpi.Sendrecv(c, []byte{2}, other, 2, make([]byte, 1), other, 2))
		w.UnlockAll()
		check(w.Free() != nil, "Free of a window of a dead rank")
		freeLater(mem)
		return nil
	}, where)
	drain()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
}

// What a rank tells of its memory is read as it was written, and nothing else is believed.
func TestTell(t *testing.T) {
	want := tellRank{key: [16]byte{1, 2, 3}, bytes: 100, offset: 5, size: 105, pci: "0000:10:00.0",
		handle: []byte("handle")}
	var got tellRank
	b := want.append(nil)
	if err := got.decode(b); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
	long := tellRank{pci: string(make([]byte, pciMost)), handle: make([]byte, handleMost)}
	if b := long.append(nil); len(b) != tellSize || got.decode(b) != nil || len(got.handle) != handleMost {
		t.Errorf("%d bytes: %v", len(b), got)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"a byte less":         func(b []byte) []byte { return b[1:] },
		"negative":            func(b []byte) []byte { b[16+7] = 0x80; return b },
		"beyond its end":      func(b []byte) []byte { b[24]++; return b },
		"huge":                func(b []byte) []byte { b[32+7] = 0x7f; return b },
		"a name too long":     func(b []byte) []byte { b[tellFixed] = 255; return b },
		"a handle too long":   func(b []byte) []byte { b[tellFixed+1+12] = 250; return b },
		"a name up to an end": func(b []byte) []byte { b[tellFixed] = tellSize - tellFixed - 1; return b },
	} {
		if err := got.decode(change(want.append(nil))); err == nil {
			t.Errorf("%s is believed: %v", name, got)
		}
	}
}

func FuzzTell(f *testing.F) {
	f.Add((&tellRank{bytes: 100, size: 100, handle: []byte("h")}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r tellRank
		if r.decode(b) != nil {
			return
		}
		if len(r.handle) > 0 && (r.offset < 0 || r.bytes < 0 || r.offset+r.bytes > r.size) {
			t.Errorf("%+v", r)
		}
		var again tellRank
		if err := again.decode(r.append(nil)); err == nil && fmt.Sprint(again) != fmt.Sprint(r) {
			t.Errorf("%+v, and then %+v", r, again)
		}
	})
}

// A device that fails at one rank is the error of all, and no rank has the window.
func TestWinCreateDeviceFails(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	run(t, 3, func(c *mpi.Comm) {
		var mem accel.Memory
		var s Slice[int64]
		if c.Rank() == 1 {
			mem = p.UserAlloc(0, 80, acceltest.Ordinary)
			s = ok(Wrap[int64](mem.Base, 10))
			p.Fail("Query", 1)
		} else {
			s = alloc[int64](rank{c, p, 0}, 10)
		}
		_, err := WinCreate(c, s)
		isError(err, mpi.ErrDevice, "CUDA_ERROR_UNKNOWN")
		must(s.Free())
		if c.Rank() == 1 {
			p.UserFree(mem)
		}
	})
}

// A rank that cannot pin memory for a message asks no other one for a part in it.
func TestWinCannotPin(t *testing.T) {
	m := newMachine(t, acceltest.Options{NotShared: true})
	drivers := []*acceltest.Process{m.Process(), m.Process()}
	useDriver(t, drivers[0])
	run(t, 2, func(c *mpi.Comm) {
		r := rank{c, drivers[c.Rank()], 0}
		mem, window := alloc[byte](r, 100), Slice[byte]{}
		if r.Rank() == 1 {
			window = mem
		}
		w := ok(WinCreate(c, window))
		if r.Rank() == 0 {
			must(w.Lock(1, mpi.Shared))
			for _, call := range []func() error{func() error { return Put(w, mem, 1, 0) },
				func() error { return Get(w, mem, 1, 0) }} {
				r.d.Fail("Pin", 1)
				isError(call(), mpi.ErrDevice, "gpu.")
				must(w.Flush(1))
			}
			must(w.Unlock(1))
		}
		must(w.Free())
		free(mem)
	})
}
