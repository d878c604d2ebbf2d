package auth

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// These are all fuzz targets of authentication: the transports and the wire-up have none of their own for what comes
// before the first byte of their protocols.

// against runs f on one end of a pipe whose other end says b, hears anything, and hangs up.
func against(b []byte, f func(conn net.Conn)) {
	ours, theirs := net.Pipe()
	var other sync.WaitGroup
	other.Go(func() {
		theirs.Write(b)
		theirs.Close()
	})
	other.Go(func() { io.Copy(io.Discard, theirs) })
	f(ours)
	ours.Close()
	other.Wait()
}

// FuzzAccept is a dialler without the secret. It may have a good opening, which it has overheard, before what it says.
func FuzzAccept(f *testing.F) {
	said := record(f, rank(1), rank(2))
	for _, n := range []int{0, 1, preambleSize, openingSize, len(said)} {
		f.Add(said[:n], false)
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add(bytes.Repeat([]byte{0xff}, 100), true)
	f.Add(said[openingSize:], true)
	f.Add(append([]byte{16, 0}, make([]byte, 16)...), true)
	f.Fuzz(func(t *testing.T, b []byte, overheard bool) {
		if overheard {
			b = append(said[:openingSize:openingSize], b...)
		}
		against(b, func(conn net.Conn) {
			if s, err := rank(2, within(time.Second)).Accept(conn); err == nil || Why(err) == accepted {
				t.Errorf("was let in: %+v, %v", s, err)
			}
		})
	})
}

// FuzzDial is an acceptor without the secret.
func FuzzDial(f *testing.F) {
	s := raw(2, nil, false)
	good := bytes.Clone(s.buf[:s.putFirst(labelReply, []byte{0})]) // to another opening
	f.Add(good)
	f.Add(good[:20])
	f.Add(preamble[:])
	f.Add(append(bytes.Clone(preamble[:7]), 9))
	f.Add(append(bytes.Clone(good), 16, 0, 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		against(b, func(conn net.Conn) {
			if s, err := rank(1, within(time.Second)).Dial(context.Background(), conn, 2); err == nil || s != nil {
				t.Errorf("believed %+v", s)
			}
		})
	})
}

// FuzzMember is a process that knows the secret and says anything else with it: whatever it claims to be, the rank that
// comes out is one of the job's others, and its payload is what it said.
func FuzzMember(f *testing.F) {
	f.Add(uint32(1), uint32(2), false, []byte("payload"), []byte(nil))
	f.Add(uint32(2), uint32(2), false, []byte(nil), []byte(nil))
	f.Add(uint32(1<<31), uint32(2), true, []byte(nil), []byte{1})
	f.Add(uint32(1), uint32(2), false, make([]byte, MaxPayload), []byte{0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, from, to uint32, secure bool, payload, rubbish []byte) {
		payload = payload[:min(len(payload), MaxPayload)]
		dc, ac := net.Pipe()
		var dialler sync.WaitGroup
		dialler.Go(func() {
			defer dc.Close()
			s := raw(1, dc, true)
			if _, err := dc.Write(s.buf[:s.putFirst(labelOpening,
				identity{int(from), int(to), secure}.encode())]); err != nil {
				return
			}
			if _, err := io.ReadFull(dc, s.buf[:replySize]); err != nil {
				return
			}
			if b, ok := s.unseal(labelReply, sealedAt, replySize); !ok || b[0] != 0 {
				return
			}
			dc.Write(append(bytes.Clone(s.buf[:s.putPayload(labelConfirmation, payload)]), rubbish...))
		})
		s, err := rank(2, within(time.Second)).Accept(ac)
		if fits := from < 4 && from != 2 && to == 2 && !secure; fits != (err == nil) {
			t.Errorf("from %d to %d, TLS %v: %v", from, to, secure, err)
		}
		if err == nil && (s.Peer != int(from) || !bytes.Equal(s.Payload, payload)) {
			t.Errorf("rank %d said %q", s.Peer, s.Payload)
		}
		ac.Close()
		dialler.Wait()
	})
}
