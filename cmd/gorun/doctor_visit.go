package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/launcher"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// gorun doctor has an agent on each host as a job has, with another duty. Over its stream go lines of JSON: first the
// settings of the job, then a greeting of the host, then a question and its answer, in turn, until the stream ends.

// sayMax is the longest line; what a host says is not trusted.
const sayMax = 1 << 20

// stepLimit is how long a host may take for an answer, dialLimit how long it tries an address. Tests set them.
var (
	stepLimit = 60 * time.Second
	dialLimit = 5 * time.Second
)

// opening is what a host is told first.
type opening struct {
	Environ []string `json:"environ"` // the settings of the job
}

// greeting is what a host says first.
type greeting struct {
	Facts     facts    `json:"facts"`
	Addresses [][]byte `json:"addresses"` // as ranks publish them, one for each port that is listened on
	Token     string   `json:"token"`
	Blocked   string   `json:"blocked,omitempty"` // why a rank could not listen there
	Host      string   `json:"host,omitempty"`    // launcher.HostID
}

// question is one to a host: the time, if Dial is nil.
type question struct {
	Dial []target `json:"dial,omitempty"`
}

// target is a host that is to be tried.
type target struct {
	Addresses [][]byte `json:"addresses"`
	Token     string   `json:"token"`
}

type answer struct {
	Now  int64         `json:"now"`            // nanoseconds of its clock
	Ways [][][]attempt `json:"ways,omitempty"` // by target, port and address
}

type attempt struct {
	To    string    `json:"to"`
	Fault tcp.Fault `json:"fault,omitempty"`
	Text  string    `json:"text,omitempty"`
}

// visit is a host that is looked at.
type visit struct {
	Name  string `json:"host"`
	Slots int    `json:"slots,omitempty"`
	// Gorun is how gorun came to be there: installed, cached, copied, or here.
	Gorun string        `json:"gorun,omitempty"`
	Facts *facts        `json:"facts,omitempty"`
	Skew  time.Duration `json:"clock_ahead_ns,omitempty"` // its clock less ours
	Error string        `json:"error,omitempty"`          // err

	greeting greeting
	err      error // it could not be reached, or what it said makes no sense
	site     *site // of this host
	edge     *reach.Edge
	out      chan []byte // lines; closed at the end of the stream
}

// site is a host where it looks at itself.
type site struct {
	greeting greeting
	probe    *tcp.Probe // nil: a rank could not listen here
}

// newSite looks at this host with the settings of a job.
func newSite(environ []string) *site {
	s := &site{greeting: greeting{Token: rand.Text(), Host: launcher.HostID(),
		Facts: readFacts(environ, readMachine(topology.Source{Root: "/", Addrs: topology.Addrs}, askVerbs,
			askGPUs(accel.InUse())))}}
	probe, err := newProbe(environ, s.greeting.Token)
	if err != nil {
		s.greeting.Blocked = err.Error()
		return s
	}
	s.probe, s.greeting.Addresses = probe, probe.Addresses()
	return s
}

func newProbe(environ []string, token string) (*tcp.Probe, error) {
	set, _, err := join.Settings(environ)
	if err != nil {
		return nil, err
	}
	filter, err1 := tcp.ParseInterfaces(set.TCPInterfaces)
	ports, err2 := tcp.ParsePorts(set.TCPPorts)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return tcp.NewProbe(filter, ports, token, dialLimit)
}

// answer answers a question.
func (s *site) answer(q question) answer {
	if q.Dial == nil {
		return answer{Now: time.Now().UnixNano()}
	}
	a := answer{Ways: make([][][]attempt, len(q.Dial))}
	var wg sync.WaitGroup
	for i, t := range q.Dial[:min(len(q.Dial), batch)] {
		a.Ways[i] = make([][]attempt, min(len(t.Addresses), 2))
		for k := range a.Ways[i] {
			wg.Go(func() { a.Ways[i][k] = s.try(t.Addresses[k], t.Token) })
		}
	}
	wg.Wait()
	return a
}

// try leaves out what comes after the first address that answers: ranks do not come so far.
func (s *site) try(address []byte, token string) (way []attempt) {
	if s.probe == nil {
		return []attempt{{"", tcp.OtherFault, s.greeting.Blocked}}
	}
	all, err := s.probe.Try(context.Background(), address, token)
	if err != nil {
		return []attempt{{"", tcp.OtherFault, err.Error()}}
	}
	for _, a := range all {
		way = append(way, attempt{a.To.String(), a.Fault, a.Text})
		if a.Fault == tcp.NoFault {
			break
		}
	}
	return way
}

func (s *site) close() {
	if s.probe != nil {
		s.probe.Close()
	}
}

// ownSettings are the settings that a job passes to its ranks.
func ownSettings(environ []string) (own []string) {
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if s, known := settings.Find(name); known && !s.Secret() && !s.Internal() {
			own = append(own, kv)
		}
	}
	return own
}

// visitHere looks at this host.
func visitHere(h place.Host, environ []string) *visit {
	s := newSite(environ)
	return &visit{Name: h.Name, Slots: h.Slots, Gorun: "here", Facts: &s.greeting.Facts, greeting: s.greeting, site: s}
}

// visitHost has gorun come to a host.
func visitHost(ctx context.Context, way reach.Reach, h place.Host, environ []string) *visit {
	v := &visit{Name: h.Name, Slots: h.Slots}
	if v.edge, v.err = way.Open(ctx, h.Name); v.err == nil {
		v.out = make(chan []byte, 1)
		go readLines(v.edge, v.out)
		v.err = v.begin(environ)
	}
	if v.err != nil {
		v.lost(v.err)
	}
	return v
}

// lost is called when nothing more is to be had of the host.
func (v *visit) lost(err error) {
	v.err, v.Error, v.Facts, v.Gorun = err, clearly(err), nil, ""
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

// begin reads the greeting, and compares the clocks.
func (v *visit) begin(environ []string) error {
	if err := v.send(opening{environ}); err != nil {
		return err
	}
	if err := v.hear(&v.greeting); err != nil {
		return err
	}
	if err := v.greeting.check(); err != nil {
		return err
	}
	v.Facts = &v.greeting.Facts
	switch me, err := reach.Me(); {
	case v.edge.Copied:
		v.Gorun = "copied"
	case err == nil && v.Facts.Path == me.Path:
		v.Gorun = "installed"
	default:
		v.Gorun = "in its cache"
	}
	return v.compareClocks()
}

// compareClocks takes the answer that came soonest: it says the most.
func (v *visit) compareClocks() error {
	soonest := time.Duration(1<<63 - 1)
	for range 3 {
		before := time.Now()
		a, err := v.ask(question{})
		if err != nil {
			return err
		}
		if took := time.Since(before); took < soonest {
			soonest = took
			v.Skew = time.Unix(0, a.Now).Sub(before.Add(took / 2))
		}
	}
	if v.Skew.Abs() < soonest/2 { // as long as the way there may have been
		v.Skew = 0
	}
	return nil
}

func (g greeting) check() error {
	if (len(g.Addresses) == 0) == (g.Blocked == "") || len(g.Addresses) > 2 || len(g.Token) < 16 ||
		len(g.Token) > 64 || g.Facts.Gorun == "" {
		return errors.New("what it says is not of gorun doctor")
	}
	return nil
}

// hear reads one line into to.
func (v *visit) hear(to any) error {
	select {
	case line, ok := <-v.out:
		if !ok {
			return fmt.Errorf("gorun there has ended without an answer: %s", v.edge.Why())
		}
		if err := json.Unmarshal(line, to); err != nil {
			return fmt.Errorf("it said %.100q: is something printed at log-in?", line)
		}
		return nil
	case <-time.After(stepLimit):
		return fmt.Errorf("no answer within %v", stepLimit)
	}
}

func (v *visit) send(what any) error {
	line, err := json.Marshal(what)
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		_, err := v.edge.Write(append(line, '\n'))
		written <- err
	}()
	select {
	case err := <-written:
		return err
	case <-time.After(stepLimit):
		return fmt.Errorf("it has taken no question in %v", stepLimit)
	}
}

func (v *visit) ask(q question) (a answer, err error) {
	if v.site != nil {
		return v.site.answer(q), nil
	}
	if err = v.send(q); err == nil {
		err = v.hear(&a)
	}
	return a, err
}

// close ends the visit.
func (v *visit) close() {
	if v.site != nil {
		v.site.close()
	}
	if v.edge == nil {
		return
	}
	v.edge.Close()
	if v.out != nil {
		for range v.out { // so that the reader ends
		}
	}
}

// examine is an agent whose duty is to answer gorun doctor. It returns its exit code.
func examine(connect func(context.Context) (io.ReadWriter, error)) int {
	stream, err := connect(context.Background())
	if err == nil {
		err = answerDoctor(stream)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gorun doctor:", err)
		return 1
	}
	return 0
}

func answerDoctor(stream io.ReadWriter) error {
	lines := make(chan []byte)
	go readLines(stream, lines)
	var o opening
	line, ok := <-lines
	if !ok {
		return nil
	}
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("what was said is not of gorun doctor: %.100q", line)
	}
	s := newSite(o.Environ)
	defer s.close()
	out := json.NewEncoder(stream)
	if err := out.Encode(s.greeting); err != nil {
		return err
	}
	for line := range lines {
		var q question
		if err := json.Unmarshal(line, &q); err != nil {
			return fmt.Errorf("what was said is not of gorun doctor: %.100q", line)
		}
		if err := out.Encode(s.answer(q)); err != nil {
			return err
		}
	}
	return nil
}
