package ucx

import "time"

// Options of a device. Rank and Size are of the world.
type Options struct {
	Rank, Size  int
	PeerTimeout time.Duration                 // how long another host may leave unanswered what TCP has sent; 0: 30 s
	Library     string                        // path of libucp; "": the system's
	Log         func(msg string, args ...any) // what an operator should see; nil: silent
	Debug       func(msg string, args ...any) // what was chosen, and why; nil: silent
}

func (o *Options) fill() {
	if o.PeerTimeout == 0 {
		o.PeerTimeout = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Debug == nil {
		o.Debug = func(string, ...any) {}
	}
}

// Tested are the versions of libucp that are taken.
const Tested = "1.13 and later 1.x"

// Info is what gorun info prints of the library. Its JSON names stay.
type Info struct {
	Path       string   `json:"path,omitempty"`
	Version    string   `json:"version,omitempty"`
	Tested     string   `json:"tested,omitempty"`
	Transports []string `json:"transports,omitempty"` // what UCX_TLS chooses from: posix, tcp
	Devices    []string `json:"devices,omitempty"`    // what UCX_NET_DEVICES chooses from, and memory
}
