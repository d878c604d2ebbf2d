package mpi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/transport"
)

// A rank that knows of a failure has all ranks report one, whatever the others were told.
func TestFlagsOfReplace(t *testing.T) {
	for _, c := range []struct {
		no   *agree.Veto
		want uint32
	}{
		{nil, hasMet}, {&agree.Veto{Class: ErrUnavailable}, wasRefused}, {&agree.Veto{Class: ErrSpawn}, wasRefused},
		{&agree.Veto{Class: ErrUnavailable, Alone: true}, 0}, {&agree.Veto{Class: ErrPeerFailed}, 0},
		{&agree.Veto{Class: ErrRevoked}, 0}, {&agree.Veto{Class: ErrTimeout}, 0},
	} {
		if got := flagsOf(c.no); got != c.want {
			t.Errorf("%+v gives %d, want %d", c.no, got, c.want)
		}
	}
}

// Replace frees its communicator, but not the world and self, also where no rank has failed.
func TestWhatReplaceFrees(t *testing.T) {
	err := RunLocal(2, func(w *Comm) error {
		c, err := w.Dup()
		if err != nil {
			return err
		}
		d, err := c.Replace()
		if err != nil {
			return err
		}
		if err := Barrier(c); !errors.Is(err, ErrComm) {
			t.Errorf("Barrier on the old communicator: %v", err)
		}
		made := []*Comm{d}
		for _, c := range []*Comm{w, Self(w)} {
			d, err := c.Replace()
			if err != nil {
				return err
			}
			made = append(made, d)
		}
		errs := []error{Barrier(w), Barrier(Self(w))}
		for _, d := range made {
			errs = append(errs, Barrier(d), d.Free())
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Error(err)
	}
}

// An error of Replace names ranks as its caller does.
func TestReplaceNamesRanks(t *testing.T) {
	outlive(t, 3, loopBeneath, func(w *Comm, die func()) {
		if w.Rank() == 0 {
			die()
		}
		want := "mpi: Replace: " // from the lowest rank that lives
		if w.Rank() != 1 {
			want += "rank 1: "
		}
		want += "the ranks of RunLocal are goroutines"
		if _, err := w.Replace(); !errors.Is(err, ErrUnavailable) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("rank %d: %v; want %s", w.Rank(), err, want)
		}
	})
}

// unconnected is a device that cannot connect to one peer.
type unconnected struct {
	transport.Device
	peer int
}

func (d unconnected) Facts() *transport.Facts {
	f := *d.Device.Facts()
	f.ConnectNow = nil
	return &f
}

func (d unconnected) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	if peer == d.peer {
		return nil, fmt.Errorf("%w: no connection", transport.ErrTimeout)
	}
	return d.Device.Connect(ctx, peer, address)
}

// Two ranks that live cannot connect to each other. One of them leaves the rounds of Replace, and none waits for it
// there.
func TestReplaceWithoutAConnection(t *testing.T) {
	defer watchdog(t)()
	// In a round of Replace, rank 4 reports to rank 3, the third one of those that live. In an agreement it does not.
	const n, dead, apart, from = 6, 1, 4, 3
	var living sync.WaitGroup
	living.Add(n - 1)
	RunLocal(n, func(w *Comm) error {
		link := func(other int) {
			ok(Sendrecv(w, []byte{1}, other, 1, make([]byte, 1), other, 1))
		}
		if w.Rank() == dead {
			for other := range n {
				if other != dead {
					link(other)
				}
			}
			err := errors.New("the rank has died")
			w.group.Engine.Close(err)
			living.Wait() // with an error, RunLocal ends the other ranks
			return err
		}
		defer living.Done()
		link(dead)
		if _, err := Recv(w, make([]byte, 1), dead, 2); !errors.Is(err, ErrPeerFailed) {
			t.Errorf("rank %d: the receive from the rank that died: %v", w.Rank(), err)
		}
		if d, err := w.Replace(); d != nil || !errors.Is(err, ErrPeerFailed) {
			t.Errorf("rank %d: Replace: %v, %v", w.Rank(), d, err)
		}
		return nil
	}, withDevices(func(rank int, d transport.Device) transport.Device {
		switch rank {
		case from:
			return unconnected{d, apart}
		case apart:
			return unconnected{d, from}
		}
		return d
	}))
}
