package mpi

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// accused is a device whose rank comes to believe that a peer that goes on in good faith breaks the protocol; or, where
// the device does the matching, that it is gone.
type accused struct {
	transport.Device
	peer   int32
	accuse atomic.Bool
}

func (d *accused) Poll(pkts []transport.Packet) int {
	n := d.Device.Poll(pkts)
	if n == len(pkts) || !d.accuse.CompareAndSwap(true, false) {
		return n
	}
	pkts[n] = transport.Packet{Peer: d.peer}
	pkts[n].Header.Kind = 200 // there is none
	if d.Facts().Tagged != nil {
		pkts[n] = transport.Packet{Event: transport.Down, Peer: d.peer, Err: transport.ErrPeerGone}
	}
	return n + 1
}

func (d *accused) Arm(level transport.Level) bool {
	if d.accuse.Load() {
		d.Device.Disarm()
		return false
	}
	return d.Device.Arm(level)
}

// A buffer is its caller's again when no peer and no device touches it any more, also if the call has failed while the
// peer lives: nothing is written to it then, and what is written into it reaches no message.
func TestBufferAfterFailure(t *testing.T) {
	const page, poison = 4096, 0xee
	size := inShort(8<<20, 2<<20)
	everyTransport(t, func(t *testing.T, run runner) {
		var failed [2]int
		for round := range inShort(60, 8) {
			rng := rand.New(rand.NewPCG(uint64(round), 1))
			sends := round % 2 // whether rank 0, which fails the other, sends
			var d *accused
			wrap := func(o *options) {
				inner := o.Wrap
				o.Wrap = func(rank int, dev transport.Device) transport.Device {
					if inner != nil {
						dev = inner(rank, dev)
					}
					if rank > 0 {
						return dev
					}
					d = &accused{Device: dev, peer: 1}
					return d
				}
			}
			over, end := context.WithCancel(t.Context())
			run(2, func(w *Comm) {
				if w.Rank() == 1 {
					echoSignals(w, 0)       // links both ways; rank 0 fails this one once it has heard the last signal
					w = w.WithContext(over) // a device that does the matching does not tell it
					if sends == 0 {
						Send(w, make([]byte, size), 0, 7) // may fail
						return
					}
					got := make([]byte, size)
					if _, err := Recv(w, got, 0, 7); err == nil {
						for i := 0; i < size; i += page {
							check(got[i] == 0, "byte %d is one that its sender has written after the send had failed", i)
						}
					}
					return
				}
				defer end()
				exchangeSignals(w, 1)
				buf := make([]byte, size)
				var r *Request
				if sends == 1 {
					r = ok(Isend(w, buf, 1, 7))
				} else {
					r = ok(Irecv(w, buf, 1, 7))
				}
				var err error
				until := rng.IntN(12)
				for n, done := 0, false; !done; n++ {
					if n == until {
						d.accuse.Store(true)
					}
					if n%4 == 0 {
						time.Sleep(time.Duration(rng.IntN(200)) * time.Microsecond) // computes
					}
					done, _, err = r.Test()
					runtime.Gosched()
				}
				if err == nil {
					return
				}
				failed[sends]++
				for i := 0; i < size; i += page {
					buf[i] = poison
				}
				time.Sleep(5 * time.Millisecond)
				for i := 0; i < size; i += page {
					check(buf[i] == poison, "byte %d is written to after the receive has failed: %v", i, err)
				}
			}, wrap)
		}
		t.Logf("%d receives and %d sends have failed", failed[0], failed[1])
	})
}
