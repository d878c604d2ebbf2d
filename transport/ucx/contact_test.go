//go:build ucx && linux && cgo

package ucx

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// elsewhere is an address as if its rank were on another host, whose end UCX sees.
func elsewhere(t testing.TB, address []byte) []byte {
	c, err := readCard(address, libraryVersion())
	if err != nil {
		t.Fatal(err)
	}
	c.Host = "another"
	return c.encode()
}

// trySend sends a byte to rank 0 at once. It reports whether it has.
func trySend(r *rank, m transport.Match) bool {
	sent, _ := r.TrySend(0, m, transport.HostMem([]byte{1}), true)
	return sent
}

// The sets of the sleepers leave UCX's descriptor alone while a rank polls, where it may show packets of TCP.
func TestOnlyArmedOverTCP(t *testing.T) {
	for tls, want := range map[string]bool{"tcp,self": true, "tcp,posix,self": true, "posix,self": false} {
		t.Setenv("UCX_TLS", tls)
		if got := newRank(t, 0).Facts().Wake[0].OnlyArmed; got != want {
			t.Errorf("%s: %v", tls, got)
		}
	}
}

// A rank that is found idle again and again while it sends its first message does its peer no harm: UCX's TCP must not
// be asked to flush what it has sent while an endpoint is being connected.
func TestFirstContact(t *testing.T) {
	t.Setenv("UCX_TLS", "tcp,self")
	out, in := bytes.Repeat([]byte{1}, 1<<20), make([]byte, 1<<20)
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	rounds := 100
	if testing.Short() {
		rounds = 12
	}
	for i := range rounds {
		a, b := newRank(t, 0), newRank(t, 1)
		to, from := b.Address(), a.Address()
		if i%2 == 1 {
			to, from = elsewhere(t, to), elsewhere(t, from)
		}
		a.reach(1, to)
		if i%4 < 2 {
			b.reach(0, from)
		}
		st, err := a.Send(1, m, transport.HostMem(out[:1<<(i%3*10)]), i%3 == 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		polls := 0
		poll := func() {
			for range 1 + 10*(i%7) {
				polls++
				a.sleep.looked.Store(polls > i)
				a.poll()
			}
			b.poll()
		}
		for range 40 {
			poll()
		}
		_, got, err := b.Post(m, transport.HostMem(in), 1, false)
		if err != nil {
			t.Fatal(err)
		}
		for limit := time.Now().Add(patience); got == transport.Started && len(b.in) == 0 ||
			st == transport.Started && len(a.in) == 0 || !a.flushed(); {
			poll()
			a.poll()
			if time.Now().After(limit) {
				t.Fatalf("round %d: nothing comes", i)
			}
		}
		if len(b.in) > 0 && b.in[0].Err != nil {
			t.Fatalf("round %d: %v", i, b.in[0].Err)
		}
		a.Close()
		b.Close()
	}
}

// A rank that has received all and calls nothing any more still answers synchronous sends, more than its peer's queue
// holds: whether it has sent to that peer, has not, or has been found idle before it knew where that peer is.
func TestAnswersOfAnIdleRank(t *testing.T) {
	t.Setenv("UCX_TLS", "posix,self")
	t.Setenv("UCX_POSIX_FIFO_SIZE", "64")
	const sends, atOnce = 168, 24 // a queue of 64 gets room by halves
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	for _, second := range []string{"has sent", "has not sent", "reaches late"} {
		a, b := newRank(t, 0), newRank(t, 1)
		a.reach(1, b.Address())
		late := second == "reaches late"
		if !late {
			b.reach(0, a.Address())
		}
		var woken atomic.Bool
		b.Facts().Wake[0].Notify(func(bool) { woken.Store(true) })
		exchange := func(n int, others ...*rank) {
			for range n {
				if _, err := a.Send(1, m, transport.HostMem(make([]byte, 8)), true, 1); err != nil {
					t.Fatal(err)
				}
			}
			for range n {
				if _, st, err := b.Post(m, transport.HostMem(make([]byte, 8)), 1, false); err != nil {
					t.Fatal(err)
				} else if st == transport.Started {
					b.next(others...)
				}
			}
		}
		exchange(1, a) // the first contact takes both
		a.next(b)
		back := transport.Match{Context: 1, Source: 1, Tag: 2}
		if second == "has sent" && !trySend(b, back) {
			t.Fatal("the message of the second rank is not sent")
		}
		for range sends / atOnce {
			exchange(atOnce)
		}
		for limit := time.Now().Add(patience); len(a.in) < sends; a.poll() {
			if late && b.peers[0].unheard {
				late = false
				b.reach(0, a.Address())
			}
			if woken.Swap(false) {
				b.poll()
			}
			if time.Now().After(limit) {
				t.Fatalf("the second rank %s: %d of %d sends have ended", second, len(a.in), sends)
			}
		}
	}
}

// A peer on another host that ends before it has answered, while UCX connects to it, is gone; a rank that ends, ends.
// This is so over TCP: over InfiniBand and RoCE UCX 1.13 aborts (docs/decisions/ucx.md).
func TestPeerEndsBeforeItAnswers(t *testing.T) {
	t.Setenv("UCX_TLS", "tcp,self")
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	for _, size := range []int{8, 1 << 20} {
		for _, ends := range []string{"peer", "rank"} {
			if testing.Short() && (size == 8) != (ends == "rank") {
				continue
			}
			t.Run(fmt.Sprintf("%d bytes, the %s ends", size, ends), func(t *testing.T) {
				a := newRank(t, 0)
				p := proc.Start(t, "dies")
				address := p.Recv()
				p.Signal(syscall.SIGSTOP)
				a.reach(1, elsewhere(t, address))
				st, err := a.Send(1, m, transport.HostMem(make([]byte, size)), true, 1)
				if err != nil || st != transport.Started {
					t.Fatal(st, err)
				}
				for range 5 {
					a.poll()
				}
				if ends == "rank" {
					a.Close()
					return
				}
				p.Kill()
				var down, failed bool
				for !down || !failed {
					e := a.next()
					down = down || e.Event == transport.Down && e.Peer == 1 && errors.Is(e.Err, transport.ErrPeerGone)
					failed = failed || e.Event == transport.TaggedDone && e.Cookie == 1 && e.Err != nil
				}
			})
		}
	}
}
