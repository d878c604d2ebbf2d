package reach

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// readmitting returns an Acceptor that lets agents come again, and what dials it for a host.
func readmitting(t *testing.T, hold time.Duration) (*Acceptor, func(host string) error) {
	t.Helper()
	ln := listener(t)
	c := NewCall("job", me(t).Build, []string{ln.Addr().String()})
	d := Listen(ln, AcceptorOptions{Call: c, Hosts: []string{"a"}, Readmit: true, Log: func(string, ...any) {}})
	d.Hold(hold)
	t.Cleanup(d.Close)
	return d, func(host string) error {
		c := c
		c.Host = host
		conn, err := c.Dial(t.Context())
		if err == nil {
			t.Cleanup(func() { conn.Close() })
		}
		return err
	}
}

// An agent comes again when it is expected again, and not before; one that has come early waits until then.
func TestReadmit(t *testing.T) {
	d, dial := readmitting(t, time.Hour)
	open := func(host string) {
		t.Helper()
		e, err := d.Open(t.Context(), host)
		if err != nil {
			t.Fatal(err)
		}
		e.Close()
	}
	if err := dial("a"); err != nil {
		t.Fatal(err)
	}
	open("a")
	early := make(chan error, 1)
	go func() { early <- dial("a") }()
	for holds := false; !holds; time.Sleep(time.Millisecond) { // until it waits
		d.mu.Lock()
		select {
		case err := <-early:
			t.Fatalf("a second agent of a host has its answer: %v", err)
		default:
		}
		holds = d.waiting > 0
		d.mu.Unlock()
	}
	d.Expect("a")
	if err := <-early; err != nil {
		t.Fatal(err)
	}
	open("a")

	if err := dial("a/1"); err == nil || !strings.Contains(err.Error(), "the job has no host") {
		t.Errorf("an agent that is not expected: %v", err)
	}
	d.Expect("a/1")
	if err := dial("a/1"); err != nil {
		t.Fatal(err)
	}
	open("a/1")
	d.Forget("a/1")
	if err := dial("a/1"); err == nil || !strings.Contains(err.Error(), "the job has no host") {
		t.Errorf("an agent that is not expected any more: %v", err)
	}
	d.Expect("b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Open(ctx, "b"); err == nil || !strings.Contains(err.Error(), "not come in time") {
		t.Errorf("an agent that does not come: %v", err)
	}
}

// One that waits is told after a while why it is not let in, and at the end that this is the end.
func TestReadmitNot(t *testing.T) {
	d, dial := readmitting(t, 50*time.Millisecond)
	if err := dial("a"); err != nil {
		t.Fatal(err)
	}
	err := dial("a")
	if !errors.Is(err, ErrTaken) || !Again(err, true) || !strings.Contains(err.Error(), "has an agent already") {
		t.Errorf("a second agent: %v", err)
	}
	d.Hold(time.Hour)
	late := make(chan error, 1)
	go func() { late <- dial("a") }()
	for holds := false; !holds; time.Sleep(time.Millisecond) {
		d.mu.Lock()
		holds = d.waiting > 0
		d.mu.Unlock()
	}
	d.Close()
	if err := <-late; !errors.Is(err, ErrOver) {
		t.Errorf("an agent that waits when the job ends: %v", err)
	}
}
