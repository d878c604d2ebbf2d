package pml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/loop"
	"github.com/gorun-mpi/mpi/transport/looptag"
)

// shrinkStaging makes pinned memory scarce for a test.
func shrinkStaging(t testing.TB) {
	was := stagingSizes
	stagingSizes.small, stagingSizes.smalls = 512, 2
	stagingSizes.large, stagingSizes.larges, stagingSizes.step = 16<<10, 2, 6<<10
	t.Cleanup(func() { stagingSizes = was })
}

// deviceRanks are ranks with a process each on one machine with accelerators.
type deviceRanks struct {
	*ranks
	t       testing.TB
	machine *acceltest.Machine
	procs   []*acceltest.Process
	rng     *rand.Rand
	kept    []allocated
	what    string
	nics    nicFabric // the adapters, with Options.Adapters
}

type allocated struct {
	rank int
	m    accel.Memory
}

func newDeviceRanks(t testing.TB, n int, o acceltest.Options) *deviceRanks {
	return newDeviceRanksOf(t, n, o, false)
}

// newDeviceRanksOf is newDeviceRanks; one: of one process.
func newDeviceRanksOf(t testing.TB, n int, o acceltest.Options, one bool) *deviceRanks {
	return newDeviceRanksOver(t, n, o, one, func(d transport.Device) transport.Device { return d })
}

// newDeviceRanksOver is newDeviceRanksOf over devices that wrap has.
func newDeviceRanksOver(t testing.TB, n int, o acceltest.Options, one bool,
	wrap func(transport.Device) transport.Device) *deviceRanks {
	shrinkStaging(t)
	if o.Devices == 0 {
		o.Devices = 2
	}
	d := &deviceRanks{t: t, machine: acceltest.New(o), rng: rand.New(rand.NewPCG(o.Seed, 5))}
	for rank := range n {
		if one && rank > 0 {
			d.procs = append(d.procs, d.procs[0])
		} else {
			d.procs = append(d.procs, d.machine.Process())
		}
	}
	devices := make([]transport.Device, n)
	for rank, l := range loop.New(n) {
		if devices[rank] = wrap(l); o.Adapters {
			devices[rank] = d.nics.over(l, d.procs[rank])
		}
	}
	d.ranks = newRanksOver(t, devices, Config{})
	for rank, dev := range devices {
		if n, ok := dev.(*nic); ok {
			n.e = d.e[rank]
		}
	}
	return d
}

// buffer is device memory of a rank with random bytes, which are returned too.
func (d *deviceRanks) buffer(rank, device int, n int64) (accel.Buffer, []byte) {
	m, err := d.procs[rank].Alloc(device, max(n, 1)+100)
	if err != nil {
		d.t.Fatal(err)
	}
	d.kept = append(d.kept, allocated{rank, m})
	b := accel.Buffer{Driver: d.procs[rank], Memory: m, Addr: m.Base + 40, Len: n}
	data := d.bytes(n)
	if n > 0 {
		d.procs[rank].Write(b.Addr, data)
	}
	return b, data
}

func (d *deviceRanks) bytes(n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(d.rng.Uint32())
	}
	return b
}

// read is what is in a buffer.
func (d *deviceRanks) read(rank int, b accel.Buffer) []byte {
	if b.Len == 0 {
		return nil
	}
	return d.procs[rank].Read(b.Addr, b.Len)
}

// left ends the ranks and checks that nothing of the devices is left.
func (d *deviceRanks) left() {
	d.t.Helper()
	for _, e := range d.e {
		for _, k := range d.kept {
			if k.m.ID != 0 { // every engine is asked, as a program does
				if err := e.ForgetDevice(k.m); err != nil {
					d.t.Error(err)
				}
			}
		}
	}
	for _, k := range d.kept {
		if err := d.procs[k.rank].Free(k.m); err != nil {
			d.t.Error(err)
		}
	}
	d.nics.mu.Lock()
	if n := len(d.nics.keys); n > 0 {
		d.t.Errorf("adapters know %d allocations that are freed", n)
	}
	d.nics.mu.Unlock()
	d.close()
	if s := d.machine.Left(); s != "" {
		d.t.Error(s)
	}
}

// wait collects a result in time.
func (d *deviceRanks) wait(r *Request) (Status, error) {
	select {
	case <-r.Done():
	case <-time.After(hangs / 4):
		d.t.Fatalf("%s does not end", d.what)
	}
	return r.Wait()
}

// waitAll waits for requests that end well.
func (d *deviceRanks) waitAll(rs ...*Request) {
	d.t.Helper()
	for _, r := range rs {
		if _, err := d.wait(r); err != nil {
			d.t.Fatal(err)
		}
	}
}

var deviceSizes = []int64{0, 1, 511, 512, 513, 8191, 8193, 16<<10 - 1, 16 << 10, 16<<10 + 1, 3*16<<10 + 7}

// unattended waits until receives are done, without helping them.
func unattended(t testing.TB, recvs []*Request) {
	t.Helper()
	limit := time.Now().Add(hangs / 4)
	for _, r := range recvs {
		for done := false; !done; time.Sleep(100 * time.Microsecond) {
			r.e.lock()
			done = r.state == stDone
			r.e.unlock()
			if time.Now().After(limit) {
				t.Fatal("it does not go on by itself")
			}
		}
	}
}

// A message arrives as it was sent, whatever memory it is sent from and received into, whether the receive or the
// message is first, at every size.
func TestDeviceMessages(t *testing.T) {
	watchdog(t)
	for k, o := range []acceltest.Options{{}, {Delay: 300 * time.Microsecond}, {NotShared: true}, {}, {Adapters: true},
		{Adapters: true, Granularity: 256}, {Adapters: true}} {
		d := newDeviceRanksOf(t, 2, o, k == 3 || k == 6)
		for i, size := range deviceSizes {
			for kinds := range 4 {
				for first := range 2 {
					what := fmt.Sprintf("%d bytes, kinds %d, order %d, %+v", size, kinds, first, o)
					tag := int32(i)
					from, want := d.buffer(0, i&1, size)
					to, _ := d.buffer(1, i>>1&1, size)
					host := make([]byte, size)
					send := func() *Request {
						if kinds&1 == 0 {
							return d.e[0].IsendDevice(nil, 0, 1, tag, from, Standard)
						}
						return d.e[0].Isend(nil, 0, 1, tag, want, Standard)
					}
					recv := func() *Request {
						if kinds&2 == 0 {
							return d.e[1].IrecvDevice(nil, 0, 0, tag, to)
						}
						return d.e[1].Irecv(nil, 0, 0, tag, host)
					}
					var s, r *Request
					if first == 0 {
						s = send()
						r = recv()
					} else {
						r = recv()
						s = send()
					}
					st, err := d.wait(r)
					if err != nil || st.Bytes != size || st.Source != 0 || st.Tag != tag {
						t.Fatalf("%s: %+v, %v", what, st, err)
					}
					if _, err := d.wait(s); err != nil {
						t.Fatalf("%s: the send: %v", what, err)
					}
					got := host
					if kinds&2 == 0 {
						got = d.read(1, to)
					}
					if !bytes.Equal(got, want) {
						t.Fatalf("%s: other bytes", what)
					}
				}
			}
		}
		d.left()
	}
}

// One copy moves a message between device memories of a host, and an allocation is opened once. Memory that is freed
// and allocated again at the same address is not taken for what was there.
func TestDeviceShared(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{})
	const size = 50_000
	to, _ := d.buffer(1, 0, size)
	copies := 0
	send := func(from accel.Buffer, want []byte) {
		t.Helper()
		before := d.procs[0].Calls("Copy") + d.procs[1].Calls("Copy")
		r := d.e[1].IrecvDevice(nil, 0, 0, 3, to)
		s := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
		d.waitAll(r, s)
		if !bytes.Equal(d.read(1, to), want) {
			t.Fatal("other bytes")
		}
		copies = d.procs[0].Calls("Copy") + d.procs[1].Calls("Copy") - before
	}
	m, err := d.procs[0].Alloc(0, 2*size)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(3) {
		from := accel.Buffer{Driver: d.procs[0], Memory: m, Addr: m.Base + uint64(i*777), Len: size}
		want := d.bytes(size)
		d.procs[0].Write(from.Addr, want)
		if send(from, want); copies != 1 {
			t.Errorf("message %d took %d copies", i, copies)
		}
	}
	if n := d.procs[1].Calls("Open"); n != 1 {
		t.Errorf("three messages of one allocation: opened %d times", n)
	}
	d.procs[0].UserFree(m) // without a word to the engine
	again := d.procs[0].UserAlloc(0, m.Size, acceltest.Ordinary)
	if again.Base != m.Base || again.ID == m.ID {
		t.Fatalf("%+v, and then %+v", m, again)
	}
	from := accel.Buffer{Driver: d.procs[0], Memory: again, Addr: again.Base, Len: size}
	want := d.bytes(size)
	d.procs[0].Write(from.Addr, want)
	if send(from, want); d.procs[1].Calls("Open") != 2 {
		t.Errorf("opened %d times", d.procs[1].Calls("Open"))
	}
	// More allocations than a peer may have open: each is closed once.
	for range lentMost + 5 {
		b, want := d.buffer(0, 1, size)
		send(b, want)
	}
	if err := d.e[0].ForgetDevice(again); err != nil {
		t.Fatal(err)
	}
	d.procs[0].UserFree(again)
	if err := d.e[0].ForgetDevice(m); err != nil {
		t.Fatal(err)
	}
	d.left()
}

// A receive into device memory is short if its message is, also if that has no bytes: its proxy says so.
func TestDeviceShort(t *testing.T) {
	errShort := errors.New("short")
	for _, size := range []int64{0, 1, 299, 300} {
		d := newDeviceRanks(t, 2, acceltest.Options{})
		to, _ := d.buffer(1, 0, 300)
		r := d.e[1].IrecvDevice(nil, 0, 0, 3, to)
		proxy := r.Proxy(nil, errShort)
		if err := d.e[0].Send(nil, 0, 1, 3, make([]byte, size), Standard); err != nil {
			t.Fatal(err)
		}
		if err := r.Await(nil); err != nil {
			t.Fatal(err)
		}
		if r.Short() != (size < 300) {
			t.Errorf("a message of %d bytes into 300: Short says %v", size, r.Short())
		}
		if _, err := proxy.Wait(); (err == errShort) != (size < 300) {
			t.Errorf("a message of %d bytes into 300: the proxy ends with %v", size, err)
		}
		if st, err := r.Wait(); st.Bytes != size || err != nil {
			t.Errorf("a message of %d bytes ends with %+v, %v", size, st, err)
		}
		d.left()
	}
}

// A message that is longer than its buffer fills it and no more, however it comes, and the receive says so.
func TestDeviceTruncated(t *testing.T) {
	for _, o := range []acceltest.Options{{}, {NotShared: true}, {Adapters: true}} {
		d := newDeviceRanks(t, 2, o)
		for _, size := range []int64{2, 600, 8000, 16<<10 + 5, 60_000} {
			for _, room := range []int64{1, size / 2, size - 1} {
				for kind := range 2 {
					from, want := d.buffer(0, 0, size)
					whole, _ := d.buffer(1, 0, size)
					rest := d.read(1, whole)[room:]
					r := d.e[1].IrecvDevice(nil, 0, 0, 3, whole.Part(0, room))
					var s *Request
					if kind == 0 {
						s = d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
					} else {
						s = d.e[0].Isend(nil, 0, 1, 3, want, Standard)
					}
					st, err := d.wait(r)
					var short *TruncateError
					if !errors.As(err, &short) || *short != (TruncateError{size, room}) || st.Bytes != room {
						t.Fatalf("%d bytes into %d, kind %d: %+v, %v", size, room, kind, st, err)
					}
					if _, err := d.wait(s); err != nil {
						t.Fatal(err)
					}
					if got := d.read(1, whole); !bytes.Equal(got[:room], want[:room]) || !bytes.Equal(got[room:], rest) {
						t.Fatalf("%d bytes into %d, kind %d: other bytes", size, room, kind)
					}
				}
			}
		}
		d.left()
	}
}

// Messages of one rank to another are received in the order in which they were sent, whatever memory each is in.
func TestDeviceOrder(t *testing.T) {
	for _, o := range []acceltest.Options{{Delay: 200 * time.Microsecond}, {Delay: 200 * time.Microsecond, NotShared: true},
		{Delay: 200 * time.Microsecond, Adapters: true}} {
		d := newDeviceRanks(t, 2, o)
		const n = 40
		sizes := []int64{1, 700, 8 << 10, 40_000}
		var sends, recvs []*Request
		var wants [][]byte
		var bufs []accel.Buffer
		hosts := map[int][]byte{}
		for i := range n {
			size := sizes[d.rng.IntN(len(sizes))]
			from, want := d.buffer(0, d.rng.IntN(2), size)
			if d.rng.IntN(2) == 0 {
				sends = append(sends, d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard))
			} else {
				sends = append(sends, d.e[0].Isend(nil, 0, 1, 3, want, Standard))
			}
			wants = append(wants, want)
			_ = i
		}
		for i := range n {
			to, _ := d.buffer(1, d.rng.IntN(2), 40_000)
			bufs = append(bufs, to)
			if d.rng.IntN(2) == 0 {
				recvs = append(recvs, d.e[1].IrecvDevice(nil, 0, AnySource, AnyTag, to))
			} else {
				hosts[i] = make([]byte, 40_000)
				recvs = append(recvs, d.e[1].Irecv(nil, 0, AnySource, AnyTag, hosts[i]))
			}
		}
		for i := range n {
			st, err := d.wait(recvs[i])
			if err != nil || st.Bytes != int64(len(wants[i])) {
				t.Fatalf("message %d: %+v, %v", i, st, err)
			}
			got := hosts[i]
			if got == nil {
				got = d.read(1, bufs[i])
			}
			if !bytes.Equal(got[:st.Bytes], wants[i]) {
				t.Fatalf("message %d is another one", i)
			}
			if _, err := d.wait(sends[i]); err != nil {
				t.Fatal(err)
			}
		}
		d.left()
	}
}

// More messages than there is pinned memory for, in both directions at once and to oneself, all arrive, while no caller
// is in the library.
func TestDeviceCrowd(t *testing.T) {
	for _, o := range []acceltest.Options{{Delay: 100 * time.Microsecond}, {Delay: 100 * time.Microsecond, NotShared: true},
		{Delay: 100 * time.Microsecond, Adapters: true}} {
		d := newDeviceRanks(t, 2, o)
		type message struct {
			to   accel.Buffer
			rank int
			want []byte
		}
		var all []message
		var requests, recvs []*Request
		for i := range int32(30) {
			for from := range 2 {
				for to := range 2 {
					size := []int64{300, 5000, 16 << 10, 50_000}[d.rng.IntN(4)]
					a, want := d.buffer(from, 0, size)
					b, _ := d.buffer(to, 1, size)
					all = append(all, message{b, to, want})
					s := func() { requests = append(requests, d.e[from].IsendDevice(nil, 0, to, i, a, Standard)) }
					if d.rng.IntN(3) == 0 {
						s = func() { requests = append(requests, d.e[from].Isend(nil, 0, to, i, want, Standard)) }
					}
					r := func() { recvs = append(recvs, d.e[to].IrecvDevice(nil, 0, from, i, b)) }
					if d.rng.IntN(2) == 0 {
						s, r = r, s
					}
					s()
					r()
				}
			}
		}
		unattended(t, recvs)
		for _, r := range append(recvs, requests...) {
			if _, err := d.wait(r); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range all {
			if !bytes.Equal(d.read(m.rank, m.to), m.want) {
				t.Fatal("other bytes")
			}
		}
		d.left()
	}
}

// The copies of a buffer wait for what is on its user's stream, and have ended when the request has.
func TestDeviceStreams(t *testing.T) {
	for _, o := range []acceltest.Options{{Delay: 100 * time.Microsecond}, {Delay: 100 * time.Microsecond, NotShared: true},
		{Delay: 100 * time.Microsecond, Adapters: true}} {
		d := newDeviceRanks(t, 2, o)
		for _, size := range []int64{8, 5000, 50_000} {
			for kind := range 3 {
				from, host := d.buffer(0, 0, size)
				to, old := d.buffer(1, 0, size)
				s0, s1 := d.procs[0].Stream(0), d.procs[1].Stream(0)
				from.Stream, from.Ordered = s0.Handle(), true
				to.Stream, to.Ordered = s1.Handle(), true
				want := d.bytes(size)
				var seen, after []byte
				s0.Hold()
				s0.Launch(func() { d.procs[0].Write(from.Addr, want) })
				s1.Hold()
				s1.Launch(func() { seen = d.procs[1].Read(to.Addr, to.Len) })
				r := d.e[1].IrecvDevice(nil, 0, 0, 3, to)
				var s *Request
				if kind == 1 {
					want = host
					s = d.e[0].Isend(nil, 0, 1, 3, host, Standard)
				} else {
					s = d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
				}
				time.Sleep(time.Millisecond) // in which too much could happen
				if done, _, _ := r.Test(); done {
					t.Fatal("it has not waited for the stream")
				}
				s0.Release()
				s1.Release()
				if _, err := d.wait(r); err != nil {
					t.Fatal(err)
				}
				s1.Launch(func() { after = d.procs[1].Read(to.Addr, to.Len) })
				s1.Sync()
				if _, err := d.wait(s); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(seen, old) {
					t.Errorf("%d bytes, kind %d: the copy was ahead of the receiver's stream", size, kind)
				}
				if !bytes.Equal(after, want) {
					t.Errorf("%d bytes, kind %d: the copy was ahead of the sender's stream, or behind the receiver's", size, kind)
				}
			}
		}
		d.left()
	}
}

// A message that nobody has matched can be taken back, and a receive that has no message; one that has is not. A
// request ends when its context does.
func TestDeviceCancelled(t *testing.T) {
	for _, o := range []acceltest.Options{{Delay: 100 * time.Microsecond}, {Delay: 100 * time.Microsecond, NotShared: true},
		{Delay: 100 * time.Microsecond, Adapters: true}} {
		d := newDeviceRanks(t, 2, o)
		from, want := d.buffer(0, 0, 40_000)
		to, old := d.buffer(1, 0, 40_000)
		cancelled := func(r *Request, why error) {
			t.Helper()
			if st, err := d.wait(r); !errors.Is(err, why) || !st.Cancelled {
				t.Fatalf("%+v, %v", st, err)
			}
		}
		s := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard)
		if err := s.Cancel(); err != nil {
			t.Fatal(err)
		}
		cancelled(s, nil)
		r := d.e[1].IrecvDevice(nil, 0, 0, 3, to)
		if err := r.Cancel(); err != nil {
			t.Fatal(err)
		}
		cancelled(r, nil)
		for ends := range 2 {
			cc, cancel := context.WithCancel(context.Background())
			var q *Request
			if ends == 0 {
				q = d.e[1].IrecvDevice(cc, 0, 0, 3, to)
			} else {
				q = d.e[0].IsendDevice(cc, 0, 1, 3, from, Standard)
			}
			cancel()
			if st, err := q.Wait(); !errors.Is(err, context.Canceled) || !st.Cancelled {
				t.Fatalf("%+v, %v", st, err)
			}
		}
		for i := range 20 { // while it is under way, anywhere
			r := d.e[1].IrecvDevice(nil, 0, 0, 4, to)
			s := d.e[0].IsendDevice(nil, 0, 1, 4, from, Standard)
			time.Sleep(time.Duration(i*20) * time.Microsecond)
			s.Cancel()
			st, err := d.wait(s)
			if err != nil {
				t.Fatal(err)
			}
			if st.Cancelled {
				r.Cancel()
			}
			if rst, err := d.wait(r); err != nil || rst.Cancelled != st.Cancelled {
				t.Fatalf("sent %+v, received %+v, %v", st, rst, err)
			} else if got := d.read(1, to); !rst.Cancelled && !bytes.Equal(got, want) || rst.Cancelled && !bytes.Equal(got, old) {
				t.Fatal("other bytes")
			}
			old = d.read(1, to)
		}
		d.left()
	}
}

// Whatever call of the driver fails, at either end, each request ends, with what the driver has said or as if nothing
// had been; nothing is left, and later messages arrive.
func TestDeviceFails(t *testing.T) {
	for _, notShared := range []bool{false, true} {
		for _, method := range []string{"Pin", "Copy", "CopyEnd", "Open", "Export", "Notify", "Mark", "MarkEnd",
			"Close"} {
			for bad := range 2 {
				for nth := 1; nth < 5; nth++ {
					what := fmt.Sprintf("not shared %v: %s %d at %d", notShared, method, nth, bad)
					d := newDeviceRanks(t, 2, acceltest.Options{NotShared: notShared, Seed: uint64(nth)})
					d.what = what
					d.procs[bad].Fail(method, nth)
					var all []*Request
					var bufs []accel.Buffer
					var wants [][]byte
					ordered := func(rank int, b accel.Buffer) accel.Buffer {
						b.Ordered, b.Stream = true, d.procs[rank].Stream(b.Memory.Device).Handle()
						return b
					}
					for i := range int32(4) {
						size := []int64{100, 40_000}[i&1]
						from, want := d.buffer(0, 0, size)
						to, _ := d.buffer(1, 0, size)
						bufs, wants = append(bufs, to), append(wants, want)
						all = append(all, d.e[0].IsendDevice(nil, 0, 1, i, ordered(0, from), Standard),
							d.e[1].IrecvDevice(nil, 0, 0, i, ordered(1, to)))
					}
					failed := 0
					for i, r := range all {
						if method == "Pin" && nth == 1 && i == 1-bad || method == "Mark" && i == 2*nth-1-bad {
							// Its other end has not begun.
							if err := r.Cancel(); err != nil {
								t.Fatal(what, err)
							}
						}
						st, err := d.wait(r)
						if err != nil && !errors.Is(err, ErrDevice) {
							t.Fatalf("%s: %v", what, err)
						}
						if err != nil {
							failed++
						} else if i&1 == 1 && !st.Cancelled && !bytes.Equal(d.read(1, bufs[i/2]), wants[i/2]) {
							t.Fatalf("%s: message %d is another", what, i)
						}
					}
					if failed == 0 && d.procs[bad].Calls(method) >= nth && slices.Contains([]string{"Copy", "CopyEnd", "Mark",
						"MarkEnd"}, method) {
						t.Errorf("%s: nobody has heard of it", what)
					}
					if failed > 2 && method != "Pin" {
						t.Errorf("%s: %d requests have failed", what, failed)
					}
					from, want := d.buffer(0, 0, 40_000)
					to, _ := d.buffer(1, 0, 40_000)
					if method == "Pin" {
						d.e[0].Isend(nil, 0, 1, 9, want, Standard)
					} else {
						d.e[0].IsendDevice(nil, 0, 1, 9, from, Standard)
					}
					if _, err := d.wait(d.e[1].IrecvDevice(nil, 0, 0, 9, to)); method != "Pin" && err == nil &&
						!bytes.Equal(d.read(1, to), want) {
						t.Fatalf("%s: then: %v", what, err)
					}
					if method != "Close" {
						d.left()
					} else {
						d.close()
					}
				}
			}
		}
	}
}

// Where a rank ends in the middle of it all, what the other has under way with it ends too, and no copy touches a
// buffer whose request has ended.
func TestDeviceDeath(t *testing.T) {
	for seed := range inShort(uint64(60), 20) {
		d := newDeviceRanks(t, 2, acceltest.Options{Delay: 200 * time.Microsecond, Seed: seed, NotShared: seed%3 == 1,
			Adapters: seed%3 == 2})
		var all [2][]*Request
		var mine []accel.Memory
		for i := range int32(12) {
			size := []int64{300, 16 << 10, 50_000}[d.rng.IntN(3)]
			for from := range 2 {
				a, host := d.buffer(from, 0, size)
				b, _ := d.buffer(1-from, 0, size)
				s := func() {
					if d.rng.IntN(3) == 0 {
						all[from] = append(all[from], d.e[from].Isend(nil, 0, 1-from, i, host, Standard))
						return
					}
					all[from] = append(all[from], d.e[from].IsendDevice(nil, 0, 1-from, i, a, Standard))
				}
				r := func() {
					if d.rng.IntN(3) == 0 {
						all[1-from] = append(all[1-from], d.e[1-from].Irecv(nil, 0, from, i, make([]byte, size)))
						return
					}
					all[1-from] = append(all[1-from], d.e[1-from].IrecvDevice(nil, 0, from, i, b))
				}
				if d.rng.IntN(2) == 0 {
					s, r = r, s
				}
				s()
				r()
			}
		}
		time.Sleep(time.Duration(d.rng.IntN(2000)) * time.Microsecond)
		closed := make(chan error)
		go func() { closed <- d.e[1].Close(errOver) }()
		for _, r := range all[0] {
			d.wait(r)
		}
		for _, r := range all[1] {
			d.wait(r)
		}
		<-closed
		d.procs[1].Die()
		d.kept = slices.DeleteFunc(d.kept, func(k allocated) bool {
			if k.rank == 0 {
				if err := d.e[0].ForgetDevice(k.m); err != nil {
					t.Error(err)
				}
				mine = append(mine, k.m)
			}
			return true
		})
		for _, m := range mine {
			if err := d.procs[0].Free(m); err != nil {
				t.Error(err)
			}
		}
		d.left()
	}
}

// ForgetDevice returns when no peer has an allocation open, also while messages of others go on and the peer computes,
// and from then on its memory may be freed.
func TestForgetDevice(t *testing.T) {
	d := newDeviceRanks(t, 3, acceltest.Options{Delay: 50 * time.Microsecond})
	for i := range 10 {
		m, err := d.procs[0].Alloc(i&1, 60_000)
		if err != nil {
			t.Fatal(err)
		}
		b := accel.Buffer{Driver: d.procs[0], Memory: m, Addr: m.Base, Len: 50_000}
		other, _ := d.buffer(0, 0, 50_000)
		for rank := 1; rank < 3; rank++ {
			to, _ := d.buffer(rank, 0, 50_000)
			to2, _ := d.buffer(rank, 1, 50_000)
			d.e[rank].IrecvDevice(nil, 0, 0, 3, to)
			d.e[rank].IrecvDevice(nil, 0, 0, 4, to2)
			s := d.e[0].IsendDevice(nil, 0, rank, 3, b, Standard)
			d.e[0].IsendDevice(nil, 0, rank, 4, other, Standard)
			if _, err := d.wait(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.e[0].ForgetDevice(m); err != nil {
			t.Fatal(err)
		}
		if err := d.procs[0].Free(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range d.e[1:] {
		for e.Pending() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	d.left()
}

// Ranks of one process have one driver: nothing is opened, and each message of two device buffers takes one copy.
func TestDeviceInOneProcess(t *testing.T) {
	d := newDeviceRanksOf(t, 2, acceltest.Options{Delay: 50 * time.Microsecond}, true)
	for i := range 20 {
		from, want := d.buffer(0, i&1, 50_000)
		to, old := d.buffer(1, i>>1&1, 50_000)
		s0, s1 := d.procs[0].Stream(i&1), d.procs[0].Stream(i>>1&1)
		from.Ordered, from.Stream = true, s0.Handle()
		to.Ordered, to.Stream = true, s1.Handle()
		var seen []byte
		s0.Hold()
		s0.Launch(func() { d.procs[0].Write(from.Addr, want) })
		s1.Launch(func() { seen = d.procs[0].Read(to.Addr, to.Len) })
		before := d.procs[0].Calls("Copy")
		s, r := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard), d.e[1].IrecvDevice(nil, 0, 0, 3, to)
		want = d.bytes(50_000)
		s0.Release()
		d.waitAll(s, r)
		if !bytes.Equal(d.read(1, to), want) || !bytes.Equal(seen, old) {
			t.Fatalf("message %d is another, or has come too early", i)
		}
		if n := d.procs[0].Calls("Copy") - before; n != 1 || d.procs[0].Calls("Open") != 0 {
			t.Errorf("%d copies, opened %d times", n, d.procs[0].Calls("Open"))
		}
	}
	direct.Lock()
	left := len(direct.messages)
	direct.Unlock()
	if left != 0 {
		t.Errorf("%d messages are still said to be here", left)
	}
	d.left()
}

// A message that a matched probe has taken is received into device memory, once.
func TestDeviceMatchedProbe(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{})
	for _, size := range []int64{0, 1, 5000, 50_000} {
		for kind := range 2 {
			from, want := d.buffer(0, 0, size)
			to, _ := d.buffer(1, 0, size)
			var s *Request
			if kind == 0 {
				s = d.e[0].IsendDevice(nil, 0, 1, 3, from, Synchronous)
			} else {
				s = d.e[0].Isend(nil, 0, 1, 3, want, Synchronous)
			}
			m, st, err := d.e[1].Probe(nil, 0, 0, 3, true)
			if err != nil || st.Bytes != size {
				t.Fatalf("%+v, %v", st, err)
			}
			r, err := d.e[1].MrecvDevice(nil, m, to)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.e[1].MrecvDevice(nil, m, to); !errors.Is(err, ErrRequest) {
				t.Errorf("received twice: %v", err)
			}
			d.waitAll(r, s)
			if !bytes.Equal(d.read(1, to), want) {
				t.Fatalf("%d bytes, kind %d: other bytes", size, kind)
			}
		}
	}
	d.left()
}

// Where a library matches, device memory is refused by name.
func TestDeviceTagged(t *testing.T) {
	watchdog(t)
	p := acceltest.New(acceltest.Options{}).Process()
	fabric := looptag.New(0)
	e := newEngine(Config{Size: 1, Net: fabric.Device(0), UnexpectedMax: 1 << 20})
	defer e.Close(errOver)
	m, err := p.Alloc(0, 100)
	if err != nil {
		t.Fatal(err)
	}
	b := accel.Buffer{Driver: p, Memory: m, Addr: m.Base, Len: 100}
	for _, r := range []*Request{e.IsendDevice(nil, 0, 0, 1, b, Standard), e.IrecvDevice(nil, 0, 0, 1, b)} {
		if _, err := r.Wait(); !errors.Is(err, errNoDevices) {
			t.Error(err)
		}
	}
	if err := e.ForgetDevice(m); err != nil {
		t.Error(err)
	}
}

// Two ranks that each send a short message before they receive, and wait for it, go on, as they do with host memory. A
// synchronous send waits for its receive.
func TestDeviceShortSends(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{Delay: 50 * time.Microsecond})
	var wg sync.WaitGroup
	var from, to [2]accel.Buffer
	var sent [2][]byte
	for rank := range 2 {
		from[rank], sent[rank] = d.buffer(rank, 0, 300)
		to[rank], _ = d.buffer(rank, 1, 300)
	}
	for rank := range 2 {
		wg.Go(func() {
			for range 20 {
				if _, err := d.wait(d.e[rank].IsendDevice(nil, 0, 1-rank, 3, from[rank], Standard)); err != nil {
					t.Error(err)
				}
				if _, err := d.wait(d.e[rank].IrecvDevice(nil, 0, 1-rank, 3, to[rank])); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(d.read(rank, to[rank]), sent[1-rank]) {
					t.Error("other bytes")
				}
			}
		})
	}
	wg.Wait()
	s := d.e[0].IsendDevice(nil, 0, 1, 4, from[0], Synchronous)
	select {
	case <-s.Done():
		t.Error("a synchronous send has not waited for its receive")
	case <-time.After(5 * time.Millisecond):
	}
	d.waitAll(d.e[1].IrecvDevice(nil, 0, 0, 4, to[1]), s)
	d.left()
}
