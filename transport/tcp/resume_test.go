package tcp

import (
	"context"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// Where two ranks have lost a connection both dial, and one of the dials may be heard at any time later: after the other
// has made a connection, and after that has been used. It does not end that connection; only a dial of a rank that has
// had it does.
func TestLateDial(t *testing.T) {
	for _, c := range []struct {
		name   string
		dialed bool // by rank 0, which judges
		late   history
		lost   history
	}{
		{"beside its own", true, history{1, 1, 1, 0}, history{1, 1, 2, 1}},
		{"beside the peer's", false, history{1, 1, 1, 0}, history{1, 1, 2, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newDevice(t, 0, 2), newDevice(t, 1, 2)
			defer a.Close()
			defer b.Close()
			from, to := b, a
			if c.dialed {
				from, to = a, b
			}
			if _, err := from.Connect(context.Background(), to.opt.Rank, to.Address()); err != nil {
				t.Fatal(err)
			}
			a.mu.Lock()
			s := a.session(1)
			a.mu.Unlock()
			pkts := make([]transport.Packet, 4)
			until := func(what string, done func() bool) {
				for end := time.Now().Add(hang); !done(); time.Sleep(time.Millisecond) {
					if n := a.Poll(pkts); n > 0 || time.Now().After(end) {
						t.Fatalf("%s: %d packets, the first is %v: %v", what, n, pkts[0].Event, pkts[0].Err)
					}
				}
			}
			until("the connection", func() bool { return s.conn.Load() != nil })
			conn := s.conn.Load()
			judged := make(chan code, 1)
			var code code
			heard := func() bool {
				select {
				case code = <-judged:
					return true
				default:
					return false
				}
			}
			go func() { judged <- a.judge(1, c.late) }()
			if until("a late dial", heard); code != crossing || s.conn.Load() != conn {
				t.Errorf("a late dial: answer %v; the connection stands: %v", code, s.conn.Load() == conn)
			}
			go func() { judged <- a.judge(1, c.lost) }()
			if until("a dial after a loss", heard); s.conn.Load() == conn {
				t.Errorf("a dial after a loss: answer %v; the connection stands", code)
			}
		})
	}
}
