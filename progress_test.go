package mpi

import (
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// everyTransport runs a test as everywhere does, and over the transports between processes.
func everyTransport(t *testing.T, test func(t *testing.T, run runner)) {
	t.Helper()
	everywhere(t, test)
	if inGuest() {
		return
	}
	for _, f := range betweenProcesses {
		t.Run(f.name, func(t *testing.T) { test(t, over(t, f.option(t))) })
	}
}

var betweenProcesses = append(onlyHere, fabric{"tcp", func(testing.TB) Option {
	return withDevices(tcpDevice)
}})

// tcpDevice is a device of TCP in the place of d.
func tcpDevice(rank int, d transport.Device) transport.Device {
	d.Close()
	return ok(tcp.New(tcp.Options{Rank: rank, Size: 1 << 10, Job: "test", Secret: testSecret, PeerTimeout: time.Minute}))
}

func testSecret() ([]byte, error) { return []byte("the secret of this test, 32 bytes"), nil }

// computing is a rank outside the library until another one is done.
type computing chan struct{}

// while closes c when body returns, however it does.
func (c computing) while(body func()) {
	defer close(c)
	body()
}

// A receive that is posted completes while its rank computes, however many messages that are not received yet stand
// before its own; MPI 4.1 §3.5. Their number is beyond every ring, queue and batch.
func TestProgressBehindTraffic(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		for _, n := range []int{256, 1000, 5000} {
			if testing.Short() && n == 1000 {
				continue
			}
			computes := make(computing)
			run(2, func(w *Comm) {
				const size = 1 << 20
				if w.Rank() == 1 {
					small := make([]*Request, n)
					computes.while(func() {
						awaitSignal(w, 0)
						for i := range small {
							small[i] = ok(Isend(w, []int64{int64(i)}, 0, 1))
						}
						must(Send(w, message(size, n), 0, 99))
					})
					must(WaitAll(small...))
					return
				}
				large := make([]byte, size)
				r := ok(Irecv(w, large, 1, 99))
				sendSignal(w, 1)
				<-computes
				ok(r.Wait())
				whole(large, n)
				got := make([]int64, 1)
				for i := range n {
					ok(Recv(w, got, 1, 1))
					same(got[0], int64(i))
				}
			})
		}
	})
}

// A receiver that computes for a moment with each message gets them all from a sender that is faster, as many as fill
// what is between the two several times, and the sender goes on computing when the last has been taken.
func TestSlowReceiver(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		n := inShort(4000, 800)
		for _, size := range []int{8, 1 << 10, 40 << 10} {
			run(2, func(w *Comm) {
				buf := make([]byte, size)
				for i := range n / (1 + size>>12) {
					if w.Rank() == 1 {
						must(Send(w, message(size, i), 0, 7))
						continue
					}
					ok(Recv(w, buf, 1, 7))
					whole(buf, i)
					for begun := time.Now(); time.Since(begun) < 7*time.Microsecond; {
					}
				}
			})
		}
	})
}

// A sender of short messages whose receives are posted gets on while the receiver computes.
func TestProgressOfPostedReceives(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		const n = 2000
		computes := make(computing)
		run(2, func(w *Comm) {
			if w.Rank() == 1 {
				computes.while(func() {
					awaitSignal(w, 0)
					for i := range n {
						must(Send(w, []int64{int64(i)}, 0, i))
					}
				})
				return
			}
			got, rs := make([]int64, n), make([]*Request, n)
			for i := range rs {
				rs[i] = ok(Irecv(w, got[i:i+1], 1, i))
			}
			sendSignal(w, 1)
			<-computes
			must(WaitAll(rs...))
			for i, v := range got {
				check(v == int64(i), "message %d is %d", i, v)
			}
		})
	})
}

// Two ranks send each other, at once, as much as fills the links of both several times, and both leave when they have
// it: neither waits for the other then.
func TestBothLinksFull(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		for _, size := range []int{8, 40 << 10} {
			n := inShort(3000, 1500) / (1 + size>>13)
			run(2, func(w *Comm) {
				other := 1 - w.Rank()
				rs, in := make([]*Request, 0, 2*n), make([][]byte, n)
				for i := range n {
					rs = append(rs, ok(Isend(w, message(size, i), other, 7)))
				}
				for i := range n {
					in[i] = make([]byte, size)
					rs = append(rs, ok(Irecv(w, in[i], other, 7)))
				}
				must(WaitAll(rs...))
				for i := range n {
					whole(in[i], i)
				}
			})
		}
	})
}
