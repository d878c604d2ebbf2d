package tcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

func init() { roles["no descriptors"] = noDescriptors }

// noDescriptors is rank 1. All descriptors but as many as LEFT says are taken while a connection is made with the rank
// whose address it reads: by that rank, or with DIALS by this one. It says what comes of it: that a frame has been
// received, or an error.
func noDescriptors() error {
	left, err := strconv.Atoi(os.Getenv("LEFT"))
	if err != nil {
		return err
	}
	d, err := New(Options{Rank: 1, Size: 2, Job: "test", Secret: secret(testSecret), TLS: os.Getenv("TLS") != ""})
	if err != nil {
		return err
	}
	proc.Send(d.Address())
	address, err := proc.Recv()
	if err != nil {
		return err
	}
	giveBack, err := proc.TakeDescriptors(left)
	if err != nil {
		return err
	}
	proc.Send(nil)
	time.AfterFunc(standstill, giveBack)
	if os.Getenv("DIALS") != "" {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if _, err := d.Connect(ctx, 0, address); err != nil {
			proc.Send([]byte(err.Error()))
		}
	}
	for pkts := make([]transport.Packet, 4); ; time.Sleep(time.Millisecond) { // until the test has ended
		for i := range d.Poll(pkts) {
			switch p := &pkts[i]; p.Event {
			case transport.Arrived:
				proc.Send(p.Payload)
			case transport.Down:
				proc.Send([]byte(p.Err.Error()))
			}
		}
	}
}

// A rank that has no free descriptor for a while makes its connections later: no frame is lost, no rank is gone.
func TestNoDescriptors(t *testing.T) {
	for _, secure := range []string{"", "1"} {
		for _, dials := range []string{"", "1"} {
			for left := range 4 {
				t.Run(fmt.Sprintf("TLS=%s DIALS=%s LEFT=%d", secure, dials, left), func(t *testing.T) {
					t.Parallel()
					p := proc.Start(t, "no descriptors", "TLS="+secure, "DIALS="+dials, "LEFT="+strconv.Itoa(left))
					if err := meetsWithoutDescriptors(t, p, secure != "", dials == ""); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

func meetsWithoutDescriptors(t *testing.T, p *proc.Process, secure, dial bool) error {
	d := newDevice(t, 0, 2, func(o *Options) { o.TLS = secure })
	defer d.Close()
	address := p.Recv()
	p.Send(d.Address())
	p.Recv() // the descriptors are taken
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	var l transport.Link
	if dial {
		var err error
		if l, err = d.Connect(ctx, 1, address); err != nil {
			return err
		}
	}
	said := make(chan string, 1)
	go func() { said <- string(p.Recv()) }()
	pkts := make([]transport.Packet, 4)
	for sent := false; ; time.Sleep(time.Millisecond) {
		if l == nil {
			l = d.Link(1)
		}
		if l != nil && !sent {
			sent = l.TrySend(&wire.Header{Kind: wire.Eager}, []byte("here"))
		}
		for i := range d.Poll(pkts) {
			if pkts[i].Event == transport.Down {
				return pkts[i].Err
			}
		}
		select {
		case word := <-said:
			if word != "here" {
				return errors.New("rank 1: " + word)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("no frame comes; sent: %v", sent)
		default:
		}
	}
}
