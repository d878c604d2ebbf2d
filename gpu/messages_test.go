package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// sends are the ways to send a slice and to wait for the end.
var sends = []struct {
	name string
	send func(c *mpi.Comm, s Slice[byte], dest, tag int) error
}{
	{"Send", Send[byte]},
	{"Ssend", Ssend[byte]},
	{"Isend", func(c *mpi.Comm, s Slice[byte], dest, tag int) error { return waited(Isend(c, s, dest, tag)) }},
	{"Issend", func(c *mpi.Comm, s Slice[byte], dest, tag int) error { return waited(Issend(c, s, dest, tag)) }},
	{"host", func(c *mpi.Comm, s Slice[byte], dest, tag int) error {
		host := make([]byte, s.Len())
		must(s.CopyTo(host))
		return mpi.Send(c, host, dest, tag)
	}},
}

// receives are the ways to receive.
var receives = []struct {
	name string
	recv func(c *mpi.Comm, s Slice[byte], source, tag int) (mpi.Status, error)
}{
	{"Recv", Recv[byte]},
	{"Irecv", func(c *mpi.Comm, s Slice[byte], source, tag int) (mpi.Status, error) {
		return collect(Irecv(c, s, source, tag))
	}},
	{"Mrecv", func(c *mpi.Comm, s Slice[byte], source, tag int) (mpi.Status, error) {
		m, _, err := mpi.Mprobe(c, source, tag)
		must(err)
		return Mrecv(m, s)
	}},
	{"Imrecv", func(c *mpi.Comm, s Slice[byte], source, tag int) (mpi.Status, error) {
		m, st, err := mpi.Mprobe(c, source, tag)
		must(err)
		check(st.Bytes == int64(s.Len()), "the probe sees %d bytes", st.Bytes)
		return collect(Imrecv(m, s))
	}},
	{"host", func(c *mpi.Comm, s Slice[byte], source, tag int) (mpi.Status, error) {
		host := make([]byte, s.Len())
		st, err := mpi.Recv(c, host, source, tag)
		must(s.CopyFrom(host))
		return st, err
	}},
}

// Each way to send meets each way to receive, with any length.
func TestMessages(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		n := 0
		for _, size := range lengths() {
			for _, out := range sends {
				for _, in := range receives {
					n++
					if r.Rank() == 0 {
						s := of(r, message(size, n))
						must(out.send(r.Comm, s, 1, n))
						same(contents(r, s), message(size, n))
						free(s)
						continue
					}
					s := alloc[byte](r, size)
					st, err := in.recv(r.Comm, s, 0, n)
					if err != nil {
						panic(fmt.Errorf("%s to %s, %d bytes: %w", out.name, in.name, size, err))
					}
					check(st == mpi.Status{Source: 0, Tag: n, Bytes: int64(size)}, "%s to %s: %+v", out.name, in.name, st)
					same(contents(r, s), message(size, n))
					free(s)
				}
			}
		}
	})
}

// A part of a slice is sent and received in place: what is around it does not change.
func TestParts(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		for _, size := range []int{3, 200_000} {
			s := of(r, message(size+20, 1))
			if r.Rank() == 0 {
				must(Send(r.Comm, s.Slice(10, size+10), 1, 0))
			} else {
				ok(Recv(r.Comm, s.Slice(7, size+9), 0, 0)) // there is room for two more
				want := message(size+20, 1)
				copy(want[7:], want[10:size+10])
				copy(want[7+size:], message(size+20, 1)[7+size:])
				same(contents(r, s), want)
			}
			free(s)
		}
	})
}

// Messages to a rank itself, to another one and back, to no process, and in a ring of ranks.
func TestSendrecv(t *testing.T) {
	alsoWhole(t, 3, func(r rank) {
		next, before := (r.Rank()+1)%3, (r.Rank()+2)%3
		for n, size := range lengths() {
			out, in := of(r, message(size, r.Rank())), alloc[byte](r, size)
			st := ok(Sendrecv(r.Comm, out, next, n, in, before, n))
			check(st == mpi.Status{Source: before, Tag: n, Bytes: int64(size)}, "%+v", st)
			same(contents(r, in), message(size, before))
			ok(Sendrecv(r.Comm, out, r.Rank(), n, in, r.Rank(), n))
			same(contents(r, in), message(size, r.Rank()))
			st = ok(Sendrecv(r.Comm, out, mpi.ProcNull, 0, in, mpi.ProcNull, 0))
			check(st.Source == mpi.ProcNull, "%+v", st)
			must(Send(r.Comm, out, mpi.ProcNull, 0))
			st = ok(Recv(r.Comm, in, mpi.ProcNull, 0))
			check(st.Source == mpi.ProcNull, "%+v", st)
			free(out, in)
		}
	})
}

// Persistent requests send and receive what is in memory at each start.
func TestPersistent(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		for n, size := range lengths() {
			s := alloc[byte](r, size)
			other := 1 - r.Rank()
			var rs []*mpi.Request
			if r.Rank() == 0 {
				rs = []*mpi.Request{ok(SendInit(r.Comm, s, other, n)), ok(SsendInit(r.Comm, s, other, n+100)),
					ok(SendInit(r.Comm, s, mpi.ProcNull, 0))}
			} else {
				rs = []*mpi.Request{ok(RecvInit(r.Comm, s, other, n)), ok(RecvInit(r.Comm, s, mpi.AnySource, mpi.AnyTag)),
					ok(RecvInit(r.Comm, s, mpi.ProcNull, 0))}
			}
			for round := range 3 {
				if r.Rank() == 0 {
					must(s.CopyFrom(message(size, round)))
				}
				for _, q := range rs {
					must(q.Start())
					st := ok(q.Wait())
					if r.Rank() == 1 && st.Source == 0 {
						check(st.Bytes == int64(size), "%+v", st)
						same(contents(r, s), message(size, round))
						must(s.CopyFrom(make([]byte, size)))
					}
				}
			}
			for _, q := range rs {
				must(q.Free())
			}
			free(s)
		}
	})
}

// Requests of devices, of the host and of collective calls are completed by one set.
func TestSets(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		other := 1 - r.Rank()
		const size = 100_001
		wait := []func(rs []*mpi.Request){
			func(rs []*mpi.Request) { must(mpi.WaitAll(rs...)) },
			func(rs []*mpi.Request) { ok(mpi.WaitAllStatus(rs...)) },
			func(rs []*mpi.Request) {
				for range rs {
					i, _, err := mpi.WaitAny(rs...)
					must(err)
					rs[i] = nil
				}
			},
			func(rs []*mpi.Request) {
				for left := len(rs); left > 0; {
					all := ok(mpi.AppendSome(nil, rs...))
					for _, d := range all {
						must(d.Err)
						rs[d.Index] = nil
					}
					left -= len(all)
				}
			},
			func(rs []*mpi.Request) {
				for done := false; !done; {
					done = ok(mpi.TestAll(rs...))
				}
			},
			func(rs []*mpi.Request) {
				for _, q := range rs {
					<-q.Done()
					ok(q.Wait())
				}
			},
		}
		for n, complete := range wait {
			out, in, sum := of(r, message(size, n)), alloc[byte](r, size), alloc[byte](r, size)
			host := make([]byte, 77)
			complete([]*mpi.Request{
				ok(Irecv(r.Comm, in, other, n)), ok(mpi.Irecv(r.Comm, host, other, n+50)),
				ok(Iallreduce(r.Comm, out, sum, mpi.Max)), ok(Isend(r.Comm, out, other, n)),
				ok(mpi.Isend(r.Comm, message(77, n), other, n+50)), ok(mpi.Ibarrier(r.Comm)),
			})
			same(contents(r, in), message(size, n))
			same(contents(r, sum), message(size, n))
			same(host, message(77, n))
			free(out, in, sum)
		}
	})
}

// Order: messages of a device and of the host to one rank are received in the order in which they were sent.
func TestOrder(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		const rounds = 20
		if r.Rank() == 0 {
			var rs []*mpi.Request
			var all []Slice[byte]
			for i := range rounds {
				size := []int{10, 100_000}[i/2%2]
				if i%2 == 0 {
					all = append(all, of(r, message(size, i)))
					rs = append(rs, ok(Isend(r.Comm, all[len(all)-1], 1, 5)))
				} else {
					rs = append(rs, ok(mpi.Isend(r.Comm, message(size, i), 1, 5)))
				}
			}
			must(mpi.WaitAll(rs...))
			free(all...)
			return
		}
		s := alloc[byte](r, 100_000)
		for i := range rounds {
			size := []int{10, 100_000}[i/2%2]
			st := ok(Recv(r.Comm, s, mpi.AnySource, mpi.AnyTag))
			check(st.Bytes == int64(size), "message %d has %d bytes", i, st.Bytes)
			same(contents(r, s)[:size], message(size, i))
		}
		free(s)
	})
}

// A longer message fills the buffer, and is ErrTruncate; nothing behind the buffer changes.
func TestTruncation(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		for _, size := range []int{100, 300_000} {
			s := of(r, message(size, 3))
			if r.Rank() == 0 {
				must(Send(r.Comm, s, 1, 0))
				must(Send(r.Comm, s, 1, 0))
			} else {
				_, err := Recv(r.Comm, s.Slice(0, size/2), 0, 0)
				isError(err, mpi.ErrTruncate, fmt.Sprintf("gpu.Recv from rank 0 tag 0: the message has %d bytes", size))
				same(contents(r, s)[size/2:], message(size, 3)[size/2:])
				_, err = Recv(r.Comm, Slice[byte]{}, 0, 0)
				isError(err, mpi.ErrTruncate, "gpu.Recv")
			}
			must(mpi.Barrier(r.Comm))
			free(s)
		}
	})
}

// Wrong arguments are the errors of the call of package mpi, with this package's name.
func TestMessageErrors(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	run(t, 1, func(c *mpi.Comm) {
		r := rank{c, p, 0}
		h := make([]float64, 4)
		s := of(r, h)
		freed := ok(c.Dup())
		must(freed.Free())
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		second := func(_ any, err error) error { return err }
		for i, pair := range [][2]error{
			{mpi.Send(c, h, 1, 0), Send(c, s, 1, 0)},
			{mpi.Send(c, h, -7, 0), Send(c, s, -7, 0)},
			{mpi.Send(c, h, 0, -1), Send(c, s, 0, -1)},
			{mpi.Send(nil, h, 0, 0), Send(nil, s, 0, 0)},
			{mpi.Ssend(freed, h, 0, 0), Ssend(freed, s, 0, 0)},
			{mpi.Send(c.WithContext(ended), h, 0, 0), Send(c.WithContext(ended), s, 0, 0)},
			{mpi.Send(c, []*int{}, 0, 0), Send(c, Slice[*int]{}, 0, 0)},
			{second(mpi.Isend(c, h, 1, 0)), second(Isend(c, s, 1, 0))},
			{second(mpi.Issend(c, h, 1, 0)), second(Issend(c, s, 1, 0))},
			{second(mpi.SendInit(c, h, 1, 0)), second(SendInit(c, s, 1, 0))},
			{second(mpi.SsendInit(c, h, 1, 0)), second(SsendInit(c, s, 1, 0))},
			{second(mpi.Recv(c, h, 1, 0)), second(Recv(c, s, 1, 0))},
			{second(mpi.Recv(c, h, 0, -5)), second(Recv(c, s, 0, -5))},
			{second(mpi.Recv(nil, h, 0, 0)), second(Recv(nil, s, 0, 0))},
			{second(mpi.Recv(c.WithContext(ended), h, 0, 0)), second(Recv(c.WithContext(ended), s, 0, 0))},
			{second(mpi.Recv(c, []*int{}, 0, 0)), second(Recv(c, Slice[*int]{}, 0, 0))},
			{second(mpi.Irecv(freed, h, 0, 0)), second(Irecv(freed, s, 0, 0))},
			{second(mpi.RecvInit(c, h, 4, 0)), second(RecvInit(c, s, 4, 0))},
			{second(mpi.Sendrecv(c, h, 1, 0, h, 0, 0)), second(Sendrecv(c, s, 1, 0, s, 0, 0))},
			{second(mpi.Sendrecv(c, h, 0, 0, h, 1, 0)), second(Sendrecv(c, s, 0, 0, s, 1, 0))},
			{second(mpi.Sendrecv(c, h, 0, -3, h, 0, 0)), second(Sendrecv(c, s, 0, -3, s, 0, 0))},
			{second(mpi.Mrecv(nil, h)), second(Mrecv(nil, s))},
			{second(mpi.Imrecv(&mpi.Message{}, h)), second(Imrecv(&mpi.Message{}, s))},
		} {
			check(pair[0] != nil && pair[1] != nil, "call %d: %v, %v", i, pair[0], pair[1])
			want := "mpi: gpu." + pair[0].Error()[len("mpi: "):]
			check(pair[1].Error() == want, "call %d:\n%v, want\n%s", i, pair[1], want)
			isError(pair[1], class(pair[0]), "")
		}
		must(mpi.Send(c, h, 0, 0))
		m, _, err := mpi.Mprobe(c, 0, 0)
		must(err)
		ok(Mrecv(m, s))
		isError(second(Mrecv(m, s)), mpi.ErrRequest, "gpu.Mrecv from rank 0 tag 0: unusable request: the message has been")
		free(s)
	})
}

// A Sendrecv of which a message cannot begin begins none: it does not wait for the other rank, which may wait for that
// message first, and takes no message of it.
func TestSendrecvMarkFails(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		for fails := range 2 {
			if r.Rank() == 1 {
				s := of(r, message(5000, 1))
				ok(mpi.Recv(r.Comm, make([]byte, 1), 0, 7))
				_, found, err := mpi.Iprobe(r.Comm, 0, 0)
				must(err)
				check(!found, "a message has come of a Sendrecv that cannot receive")
				must(Send(r.Comm, s, 0, 0))
				free(s)
				continue
			}
			out, in := of(r, message(5000, 0)), alloc[byte](r, 5000)
			r.d.Fail("Mark", 1)
			var err error
			if fails == 0 {
				_, err = Sendrecv(r.Comm, out.On(0), 1, 0, in, 1, 0)
			} else {
				_, err = Sendrecv(r.Comm, out, 1, 0, in.On(0), 1, 0)
			}
			isError(err, mpi.ErrDevice, "of On: Mark: CUDA_ERROR_UNKNOWN")
			must(mpi.Send(r.Comm, []byte{1}, 1, 7))
			ok(Recv(r.Comm, in, 1, 0))
			same(contents(r, in), message(5000, 1))
			free(out, in)
		}
	})
}

// A Sendrecv whose device fails when its message has begun receives what the other rank sends, which has heard of that.
func TestSendrecvCopyFails(t *testing.T) {
	m := newMachine(t, acceltest.Options{NotShared: true})
	drivers := []*acceltest.Process{m.Process(), m.Process()}
	useDriver(t, drivers[0])
	heard, waits := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(waits) })
	hooks := mpi.Hooks{Before: func(k *mpi.Call) {
		if k.Rank == 0 && k.Kind == mpi.CallWait {
			begun()
		}
	}, After: func(k *mpi.Call) {
		if k.Rank == 0 && k.Op == "gpu.Sendrecv" && k.Kind == mpi.CallSend {
			<-heard // when its start is over the send is too
		}
	}}
	run(t, 2, func(c *mpi.Comm) {
		r := rank{c, drivers[c.Rank()], 0}
		if r.Rank() == 1 {
			_, err := mpi.Recv(c, make([]byte, 5000), 0, 0)
			close(heard)
			isError(err, mpi.ErrDevice, "at the sender")
			<-waits
			must(mpi.Ssend(c, message(5000, 1), 0, 0))
			return
		}
		out, in := of(r, message(5000, 0)), alloc[byte](r, 5000)
		r.d.Fail("Copy", 1)
		_, err := Sendrecv(c, out, 1, 0, in, 1, 0)
		isError(err, mpi.ErrDevice, "Copy: CUDA_ERROR_UNKNOWN")
		same(contents(r, in), message(5000, 1))
		free(out, in)
	}, mpi.WithHooks(hooks))
}

// Where messages go as a whole, a Sendrecv that cannot fetch its message takes none of the other rank, though that has
// come.
func TestSendrecvWholeCopyFails(t *testing.T) {
	w := way{name: "whole", own: true, whole: true, options: acceltest.Options{Devices: 2}}
	w.test(t, 2, func(r rank) {
		if r.Rank() == 1 {
			q := ok(mpi.Isend(r.Comm, message(5000, 1), 0, 0))
			must(mpi.Send(r.Comm, []byte{1}, 0, 7))
			ok(q.Wait())
			return
		}
		out, in := of(r, message(5000, 0)), alloc[byte](r, 5000)
		ok(mpi.Recv(r.Comm, make([]byte, 1), 1, 7))
		r.d.Fail("CopyEnd", 1)
		_, err := Sendrecv(r.Comm, out, 1, 0, in, 1, 0)
		isError(err, mpi.ErrDevice, "mpi: gpu.Sendrecv to rank 1 tag 0")
		ok(Recv(r.Comm, in, 1, 0))
		same(contents(r, in), message(5000, 1))
		free(out, in)
	})
}

// A copy that fails, on either side, ends both ends of the message, and none hangs. The rank whose copy it was, at
// least, gets the error.
func TestMessageCopyFails(t *testing.T) {
	everyWay(t, 2, func(r rank) {
		for _, size := range []int{100, 300_000} {
			for failing := range 2 {
				s := of(r, message(size, 0))
				must(mpi.Barrier(r.Comm))
				copies := r.d.Calls("Copy")
				if r.Rank() == failing {
					r.d.Fail("CopyEnd", 1)
				}
				must(mpi.Barrier(r.Comm))
				var err error
				if r.Rank() == 0 {
					err = Ssend(r.Comm, s, 1, 0)
				} else {
					_, err = Recv(r.Comm, s, 0, 0)
				}
				if err != nil {
					isError(err, mpi.ErrDevice, "mpi: gpu.")
				}
				must(mpi.Barrier(r.Comm))
				errs := make([]bool, 2)
				must(mpi.Allgather(r.Comm, []bool{err != nil}, errs))
				made := r.d.Calls("Copy") > copies
				check(r.Rank() != failing || !made || errs[0] || errs[1], "the copy of rank %d fails, and no rank hears", failing)
				if !made {
					s.CopyFrom(make([]byte, size)) // the failure is still to come
				}
				must(mpi.Barrier(r.Comm))
				free(s)
			}
		}
	})
}

// Where messages go as a whole, the copy of a send fails before the message is sent, and the receiver's when it
// collects the request. Neither leaves anything behind.
func TestWholeCopyFails(t *testing.T) {
	w := way{name: "whole", own: true, whole: true, options: acceltest.Options{Devices: 2}}
	w.test(t, 2, func(r rank) {
		s := of(r, message(300_000, 0))
		q := ok(mpi.Irecv(r.Comm, make([]byte, 9), 1-r.Rank(), 7)) // for one to go on after the other's failure
		must(mpi.Barrier(r.Comm))
		r.d.Fail("CopyEnd", 1)
		if r.Rank() == 0 {
			isError(Send(r.Comm, s, 1, 0), mpi.ErrDevice, "mpi: gpu.Send to rank 1 tag 0")
			must(Ssend(r.Comm, s, 1, 0))
		} else {
			p := ok(Irecv(r.Comm, s, 0, 0))
			isError(s.Free(), mpi.ErrBuffer, "")
			_, err := p.Wait()
			isError(err, mpi.ErrDevice, "mpi: gpu.Irecv from rank 0 tag 0")
		}
		must(mpi.Send(r.Comm, make([]byte, 9), 1-r.Rank(), 7))
		ok(q.Wait())
		free(s)
	})
}

// A receive that no message meets is cancelled by Cancel and by the end of a context.
func TestCancel(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		s := alloc[byte](r, 1000)
		q := ok(Irecv(r.Comm, s, mpi.AnySource, 7))
		must(q.Cancel())
		st := ok(q.Wait())
		check(st.Cancelled, "%+v", st)
		ctx, cancel := context.WithCancel(context.Background())
		q = ok(Irecv(r.Comm.WithContext(ctx), s, mpi.AnySource, 7))
		cancel()
		_, err := q.Wait()
		check(errors.Is(err, context.Canceled), "%v", err)
		free(s)
	})
}

// Free returns when no peer has the memory open, and memory that is made afterwards at its address is sent as it is.
func TestFreeAndUseAgain(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		const size = 200_000
		addrs := map[uint64]bool{}
		for n := range 6 {
			s := alloc[byte](r, size)
			addrs[s.Addr()] = true
			if r.Rank() == 0 {
				must(s.CopyFrom(message(size, n)))
				must(Send(r.Comm, s, 1, 0))
			} else {
				ok(Recv(r.Comm, s, 0, 0))
				same(contents(r, s), message(size, n))
			}
			free(s)
		}
		check(len(addrs) < 6, "no address is used again")
	})
}

// A message waits for the stream of its slice: for a kernel that writes what is sent, and for one that still reads what
// is received into. Kernels that are launched afterwards see the message.
func TestMessageWithStream(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			m := newMachine(t, acceltest.Options{Devices: 2, NotShared: w.options.NotShared})
			first := m.Process()
			useDriver(t, first)
			drivers := []*acceltest.Process{first, first}
			if w.own {
				drivers[1] = m.Process()
			}
			run(t, 2, func(c *mpi.Comm) { testStreams(rank{c, drivers[c.Rank()], c.Rank()}) })
		})
	}
}

func testStreams(r rank) {
	for _, size := range []int{6, 300_000} {
		for ordered := range 2 {
			s := of(r, message(size, 10+r.Rank()))
			stream := r.d.Stream(r.device)
			must(mpi.Barrier(r.Comm))
			var seen []byte
			if r.Rank() == ordered {
				stream.Hold()
				stream.Launch(func() {
					seen = r.d.Read(s.Addr(), int64(size))
					if r.Rank() == 0 {
						r.d.Write(s.Addr(), message(size, 20))
					}
				})
				s = s.On(stream.Handle())
			}
			var q *mpi.Request
			if r.Rank() == 0 {
				q = ok(Isend(r.Comm, s, 1, 0))
			} else {
				q = ok(Irecv(r.Comm, s, 0, 0))
			}
			if r.Rank() == ordered {
				for range 20 { // time for a copy that does not wait
					done, _, err := q.Test()
					check(!done, "a message that waits for a stream is done: %v", err)
					time.Sleep(time.Millisecond)
				}
				stream.Release()
			}
			ok(q.Wait())
			sent := 10
			if ordered == 0 {
				sent = 20
			}
			same(contents(r, s), message(size, sent))
			if r.Rank() == ordered {
				stream.Launch(func() { seen = append(seen, r.d.Read(s.Addr(), int64(size))...) })
				stream.Sync()
				same(seen, append(message(size, 10+r.Rank()), message(size, sent)...))
			}
			must(mpi.Barrier(r.Comm))
			free(s)
		}
	}
}

// A synchronous send is done only after a receive has matched it, without bytes too.
func TestSynchronous(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	run(t, 1, func(c *mpi.Comm) {
		for _, size := range []int{0, 1} {
			s := alloc[byte](rank{c, p, 0}, size)
			init := ok(SsendInit(c, s, 0, 1))
			must(init.Start())
			sync := ok(Issend(c, s, 0, 0))
			for _, q := range []*mpi.Request{sync, init} {
				for range 100 {
					done, _, err := q.Test()
					must(err)
					check(!done, "a synchronous send of %d bytes is done without a receive", size)
				}
			}
			ok(Recv(c, s, 0, 0))
			ok(Recv(c, s, 0, 1))
			must(mpi.WaitAll(sync, init))
			must(init.Free())
			free(s)
		}
	})
}

// Free is an error while a request uses the memory, which can be used on.
func TestFreeInUse(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	run(t, 2, func(c *mpi.Comm) {
		s := alloc[int64](rank{c, p, 0}, 10)
		inUse := func() { isError(s.Slice(2, 4).Free(), mpi.ErrBuffer, "complete") }
		if c.Rank() == 0 {
			req := ok(Irecv(c, s, 1, 1))
			inUse()
			must(s.Err())
			must(mpi.Send(c, []int{0}, 1, 2))
			ok(req.Wait())
			ok(mpi.Recv(c, make([]int, 1), 1, 5))
			ok(Recv(c, s, 1, 4))
		} else {
			ok(mpi.Recv(c, make([]int, 1), 0, 2))
			must(Send(c, s, 0, 1))
			req := ok(Isend(c, s, 0, 4))
			inUse()
			must(mpi.Send(c, []int{0}, 0, 5))
			ok(req.Wait())
		}
		req := ok(Irecv(c, s, c.Rank(), 3))
		inUse()
		must(req.Cancel())
		ok(req.Wait())
		req = ok(Iallreduce(c, InPlace[int64](), s, mpi.Sum))
		inUse()
		ok(req.Wait())
		must(mpi.Barrier(c))
		free(s)
	})
}

// Free waits for no copy of memory that another driver has numbered as this one numbers its own.
func TestFreeOtherDriver(t *testing.T) {
	m := newMachine(t, acceltest.Options{})
	drivers := []*acceltest.Process{m.Process(), m.Process()}
	useDriver(t, drivers[0])
	run(t, 2, func(c *mpi.Comm) {
		r := rank{c, drivers[c.Rank()], 0}
		s := of(r, message(1000, 1))
		ids := make([]uint64, 2)
		must(mpi.Allgather(c, []uint64{s.of.memory.ID}, ids))
		check(ids[0] == ids[1], "the numbers of the allocations are %d", ids)
		if c.Rank() == 0 {
			must(mpi.Barrier(c))
			free(s)
			must(mpi.Barrier(c))
			return
		}
		to, copies, before := alloc[byte](r, 1000), r.d.Copies(0), r.d.Calls("Copy")
		copies.Hold()
		in, out := ok(Irecv(c, to, 1, 0)), ok(Isend(c, s, 1, 0))
		for r.d.Calls("Copy") == before { // the copy from s, which takes long
			_, _, err := in.Test()
			must(err)
		}
		must(mpi.Barrier(c))
		must(mpi.Barrier(c)) // the other rank has freed its memory
		copies.Release()
		must(mpi.WaitAll(in, out))
		free(s, to)
	})
}
