package tcp

import (
	"context"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// A link has no connection that is not in the set: a send that filled the socket would have asked the set in vain to
// report room. Sends hold outMu, so a link that has a connection here, while this test holds it, could send by it.
func TestConnectionIsInTheSetBeforeItSends(t *testing.T) {
	var d [2]*Device
	for i := range d {
		var err error
		if d[i], err = New(Options{Rank: i, Size: 2, Job: "test", Secret: secret(testSecret)}); err != nil {
			t.Fatal(err)
		}
		defer d[i].Close()
	}
	a := d[0]
	a.outMu.Lock()
	connected := make(chan error, 1)
	go func() {
		_, err := a.Connect(context.Background(), 1, d[1].Address())
		connected <- err
	}()
	entered := func() *conn {
		for i := range *a.inUse.Load() {
			if c := (*a.inUse.Load())[i].Load(); c != nil {
				return c
			}
		}
		return nil
	}
	proc.Eventually(t, "the connection has a slot", func() bool { return entered() != nil })
	time.Sleep(20 * time.Millisecond)
	early := entered().s.conn.Load() != nil
	a.outMu.Unlock()
	if early {
		t.Error("the link has a connection while no send could go on")
	}
	if err := <-connected; err != nil {
		t.Fatal(err)
	}
}
