package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/multi"
)

// transports is THE list, one line for each: the name in GORUN_TRANSPORTS, and how a device is opened. What each can do
// is the table in docs/transports.md. loop is not in the list: it needs no choosing.
var transports = []listed{
	{name: "shm", open: openShm, near: true, late: true},
	{name: "verbs", open: openVerbs},
	{name: "tcp", open: openTCP, late: true},
	{name: "ucx", open: openUCX, whole: true},
	{name: "ofi", open: openOFI, whole: true},
}

// listed is one line of the list.
type listed struct {
	name string
	open func(deviceConfig) (transport.Device, error)
	// whole: it matches messages by itself and so has to be the only one, to all ranks. Auto leaves it out.
	whole bool
	near  bool // it reaches ranks of this host only
	late  bool // a process that has joined its world may open a second one, for a world with spawned ranks
}

// deviceConfig is what a transport is told about the rank that it opens a device for.
type deviceConfig struct {
	rank, size       int
	localRank        int  // its number among the ranks of its host; 0: or not known
	local            int  // ranks on this host
	known            bool // the launcher has said so; else local is only as many as there could be
	late             bool // the world is one with spawned ranks
	tracer           int  // a process from which all ranks of this host descend; 0: not known
	job              string
	secret           func() ([]byte, error) // the job's; after all ranks have published their addresses
	call             func(ctx context.Context, rank int) error
	log, info, debug func(msg string, args ...any)
	set              settings.Values
}

// together reports whether all ranks of the job are on this host.
func (c *deviceConfig) together() bool { return c.known && c.local == c.size }

// alone reports whether this host has no other rank.
func (c *deviceConfig) alone() bool { return c.known && c.local == 1 }

// opened is a rank's device.
type opened struct {
	transport.Device
	// near is why the device reaches ranks of this host only: each other transport of the settings has failed to open.
	// nil: it reaches others, or the settings ask for no transport that does.
	near error
}

// openTransport opens the transports of the settings that work here; checkTransports has passed their names. Where all
// ranks share this host the first is enough; else each pair of ranks uses the first that connects it.
func openTransport(c deviceConfig) (opened, error) {
	var failed []multi.Unopened
	var open []transport.Device
	asked := c.set.Transports != nil
	if !asked {
		c.set.Transports = auto()
	}
	if c.late {
		c.set.Transports = lateOnes(c.set.Transports)
	}
	far := false // an open one reaches other hosts
	for _, name := range c.set.Transports {
		if name == "shm" && c.alone() && len(c.set.Transports) > 1 {
			continue // there is no rank to share memory with
		}
		d, err := openNamed(name, c)
		switch {
		case err == nil && c.together():
			return opened{Device: d}, nil
		case err == nil:
			open = append(open, d)
			far = far || !nearOnly(name)
		case c.together() && errors.Is(err, transport.ErrNoMemory):
			// The other ranks have it and would not find this one elsewhere.
			return abandon(open, fmt.Errorf("%s: %w", name, err))
		case asked && len(c.set.Transports) > 1:
			return abandon(open, fmt.Errorf("GORUN_TRANSPORTS names %s, which does not work here: %w (without the name, "+
				"or with GORUN_TRANSPORTS=auto, ranks do without it)", name, err))
		case name == "verbs" && namesDevice(c.set.VerbsDevices):
			return abandon(open, fmt.Errorf("GORUN_VERBS_DEV=%s, and verbs does not work here: %w", c.set.VerbsDevices, err))
		default:
			c.info("a transport does not work here", "transport", name, "why", err)
			failed = append(failed, multi.Unopened{Name: name, Err: err})
		}
	}
	if len(open) == 0 {
		return opened{}, reasons(failed)
	}
	if len(c.set.Transports) == 1 {
		return opened{Device: open[0]}, nil
	}
	d, err := joined(failed, open)
	if err != nil || far {
		return opened{Device: d}, err
	}
	return opened{d, reasons(slices.DeleteFunc(failed, func(u multi.Unopened) bool { return nearOnly(u.Name) }))}, nil
}

// lateOnes are the transports among some that a world with spawned ranks can have, or tcp.
func lateOnes(wanted []string) (some []string) {
	for _, t := range transports {
		if t.late && slices.Contains(wanted, t.name) {
			some = append(some, t.name)
		}
	}
	if some == nil {
		return []string{"tcp"}
	}
	return some
}

// abandon closes what is open, and returns the error.
func abandon(open []transport.Device, err error) (opened, error) {
	for _, d := range open {
		d.Close()
	}
	return opened{}, err
}

// namesDevice reports whether the user has named a device in GORUN_VERBS_DEV, and not only left some out.
func namesDevice(list string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if p := strings.TrimSpace(part); p != "" && p[0] != '!' {
			return true
		}
	}
	return false
}

// Tried is a transport that was opened on trial; Err: why it does not open on this host.
type Tried struct {
	Name string
	Err  error
}

// TryTransports opens each transport of the settings, as a rank of a job of two would, and closes it.
func TryTransports(environ []string) (all []Tried, err error) {
	set, _, err := settings.Load(environ)
	if err != nil {
		return nil, err
	}
	if set.Transports == nil {
		set.Transports = auto()
	}
	set.VerbsRegister = max(set.VerbsRegister, 1) // it need not be measured
	silent := func(string, ...any) {}
	for _, name := range set.Transports {
		d, err := openNamed(name, deviceConfig{size: 2, local: 2, job: "trial", log: silent, info: silent, debug: silent,
			set: set, secret: func() ([]byte, error) { return make([]byte, 32), nil }})
		if err == nil {
			err = d.Close()
		}
		all = append(all, Tried{name, err})
	}
	return all, nil
}

// reasons says of each why it did not open, in one line; nil: there is none.
func reasons(failed []multi.Unopened) (why error) {
	for _, u := range failed {
		reason := fmt.Errorf("%s: %w", u.Name, u.Err)
		if why != nil {
			reason = fmt.Errorf("%w; %w", why, reason)
		}
		why = reason
	}
	return why
}

// nearOnly reports whether the transport of that name reaches ranks of this host only.
func nearOnly(name string) bool {
	return slices.ContainsFunc(transports, func(l listed) bool { return l.near && l.name == name })
}

// openNamed opens a device of the transport that the user calls name.
func openNamed(name string, c deviceConfig) (transport.Device, error) {
	t, err := named(name)
	if err != nil {
		return nil, err
	}
	return t.open(c)
}

// named is the line of the list for what the user calls name.
func named(name string) (listed, error) {
	for _, t := range transports {
		if t.name == name {
			return t, nil
		}
	}
	if name == "loop" {
		return listed{}, errors.New("it connects the goroutines of RunLocal, not processes")
	}
	return listed{}, fmt.Errorf("no such transport; there is %s", strings.Join(names(), ", "))
}

// names are those of the list, which GORUN_TRANSPORTS may have.
func names() (all []string) {
	for _, t := range transports {
		all = append(all, t.name)
	}
	return all
}

// auto are those that auto chooses from.
func auto() (all []string) {
	for _, t := range transports {
		if !t.whole {
			all = append(all, t.name)
		}
	}
	return all
}

// joined makes one device of several, or even of one: the addresses of all ranks must be of one kind.
func joined(failed []multi.Unopened, open []transport.Device) (transport.Device, error) {
	d, err := multi.New(failed, open...)
	if err != nil {
		for _, o := range open {
			o.Close()
		}
		return nil, err
	}
	return d, nil
}
