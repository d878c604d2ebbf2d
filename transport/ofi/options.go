package ofi

import (
	"fmt"

	"github.com/gorun-mpi/mpi/transport/tcp"
)

// Options of a device. Rank and Size are of the world.
type Options struct {
	Rank, Size int
	Provider   string                        // GORUN_OFI_PROVIDER; "": the first fast one
	Library    string                        // path of libfabric; "": the system's
	Control    tcp.Options                   // the connections that say when a peer is gone: see tcp.Options
	Log        func(msg string, args ...any) // what an operator should see; nil: silent
	Debug      func(msg string, args ...any) // what was chosen, and why; nil: silent

	registers bool // for tests: memory is registered though the provider does not ask for it
}

// controlProtocol is what both ends of a control connection prove that they speak.
const controlProtocol = "gorun ofi 1"

func (o *Options) fill() {
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Debug == nil {
		o.Debug = func(string, ...any) {}
	}
	o.Control.Rank, o.Control.Size, o.Control.Protocol = o.Rank, o.Size, controlProtocol
}

// Tested are the versions of libfabric that are taken.
const Tested = "1.17 and later"

// Info is what gorun info prints of the library. Its JSON names stay.
type Info struct {
	Path      string   `json:"path,omitempty"`
	Version   string   `json:"version,omitempty"`
	Tested    string   `json:"tested,omitempty"`
	Providers []string `json:"providers,omitempty"` // what GORUN_OFI_PROVIDER chooses from
	Domains   []string `json:"domains,omitempty"`   // the devices of the first
}

var errAbsent = fmt.Errorf("this program was built without libfabric (go build -tags ofi, with cgo, for Linux)")
