//go:build ucx && linux && cgo

package ucx

import (
	"bytes"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// elsewhere is an address as if its rank were on another host, whose end UCX sees.
func elsewhere(t testing.TB, address []byte) []byte {
	c, err := readCard(address, libraryVersion())
	if err != nil {
		t.Fatal(err)
	}
	c.Host = "another"
	return c.encode()
}

// A rank that is found idle again and again while it sends its first message does its peer no harm: UCX's TCP must not
// be asked to flush what it has sent while an endpoint is being connected.
func TestFirstContact(t *testing.T) {
	t.Setenv("UCX_TLS", "tcp,self")
	out, in := bytes.Repeat([]byte{1}, 1<<20), make([]byte, 1<<20)
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	rounds := 100
	if testing.Short() {
		rounds = 12
	}
	for i := range rounds {
		a, b := newRank(t, 0), newRank(t, 1)
		to, from := b.Address(), a.Address()
		if i%2 == 1 {
			to, from = elsewhere(t, to), elsewhere(t, from)
		}
		a.reach(1, to)
		if i%4 < 2 {
			b.reach(0, from)
		}
		st, err := a.Send(1, m, transport.HostMem(out[:1<<(i%3*10)]), i%3 == 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		polls := 0
		poll := func() {
			for range 1 + 10*(i%7) {
				polls++
				a.sleep.looked.Store(polls > i)
				a.poll()
			}
			b.poll()
		}
		for range 40 {
			poll()
		}
		_, got, err := b.Post(m, transport.HostMem(in), 1, false)
		if err != nil {
			t.Fatal(err)
		}
		for limit := time.Now().Add(patience); got == transport.Started && len(b.in) == 0 ||
			st == transport.Started && len(a.in) == 0 || a.w.settle() != settled; {
			poll()
			a.poll()
			if time.Now().After(limit) {
				t.Fatalf("round %d: nothing comes", i)
			}
		}
		if len(b.in) > 0 && b.in[0].Err != nil {
			t.Fatalf("round %d: %v", i, b.in[0].Err)
		}
		a.Close()
		b.Close()
	}
}
