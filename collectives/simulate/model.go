package simulate

import (
	"fmt"
	"math"

	"github.com/gorun-mpi/mpi/collectives"
)

// Model is a machine. Times are in seconds, rates in bytes per second.
type Model struct {
	Host    Path // between ranks of a host
	Network Path // between hosts
	// Memory is the rate of the copies inside a host together; a NIC's is Network.Rate. If processors move bytes
	// (Host.Touch), it counts copies of fresh bytes alone. Bytes are fresh if the sender has written them in the same
	// call: other bytes are in the receiver's cache since the call before, as a benchmark makes it.
	Memory float64
	// Fresh is how many times as long processors take for fresh bytes of a message past Host.Eager. 0: as long.
	Fresh float64
	// Copy and Combine are the rates of a rank's local steps, in bytes of their result.
	Copy, Combine float64
	// Leaf is how many hosts share a leaf switch, and Taper how many times their NICs are as fast as its uplinks.
	Leaf  int
	Taper float64
	// Hop is the time of a switch.
	Hop float64
	// Cores are the processors of each host, or if OneMachine, of all hosts together: where ranks are more, they share
	// them, and Switch is what it takes until another rank than the one before runs. 0: each rank has its own.
	Cores      int
	OneMachine bool
	Switch     float64
	// Cache is how much memory a call may take of a rank before its bytes come from further away; then all that
	// processors do with bytes takes Spill times as long, once it is four times as much. 0: that does not matter.
	Cache int64
	Spill float64
}

// Path is what a message takes.
type Path struct {
	Latency  float64 // without switches
	Overhead float64 // of the sender's processor, and of the receiver's
	Rate     float64 // of one message
	Eager    int64   // longer messages wait for their receive
	// Touch is how fast the processors of sender and receiver move bytes; 0: they do not. If they do, inside a host no
	// message takes time at Rate, except that it is how fast a processor moves a message past Eager from one rank's
	// memory to another's: sender and receiver move a half each, or the receiver all if ranks share processors.
	Touch float64
}

// Cluster is a machine of present nodes on a network of 100 Gb/s with RDMA.
var Cluster = Model{
	Host:    Path{Latency: 150e-9, Overhead: 80e-9, Rate: 10e9, Eager: 8 << 10},
	Network: Path{Latency: 900e-9, Overhead: 200e-9, Rate: 12.5e9, Eager: 8 << 10},
	Memory:  100e9,
	Copy:    10e9, Combine: 8e9,
	Leaf: 20, Taper: 1, Hop: 100e-9,
}

// Ethernet is the same nodes on TCP over 10 Gb/s.
var Ethernet = Model{
	Host:    Cluster.Host,
	Network: Path{Latency: 10e-6, Overhead: 3e-6, Rate: 1.2e9, Eager: 64 << 10},
	Memory:  Cluster.Memory,
	Copy:    Cluster.Copy, Combine: Cluster.Combine,
	Leaf: 40, Taper: 4, Hop: 1e-6,
}

// Testbed is the machine that this project is measured on, two processors, with hosts that are network namespaces.
var Testbed = Model{
	Host:    Path{Latency: 150e-9, Overhead: 80e-9, Rate: 10e9, Eager: 32 << 10, Touch: 10e9},
	Network: Path{Latency: 5e-6, Overhead: 3e-6, Rate: 10e9, Eager: 64 << 10, Touch: 3e9},
	Memory:  50e9, Fresh: 1.5,
	Copy: 10e9, Combine: 8e9,
	Leaf: 64, Taper: 1,
	Cores: 2, OneMachine: true, Switch: 1e-6,
	Cache: 1 << 20, Spill: 3,
}

// Roomy is a host with a processor for each rank: Testbed fitted to testdata/cores16.txt. Its network is Testbed's.
var Roomy = Model{
	Host:    Path{Latency: 86e-9, Overhead: 288e-9, Rate: 5.49e9, Eager: 32 << 10, Touch: 10.6e9},
	Network: Testbed.Network,
	Memory:  52.2e9, Fresh: 1.16,
	Copy: 100e9, Combine: 15.9e9,
	Leaf: 64, Taper: 1,
	Cores: 16,
	Cache: 1 << 20, Spill: 1.08,
}

// Models are those that have names.
var Models = map[string]*Model{"cluster": &Cluster, "ethernet": &Ethernet, "testbed": &Testbed, "roomy": &Roomy}

// Valid says what makes a model impossible.
func (m *Model) Valid() error {
	for _, v := range []struct {
		name  string
		value float64
		zero  bool // may be 0
	}{
		{"Host.Latency", m.Host.Latency, true}, {"Host.Overhead", m.Host.Overhead, true},
		{"Host.Rate", m.Host.Rate, false}, {"Host.Eager", float64(m.Host.Eager), true},
		{"Host.Touch", m.Host.Touch, true},
		{"Network.Latency", m.Network.Latency, true}, {"Network.Overhead", m.Network.Overhead, true},
		{"Network.Rate", m.Network.Rate, false}, {"Network.Eager", float64(m.Network.Eager), true},
		{"Network.Touch", m.Network.Touch, true},
		{"Memory", m.Memory, false}, {"Fresh", m.Fresh, true}, {"Copy", m.Copy, false}, {"Combine", m.Combine, false},
		{"Leaf", float64(m.Leaf), false}, {"Taper", m.Taper, false}, {"Hop", m.Hop, true},
		{"Cores", float64(m.Cores), true}, {"Switch", m.Switch, true},
		{"Cache", float64(m.Cache), true}, {"Spill", m.Spill, true},
	} {
		least := "above 0"
		if v.zero {
			least = "0 or more"
		}
		if !(v.value > 0 || v.zero && v.value == 0) || math.IsInf(v.value, 0) {
			return fmt.Errorf("the model's %s is %v; it must be %s", v.name, v.value, least)
		}
	}
	return nil
}

// server is something that is occupied by one message after the other.
type server struct{ free float64 }

// take occupies the server for a time from at on, or from when it is free, and returns when that begins.
func (s *server) take(at, duration float64) float64 {
	at = max(at, s.free)
	s.free = at + duration
	return at
}

// machine is the model with what is occupied.
type machine struct {
	*Model
	hosts            collectives.Hosts
	spill            float64  // of this call
	memory, up, down []server // of each host: its memory, its NIC in both directions
	leafUp, leafDown []server // of each leaf switch
	cores            [][]core // of each host, or of all; none: each rank has its own
}

// core is a processor that ranks share.
type core struct {
	free float64
	last int // the rank that it has run last, plus 1; 0: none
}

// newMachine is for a call that takes so many bytes of a rank's memory.
func newMachine(m *Model, h collectives.Hosts, bytes int64) *machine {
	hosts := h.Len()
	leaves := (hosts + m.Leaf - 1) / m.Leaf
	a := &machine{Model: m, hosts: h, spill: m.spillOf(bytes),
		memory: make([]server, hosts), up: make([]server, hosts), down: make([]server, hosts),
		leafUp: make([]server, leaves), leafDown: make([]server, leaves)}
	if m.Cores == 0 {
		return a
	}
	ranks, most := 0, 0
	for i := range hosts {
		ranks, most = ranks+h.Size(i), max(most, h.Size(i))
	}
	switch {
	case m.OneMachine && ranks > m.Cores:
		a.cores = [][]core{make([]core, m.Cores)}
	case !m.OneMachine && most > m.Cores:
		for range hosts {
			a.cores = append(a.cores, make([]core, m.Cores))
		}
	}
	return a
}

// spillOf is how many times as long work on bytes takes in a call with so many.
func (m *Model) spillOf(bytes int64) float64 {
	if m.Cache == 0 || m.Spill <= 1 || bytes <= m.Cache {
		return 1
	}
	return 1 + (m.Spill-1)*min(1, math.Log2(float64(bytes)/float64(m.Cache))/2)
}

// shared reports whether ranks share processors.
func (m *machine) shared() bool { return m.cores != nil }

// core is the processor on which a rank can run first from a time on; nil: the rank has its own.
func (m *machine) core(rank int, at float64) *core {
	if m.cores == nil {
		return nil
	}
	cores := m.cores[0]
	if !m.OneMachine {
		cores = m.cores[m.hosts.Host(rank)]
	}
	best, first := &cores[0], math.Inf(1)
	for i := range cores {
		if begin := m.begin(&cores[i], rank, at); begin < first {
			best, first = &cores[i], begin
		}
	}
	return best
}

// begin is when a rank that can run from a time on would do so on a core.
func (m *machine) begin(c *core, rank int, at float64) float64 {
	at = max(at, c.free)
	if c.last != rank+1 {
		at += m.Switch
	}
	return at
}

// enter puts a rank on a core, and returns begin.
func (m *machine) enter(c *core, rank int, at float64) float64 {
	c.free = m.begin(c, rank, at)
	c.last = rank + 1
	return c.free
}

// touch is the processor time of a message's bytes.
func (m *machine) touch(p *Path, bytes int64) float64 {
	if p.Touch == 0 {
		return 0
	}
	return m.local(bytes, p.Touch)
}

// local is the time of work on bytes at a rate.
func (m *machine) local(bytes int64, rate float64) float64 { return float64(bytes) * m.spill / rate }

// path is what messages between two hosts take.
func (m *machine) path(from, to int) *Path {
	if from == to {
		return &m.Host
	}
	return &m.Network
}

// latency is that of a message without bytes.
func (m *machine) latency(from, to int) float64 {
	switch {
	case from == to:
		return m.Host.Latency
	case from/m.Leaf == to/m.Leaf:
		return m.Network.Latency + m.Hop
	}
	return m.Network.Latency + 3*m.Hop
}

// carry moves bytes from time at on, and returns when the last of them arrives.
func (m *machine) carry(at float64, from, to int, bytes int64) float64 {
	b := float64(bytes)
	if from == to && m.Host.Touch > 0 {
		return at + m.Host.Latency
	}
	if from == to {
		at = m.memory[from].take(at, b/m.Memory)
		return at + m.Host.Latency + m.local(bytes, m.Host.Rate)
	}
	duration := b / m.Network.Rate
	at = m.up[from].take(at, duration)
	if a, z := from/m.Leaf, to/m.Leaf; a != z {
		through := duration * m.Taper / float64(m.Leaf)
		at = m.leafUp[a].take(at, through)
		at = m.leafDown[z].take(at, through)
	}
	at = m.down[to].take(at+m.latency(from, to), duration)
	return at + duration
}
