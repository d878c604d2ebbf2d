package tcp

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

func init() { roles["stopped"] = stopped }

// hasty sets limits that a process which is stopped for standstill exceeds.
func hasty(o *Options) {
	o.handshakeLimit, o.PeerTimeout = 100*time.Millisecond, 300*time.Millisecond
}

const standstill = time.Second

// stopped is rank 1. It connects to the address that it reads, unless that is empty, and says what has come of it.
func stopped() error {
	opt := Options{Rank: 1, Size: 2, Job: "test", Secret: secret(testSecret), TLS: os.Getenv("TLS") != ""}
	hasty(&opt)
	d, err := New(opt)
	if err != nil {
		return err
	}
	proc.Send(d.Address())
	address, err := proc.Recv()
	if err != nil {
		return err
	}
	if len(address) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		_, err = d.Connect(ctx, 0, address)
	}
	proc.Send([]byte(fmt.Sprint(err)))
	for pkts := make([]transport.Packet, 4); ; time.Sleep(time.Millisecond) { // until the test has ended
		d.Poll(pkts)
	}
}

// A process that is stopped at first contact, in a debugger for example, is waited for as long as the caller says.
func TestStopped(t *testing.T) {
	for _, secure := range []string{"", "1"} {
		t.Run("acceptor TLS="+secure, func(t *testing.T) {
			t.Parallel()
			d := newDevice(t, 0, 2, hasty, func(o *Options) { o.TLS = secure != "" })
			defer d.Close()
			p := proc.Start(t, "stopped", "TLS="+secure)
			address := p.Recv()
			standStill(t, p)
			ctx, cancel := context.WithTimeout(context.Background(), hang)
			defer cancel()
			if _, err := d.Connect(ctx, 1, address); err != nil {
				t.Error(err)
			}
		})
		for number, message := range []string{"opening", "confirmation", "TLS"} {
			if message == "TLS" && secure == "" {
				continue
			}
			t.Run(fmt.Sprintf("dialler TLS=%s after its %s", secure, message), func(t *testing.T) {
				t.Parallel()
				d := newDevice(t, 0, 2, hasty, func(o *Options) { o.TLS = secure != "" })
				defer d.Close()
				p := proc.Start(t, "stopped", "TLS="+secure)
				p.Recv()
				messages := 0
				to := between(t, portOf(t, d), func([]byte) {
					if messages++; messages == number+1 {
						standStill(t, p)
					}
				}, nil)
				p.Send(to(d))
				if said := string(p.Recv()); said != "<nil>" {
					t.Error(said)
				}
			})
		}
	}
}

// A connection that is lost while the peer is stopped is made again when it goes on.
func TestStoppedRedial(t *testing.T) {
	d := newDevice(t, 0, 2, hasty)
	defer d.Close()
	p := proc.Start(t, "stopped", "TLS=")
	address := p.Recv()
	p.Send(nil)
	p.Recv()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if _, err := d.Connect(ctx, 1, address); err != nil {
		t.Fatal(err)
	}
	standStill(t, p)
	s := d.session(1)
	lost := s.conn.Load()
	unix.Shutdown(lost.fd, unix.SHUT_RDWR)
	pkts := make([]transport.Packet, 4)
	for c := lost; c == nil || c == lost; c = s.conn.Load() {
		if n := d.Poll(pkts); n > 0 || ctx.Err() != nil {
			t.Fatalf("%d packets, the first is %v: %v", n, pkts[0].Event, pkts[0].Err)
		}
		time.Sleep(time.Millisecond)
	}
}

// standStill stops a process for a while.
func standStill(t *testing.T, p *proc.Process) {
	p.Signal(syscall.SIGSTOP)
	timer := time.AfterFunc(standstill, func() { p.Signal(syscall.SIGCONT) })
	t.Cleanup(func() { timer.Stop() })
}
