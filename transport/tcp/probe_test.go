package tcp

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// probe listens at loopback, in the range if it is not empty.
func probe(t *testing.T, ports string, token string) *Probe {
	t.Helper()
	r, err := ParsePorts(ports)
	if err != nil {
		t.Fatal(err)
	}
	f, err := ParseInterfaces("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProbe(f, r, token, hang)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// listening is what a host publishes that listens here, at another address.
func listening(p *Probe, addr netip.AddrPort) []byte {
	return address{p.nets.host, []point{{addr, loopback}}}.encode()
}

// A probe listens where a rank would, at both ends of the range, and finds a rank of another host that listens so.
func TestProbe(t *testing.T) {
	const token = "the token of this host"
	a, b := probe(t, "", "another one"), probe(t, "42100-42199", token)
	if len(a.Addresses()) != 1 || len(b.Addresses()) != 2 {
		t.Fatalf("%d and %d ports", len(a.Addresses()), len(b.Addresses()))
	}
	for i, peer := range b.Addresses() {
		of, err := parseAddress(peer)
		if err != nil {
			t.Fatal(err)
		}
		if port := of.points[0].Port(); int(port) < 42100+50*i || int(port) > 42149+50*i {
			t.Errorf("port %d of the range is %d", i, port)
		}
		all, err := a.Try(context.Background(), peer, token)
		if err != nil || len(all) == 0 || all[0].Fault != NoFault {
			t.Errorf("%+v, %v", all, err)
		}
		if all, _ := a.Try(context.Background(), peer, "no such token, here"); all[0].Fault != Stranger {
			t.Errorf("a stranger: %+v", all)
		}
	}
	if _, err := a.Try(context.Background(), []byte("no address"), token); err == nil {
		t.Error("what is no address is tried")
	}
	r, _ := ParsePorts("42100-42199")
	if r.Count() != 100 || (PortRange{}).Count() != 0 {
		t.Errorf("%v has %d ports", r, r.Count())
	}
}

// Small frames that pass and long ones that do not are told from ports that are shut, and these from strangers.
func TestProbeFaults(t *testing.T) {
	const token = "the token of this host"
	a := probe(t, "", token)
	a.Patience = 200 * time.Millisecond
	for _, c := range []struct {
		want  Fault
		serve func(net.Conn)
	}{
		{Refused, nil},
		{Silent, func(net.Conn) {}},
		{Stuck, func(c net.Conn) { io.WriteString(c, token) }},
		{Stuck, func(c net.Conn) { io.WriteString(c, token); c.Write(make([]byte, bulk)) }},
		{Stranger, func(c net.Conn) { io.WriteString(c, strings.ToUpper(token)) }},
		{Stranger, func(c net.Conn) { c.Close() }},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		to := ln.Addr().(*net.TCPAddr).AddrPort()
		done := make(chan struct{})
		if c.serve == nil {
			ln.Close()
			close(done)
		} else {
			go func() {
				defer close(done)
				if conn, err := ln.Accept(); err == nil {
					c.serve(conn)
					io.Copy(io.Discard, io.LimitReader(conn, 1)) // until the other side gives up
					conn.Close()
				}
			}()
		}
		all, err := a.Try(context.Background(), listening(a, to), token)
		if err != nil || len(all) != 1 || all[0].Fault != c.want {
			t.Errorf("%+v, %v, want %q", all, err, c.want)
		}
		ln.Close()
		<-done
	}
}
