package pml

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/loop"
)

// quickDevice can connect at once, or says that it cannot.
type quickDevice struct {
	transport.Device
	facts    transport.Facts
	connects atomic.Int32 // calls of Connect
}

func (d *quickDevice) Facts() *transport.Facts { return &d.facts }

func (d *quickDevice) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	d.connects.Add(1)
	return d.Device.Connect(ctx, peer, address)
}

// A peer whose address is known and that can be reached at once is reached in the call that sends to it: nothing is
// looked up, and Connect is not called. Else Connect is, whatever was missing.
func TestConnectNow(t *testing.T) {
	for what, c := range map[string]struct{ able, known bool }{
		"at once": {true, true}, "the device cannot": {false, true}, "the address is not known": {true, false},
	} {
		t.Run(what, func(t *testing.T) {
			now := c.able && c.known
			var lookups atomic.Int32
			engines := make([]*Engine, 2)
			devices := make([]*quickDevice, 2)
			for rank, dev := range loop.New(2) {
				d := &quickDevice{Device: dev, facts: *dev.Facts()}
				d.facts.ConnectNow = func(peer int, address []byte) transport.Link {
					if !c.able {
						return nil
					}
					l, err := dev.Connect(t.Context(), peer, address)
					if err != nil {
						t.Error(err)
					}
					return l
				}
				cfg := Config{Rank: rank, Size: 2, Net: d, Self: loop.New(1)[0], UnexpectedMax: 1 << 20,
					Lookup: func(_ context.Context, peer int) ([]byte, error) {
						lookups.Add(1)
						return engines[peer].Address(), nil
					},
					Known: func(peer int) []byte {
						if !c.known {
							return nil
						}
						return engines[peer].Address()
					}}
				devices[rank], engines[rank] = d, newEngine(cfg)
			}
			defer func() {
				for _, e := range engines {
					e.Close(errors.New("over"))
				}
			}()
			for _, size := range []int{8, 1 << 20} { // eager from rank 0, rendezvous from rank 1
				from, to := engines[0], 1
				if size > 8 {
					from, to = engines[1], 0
				}
				done := make(chan error, 1)
				want := bytes.Repeat([]byte{7}, size)
				go func() { done <- from.Send(nil, 1, to, 5, want, Standard) }()
				got := make([]byte, size)
				if _, err := engines[to].Recv(nil, 1, 1-to, 5, got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes: %v", size, err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			for rank, d := range devices {
				if n := d.connects.Load(); (n == 0) != now {
					t.Errorf("rank %d: Connect was called %d times", rank, n)
				}
			}
			if n := lookups.Load(); (n == 0) != c.known {
				t.Errorf("%d addresses were looked up", n)
			}
		})
	}
}
