package pml

import (
	"bytes"
	"context"
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
		t.Cleanup(func() {
			for _, e := range e {
				e.Close(errOver)
			}
		})
		var sizes []int
		for range 4 * run { // of the contest: a run either way, and the next one's lead-in
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
				if _, err := e[0].Wait(r); err != nil {
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
		// The two medium ones of each turn: a run that is measured, then a lead-in and a run announced, and so on.
		want := uint64(4 * run) // of 20,000 bytes
		if limit == 0 {
			want += 4 * run
		}
		if got := e[0].Stats().RendezvousSent; got != want {
			t.Errorf("limit %d: %d messages were announced, want %d", limit, got, want)
		}
	}
}
