package mpi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/shm"
)

// place is what a transport is told about the rank it is made for.
type place struct {
	rank, size, local int
	set               settings.Values
}

// transports is THE list, in order of preference. loop, which connects the ranks of RunLocal and each rank with
// itself, is not in it: it needs no choosing.
var transports = []struct {
	name string
	open func(place) (transport.Device, error)
}{
	{"shm", func(p place) (transport.Device, error) {
		d, err := shm.New(shm.Options{Rank: p.rank, Size: p.size, Local: p.local, Bulk: int(p.set.ShmRing)})
		if err != nil {
			return nil, err
		}
		return d, nil
	}},
}

// openTransport opens the first transport of the settings that works here.
func openTransport(p place) (transport.Device, error) {
	var why []error
	for _, name := range p.set.Transports {
		found := false
		for _, t := range transports {
			if t.name != name {
				continue
			}
			found = true
			d, err := t.open(p)
			if err == nil {
				return d, nil
			}
			why = append(why, fmt.Errorf("%s: %w", name, err))
		}
		switch {
		case name == "loop":
			why = append(why, errors.New("loop: it connects the goroutines of RunLocal, not processes"))
		case !found:
			why = append(why, fmt.Errorf("%s: no such transport; there is %s", name, transportNames()))
		}
	}
	return nil, errors.Join(why...)
}

func transportNames() string {
	var names []string
	for _, t := range transports {
		names = append(names, t.name)
	}
	return strings.Join(names, ", ")
}

func isNoRoom(err error) bool {
	var e *shm.NoRoomError
	return errors.As(err, &e)
}
