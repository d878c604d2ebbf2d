package pml

import (
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// heldReceive is a receive at rank 1 whose message has come, and whose copy waits for a kernel on stream. A caller
// sleeps for it; ended has its result.
func heldReceive(d *deviceRanks) (stream *acceltest.Stream, ended chan error) {
	d.t.Helper()
	stream = d.procs[1].Stream(0)
	to, _ := d.buffer(1, 0, 100)
	to.Ordered, to.Stream = true, stream.Handle()
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
	stream, ended := heldReceive(d)
	still := false
	for range 100 {
		StandsStill(d.e, func(*Standstill) { still = true })
		time.Sleep(50 * time.Microsecond)
	}
	stream.Release()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if still {
		t.Error("a copy is under way, and the ranks are said to stand still")
	}
	d.left()
}
