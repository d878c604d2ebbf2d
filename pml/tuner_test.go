package pml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/loop"
)

// sureDevice makes links on which a caller who waits sends no more than sure bytes unmeasured.
type sureDevice struct {
	transport.Device
	sure int
}

func (d *sureDevice) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := d.Device.Connect(ctx, peer, address)
	if err == nil {
		l.Caps().EagerSure = d.sure
	}
	return l, err
}

// Blocking sends of medium length go either way by turns where the link says that it is not sure, and messages of all
// lengths and kinds of sends keep their order. Others are eager; and so is all where the user has set the limit.
func TestMediumSends(t *testing.T) {
	const sure, medium, run = 1000, 8 << 10, 32
	for _, limit := range []int{0, medium} {
		watchdog(t)
		var e []*Engine
		for rank, d := range loop.New(2) {
			e = append(e, newEngine(Config{Rank: rank, Size: 2, Net: &sureDevice{d, sure}, Self: loop.New(1)[0], EagerMax: limit,
				UnexpectedMax: 64 << 20,
				Lookup:        func(_ context.Context, peer int) ([]byte, error) { return e[peer].Address(), nil }}))
		}
		e[0].links.transfers.chooser.Now = func() int64 { return 1 } // neither way is better: all runs
		t.Cleanup(func() {
			for _, e := range e {
				e.Close(errOver)
			}
		})
		var sizes []int
		for range 4 * run { // of the contest
			sizes = append(sizes, 100, medium, medium, 20_000, sure)
		}
		failed := make(chan error, 1)
		go func() {
			for i, n := range sizes {
				if err := e[0].Send(nil, 1, 1, 5, contents(i, n, n), Standard); err != nil {
					failed <- err
					return
				}
				r := e[0].Isend(nil, 1, 1, 5, contents(i, 0, medium), Standard)
				if _, err := r.Wait(); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
		for i, n := range sizes {
			for _, want := range [][]byte{contents(i, n, n), contents(i, 0, medium)} {
				in := make([]byte, 20_000)
				st, err := e[1].Recv(nil, 1, 0, 5, in)
				if err != nil || !bytes.Equal(in[:st.Bytes], want) {
					t.Fatalf("message %d: %+v, %v; want %d bytes", i, st, err, len(want))
				}
			}
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		// The two medium ones of each turn: a run, a quarter and a run announced, a lead-in and a run, the same again,
		// and what is left after another two.
		want := uint64(4 * run) // of 20,000 bytes
		if limit == 0 {
			want += (run/4 + run) + (run/4 + run) + run/2
			want += uint64(len(sizes)) - 1 // Isends but the first, which finds a new link
		}
		if got := e[0].Stats().RendezvousSent; got != want {
			t.Errorf("limit %d: %d messages were announced, want %d", limit, got, want)
		}
	}
}

// Messages of medium length that follow each other without waiting are announced, but for the first, and those of a
// persistent request too; each one that answers another is eager. All keep their order among short ones.
func TestMediumMessagesInARow(t *testing.T) {
	const sure, medium, rounds, row = 1000, 8 << 10, 20, 10
	watchdog(t)
	var e []*Engine
	for rank, d := range loop.New(2) {
		e = append(e, newEngine(Config{Rank: rank, Size: 2, Net: &sureDevice{d, sure}, Self: loop.New(1)[0],
			UnexpectedMax: 64 << 20,
			Lookup:        func(_ context.Context, peer int) ([]byte, error) { return e[peer].Address(), nil }}))
	}
	t.Cleanup(func() {
		for _, e := range e {
			e.Close(errOver)
		}
	})
	for _, n := range []int{1, row} {
		var before [2]uint64
		for rank := range e {
			before[rank] = e[rank].Stats().RendezvousSent
		}
		side := func(rank int) error {
			kept := make([]byte, medium)
			again := e[rank].PrepareSend(nil, 1, 1-rank, 5, kept, Standard)
			defer again.Free()
			for round := range rounds {
				for turn := range 2 {
					if turn != rank {
						for i := range n {
							in := make([]byte, medium)
							st, err := e[rank].Recv(nil, 1, 1-rank, 5, in)
							want := contents(round*row+i, 0, medium-i%3*4000)
							if err != nil || !bytes.Equal(in[:st.Bytes], want) {
								return fmt.Errorf("message %d of round %d: %d bytes, %v", i, round, st.Bytes, err)
							}
						}
						continue
					}
					var set Set
					for i := range n {
						b := contents(round*row+i, 0, medium-i%3*4000)
						if i == 3 {
							copy(kept, b)
							if err := again.Start(); err != nil {
								return err
							}
							set = append(set, again)
							continue
						}
						set = append(set, e[rank].Isend(nil, 1, 1-rank, 5, b, Standard))
					}
					if _, err := e[rank].WaitAll(set, false, func(int, Status, error) {}); err != nil {
						return err
					}
				}
			}
			return nil
		}
		other := make(chan error, 1)
		go func() { other <- side(1) }()
		if err := errors.Join(side(0), <-other); err != nil {
			t.Fatal(err)
		}
		for rank := range e {
			got, want := e[rank].Stats().RendezvousSent-before[rank], uint64(0)
			if n == row {
				want = rounds * (row - 1) // 8192, 4192, 192, … bytes: those of 192 are eager
				for i := range row {
					if medium-i%3*4000 <= sure {
						want -= rounds
					}
				}
			}
			if got != want && (n == row || got > 1) { // the very first one waits for a link
				t.Errorf("rank %d, %d in a row: %d were announced, want %d", rank, n, got, want)
			}
		}
	}
}

// Each look for packets counts, also one that finds nothing: from that the tuner sees which end of a split message is
// done first.
func TestLooksAreCounted(t *testing.T) {
	var e []*Engine
	for rank, d := range loop.New(2) {
		e = append(e, newEngine(Config{Rank: rank, Size: 2, Net: d, Self: loop.New(1)[0],
			Lookup: func(_ context.Context, peer int) ([]byte, error) { return e[peer].Address(), nil }}))
	}
	t.Cleanup(func() {
		for _, e := range e {
			e.Close(errOver)
		}
	})
	e[0].lock()
	defer e[0].unlock()
	for before := e[0].links.transfers.chooser.Looks; e[0].links.transfers.chooser.Looks < before+10; {
		was := e[0].links.transfers.chooser.Looks
		if e[0].progress(); e[0].links.transfers.chooser.Looks != was+1 {
			t.Fatalf("%d looks, and after another one %d", was, e[0].links.transfers.chooser.Looks)
		}
	}
}
