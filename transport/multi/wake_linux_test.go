package multi

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// twoLinks is a rank with two devices that both connect the other rank. Connect of the whole would use the first, so
// the links are made by the inner devices.
type twoLinks struct {
	*sleeper
	links    [2]transport.Link
	pkts     [4]transport.Packet
	watchdog *proc.Watchdog
}

func twoRanks(t *testing.T) (r [2]*twoLinks) {
	t.Helper()
	for rank := range r {
		r[rank] = &twoLinks{sleeper: joined(t, newShm(rank, "x"), newShm(rank, "y"))}
		r[rank].watchdog = proc.StartWatchdog(t, patience, r[rank].Interrupt)
	}
	for rank := range r {
		for i, dev := range r[rank].devs {
			l, err := dev.Connect(context.Background(), 1-rank, r[1-rank].devs[i].Address())
			if err != nil {
				t.Fatal(err)
			}
			r[rank].links[i] = l
		}
	}
	return r
}

func (r *twoLinks) send(t *testing.T, by int, tag int32, flags uint8) {
	h := wire.Header{Kind: wire.Eager, Flags: flags, Tag: tag}
	for limit := time.Now().Add(patience); !r.links[by].TrySend(&h, nil); runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatal("no room")
		}
	}
}

// next sleeps until a packet comes.
func (r *twoLinks) next(thread bool) (transport.Packet, error) {
	for {
		if n := r.Poll(r.pkts[:1]); n > 0 {
			r.watchdog.Reset()
			return r.pkts[0], nil
		}
		if r.Arm(transport.Any, thread) {
			r.Park(thread)
			r.Disarm()
		}
		if r.watchdog.Fired() {
			return transport.Packet{}, fmt.Errorf("no wake-up within %v; polling now returns %d packets",
				patience, r.Poll(r.pkts[:]))
		}
	}
}

// Packets come on either device in turn while the receiver sleeps: no wake-up is lost. Both sides sleep, so each
// depends on the one before.
func TestNoWakeUpIsLost(t *testing.T) {
	rounds := int32(2000)
	if testing.Short() {
		rounds = 200
	}
	for _, thread := range [][2]bool{{true, true}, {false, false}, {true, false}} {
		t.Run(fmt.Sprint(thread), func(t *testing.T) {
			ranks := twoRanks(t)
			var wg sync.WaitGroup
			for rank, r := range ranks {
				wg.Go(func() {
					for i := range rounds {
						by := int(i*7919%13) % 2
						if rank == 0 {
							r.send(t, by, i, 0)
						}
						if p, err := r.next(thread[rank]); err != nil || p.Header.Tag != i {
							t.Errorf("rank %d, round %d: %+v, %v", rank, i, p, err)
							ranks[1-rank].watchdog.Fire() // it waits in vain
							ranks[1-rank].Interrupt()
							return
						}
						if rank == 1 {
							for range i * 31 % 11 {
								runtime.Gosched()
							}
							r.send(t, by, i, 0)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// A packet with wire.Wake on either device ends the Park of the watcher, armed or not.
func TestWakeFlag(t *testing.T) {
	ranks := twoRanks(t)
	a, b := ranks[0], ranks[1]
	for i := range int32(30) {
		switch i % 3 {
		case 1:
			b.Arm(transport.Any, true)
		case 2:
			b.Arm(transport.Urgent, false)
		}
		done := make(chan struct{})
		go func() { defer close(done); b.Park(false) }()
		a.send(t, int(i/3)%2, i, wire.Wake|wire.Urgent)
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatalf("round %d: Park has not ended", i)
		}
		b.Disarm()
		if p, err := b.next(false); err != nil || p.Header.Tag != i {
			t.Fatalf("round %d: %+v, %v", i, p, err)
		}
	}
}

// What wakes a thread that sleeps leaves the watcher asleep.
func TestOneArrivalWakesOne(t *testing.T) {
	ranks := twoRanks(t)
	a, b := ranks[0], ranks[1]
	var ends atomic.Int64
	stop, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			b.Park(false)
			select {
			case <-stop:
				return
			default:
				ends.Add(1)
			}
		}
	}()
	const rounds = 100
	for i := range int32(rounds) {
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			time.Sleep(100 * time.Microsecond)
			a.send(t, int(i)%2, i, 0)
		}()
		if p, err := b.next(true); err != nil || p.Header.Tag != i {
			t.Fatalf("round %d: %+v, %v", i, p, err)
		}
		<-sent
	}
	if n := ends.Load(); n > rounds/4 {
		t.Errorf("%d of %d arrivals woke the watcher too", n, rounds)
	}
	close(stop)
	b.Interrupt()
	<-gone
}
