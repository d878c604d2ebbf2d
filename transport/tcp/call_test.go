package tcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// sameHost is the address of a rank on d's host that is reached there.
func sameHost(d *Device, to netip.AddrPort) []byte {
	return address{host: d.local.host, points: []point{{to, loopback}}}.encode()
}

// A rank that cannot dial a peer calls it, and the peer's connection is theirs, whichever of them has the lower rank,
// and whether what stands between them refuses or drops.
func TestCalledPeerDials(t *testing.T) {
	refusing, dropping := refuses(t), opens(t, stalls)
	for _, caller := range []int{0, 1} {
		for name, to := range map[string]netip.AddrPort{"refused": refusing, "silent": dropping} {
			t.Run(fmt.Sprintf("rank %d is %s", caller, name), func(t *testing.T) {
				t.Parallel()
				b := newDevice(t, 1-caller, 2)
				defer b.Close()
				var called sync.WaitGroup
				defer called.Wait()
				var a *Device
				a = newDevice(t, caller, 2, func(o *Options) {
					o.Call = func(context.Context, int) error {
						called.Go(func() { b.Connect(context.Background(), caller, a.Address()) })
						return nil
					}
				})
				defer a.Close()
				ctx, cancel := context.WithTimeout(context.Background(), hang)
				defer cancel()
				if _, err := a.Connect(ctx, 1-caller, sameHost(a, to)); err != nil {
					t.Fatal(err)
				}
				a.mu.Lock()
				defer a.mu.Unlock()
				if a.session(1 - caller).last.own {
					t.Error("the connection is not the peer's")
				}
			})
		}
	}
}

// A peer that refuses is gone if the launcher says so, or cannot say. If it is told to connect and does not, it lives:
// the error is another.
func TestRefusalIsNoEnd(t *testing.T) {
	to := refuses(t)
	for _, tc := range []struct {
		name string
		says error
		gone bool
		want string
	}{
		{"ended", transport.Gone("the launcher says so"), true, "rank 1: the launcher says so"},
		{"not told", errors.ErrUnsupported, true, "connection refused (a firewall looks the same: gorun doctor"},
		{"told", nil, false, "was told to connect by itself"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDevice(t, 0, 2, func(o *Options) {
				o.PeerTimeout = 50 * time.Millisecond
				o.Call = func(_ context.Context, peer int) error {
					if peer != 1 {
						t.Errorf("rank %d is called", peer)
					}
					return tc.says
				}
			})
			defer d.Close()
			_, err := d.Connect(context.Background(), 1, sameHost(d, to))
			if err == nil || errors.Is(err, transport.ErrPeerGone) != tc.gone || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("gone %v, want %v, and %q in: %v", errors.Is(err, transport.ErrPeerGone), tc.gone, tc.want, err)
			}
			if !tc.gone && !errors.Is(err, transport.ErrTimeout) {
				t.Errorf("no ErrTimeout: %v", err)
			}
		})
	}
}

// The launcher says that the peer has ended while another process, which has its port now, leaves a connection
// unanswered. That ends the dial, however long a process may stand still.
func TestEndedBehindASilentPort(t *testing.T) {
	asked := 0
	d := newDevice(t, 0, 2, func(o *Options) {
		o.Timeout, o.PeerTimeout = time.Hour, time.Hour
		o.Call = func(context.Context, int) error {
			if asked++; asked == 1 { // the launcher hears of the end later than this rank
				return nil
			}
			return transport.Gone("the launcher says so")
		}
	})
	defer d.Close()
	to := sameHost(d, opens(t, stalls))
	dialled := make(chan error, 1)
	go func() {
		_, err := d.Connect(context.Background(), 1, to)
		dialled <- err
	}()
	select {
	case err := <-dialled:
		if !errors.Is(err, transport.ErrPeerGone) || !strings.Contains(err.Error(), "rank 1: the launcher says so") {
			t.Errorf("the dial ends with %v", err)
		}
	case <-time.After(hang):
		t.Error("the dial goes on")
	}
}

// A refusal at an address that this host has too is this host's own, and says nothing about a peer on another host.
func TestRefusedByItself(t *testing.T) {
	d := newDevice(t, 0, 2)
	defer d.Close()
	var own netip.Addr
	for _, n := range d.local.networks {
		if n.class != loopback {
			own = n.prefix.Addr()
		}
	}
	if !own.IsValid() {
		t.Skip("this host has no address but loopback")
	}
	_, err := d.Connect(context.Background(), 1, address{points: []point{{netip.AddrPortFrom(own, 1), plain}}}.encode())
	want := "an address of this host too"
	if err == nil || errors.Is(err, transport.ErrPeerGone) || !strings.Contains(err.Error(), want) {
		t.Errorf("gone %v; want %q in: %v", errors.Is(err, transport.ErrPeerGone), want, err)
	}
}
