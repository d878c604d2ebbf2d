package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// testbed is where measurements are made: this host, two more hosts, and guests. What a measurement needs is made for
// the first one that needs it.
type testbed struct {
	ctx   context.Context
	dir   string    // for the programs and the hosts
	local []library // as they run on this host

	onHosts func() ([]library, error) // makes the hosts once
	hosts   *hosts                    // nil: not made

	overUCX func() (dir string, err error) // builds ours for it once

	inGuest func() ([]library, error) // boots a guest once
	kernel  string                    // of the guests; empty: none has been booted
	tools   library                   // perftest, in a guest
}

// errUnavailable means that measurements between hosts, or in a guest, cannot be made here. That is no failure.
var errUnavailable = errors.New("not to be had here")

func newTestbed(ctx context.Context, dir string, local []library) *testbed {
	b := &testbed{ctx: ctx, dir: dir, local: local}
	b.onHosts = sync.OnceValues(b.makeHosts)
	b.inGuest = sync.OnceValues(b.makeGuest)
	b.overUCX = sync.OnceValues(b.makeUCX)
	return b
}

// libraries are those of a measurement, in the order of the plan.
func (b *testbed) libraries(m measurement) (list []library, err error) {
	from := b.local
	switch {
	case m.hosts:
		from, err = b.onHosts()
	case m.ucx != "":
		var dir string
		if dir, err = b.overUCX(); err == nil {
			from = librariesOverUCX(dir, m.ucx, b.local)
		}
	case m.guest:
		from, err = b.inGuest()
	}
	if err != nil {
		return nil, err
	}
	for _, name := range m.libraries {
		i := slices.IndexFunc(from, func(l library) bool { return l.name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s: no library has the name %q", m.name, name)
		}
		list = append(list, from[i])
	}
	return list, nil
}

// facts are those of the machine, and of the guest where a measurement is made there.
func (b *testbed) facts(m measurement, here machine) machine {
	if !m.guest {
		return here
	}
	here.Versions = slices.Clone(here.Versions)
	if b.tools.version != "" {
		here.Versions = append(here.Versions, perftest+" "+b.tools.version)
	}
	here.Versions = append(here.Versions, "in the guest "+b.kernel)
	return here
}

func (b *testbed) close() {
	if b.hosts == nil {
		return
	}
	if err := b.hosts.close(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
	}
	b.hosts = nil
}
