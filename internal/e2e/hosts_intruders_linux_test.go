package e2e

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// intruder is a client on another host that can reach a rank's port and is not of the job.
type intruder struct {
	t    *testing.T
	h    *netns.Hosts
	from int
	to   string
	open []net.Conn
}

func (s *intruder) leave() {
	for _, c := range s.open {
		c.Close()
	}
	s.open = nil
}

// dial makes n connections one after the other, calls say with each, and leaves the last keep of them open.
func (s *intruder) dial(n, keep int, say func(net.Conn)) {
	s.t.Helper()
	err := s.h.Do(s.from, func() error {
		for range n {
			c, err := net.DialTimeout("tcp", s.to, patience)
			if err != nil {
				return err
			}
			say(c)
			if s.open = append(s.open, c); len(s.open) > keep {
				s.open[0].Close()
				s.open = s.open[1:]
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// alone makes one connection and returns what it receives before the rank closes it.
func (s *intruder) alone(say func(net.Conn)) []byte {
	s.t.Helper()
	s.dial(1, 1, say)
	c := s.open[len(s.open)-1]
	c.SetReadDeadline(time.Now().Add(patience))
	received, err := io.ReadAll(io.LimitReader(c, 1<<20))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.t.Errorf("an intruder's connection is still open after %v", patience)
	}
	return received
}

// opening is one of a handshake, as auth/messages.go draws it, of a side that does not know the secret.
func opening() []byte {
	b := make([]byte, 65)
	rand.Read(b[copy(b, "gorunAU\x01"):])
	return b
}

func descriptors(pid int) int {
	all, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(all)
}

// listens is the port of a rank that is alone on its host.
func listens(t *testing.T, h *netns.Hosts, host int) uint16 {
	t.Helper()
	lines := sockets(t, h, host, "-l")
	if len(lines) != 1 {
		t.Fatalf("h%d listens at %q, want one port", host, lines)
	}
	at := strings.Fields(lines[0])[3]
	port, err := strconv.ParseUint(at[strings.LastIndexByte(at, ':')+1:], 10, 16)
	if err != nil {
		t.Fatalf("%q: %v", at, err)
	}
	return uint16(port)
}

// Intruders on another host do what they can. The job goes on, is right, does not grow, and counts and logs them.
func TestHostsIntruders(t *testing.T) {
	h := netns.Up(t, 3)
	j := runOn(t, h, spread{perHost: []int{1, 1}, role: "hosts traffic", env: []string{"GORUN_LOG=warn"}})
	j.allReady()
	j.progresses()
	pid, err := j.Pid(0)
	must(t, err)
	s := &intruder{t: t, h: h, from: 3, to: netip.AddrPortFrom(h.Address(1), listens(t, h, 1)).String()}
	defer s.leave()
	rank := proc.Info{PID: pid}
	before, open := rank.Memory("VmRSS"), descriptors(pid)
	refused := 0
	noise := make([]byte, 4096)
	rand.Read(noise)
	for _, c := range []struct {
		what string
		say  func(net.Conn)
	}{
		{"random bytes", func(c net.Conn) { c.Write(noise) }},
		{"HTTP", func(c net.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\nHost: h1\r\n\r\n") }},
		{"nothing", func(c net.Conn) { c.(*net.TCPConn).CloseWrite() }},
		{"an opening without the secret", func(c net.Conn) { c.Write(opening()) }},
		{"an opening and random bytes", func(c net.Conn) { c.Write(append(opening(), noise...)) }},
	} {
		if received := s.alone(c.say); len(received) > 0 {
			t.Errorf("a client that sends %s receives %q", c.what, received)
		}
		refused++
	}
	j.progresses()
	s.flood(opening())
	refused += 5000 // many wait in the kernel to be accepted, and are gone before that
	j.progresses()
	if after := rank.Memory("VmRSS"); after > before+32<<20 && !proc.Race {
		t.Errorf("rank 0 had %d MiB before the intruders and has %d MiB", before>>20, after>>20)
	} else {
		t.Logf("rank 0: %d MiB before, %d MiB after", before>>20, after>>20)
	}
	if now := descriptors(pid); now > open+200 {
		t.Errorf("rank 0 had %d descriptors and has %d", open, now)
	}
	s.leave()
	proc.Eventually(t, "the intruders to be gone", func() bool { return descriptors(pid) <= open })
	j.stop()
	m := regexp.MustCompile(`rank 0 is content, refused (\d+)`).FindStringSubmatch(j.Output(0))
	if m == nil {
		return
	}
	if n, _ := strconv.Atoi(m[1]); n < refused || n > 10100 {
		t.Errorf("rank 0 counts %d refused connections, want %d at least", n, refused)
	}
	j.says(0, `WARN.* refused from 10\.77\.0\.3: `, `WARN.* connections refused from 10\.77\.0\.3: `)
	j.says(1, `refused 0$`)
	if lines := strings.Count(j.Output(0), "refused from"); lines > 200 {
		t.Errorf("%d lines of the log about intruders", lines)
	}
}

// flood makes 10,000 connections: silent ones, half an opening, one byte by byte, a whole one.
func (s *intruder) flood(opening []byte) {
	s.dial(2500, 1000, func(net.Conn) {})
	s.dial(2500, 1000, func(c net.Conn) { c.Write(opening[:50]) })
	s.dial(2500, 1000, func(c net.Conn) { c.Write(opening[:1]); c.Write(opening[1:2]) })
	s.dial(2500, 1000, func(c net.Conn) { c.Write(opening) })
	for _, c := range s.open { // slow loris
		c.Write([]byte{1})
	}
}
