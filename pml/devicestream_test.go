package pml

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// peek reports whether r is done, and how. It neither collects r nor polls.
func (r *Request) peek() (bool, error) {
	r.e.lock()
	defer r.e.unlock()
	return r.state == stDone, r.err
}

// goesOn waits for the end of r, for which no caller of its rank waits.
func (d *deviceRanks) goesOn(r *Request, what string) {
	d.t.Helper()
	for limit := time.Now().Add(hangs / 8); ; time.Sleep(100 * time.Microsecond) {
		switch done, err := r.peek(); {
		case done && err != nil:
			d.t.Fatal(d.what, err)
		case done:
			return
		case time.Now().After(limit):
			d.t.Errorf("%s: %s", d.what, what)
			return
		}
	}
}

// on has a stream of the rank's process order the copies of b.
func (d *deviceRanks) on(rank int, b *accel.Buffer) *acceltest.Stream {
	s := d.procs[rank].Stream(b.Memory.Device)
	b.Ordered, b.Stream = true, s.Handle()
	return s
}

// waiting waits until so many messages of a rank wait for streams.
func (d *deviceRanks) waiting(rank, n int) {
	d.t.Helper()
	for limit := time.Now().Add(hangs / 4); ; time.Sleep(50 * time.Microsecond) {
		for _, e := range d.e { // so that each rank looks
			e.Iprobe(0, 0, 99, false)
		}
		e, waits := d.e[rank], 0
		e.lock()
		if a := e.links.transfers.accel; a != nil {
			for _, s := range a.streams {
				waits += len(s.ops)
			}
		}
		e.unlock()
		if waits == n {
			return
		}
		if time.Now().After(limit) {
			d.t.Fatalf("%s: %d messages wait for streams, want %d", d.what, waits, n)
		}
	}
}

// streamKinds are the ways of a message between device buffers of two ranks.
var streamKinds = []struct {
	acceltest.Options
	one  bool // process
	size int64
}{{size: 50_000}, {Options: acceltest.Options{NotShared: true}, size: 50_000}, {one: true, size: 50_000},
	{Options: acceltest.Options{Adapters: true}, size: 50_000}, {size: 100},
	// Adapters do not reach the ends of these allocations: from host to host through pinned memory.
	{Options: acceltest.Options{Adapters: true, Granularity: 256}, size: 50_000}}

// A message waits for what was on its streams at the time of the calls, and not for what came later: that may wait for
// the message.
func TestDeviceStreamLater(t *testing.T) {
	for i, k := range streamKinds {
		for device := range 2 {
			d := newDeviceRanksOf(t, 2, k.Options, k.one)
			d.what = fmt.Sprintf("kind %d, device %d", i, device)
			from, want := d.buffer(0, 0, k.size)
			to, _ := d.buffer(1, device, k.size)
			s0, s1 := d.on(0, &from), d.on(1, &to)
			s := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
			s0.Hold()
			r := d.e[1].IrecvDevice(nil, 0, 0, 3, to)
			s1.Hold()
			d.goesOn(r, "the message waits for a kernel that was put on a stream after the call")
			d.waitAll(s, r)
			s0.Release()
			s1.Release()
			if !bytes.Equal(d.read(1, to), want) {
				t.Error("other bytes")
			}
			d.left()
		}
	}
}

// Two messages have nothing to do with each other: one goes on while the streams of others stand still, of which there
// are more than pieces of pinned memory.
func TestDeviceStreamsApart(t *testing.T) {
	for i, k := range streamKinds {
		for held := range 2 { // the rank whose stream stands still
			d := newDeviceRanksOf(t, 2, k.Options, k.one)
			d.what = fmt.Sprintf("kind %d, held at %d", i, held)
			stream := d.procs[held].Stream(0)
			stream.Hold()
			var all []*Request
			var bufs [][2]accel.Buffer
			for i := range int32(10) {
				from, _ := d.buffer(0, 0, k.size)
				to, _ := d.buffer(1, 0, k.size)
				b := [2]accel.Buffer{from, to}
				b[held].Ordered, b[held].Stream = true, stream.Handle()
				bufs = append(bufs, b)
				all = append(all, d.e[1].IrecvDevice(nil, 0, 0, i, b[1]), d.e[0].IsendDevice(nil, 0, 1, i, b[0], Standard))
			}
			d.waiting(held, 10)
			from, want := d.buffer(0, 0, k.size)
			to, _ := d.buffer(1, 0, k.size)
			host := make([]byte, k.size)
			for i, r := range []*Request{d.e[1].IrecvDevice(nil, 0, 0, 90, to), d.e[1].Irecv(nil, 0, 0, 91, host)} {
				s := d.e[0].IsendDevice(nil, 0, 1, int32(90+i), from, Standard)
				d.goesOn(r, "a message waits for the stream of another")
				d.wait(s)
				d.wait(r)
			}
			if !bytes.Equal(host, want) || !bytes.Equal(d.read(1, to), want) {
				t.Error("other bytes")
			}
			for _, q := range all {
				if done, err := q.peek(); done {
					t.Error(d.what, "a message has not waited for its stream: ", err)
				}
			}
			stream.Release()
			d.waitAll(all...)
			for _, b := range bufs {
				if !bytes.Equal(d.read(1, b[1]), d.read(0, b[0])) {
					t.Error("other bytes")
				}
			}
			d.left()
		}
	}
}

// Messages that wait for one stream go on as it comes to their marks, whichever of them has been matched first.
func TestDeviceStreamInOrder(t *testing.T) {
	const n = 3
	d := newDeviceRanks(t, 2, acceltest.Options{})
	stream := d.procs[1].Stream(0)
	var kernels [n]chan struct{}
	var rs [n]*Request
	for i := range rs {
		c := make(chan struct{})
		kernels[i] = c
		stream.Launch(func() { <-c })
		to, _ := d.buffer(1, 0, 100)
		to.Ordered, to.Stream = true, stream.Handle()
		rs[i] = d.e[1].IrecvDevice(nil, 0, 0, int32(i), to)
	}
	for i := range n { // the last one is matched first
		if err := d.e[0].Send(nil, 0, 1, int32(n-1-i), d.bytes(100), Standard); err != nil {
			t.Fatal(err)
		}
		d.waiting(1, i+1)
	}
	for i, r := range rs {
		close(kernels[i])
		d.goesOn(r, "a message waits for the mark of another")
		d.waiting(1, n-1-i)
		d.wait(r)
	}
	d.left()
}

// A message of a persistent request waits for what is on the stream at its start.
func TestDeviceStreamAtEachStart(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{})
	to, _ := d.buffer(1, 0, 100)
	stream := d.on(1, &to)
	r := d.e[1].PrepareRecvDevice(nil, 0, 0, 3, to)
	for range 3 {
		want := d.bytes(100)
		old := d.read(1, to)
		var seen []byte
		stream.Hold()
		stream.Launch(func() { seen = d.procs[1].Read(to.Addr, to.Len) })
		if err := r.StartDevice(); err != nil {
			t.Fatal(err)
		}
		if err := d.e[0].Send(nil, 0, 1, 3, want, Standard); err != nil {
			t.Fatal(err)
		}
		d.waiting(1, 1)
		stream.Release()
		if _, err := d.wait(r); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(seen, old) || !bytes.Equal(d.read(1, to), want) {
			t.Error("the copy was ahead of the stream, or other bytes")
		}
		stream.Hold() // which the next start is behind
		stream.Release()
	}
	r.Free()
	d.left()
}

// What waits for a stream that stands still ends all the same: when it is cancelled, with its context, and with either
// of its ranks. Its buffer is not touched, and its mark is given up.
func TestDeviceStreamStandsStill(t *testing.T) {
	for i, k := range streamKinds {
		for held := range 2 {
			for how := range 4 {
				d := newDeviceRanksOf(t, 2, k.Options, k.one)
				d.what = fmt.Sprintf("kind %d, held at %d, end %d", i, held, how)
				from, _ := d.buffer(0, 0, k.size)
				to, old := d.buffer(1, 0, k.size)
				stream := d.on(held, []*accel.Buffer{&from, &to}[held])
				stream.Hold()
				cc, end := context.WithCancel(context.Background())
				start := []func() *Request{
					func() *Request { return d.e[0].IsendDevice(cc, 0, 1, 3, from, Standard) },
					func() *Request { return d.e[1].IrecvDevice(cc, 0, 0, 3, to) },
				}
				rs := []*Request{start[held]()}
				if how >= 2 {
					rs = append(rs, start[1-held]())
					d.waiting(held, 1)
				}
				switch how {
				case 0:
					rs[0].Cancel()
				case 1:
					end()
				default:
					d.e[[]int{held, 1 - held}[how-2]].Close(errOver)
				}
				for _, r := range rs {
					if how == 1 {
						if st, err := r.Wait(); err == nil || !st.Cancelled {
							t.Errorf("%s: %+v, %v", d.what, st, err)
						}
					} else if st, err := d.wait(r); st.Cancelled != (how == 0) || (err == nil) != (how == 0) {
						t.Errorf("%s: %+v, %v", d.what, st, err)
					}
				}
				end()
				if !bytes.Equal(d.read(1, to), old) {
					t.Errorf("%s: the buffer has been touched", d.what)
				}
				d.left()
				stream.Release()
			}
		}
	}
}

// A short message of the host that has come goes to its buffer when the stream does, also after the end of its sender,
// and not after the end of its receiver.
func TestDeviceStreamOfShort(t *testing.T) {
	for how := range 3 {
		d := newDeviceRanks(t, 2, acceltest.Options{})
		d.what = fmt.Sprintf("end %d", how)
		to, old := d.buffer(1, 0, 100)
		stream := d.on(1, &to)
		stream.Hold()
		r := d.e[1].IrecvDevice(nil, 0, 0, 3, to)
		want := d.bytes(100)
		if err := d.e[0].Send(nil, 0, 1, 3, want, Standard); err != nil {
			t.Fatal(err)
		}
		d.waiting(1, 1)
		if n, _ := d.e[1].DeviceUsers(to.Driver, to.Memory.ID); n != 1 {
			t.Errorf("%d requests use the buffer", n)
		}
		switch how {
		case 1:
			d.e[0].Close(errOver)
		case 2:
			d.e[1].Close(errOver)
			want = old
		}
		if how < 2 {
			time.Sleep(time.Millisecond)
			if done, err := r.peek(); done {
				t.Errorf("%s: it has not waited: %v", d.what, err)
			}
			stream.Release()
		}
		if _, err := d.wait(r); (err != nil) != (how == 2) {
			t.Errorf("%s: %v", d.what, err)
		}
		if !bytes.Equal(d.read(1, to), want) {
			t.Errorf("%s: other bytes", d.what)
		}
		d.left()
		stream.Release()
	}
}

// A matched probe's message that has been received already leaves no mark.
func TestDeviceStreamOfNoMessage(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{})
	to, _ := d.buffer(1, 0, 100)
	d.on(1, &to)
	d.e[0].Isend(nil, 0, 1, 3, d.bytes(100), Standard)
	m, _, err := d.e[1].Probe(nil, 0, 0, 3, true)
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.e[1].MrecvDevice(nil, m, to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.e[1].MrecvDevice(nil, m, to); err == nil {
		t.Error("a message is received twice")
	}
	if _, err := d.wait(r); err != nil {
		t.Fatal(err)
	}
	d.left()
}
