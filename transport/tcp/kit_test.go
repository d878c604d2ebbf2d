package tcp

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// roles are the processes that tests start.
var roles = map[string]func() error{}

func TestMain(m *testing.M) {
	proc.RunRole(roles)
	os.Exit(leak.VerifyMain(m.Run))
}

const testSecret = "the secret of this test, 32 bytes"

// hang is when a test is given up. It says nothing about speed.
const hang = time.Minute

func secret(text string) func() ([]byte, error) {
	return func() ([]byte, error) { return []byte(text), nil }
}

// rank makes a handshaker of a job of four that accepts every rank. It gives up when the test would.
func rank(r int) *handshaker {
	return &handshaker{
		Handshaker: &auth.Handshaker{Protocol: protocol, Job: "job", Rank: r, Size: 4, Limit: hang, Patience: hang,
			Secret: secret("a secret of thirty-two bytes ...")},
		admit:   func(int, history) code { return accepted },
		dropped: func(int) {},
	}
}

// accept is the acceptor's side of a whole handshake.
func (h *handshaker) accept(nc net.Conn) (*handshakeResult, error) {
	s, err := h.Accept(h.wrap(nc))
	if err != nil {
		nc.Close()
		return nil, err
	}
	return h.answer(s)
}

// socketPair is two ends of a TCP connection: the one that has dialled, and the one that was accepted.
func socketPair(t testing.TB) (dialled, taken net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if dialled, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if taken, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); taken.Close() })
	return dialled, taken
}

// between is a way to a port that shows what it passes on, and may change it or wait. At most one connection at a time
// is passed on. to is the address of a device that is reached by this way.
func between(t *testing.T, port string, towards, back func([]byte)) (to func(*Device) []byte) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pass := func(in, out net.Conn, see func([]byte)) {
		defer out.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := in.Read(buf)
			if n > 0 && see != nil {
				see(buf[:n])
			}
			if _, werr := out.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	var all sync.WaitGroup
	t.Cleanup(func() { ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", port)
			if err != nil {
				in.Close()
				continue
			}
			var both sync.WaitGroup
			both.Go(func() { pass(in, out, towards) })
			both.Go(func() { pass(out, in, back) })
			both.Wait()
		}
	})
	here := ln.Addr().(*net.TCPAddr).AddrPort()
	return func(d *Device) []byte { return address{d.local.host, []point{{here, loopback}}}.encode() }
}

var testHistory = history{sent: 11, received: 12, dial: 13, accepted: 14}

// both lets d dial a on a pair of sockets.
func both(t testing.TB, d, a *handshaker) (dr, ar *handshakeResult, derr, aerr error) {
	t.Helper()
	dc, ac := socketPair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ar, aerr = a.accept(ac)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	dr, derr = d.dial(ctx, dc, newToken(), a.Rank, testHistory)
	<-done
	return dr, ar, derr, aerr
}

// talk sends a word.
func talk(t *testing.T, from, to *handshakeResult) {
	t.Helper()
	w, r := io.Writer(from.conn), io.Reader(to.conn)
	if from.tls != nil {
		w, r = from.tls, to.tls
	}
	if _, err := w.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	var b [4]byte
	if _, err := io.ReadFull(r, b[:]); err != nil || string(b[:]) != "word" {
		t.Fatalf("%q, %v", b, err)
	}
}
