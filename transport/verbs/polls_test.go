//go:build verbs && linux && cgo

package verbs

import (
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A device of which every poll fails ends in Down, and then the rank sleeps: it has nothing to hear from the device.
func TestEveryPollFails(t *testing.T) {
	needSoft(t)
	for _, tags := range []string{"off", "on"} {
		for _, by := range []string{"poll", "arm"} {
			t.Run(tags+" "+by, func(t *testing.T) {
				watchdog(t)
				a, b, _, _ := two(t, func(o *Options) { o.Tags = tags })
				b.injected("polls_fail")
				if by == "arm" && b.Arm(transport.Any) {
					t.Fatal("the rank may sleep, and has not told of the failure")
				}
				b.down(0)
				if !b.Arm(transport.Any) {
					t.Error("the rank may not sleep, and nothing will come")
				}
				b.Disarm()
				a.down(1)
			})
		}
	}
}

// Receive buffers that the device has taken are not posted once more after a poll that failed: a buffer could get two
// messages. The receive queue is longer than there are buffers, as that of mlx5 is: else it would refuse.
func TestBuffersAfterAFailedPoll(t *testing.T) {
	needSoft(t)
	watchdog(t)
	t.Setenv("SOFTHCA_MEMLOCK", "8000000")
	a, b, ab, _ := two(t)
	const n = giveBackAt + 4
	for range n {
		send(t, ab, wire.Header{Kind: wire.Eager}, []byte("hello"), a)
		b.take(transport.Arrived)
	}
	q := &b.recv
	if q.count >= receives || len(q.lent)+len(q.owed) < 2 {
		t.Fatalf("%d buffers, %d and %d are to be posted", q.count, len(q.lent), len(q.owed))
	}
	for len(q.owed) < giveBackAt { // as if no call had posted them
		send(t, ab, wire.Header{Kind: wire.Eager}, []byte("hello"), a)
		b.take(transport.Arrived)
		q.reclaim()
	}
	b.injected("polls_fail")
	b.poll()
	posted := b.counted("posted_recvs")
	if len(q.owed) > 0 || len(q.lent) > 0 {
		t.Errorf("%d and %d buffers are to be posted after a call that has posted all", len(q.owed), len(q.lent))
	}
	b.down(0)
	if now := b.counted("posted_recvs"); now != posted {
		t.Errorf("%d buffers were posted once more", now-posted)
	}
}
