package shm

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

// without is for how long it has no descriptors: longer than a rank that is turned away is dialled again.
const without = 3 * turnedAwayFor

// noDescriptors is rank 1. All descriptors but as many as LEFT says are taken while it connects to the rank whose
// address it reads, and that rank to it. It sends a packet, and says what comes of that rank.
func noDescriptors() error {
	left, err := strconv.Atoi(os.Getenv("LEFT"))
	if err != nil {
		return err
	}
	d, err := newDevice(Options{Rank: 1, Size: 2, bySocket: os.Getenv("BY_SOCKET") != ""})
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
	time.AfterFunc(without, giveBack)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l, err := d.Connect(ctx, 0, address)
		if err != nil {
			proc.Send([]byte(err.Error()))
			return
		}
		l.TrySend(&wire.Header{Kind: wire.Eager}, []byte("from 1"))
	}()
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

// A rank that has no free descriptor for a while makes its links later, in both directions: none is gone, none is taken
// for one on another host.
func TestNoDescriptors(t *testing.T) {
	watchdog(t)
	for bySocket, most := range map[string]int{"": 8, "yes": linkDescriptors + 1} {
		for left := range most {
			t.Run(fmt.Sprint(bySocket, left), func(t *testing.T) {
				t.Parallel()
				if err := meetsWithoutDescriptors(t, left, bySocket); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func meetsWithoutDescriptors(t *testing.T, left int, bySocket string) error {
	d := open(t, Options{Rank: 0, Size: 2, bySocket: bySocket != ""})
	p := proc.Start(t, "no descriptors", "LEFT="+strconv.Itoa(left), "BY_SOCKET="+bySocket)
	address := p.Recv()
	p.Send(d.Address())
	p.Recv() // the descriptors are taken
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := d.Connect(ctx, 1, address)
	if err != nil {
		return err
	}
	if !l.TrySend(&wire.Header{Kind: wire.Eager}, []byte("from 0")) {
		return errors.New("a new link takes no packet")
	}
	said := make(chan string, 1)
	go func() { said <- string(p.Recv()) }()
	for came, heard := false, false; !came || !heard; time.Sleep(time.Millisecond) {
		for range d.poll() {
			if in := d.in[len(d.in)-1]; in.Event == transport.Down {
				return in.Err
			}
			came = true
		}
		select {
		case word := <-said:
			if word != "from 0" {
				return errors.New("rank 1: " + word)
			}
			heard = true
		case <-ctx.Done():
			return fmt.Errorf("no packet comes: %v, %v", came, heard)
		default:
		}
	}
	return nil
}
