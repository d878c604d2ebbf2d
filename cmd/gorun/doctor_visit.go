package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/spf13/cobra"
)

// gorun doctor runs itself on each host as gorun __doctor. Over its standard streams go lines of JSON: first a greeting
// of the host, then a question and its answer, in turn, until the standard input ends.
const doctorWord = "__doctor"

const (
	// sayMax is the longest line; what a host says is not trusted.
	sayMax = 1 << 20
	// complaintMax is how much is kept of what a remote shell says.
	complaintMax = 64 << 10
)

// stepLimit is how long a host may take for an answer, dialLimit how long it tries to reach another, or to end. Tests
// set them.
var (
	stepLimit = 30 * time.Second
	dialLimit = 5 * time.Second
)

// greeting is what a host says first.
type greeting struct {
	Facts facts  `json:"facts"`
	Port  int    `json:"port"` // where it listens while it is visited
	Token string `json:"token"`
}

// question is one to a host: the time, if Dial is nil.
type question struct {
	Dial  []string `json:"dial,omitempty"`
	Token string   `json:"token,omitempty"`
}

type answer struct {
	Now   int64  `json:"now"` // nanoseconds of its clock
	Error string `json:"error,omitempty"`
}

// visit is a host that is looked at.
type visit struct {
	name   string
	facts  facts
	port   int
	token  string
	skew   time.Duration // its clock less ours
	err    error         // it could not be reached, or what it said makes no sense
	stderr string        // of the remote shell, if err is set

	ln  net.Listener // of this host
	cmd *exec.Cmd    // of another host
	in  io.WriteCloser
	out chan []byte // lines; closed at the end of the stream
	end io.Closer   // of out
}

// complaint is the beginning of what is written to it.
type complaint struct{ text bytes.Buffer }

func (c *complaint) Write(b []byte) (int, error) {
	c.text.Write(b[:min(len(b), complaintMax-c.text.Len())])
	return len(b), nil
}

// visitHere looks at this host.
func visitHere() (*visit, error) {
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	v := &visit{name: "localhost", token: rand.Text(), ln: ln, port: ln.Addr().(*net.TCPAddr).Port}
	v.facts = readFacts(os.Environ(), readMachine(topology.Source{Root: "/", Addrs: topology.Addrs}, askVerbs))
	go serveToken(ln, v.token)
	return v, nil
}

// serveToken says to each connection which visit it has reached, until ln is closed.
func serveToken(ln net.Listener, token string) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		conn.SetDeadline(time.Now().Add(dialLimit))
		io.WriteString(conn, token+"\n")
		conn.Close()
	}
}

// visitHost starts gorun on a host. As for the agents of a job, the remote shell is given the one word sh, and what
// that does comes down the stream: remote shells differ in what they do to quotes.
func visitHost(shell []string, host, gorun string) *visit {
	v := &visit{name: host}
	v.cmd = exec.Command(shell[0], append(slices.Clone(shell[1:]), host, "sh")...)
	var said complaint
	v.cmd.Stderr = &said
	v.cmd.WaitDelay = time.Second // a process that it has left may hold its standard error
	in, err1 := v.cmd.StdinPipe()
	out, err2 := v.cmd.StdoutPipe()
	if v.err = errors.Join(err1, err2, v.cmd.Start()); v.err != nil {
		v.cmd = nil
		return v
	}
	v.in, v.end, v.out = in, out, make(chan []byte, 1)
	go readLines(out, v.out)
	// One that takes nothing has ended: what it has said is of more use than the error.
	fmt.Fprintf(in, "exec %s %s\n", reach.Quote(gorun), doctorWord)
	if v.err = v.begin(); v.err != nil {
		v.close()
		v.stderr = strings.TrimSpace(said.text.String())
	}
	return v
}

// readLines hands on lines until one is too long, or the stream ends.
func readLines(r io.Reader, to chan<- []byte) {
	defer close(to)
	s := bufio.NewScanner(r)
	s.Buffer(nil, sayMax)
	for s.Scan() {
		to <- bytes.Clone(s.Bytes())
	}
}

// begin reads the hello, and compares the clocks.
func (v *visit) begin() error {
	var h greeting
	if err := v.hear(&h); err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	v.facts, v.port, v.token = h.Facts, h.Port, h.Token
	before := time.Now()
	a, err := v.ask(question{})
	if err != nil {
		return err
	}
	middle := before.Add(time.Since(before) / 2)
	v.skew = time.Unix(0, a.Now).Sub(middle)
	return nil
}

func (h greeting) check() error {
	if h.Port < 1 || h.Port > 65535 || len(h.Token) < 16 || len(h.Token) > 64 || h.Facts.Gorun == "" {
		return errors.New("what it says is not of gorun doctor: is it another version?")
	}
	return nil
}

// hear reads one line into to.
func (v *visit) hear(to any) error {
	select {
	case line, ok := <-v.out:
		if !ok {
			return errors.New("it ended without an answer")
		}
		if err := json.Unmarshal(line, to); err != nil {
			return fmt.Errorf("it said %.100q: is something printed at log-in?", line)
		}
		return nil
	case <-time.After(stepLimit):
		return fmt.Errorf("no answer within %v", stepLimit)
	}
}

func (v *visit) ask(q question) (a answer, err error) {
	line, err := json.Marshal(q)
	if err == nil {
		_, err = v.in.Write(append(line, '\n'))
	}
	if err == nil {
		err = v.hear(&a)
	}
	return a, err
}

// reach tries to connect this visit's host to another's, at any of its addresses.
func (v *visit) reach(to *visit) error {
	var addrs []string
	for _, i := range to.facts.Interfaces {
		for _, a := range i.Addresses {
			p, err := netip.ParsePrefix(a)
			if err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() && len(addrs) < 64 {
				addrs = append(addrs, netip.AddrPortFrom(p.Addr(), uint16(to.port)).String())
			}
		}
	}
	if len(addrs) == 0 {
		return errors.New("it has no address but of loopback")
	}
	if v.cmd == nil {
		return dialAny(addrs, to.token)
	}
	a, err := v.ask(question{Dial: addrs, Token: to.token})
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	return err
}

// dialAny connects to any of the addresses at which the token is said.
func dialAny(addrs []string, token string) error {
	results := make(chan error, len(addrs))
	for _, addr := range addrs {
		go func() { results <- dialOne(addr, token) }()
	}
	var all []string
	for range addrs {
		err := <-results
		if err == nil {
			return nil
		}
		all = append(all, err.Error())
	}
	return errors.New(strings.Join(all, "; "))
}

func dialOne(addr, token string) error {
	conn, err := net.DialTimeout("tcp", addr, dialLimit)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(dialLimit))
	got := make([]byte, len(token))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != token {
		return fmt.Errorf("%s: another process answers there", addr)
	}
	return nil
}

// close ends the visit.
func (v *visit) close() {
	if v.ln != nil {
		v.ln.Close()
	}
	if v.cmd == nil {
		return
	}
	v.in.Close()
	kill := time.AfterFunc(dialLimit, func() {
		v.cmd.Process.Kill()
		v.end.Close() // a process that it has left may hold the other end
	})
	for range v.out { // so that the reader ends
	}
	v.cmd.Wait()
	kill.Stop()
}

// doctorHostCommand is what runs on a host.
func doctorHostCommand(stdin, stdout *os.File) *cobra.Command {
	return &cobra.Command{Use: doctorWord, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return answerDoctor(stdin, stdout) }}
}

func answerDoctor(stdin io.Reader, stdout io.Writer) error {
	v, err := visitHere()
	if err != nil {
		return err
	}
	defer v.close()
	out := json.NewEncoder(stdout)
	if err := out.Encode(greeting{v.facts, v.port, v.token}); err != nil {
		return err
	}
	lines := make(chan []byte)
	go readLines(stdin, lines)
	for line := range lines {
		var q question
		if err := json.Unmarshal(line, &q); err != nil {
			return fmt.Errorf("gorun doctor said %.100q", line)
		}
		a := answer{Now: time.Now().UnixNano()}
		if q.Dial != nil {
			if err := dialAny(q.Dial[:min(len(q.Dial), 64)], q.Token); err != nil {
				a.Error = err.Error()
			}
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return nil
}
