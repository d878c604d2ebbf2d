package mpi

import (
	"testing"

	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/shm"
)

// A rank that receives takes no more messages out of a link than it has posted receives for. The others wait where they
// are, and hold back a sender that runs ahead: as unexpected messages they would be copied twice, and grow to all that
// the sender may send unasked.
func TestTakesWhatIsPosted(t *testing.T) {
	const messages = 128 // fewer than a ring takes
	const rounds = 16    // in one or two of them the watcher may be awake, which takes what there is
	there, taken := make(chan bool), make(chan bool)
	must(RunLocal(2, func(w *Comm) error {
		buf := make([]byte, 8)
		must(Barrier(w))
		before := w.group.Engine.Stats()
		for range rounds {
			if w.Rank() == 0 {
				for range messages {
					must(Send(w, buf, 1, 1))
				}
				there <- true
				<-taken
				continue
			}
			<-there
			for range messages {
				ok(ok(Irecv(w, buf, 0, 1)).Wait())
			}
			taken <- true
		}
		now := w.group.Engine.Stats()
		if n := now.Matched - before.Matched; n > rounds*messages/2 {
			t.Errorf("%d of %d messages were unexpected, and %d matched on arrival", n, rounds*messages,
				now.MatchedOnArrival-before.MatchedOnArrival)
		}
		return nil
	}, func(o *join.Options) {
		o.Wrap = func(rank int, d transport.Device) transport.Device {
			d.Close()
			return ok(shm.New(shm.Options{Rank: rank, Size: 2,
				Secret: func() ([]byte, error) { return make([]byte, 32), nil }}))
		}
	}))
}
