package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// Probe listens where ranks of this host would, and tries where they would dial, without a job: gorun doctor asks it
// what is in the way. It tells everybody who connects its token, and nothing else.
type Probe struct {
	// Patience is how long an address may take for all of its answer.
	Patience time.Duration

	nets  localNets
	token string
	lns   []*filteredListener
	wg    sync.WaitGroup
}

// Attempt is what became of one address.
type Attempt struct {
	To    netip.AddrPort
	Fault Fault
	Text  string // the error; "" if there is no fault
}

// Fault is why an address cannot be used.
type Fault string

const (
	NoFault     Fault = ""
	Silent      Fault = "no answer"                             // something drops what is sent there
	Refused     Fault = "refused"                               // by the host, or by something before it
	Unreachable Fault = "no machine answers for the address"    // its card is silent, or a router knows no way
	NoRoute     Fault = "no route"                              // from here; nothing is lost by trying
	Stranger    Fault = "another program answers there"         // such as of another host with that address
	Stuck       Fault = "short frames arrive, long ones do not" // in one direction or the other
	OtherFault  Fault = "failed"
)

// bulk is more than any frame, and less than what a socket buffers by itself.
const bulk = 64 << 10

// NewProbe listens at both ends of a range of ports, since a firewall may let in a part of it.
func NewProbe(f Filter, ports PortRange, token string, patience time.Duration) (*Probe, error) {
	nets, err := look(f)
	if err != nil {
		return nil, err
	}
	p := &Probe{nets: nets, token: token, Patience: patience}
	for _, r := range ports.ends() {
		ln, err := listen(f, r)
		if err != nil && len(p.lns) == 0 {
			return nil, err
		}
		if err == nil {
			p.lns = append(p.lns, ln)
			p.wg.Go(func() { p.serve(ln) })
		}
	}
	return p, nil
}

// Count is how many ports the range has; 0: any.
func (r PortRange) Count() int {
	if r.lo == 0 {
		return 0
	}
	return int(r.hi-r.lo) + 1
}

// ends are two halves of the range, the first and the last port of which are nearest to its ends. Any: one.
func (r PortRange) ends() []PortRange {
	if r.lo == r.hi {
		return []PortRange{r}
	}
	middle := r.lo + (r.hi-r.lo)/2
	return []PortRange{{r.lo, middle}, {middle + 1, r.hi}}
}

// Addresses are where this host is reached: one for each port, as a rank publishes it.
func (p *Probe) Addresses() (all [][]byte) {
	for _, ln := range p.lns {
		all = append(all, p.nets.publish(ln).encode())
	}
	return all
}

// Points are the addresses in what Addresses has returned on some host.
func Points(address []byte) (all []netip.Addr, err error) {
	a, err := parseAddress(address)
	for _, p := range a.points {
		all = append(all, p.Addr())
	}
	return all, err
}

// Close ends listening.
func (p *Probe) Close() {
	for _, ln := range p.lns {
		ln.Close()
	}
	p.wg.Wait()
}

// serve answers until ln is closed.
func (p *Probe) serve(ln *filteredListener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		if !ln.allows(conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()) {
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(p.Patience))
			if _, err := io.WriteString(conn, p.token); err != nil {
				return
			}
			if _, err := conn.Write(make([]byte, bulk)); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, conn, bulk); err == nil {
				conn.Write([]byte{1})
			}
		})
	}
}

// Try tries the addresses that a rank here would try to reach a rank that has published peer, in that order. All are
// tried, at the same time.
func (p *Probe) Try(ctx context.Context, peer []byte, token string) ([]Attempt, error) {
	a, err := parseAddress(peer)
	if err != nil {
		return nil, err
	}
	to := order(a, p.nets)
	all := make([]Attempt, len(to))
	var wg sync.WaitGroup
	for i, addr := range to {
		wg.Go(func() { all[i] = p.tryOne(ctx, addr, token) })
	}
	wg.Wait()
	return all, nil
}

func (p *Probe) tryOne(ctx context.Context, to netip.AddrPort, token string) Attempt {
	start := time.Now()
	dialer := net.Dialer{Timeout: p.Patience, KeepAlive: -1}
	dialer.SetMultipathTCP(false)
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return Attempt{to, faultOf(err, time.Since(start)), err.Error()}
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(p.Patience))
	reply := make([]byte, len(token))
	if n, err := io.ReadFull(conn, reply); err != nil && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return Attempt{to, Silent, "it takes the connection, and says nothing"}
	} else if err != nil || string(reply) != token {
		return Attempt{to, Stranger, fmt.Sprintf("%v: another program answers there", to)}
	}
	conn.SetDeadline(time.Now().Add(p.Patience))
	if _, err := io.CopyN(io.Discard, conn, bulk); err != nil {
		return Attempt{to, Stuck, "its long frames do not arrive here: " + err.Error()}
	}
	if _, err = conn.Write(make([]byte, bulk)); err == nil {
		_, err = io.ReadFull(conn, reply[:1])
	}
	if err != nil {
		return Attempt{to, Stuck, "long frames do not arrive there: " + err.Error()}
	}
	return Attempt{To: to}
}

// rejected is how soon a firewall says that a host cannot be reached. The kernel asks a while for a network card.
const rejected = 200 * time.Millisecond

func faultOf(err error, took time.Duration) Fault {
	var timeout net.Error
	isAny := func(all ...syscall.Errno) bool {
		for _, errno := range all {
			if errors.Is(err, errno) {
				return true
			}
		}
		return false
	}
	switch {
	case isAny(syscall.ECONNREFUSED, syscall.ECONNRESET):
		return Refused
	case isAny(syscall.EHOSTUNREACH) && took < rejected, isAny(syscall.EACCES, syscall.EPERM):
		return Refused
	case isAny(syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN):
		return Unreachable
	case isAny(syscall.ENETUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT):
		return NoRoute
	case errors.As(err, &timeout) && timeout.Timeout():
		return Silent
	}
	return OtherFault
}
