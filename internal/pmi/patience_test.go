package pmi

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// piped starts a server and joins size clients over net.Pipe, which a synctest bubble knows.
func piped(t *testing.T, size int) (*Server, []*Client) {
	t.Helper()
	s := NewServer(size, Options{})
	var served sync.WaitGroup
	clients := make([]*Client, size)
	for rank := range clients {
		near, far := net.Pipe()
		served.Go(func() { s.ServeConn(rank, far) })
		c := newClient(near, rank, size)
		c.start()
		if err := c.handshake(t.Context(), from(map[string]string{EnvJob: s.Name()})); err != nil {
			t.Fatal(err)
		}
		clients[rank] = c
	}
	t.Cleanup(func() {
		for _, c := range clients {
			c.Close()
		}
		s.Close()
		served.Wait()
	})
	return s, clients
}

// A rank in the barrier waits for as long as another one works.
func TestFenceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, clients := piped(t, 2)
		each(clients, func(c *Client) {
			if c.Rank() == 1 {
				time.Sleep(24 * time.Hour)
			}
			if err := c.Fence(context.Background()); err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
			if err := c.Finalize(t.Context()); err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
		})
	})
}

// A Get that is given up breaks nothing: its reply, which comes late, is no other request's.
func TestGetGivenUp(t *testing.T) {
	near, far := sockets(t)
	c := newClient(near, 0, 2)
	c.name = "k"
	c.start()
	defer c.Close()
	asked := make(chan struct{})
	go func() {
		f := newFake(t, far)
		f.script(`> cmd=get kvsname=k key=a\n`)
		close(asked)
	}()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	go func() { <-asked; cancel(enough) }()
	if _, err := c.Get(ctx, "a"); !errors.Is(err, enough) {
		t.Fatalf("a Get whose context has ended: %v", err)
	}
	if _, err := c.Get(ctx, "b"); !errors.Is(err, enough) {
		t.Fatalf("a Get behind it: %v", err)
	}
	go newFake(t, far).script(`
		< cmd=get_result rc=0 value=vAAf4gA\n
		> cmd=get kvsname=k key=b\n
		< cmd=get_result rc=0 value=vAQ\n
		> cmd=get kvsname=k key=c\n
		< cmd=get_result rc=-1 value=unknown\n`)
	if v, err := c.Get(t.Context(), "b"); err != nil || !bytes.Equal(v, []byte{1}) {
		t.Errorf("b is %v, %v", v, err)
	}
	if _, err := c.Get(t.Context(), "c"); !errors.Is(err, ErrNoKey) {
		t.Errorf("c: %v", err)
	}
	select {
	case <-c.Lost():
		t.Error("Lost fired")
	default:
	}
}

// A launcher that does not read delays Abort for a moment only, also behind a line that it has not taken.
func TestAbortBehindFullSocket(t *testing.T) {
	near, far := net.Pipe() // which holds no byte
	defer far.Close()
	c := newClient(near, 0, 1)
	c.start()
	putting := make(chan error, 1)
	go func() { putting <- c.Put(context.Background(), "k", nil) }()
	for !c.waiting.Load() {
		time.Sleep(time.Millisecond)
	}
	aborted := make(chan error, 1)
	go func() { aborted <- c.Abort(7, "") }()
	for _, failed := range []chan error{putting, aborted} {
		select {
		case err := <-failed:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
		case <-time.After(hang):
			t.Fatal("hangs")
		}
	}
	c.Close()
}
