package vswitch

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// Port is where frames come in and go out, one for each Read and Write.
type Port = io.ReadWriteCloser

// Faults are what happens to frames from one port to another. The zero value: nothing.
type Faults struct {
	Cut          bool          // none passes
	MaxPacket    int           // longer IP packets are dropped without a word, as by a tunnel on the way; 0: none is
	Loss, Repeat float64       // the share of frames that are dropped, and that come twice
	Delay        time.Duration // of each frame
	Jitter       time.Duration // at most so much more, at random: frames overtake each other
	// Forget drops what belongs to a TCP connection that has been silent for so long, until it is made again; 0: nothing.
	Forget time.Duration
	Refuse bool // new TCP connections are refused, as by a firewall that rejects
}

// All stands for each port where a port's number is expected.
const All = 0

const (
	ethernet = 14 // bytes before the IP header
	maxFrame = 64 << 10
)

// Switch forwards frames. Ports are numbered from 1. Its methods may be called from any goroutine.
type Switch struct {
	ports []Port // does not change
	wg    sync.WaitGroup

	mu      sync.Mutex
	faults  map[[2]int]Faults  // guarded by mu; by from and to
	where   map[[6]byte]int    // guarded by mu; the port that leads to a hardware address
	flows   map[flow]time.Time // guarded by mu; when each was last heard
	dropped int                // guarded by mu
}

// New makes a switch of these ports, which are its own from now on.
func New(ports ...Port) *Switch {
	s := &Switch{ports: ports, faults: map[[2]int]Faults{}, where: map[[6]byte]int{}, flows: map[flow]time.Time{}}
	for i := range ports {
		s.wg.Go(func() { s.serve(i + 1) })
	}
	return s
}

// Set changes what happens to frames from one port to another, from now on.
func (s *Switch) Set(from, to int, f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.ports {
		for j := range s.ports {
			if (from == All || from == i+1) && (to == All || to == j+1) {
				s.faults[[2]int{i + 1, j + 1}] = f
			}
		}
	}
}

// Dropped is how many frames have been dropped or refused so far.
func (s *Switch) Dropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Close closes the ports.
func (s *Switch) Close() error {
	var errs []error
	for _, p := range s.ports {
		errs = append(errs, p.Close())
	}
	s.wg.Wait()
	return errors.Join(errs...)
}

// serve takes what comes in at a port.
func (s *Switch) serve(from int) {
	buf := make([]byte, maxFrame)
	for {
		n, err := s.ports[from-1].Read(buf)
		if err != nil {
			return
		}
		if n < ethernet {
			continue
		}
		for _, to := range s.leads(from, buf[:n]) {
			s.forward(from, to, buf[:n])
		}
	}
}

// leads returns the ports that a frame goes to, and learns where its sender is.
func (s *Switch) leads(from int, frame []byte) (to []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.where[[6]byte(frame[6:12])] = from
	if known := s.where[[6]byte(frame[:6])]; frame[0]&1 == 0 && known != 0 {
		return []int{known}
	}
	for i := range s.ports {
		to = append(to, i+1)
	}
	return to
}

// forward sends a frame on, or not. The frame is the caller's again when it returns.
func (s *Switch) forward(from, to int, frame []byte) {
	if from == to {
		return
	}
	s.mu.Lock()
	f := s.faults[[2]int{from, to}]
	refused := f.Refuse && dials(frame)
	drop := refused || f.Cut || f.MaxPacket > 0 && len(frame) > ethernet+f.MaxPacket ||
		!s.remembers(frame, f.Forget) || rand.Float64() < f.Loss
	if drop {
		s.dropped++
	}
	s.mu.Unlock()
	if refused {
		s.ports[from-1].Write(resetFrame(frame))
	}
	if drop {
		return
	}
	s.send(to, frame, f)
	if rand.Float64() < f.Repeat {
		s.send(to, frame, f)
	}
}

// send sends a frame, now or later. A port that takes no more is no error: the host is gone.
func (s *Switch) send(to int, frame []byte, f Faults) {
	if f.Delay+f.Jitter == 0 {
		s.ports[to-1].Write(frame)
		return
	}
	late := bytes.Clone(frame)
	time.AfterFunc(f.Delay+time.Duration(rand.Float64()*float64(f.Jitter)), func() { s.ports[to-1].Write(late) })
}

// remembers reports whether a firewall that forgets idle flows would pass the frame. mu is held.
func (s *Switch) remembers(frame []byte, forget time.Duration) bool {
	if forget == 0 {
		return true
	}
	t, ok := parseTCP(frame)
	if !ok {
		return true
	}
	last, known := s.flows[t.flow]
	if t.flags&syn == 0 && (!known || time.Since(last) > forget) {
		delete(s.flows, t.flow)
		return false
	}
	s.flows[t.flow] = time.Now()
	return true
}
