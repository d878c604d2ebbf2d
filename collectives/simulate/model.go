package simulate

import "fmt"

// Model is a machine. Times are in seconds, rates in bytes per second.
type Model struct {
	Host    Path // between ranks of a host
	Network Path // between hosts
	// Memory is the rate of all copies inside a host together; a NIC's is Network.Rate.
	Memory float64
	// Copy and Combine are the rates of a rank's local steps, in bytes of their result.
	Copy, Combine float64
	// Leaf is how many hosts share a leaf switch, and Taper how many times their NICs are as fast as its uplinks.
	Leaf  int
	Taper float64
	// Hop is the time of a switch.
	Hop float64
}

// Path is what a message takes.
type Path struct {
	Latency  float64 // without switches
	Overhead float64 // of the sender's processor, and of the receiver's
	Rate     float64 // of one message
	Eager    int64   // longer messages wait for their receive
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

// Models are those that have names.
var Models = map[string]*Model{"cluster": &Cluster, "ethernet": &Ethernet}

// valid says what makes a model impossible.
func (m *Model) valid() error {
	for _, v := range []struct {
		name string
		rate float64
	}{{"Host.Rate", m.Host.Rate}, {"Network.Rate", m.Network.Rate}, {"Memory", m.Memory}, {"Copy", m.Copy},
		{"Combine", m.Combine}, {"Leaf", float64(m.Leaf)}, {"Taper", m.Taper}} {
		if !(v.rate > 0) {
			return fmt.Errorf("the model's %s is %v; it must be above 0", v.name, v.rate)
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
	memory, up, down []server // of each host: its memory, its NIC in both directions
	leafUp, leafDown []server // of each leaf switch
}

func newMachine(m *Model, hosts int) *machine {
	leaves := (hosts + m.Leaf - 1) / m.Leaf
	return &machine{Model: m, memory: make([]server, hosts), up: make([]server, hosts), down: make([]server, hosts),
		leafUp: make([]server, leaves), leafDown: make([]server, leaves)}
}

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
	if from == to {
		at = m.memory[from].take(at, b/m.Memory)
		return at + m.Host.Latency + b/m.Host.Rate
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
