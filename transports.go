package mpi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/multi"
	"github.com/gorun-mpi/mpi/transport/shm"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// place is what a transport is told about the rank it is made for.
type place struct {
	rank, size int
	local      int  // ranks on this host
	known      bool // the launcher has said so; else local is only as many as there could be
	job        string
	secret     func() ([]byte, error)
	log, debug func(msg string, args ...any)
	set        settings.Values
}

// transports is THE list, in order of preference. loop, which connects the ranks of RunLocal and each rank with
// itself, is not in it: it needs no choosing.
var transports = append([]entry{sharedMemory}, append(withTag, entry{"tcp", openTCP})...)

// entry is one transport.
type entry struct {
	name string
	open func(place) (transport.Device, error)
}

var sharedMemory = entry{
	"shm", func(p place) (transport.Device, error) {
		d, err := shm.New(shm.Options{Rank: p.rank, Size: p.size, Local: p.local, Bulk: int(p.set.ShmRing)})
		if err != nil {
			return nil, err
		}
		return d, nil
	},
}

func openTCP(p place) (transport.Device, error) {
	opt, err := optionsTCP(p)
	if err != nil {
		return nil, err
	}
	d, err := tcp.New(opt)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func optionsTCP(p place) (tcp.Options, error) {
	interfaces, err := tcp.ParseInterfaces(p.set.TCPInterfaces)
	if err != nil {
		return tcp.Options{}, fmt.Errorf("GORUN_TCP_IF=%q: %w", p.set.TCPInterfaces, err)
	}
	ports, err := tcp.ParsePorts(p.set.TCPPorts)
	if err != nil {
		return tcp.Options{}, fmt.Errorf("GORUN_TCP_PORTS=%q: %w", p.set.TCPPorts, err)
	}
	return tcp.Options{Rank: p.rank, Size: p.size, Job: p.job, Secret: p.secret, Interfaces: interfaces, Ports: ports,
		TLS: p.set.TCPTLS, PeerTimeout: p.set.PeerTimeout, Log: p.log}, nil
}

// openTransport opens the transports of the settings that work here. Where all ranks share this host the first is
// enough; else each pair of ranks uses the first that connects it.
func openTransport(p place) (transport.Device, error) {
	var why []error
	var open []transport.Device
	together := p.known && p.local == p.size
	if p.set.Transports == nil { // auto
		p.set.Transports = transportNames()
	}
	for _, name := range p.set.Transports {
		found := false
		for _, t := range transports {
			if t.name != name {
				continue
			}
			found = true
			if name == "shm" && p.known && p.local == 1 && len(p.set.Transports) > 1 {
				continue // alone on its host: nobody to share memory with
			}
			d, err := t.open(p)
			if err == nil {
				if open = append(open, d); together {
					return d, nil
				}
				continue
			}
			if together && isNoRoom(err) { // the other ranks have it and would not find this one elsewhere
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			why = append(why, fmt.Errorf("%s: %w", name, err))
		}
		switch {
		case name == "loop":
			why = append(why, errors.New("loop: it connects the goroutines of RunLocal, not processes"))
		case name == "verbs" && !found:
			why = append(why, errors.New("verbs: this program was built without it (go build -tags verbs, with cgo, for Linux)"))
		case !found:
			why = append(why, fmt.Errorf("%s: no such transport; there is %s", name, strings.Join(transportNames(), ", ")))
		}
	}
	if len(open) == 0 {
		return nil, errors.Join(why...)
	}
	if len(p.set.Transports) == 1 || together {
		return open[0], nil
	}
	// Also if only one is open here: the addresses of all ranks must be of one kind.
	d, err := multi.New(open...)
	if err != nil {
		for _, o := range open {
			o.Close()
		}
		return nil, err
	}
	return d, nil
}

func transportNames() (names []string) {
	for _, t := range transports {
		names = append(names, t.name)
	}
	return names
}

func isNoRoom(err error) bool {
	var e *shm.NoRoomError
	return errors.As(err, &e)
}
