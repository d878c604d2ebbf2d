package pml

import (
	"bytes"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// heldReceive is a receive at rank 1 whose message has come, and whose copy does not end before stream is released. A
// caller sleeps for it; ended has its result.
func heldReceive(d *deviceRanks) (stream *acceltest.Stream, ended chan error) {
	d.t.Helper()
	stream = d.procs[1].Copies(0)
	to, _ := d.buffer(1, 0, 100)
	stream.Hold()
	r := d.e[1].IrecvDevice(nil, 0, 0, 3, to)
	d.e[0].Isend(nil, 0, 1, 3, d.bytes(100), Standard)
	ended = make(chan error, 1)
	go func() {
		_, err := r.Wait()
		ended <- err
	}()
	d.parked(1)
	return stream, ended
}

// parked waits until a caller of a rank sleeps.
func (d *deviceRanks) parked(rank int) {
	d.t.Helper()
	e := d.e[rank]
	for limit := time.Now().Add(hangs / 4); ; time.Sleep(100 * time.Microsecond) {
		e.lock()
		asleep := e.wait.leader == leaderParked || e.wait.leader == noLeader && e.wait.followers > 0
		e.unlock()
		if asleep {
			return
		}
		if time.Now().After(limit) {
			d.t.Fatal("nobody sleeps")
		}
	}
}

// Ranks that sleep while a copy is under way do not stand still: the copy ends by itself.
func TestDeviceCopyIsNoStandstill(t *testing.T) {
	d := newDeviceRanksOf(t, 2, acceltest.Options{}, true)
	waits := func(rank int, tag int32) chan bool {
		r, over := d.e[rank].Irecv(nil, 0, 1-rank, tag, make([]byte, 1)), make(chan bool)
		go func() {
			r.Wait()
			close(over)
		}()
		d.parked(rank)
		return over
	}
	still := func() (found bool) {
		for range 100 {
			StandStill([][]*Engine{d.e}, func([][]*Snapshot) { found = true })
			time.Sleep(50 * time.Microsecond)
		}
		return found
	}
	over0 := waits(0, 4)
	stream, ended := heldReceive(d)
	if still() {
		t.Error("a copy is under way, and the ranks are said to stand still")
	}
	stream.Release()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	over1 := waits(1, 5)
	if !still() {
		t.Error("each rank waits for the other, and they are not said to stand still")
	}
	for rank, tag := range []int32{5, 4} {
		if err := d.e[rank].Send(nil, 0, 1-rank, tag, []byte{1}, Standard); err != nil {
			t.Fatal(err)
		}
	}
	<-over0
	<-over1
	d.left()
}

// However often a rank is woken while a copy is under way, the driver is asked for one notice of its end: what is asked
// for stays on the device's stream until then, and a driver whose stream is full blocks its caller.
func TestDeviceNotifiesOnce(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{})
	stream, ended := heldReceive(d)
	for range 100 {
		if err := d.e[0].Send(nil, 0, 1, 9, d.bytes(10), Standard); err != nil {
			t.Fatal(err)
		}
		d.parked(1)
		time.Sleep(50 * time.Microsecond)
	}
	if n := d.procs[1].Calls("Notify"); n > 2 {
		t.Errorf("Notify has been called %d times for one copy", n)
	}
	stream.Release()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := d.e[1].Recv(nil, 0, 0, 9, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	d.left()
}

// A caller that sleeps for one message hears of its stream while another message waits for another stream, where no
// notice of the driver and nothing else wakes it.
func TestDeviceWakesForTheFirst(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{})
	streams := [2]*acceltest.Stream{d.procs[1].Stream(0), d.procs[1].Stream(0)}
	var rs [2]*Request
	for i, stream := range streams {
		stream.Hold()
		to, _ := d.buffer(1, 0, 100)
		to.Ordered, to.Stream = true, stream.Handle()
		rs[i] = d.e[1].IrecvDevice(nil, 0, 0, int32(i), to)
		d.e[0].Isend(nil, 0, 1, int32(i), d.bytes(100), Standard)
	}
	for both := false; !both; time.Sleep(100 * time.Microsecond) {
		d.e[1].Iprobe(0, 0, 99, false) // so that it looks
		d.e[1].lock()
		a := d.e[1].links.transfers.accel
		both = a != nil && len(a.streams) == 2
		d.e[1].unlock()
	}
	ended := make(chan error, 1)
	go func() {
		_, err := rs[0].Wait()
		ended <- err
	}()
	d.parked(1)
	streams[0].Release()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(hangs / 8):
		t.Error("the caller sleeps on")
	}
	if done, err := rs[1].peek(); done {
		t.Error("the other message does not wait for its stream: ", err)
	}
	streams[1].Release()
	if _, err := d.wait(rs[1]); err != nil {
		t.Error(err)
	}
	d.left()
}

// lateRinger is a driver whose notices come when the test says so.
type lateRinger struct {
	*acceltest.Process
	mu  sync.Mutex
	fds []int
}

func (l *lateRinger) Notify(_ int, fd int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fds = append(l.fds, fd)
	return nil
}

// asked is what Notify has been told.
func (l *lateRinger) asked() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fds
}

// sleeper starts a receive into to at rank 1, and returns when its caller sleeps for the copy. ended has its result.
func (l *lateRinger) sleeper(d *deviceRanks, to accel.Buffer) (ended chan error) {
	r := d.e[1].IrecvDevice(nil, 0, 0, 3, to)
	d.e[0].Isend(nil, 0, 1, 3, d.bytes(100), Standard)
	ended = make(chan error, 1)
	go func() {
		_, err := r.Wait()
		ended <- err
	}()
	for len(l.asked()) == 0 {
		time.Sleep(100 * time.Microsecond)
	}
	return ended
}

// A notice may come after the engine has ended: the copy is over a moment before. It is not written into a descriptor
// that is another file's by then.
func TestDeviceLateNotice(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{})
	late := &lateRinger{Process: d.procs[1]}
	stream := d.procs[1].Copies(0)
	to, _ := d.buffer(1, 0, 100)
	to.Driver = late
	stream.Hold()
	ended := late.sleeper(d, to)
	stream.Release()
	for over := false; !over; {
		select {
		case err := <-ended:
			if over = true; err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Millisecond): // it is woken by something else
			d.e[0].Isend(nil, 0, 1, 9, nil, Standard)
		}
	}
	d.left()
	own := -1 // what arrives in a file whose descriptor has that number
	for range 50 {
		var fds [2]int
		if err := unix.Pipe(fds[:]); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[0])
		defer unix.Close(fds[1])
		if fds[1] == late.fds[0] || fds[0] == late.fds[0] {
			own = fds[0]
		}
	}
	for _, fd := range late.asked() {
		unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	if own >= 0 {
		if err := unix.SetNonblock(own, true); err != nil {
			t.Fatal(err)
		}
		if n, _ := unix.Read(own, make([]byte, 8)); n > 0 {
			t.Error("the notice has gone into another file")
		}
	}
}

// Two ranks of one process with a device each: the copy of a message waits for the sender's stream, which is one of the
// sender's device, also where it is that of number 0, which each device has.
func TestDeviceStreamOfOtherDevice(t *testing.T) {
	d := newDeviceRanksOf(t, 2, acceltest.Options{}, true)
	for _, size := range []int64{100, 50_000} {
		from, _ := d.buffer(0, 0, size)
		to, _ := d.buffer(1, 1, size)
		from.Ordered = true
		want := d.bytes(size)
		kernels := d.procs[0].NullStream(0)
		kernels.Hold()
		kernels.Launch(func() { d.procs[0].Write(from.Addr, want) })
		s, r := d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard), d.e[1].IrecvDevice(nil, 0, 0, 3, to)
		time.Sleep(time.Millisecond) // in which too much could happen
		kernels.Release()
		d.waitAll(s, r)
		if !bytes.Equal(d.read(1, to), want) {
			t.Errorf("%d bytes were copied before the sender's kernel had written them", size)
		}
	}
	if n := d.procs[0].Calls("Open"); n != 0 {
		t.Errorf("the process has opened its own memory %d times", n)
	}
	d.left()
}

// deviceVictim is an engine on a testNet, and a hostile peer, which is the test.
type deviceVictim struct {
	t       *testing.T
	net     *testNet
	e       *Engine
	machine *acceltest.Machine
	p       *acceltest.Process
}

func newDeviceVictim(t *testing.T, o netOptions) *deviceVictim {
	return newDeviceVictimOn(t, o, acceltest.Options{})
}

// newDeviceVictimOn is newDeviceVictim on a machine of that kind.
func newDeviceVictimOn(t *testing.T, o netOptions, m acceltest.Options) *deviceVictim {
	watchdog(t)
	shrinkStaging(t)
	v := &deviceVictim{t: t, machine: acceltest.New(m)}
	v.p = v.machine.Process()
	o.ranks, o.eagerMax, o.fragMax, o.unexpectedMax = 2, 8<<10, 4<<10, 1<<20
	v.net = newTestNet(o)
	v.net.hostile = true
	for _, d := range v.net.devices {
		d.caps.SameHost = true
	}
	v.e = v.net.engines[0]
	return v
}

// peerSends puts a packet of the peer on its way.
func (v *deviceVictim) peerSends(h wire.Header, payload []byte) {
	w := [2]int{1, 0}
	v.net.wires[w] = append(v.net.wires[w], transport.Packet{Peer: 1, Header: h, Payload: payload})
}

// gets has the victim get a packet.
func (v *deviceVictim) gets(h wire.Header) { v.getsWith(h, nil) }

func (v *deviceVictim) getsWith(h wire.Header, payload []byte) {
	v.peerSends(h, payload)
	v.net.deliver(0, math.MaxInt)
}

// alloc is device memory of the victim, of n bytes, until free.
func (v *deviceVictim) alloc(n int64) accel.Memory {
	v.t.Helper()
	m, err := v.p.Alloc(0, n)
	if err != nil {
		v.t.Fatal(err)
	}
	return m
}

// free frees device memory, after which nothing of the devices is left. The net is closed.
func (v *deviceVictim) free(m accel.Memory) {
	v.t.Helper()
	if err := v.p.Free(m); err != nil {
		v.t.Error(err)
	}
	if left := v.machine.Left(); left != "" {
		v.t.Error(left)
	}
}

// failed is why the peer has been given up.
func (v *deviceVictim) failed() error {
	v.e.lock()
	defer v.e.unlock()
	return v.e.links.peers[1].err
}

// number is that of the one transfer.
func (v *deviceVictim) number() (id uint64) {
	v.e.lock()
	defer v.e.unlock()
	for t := range v.e.links.transfers.values() {
		id = t.id
	}
	return id
}

// A receiver asks once where a message is, whatever it has asked for in between.
func TestHostileAsksWhereAgain(t *testing.T) {
	v := newDeviceVictim(t, netOptions{})
	v.net.linkAll()
	m := v.alloc(40_000)
	v.e.IsendDevice(nil, 0, 1, 3, accel.Buffer{Driver: v.p, Memory: m, Addr: m.Base, Len: 40_000}, Standard)
	v.net.work(0)
	id := v.number()
	v.gets(wire.Header{Kind: wire.HandleReq, ID: id, Key: 1})
	v.gets(wire.Header{Kind: wire.CTS, ID: id, Key: 1, Len: 1})
	v.gets(wire.Header{Kind: wire.HandleReq, ID: id, Key: 1})
	if v.failed() == nil {
		t.Error("it may ask again")
	}
	v.net.close()
	v.free(m)
}

// A peer that says that it cannot send a message, before this rank could have asked for it, is given up.
func TestHostileBreaksTooEarly(t *testing.T) {
	v := newDeviceVictim(t, netOptions{})
	defer v.net.close()
	gate := make(chan error)
	v.net.gates[[2]int{0, 1}] = gate // no engine connects yet
	r := v.e.Irecv(nil, 0, 1, 3, make([]byte, 5000))
	v.gets(wire.Header{Kind: wire.RTS, ID: 7, Tag: 3, Len: 5000})
	v.gets(wire.Header{Kind: wire.Broken, Key: v.number()})
	v.net.mu.Lock()
	delete(v.net.gates, [2]int{0, 1})
	v.net.mu.Unlock()
	close(gate)
	v.net.awaitConnects()
	v.net.work(0)
	if _, err := r.Wait(); err == nil {
		t.Error("it has been received")
	}
}

// A message that is fetched before it is matched, since its sender's caller waits, may not come: its sender cannot read
// it. Then that is the result of the receive that matches it.
func TestDeviceBrokenBeforeItIsMatched(t *testing.T) {
	v := newDeviceVictim(t, netOptions{noGet: true})
	defer v.net.close()
	v.net.linkAll()
	for i := range uint64(3) {
		v.gets(wire.Header{Kind: wire.RTS, Flags: wire.Blocking | wire.Device, ID: 7 + i, Tag: 3, Len: 50})
		v.e.lock()
		v.e.links.letSendersGoOn(nil)
		v.e.unlock()
		v.gets(wire.Header{Kind: wire.Broken, Key: v.number()})
		r := v.e.Irecv(nil, 0, 1, 3, make([]byte, 50))
		v.net.work(0)
		if done, _, err := r.Test(); !done || !errors.Is(err, ErrDevice) {
			t.Errorf("the receive of a message that is broken: done %v, %v", done, err)
		}
		if err := v.failed(); err != nil {
			t.Fatal(err)
		}
	}
}

// A receiver of device memory ends a message when it has the bytes. The sender's buffer is the link's as long as that
// reads it.
func TestDeviceReceiverEndsWhatIsLent(t *testing.T) {
	v := newDeviceVictim(t, netOptions{noGet: true, lends: true})
	defer v.net.close()
	v.net.linkAll()
	s := v.e.Isend(nil, 0, 1, 3, make([]byte, 20_000), Standard)
	v.net.work(0)
	id := v.number()
	v.gets(wire.Header{Kind: wire.Ask, ID: id, Key: 1, Tag: 1, Len: 20_000})
	v.net.lent[[2]int{0, 1}] = true
	v.gets(wire.Header{Kind: wire.FIN, ID: id})
	if done, _, err := s.Test(); done || err != nil {
		t.Fatal("the send is done while the link reads its buffer: ", err)
	}
	v.net.lent[[2]int{0, 1}] = false
	v.net.work(0)
	v.net.work(0)
	if done, _, err := s.Test(); !done || err != nil {
		t.Error("the send is not done: ", err)
	}
}

// A persistent request whose memory has been freed since it was made is not started.
func TestDeviceKeptIsFreed(t *testing.T) {
	d := newDeviceRanks(t, 1, acceltest.Options{})
	m, err := d.procs[0].Alloc(0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	b := accel.Buffer{Driver: d.procs[0], Memory: m, Addr: m.Base, Len: 1000}
	s, r := d.e[0].PrepareSendDevice(nil, 0, 0, 3, b, Standard), d.e[0].PrepareRecvDevice(nil, 0, 0, 3, b)
	if err := d.procs[0].Free(m); err != nil {
		t.Fatal(err)
	}
	d.buffer(0, 0, 900) // at its address
	for _, q := range []*Request{s, r} {
		if err := q.StartDevice(); err != nil {
			t.Fatal(err)
		}
		q.Cancel()
		if _, err := d.wait(q); !errors.Is(err, transport.ErrNoMemory) {
			t.Errorf("a request with freed memory: %v", err)
		}
	}
	d.left()
}

// Two ranks that each start a persistent send of a short message, and wait for it before they receive, go on.
func TestDeviceKeptShortSends(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{Delay: 50 * time.Microsecond})
	var wg sync.WaitGroup
	for rank := range 2 {
		from, _ := d.buffer(rank, 0, 300)
		to, _ := d.buffer(rank, 1, 300)
		s := d.e[rank].PrepareSendDevice(nil, 0, 1-rank, 3, from, Standard)
		wg.Go(func() {
			for range 5 {
				if err := s.StartDevice(); err != nil {
					t.Error(err)
				}
				if _, err := s.Wait(); err != nil {
					t.Error(err)
				}
				if _, err := d.e[rank].IrecvDevice(nil, 0, 1-rank, 3, to).Wait(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	d.left()
}

// A caller that sleeps for a copy hears of its end also where the driver, whose device has failed, gives no notice.
func TestDeviceWithoutNotice(t *testing.T) {
	d := newDeviceRanks(t, 2, acceltest.Options{})
	late := &lateRinger{Process: d.procs[1]}
	stream := d.procs[1].Copies(0)
	to, _ := d.buffer(1, 0, 100)
	to.Driver = late
	stream.Hold()
	d.procs[1].Fail("CopyEnd", 1)
	ended := late.sleeper(d, to)
	stream.Release()
	select {
	case err := <-ended:
		if !errors.Is(err, ErrDevice) {
			t.Error(err)
		}
	case <-time.After(hangs / 8):
		t.Fatal("the caller sleeps on")
	}
	for _, fd := range late.asked() {
		unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	d.left()
}

// The driver is asked for so many copies at a time and no more, since its queue may be full. The others follow in their
// order, and one that cannot be started then ends its message alone.
func TestDeviceStartsSoMany(t *testing.T) {
	const more = 40
	d := newDeviceRanks(t, 2, acceltest.Options{})
	from, want := d.buffer(0, 0, 50)
	to, _ := d.buffer(1, 0, 50*(startedMost+more))
	var rs, ss []*Request
	d.procs[1].Copies(0).Hold()
	for i := range startedMost + more {
		rs = append(rs, d.e[1].IrecvDevice(nil, 0, 0, 3, to.Part(int64(i)*50, 50)))
		ss = append(ss, d.e[0].IsendDevice(nil, 0, 1, 3, from, Standard))
	}
	for n := 0; n < startedMost+more; time.Sleep(100 * time.Microsecond) {
		d.e[0].Iprobe(0, 1, 99, false)
		d.e[1].Iprobe(0, 0, 99, false)
		d.e[1].lock()
		n = len(d.e[1].links.transfers.accel.under)
		d.e[1].unlock()
	}
	if n := d.procs[1].Calls("Copy"); n != startedMost {
		t.Errorf("the driver was asked for %d copies while none of them ended, want %d", n, startedMost)
	}
	d.procs[1].Fail("Copy", more/2)
	d.procs[1].Copies(0).Release()
	failed := 0
	for i, r := range rs {
		d.wait(ss[i])
		if _, err := d.wait(r); errors.Is(err, ErrDevice) {
			failed++
		} else if err != nil || !bytes.Equal(d.read(1, to.Part(int64(i)*50, 50)), want) {
			t.Fatalf("message %d is another, or %v", i, err)
		}
	}
	if failed != 1 {
		t.Errorf("%d messages have failed, want 1", failed)
	}
	d.left()
}

// A rank that ends while it begins to use a driver unpins what it has pinned, also what has taken the part of other
// memory before.
func TestDeviceBeginsTooLate(t *testing.T) {
	d := newDeviceRanks(t, 1, acceltest.Options{})
	e, p := d.e[0], d.procs[0]
	if err := e.mapStaging(); err != nil {
		t.Fatal(err)
	}
	e.lock()
	a := e.links.transfers.accel
	small := &a.in.small
	b := small.free[0]
	small.free = small.free[1:]
	a.retire(b)
	e.unlock()
	for n := 0; n == 0; time.Sleep(10 * time.Microsecond) {
		e.lock()
		n = len(a.spare)
		e.unlock()
	}
	if err := a.pin(p); err != nil {
		t.Fatal(err)
	}
	e.lock()
	e.gone = true
	e.unlock()
	if a.begin(p); a.driver != nil {
		t.Error("a rank that has ended uses the driver")
	}
	e.lock()
	e.gone = false
	e.unlock()
	d.left()
}
