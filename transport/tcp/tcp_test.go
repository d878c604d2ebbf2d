package tcp

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

func newDevice(t testing.TB, rank, size int, change ...func(*Options)) *Device {
	t.Helper()
	opt := Options{Rank: rank, Size: size, Job: "test", PeerTimeout: time.Minute,
		Secret: secret(testSecret),
		Log:    func(msg string, args ...any) { t.Log(append([]any{rank, msg}, args...)...) }}
	for _, f := range change {
		f(&opt)
	}
	d, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func pair(change ...func(*Options)) func(*testing.T) transporttest.Pair {
	return func(t *testing.T) transporttest.Pair {
		return transporttest.Pair{A: newDevice(t, 0, 3, change...), B: newDevice(t, 1, 3, change...),
			Third: func() transport.Device { return newDevice(t, 2, 3, change...) }}
	}
}

// suite are the options that hold for every configuration.
func suite(more ...transporttest.Option) []transporttest.Option {
	const abilities = transporttest.ZeroCopy | transporttest.Introducer | transporttest.Refused
	return append(more, transporttest.Has(abilities),
		transporttest.Without("urgent-not-woken-by-plain", "a socket says that bytes are there, and not which"))
}

func TestConformance(t *testing.T) { transporttest.Run(t, pair(), suite()...) }

func TestConformanceFaulty(t *testing.T) { transporttest.RunFaulty(t, pair(), suite()...) }

func TestConformanceTLS(t *testing.T) {
	transporttest.Run(t, pair(func(o *Options) { o.TLS = true }),
		suite(transporttest.Brief(), transporttest.Without("no-allocations", "crypto/tls allocates"))...)
}

// A rank that was dialled and has never asked where the peer is finds out at once that the peer's process has ended.
func TestDialledKnowsWhere(t *testing.T) {
	var took time.Duration
	for range 5 { // a machine that stands still is not a rank that waits, which it does each time
		if took = dialledKnowsWhere(t); took < redialSilence/2 {
			return
		}
	}
	t.Errorf("the peer's end is noticed after %v, as if the rank had waited for it to dial again", took)
}

// dialledKnowsWhere returns after what time.
func dialledKnowsWhere(t *testing.T) time.Duration {
	a, b := newDevice(t, 0, 2), newDevice(t, 1, 2)
	defer b.Close()
	if _, err := a.Connect(context.Background(), 1, b.Address()); err != nil {
		t.Fatal(err)
	}
	var s *session
	for end := time.Now().Add(hang); ; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		s = b.sessions[0]
		b.mu.Unlock()
		if s != nil && s.conn.Load() != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the connection does not come")
		}
	}
	// The end of a process: no goodbye, and no listener any more.
	a.acceptor.Close()
	c := (*a.inUse.Load())[0].Load()
	unix.Shutdown(c.fd, unix.SHUT_RDWR)
	defer a.Close()
	began := time.Now()
	pkts := make([]transport.Packet, 4)
	for n := 0; n == 0 || pkts[0].Event != transport.Down; time.Sleep(time.Millisecond) {
		if n = b.Poll(pkts); time.Since(began) > hang {
			t.Fatal("the peer's end is not noticed")
		}
	}
	took := time.Since(began)
	if !errors.Is(pkts[0].Err, transport.ErrPeerGone) {
		t.Error(pkts[0].Err)
	}
	return took
}

// A card's two parts come back; rubbish has none.
func TestCard(t *testing.T) {
	where, card := unpackCard(packCard([]byte("here"), []byte("me")))
	if string(where) != "here" || string(card) != "me" {
		t.Errorf("%q %q", where, card)
	}
	for _, b := range [][]byte{nil, {1}, {5, 0, 1, 2}, {255, 255}} {
		if where, card := unpackCard(b); where != nil || card != nil {
			t.Errorf("%v: %v %v", b, where, card)
		}
	}
}
