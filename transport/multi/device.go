package multi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/gorun-mpi/mpi/internal/doze"
	"github.com/gorun-mpi/mpi/transport"
)

// Device is several as one. Its guards are those of any transport.Device.
type Device struct {
	devs  []transport.Joint // in order of preference; they and their names do not change
	names []string
	place *doze.Place

	// These belong to the caller of Poll (the engine, under its lock).
	sources []source       // of devs
	order   []*source      // in which they are asked next
	quiet   int            // polls since anybody gave anything
	armed   bool           // since the last Disarm
	gone    map[int32]bool // peers whose Down has been given

	mu  sync.Mutex
	via map[int]int // by which device a peer was connected; it stays with it, or its packets could change their order

	life   sync.RWMutex // read while parked: until then no device is closed
	closed bool
}

// twoBells is a Joint that tells the two kinds of sleep apart: Descriptor and Clear are for Park(false) and ring for
// wire.Wake in any case, these are for Park(true). So one arrival wakes one sleeper. Arm is told which.
type twoBells interface {
	HeldDescriptor() int
	ClearHeld()
}

// joiner is a Joint that has reasons to end a sleep which no descriptor shows.
type joiner interface{ Join(wake func()) }

// memoryDevice is a Device of which one can allocate: the first that can makes the memory, others are told of it.
type memoryDevice struct {
	*Device
	maker transport.Memory
	told  []transport.Adopter
}

// Alloc is transport.Memory's.
func (d *memoryDevice) Alloc(bytes int) ([]byte, error) {
	mem, err := d.maker.Alloc(bytes)
	if err == nil {
		for _, a := range d.told {
			a.Adopt(mem) // or it copies
		}
	}
	return mem, err
}

// Free is transport.Memory's.
func (d *memoryDevice) Free(mem []byte) error {
	for _, a := range d.told {
		a.Forget(mem)
	}
	return d.maker.Free(mem)
}

// New makes one device of several, in order of preference. Each must be a transport.Joint, and no two may have the
// same name. They belong to the new device, unless there is an error. It is a transport.Memory if one of them is.
func New(devs ...transport.Device) (transport.Device, error) {
	d := &Device{gone: map[int32]bool{}, via: map[int]int{}}
	if err := d.take(devs); err != nil {
		return nil, fmt.Errorf("%w: several transports as one: %w", transport.ErrUnavailable, err)
	}
	var err error
	if d.place, err = doze.New(); err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
	}
	for i := range d.sources {
		s := &d.sources[i]
		if err := d.watch(s); err != nil {
			d.place.Close()
			return nil, fmt.Errorf("%w: watching %s: %w", transport.ErrUnavailable, d.names[i], err)
		}
		d.order = append(d.order, s)
	}
	if m := d.memory(devs); m != nil {
		return m, nil
	}
	return d, nil
}

// memory is nil if none of them makes any.
func (d *Device) memory(devs []transport.Device) *memoryDevice {
	var m *memoryDevice
	for _, dev := range devs {
		if maker, ok := dev.(transport.Memory); ok && m == nil {
			m = &memoryDevice{Device: d, maker: maker}
		}
	}
	for _, dev := range devs {
		if a, ok := dev.(transport.Adopter); ok && m != nil && dev != m.maker.(transport.Device) {
			m.told = append(m.told, a)
		}
	}
	return m
}

func (d *Device) take(devs []transport.Device) error {
	if len(devs) == 0 || len(devs) > maxDevices {
		return fmt.Errorf("%d of them, there must be 1 to %d", len(devs), maxDevices)
	}
	var entries []entry
	for _, dev := range devs {
		name := dev.Name()
		j, ok := dev.(transport.Joint)
		_, twice := find(entries, name)
		switch {
		case !ok:
			return fmt.Errorf("%s sleeps in a place of its own only (it is no transport.Joint)", name)
		case twice || name == "" || len(name) > maxName:
			return fmt.Errorf("%q is there twice, or no name of 1 to %d bytes", name, maxName)
		case len(dev.Address()) > maxAddress:
			return fmt.Errorf("the address of %s has %d bytes, the most is %d", name, len(dev.Address()), maxAddress)
		}
		two, _ := dev.(twoBells)
		d.devs, d.names = append(d.devs, j), append(d.names, name)
		d.sources = append(d.sources, source{dev: j, two: two, first: len(d.sources) == 0})
		entries = append(entries, entry{name: name})
	}
	return nil
}

// watch makes what arrives at a device end sleeps.
func (d *Device) watch(s *source) (err error) {
	if j, ok := s.dev.(joiner); ok {
		j.Join(d.place.Interrupt)
	}
	if s.two == nil {
		return d.place.Add(s.dev.Descriptor())
	}
	return errors.Join(d.place.AddBell(s.dev.Descriptor()), d.place.AddHeld(s.two.HeldDescriptor()))
}

// Name is that of the devices: "shm+tcp".
func (d *Device) Name() string { return strings.Join(d.names, "+") }

// Via is transport.Several's.
func (d *Device) Via(peer int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if by, known := d.via[peer]; known {
		return d.names[by]
	}
	return ""
}

// Address is those of the devices, with their names.
func (d *Device) Address() []byte {
	entries := make([]entry, len(d.devs))
	for i, dev := range d.devs {
		entries[i] = entry{d.names[i], dev.Address()}
	}
	return encode(entries)
}

// Connect tries the devices in order for which the peer has published an address. The link is the device's own.
func (d *Device) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	theirs, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: the address of rank %d: %w", transport.ErrUnavailable, peer, err)
	}
	d.mu.Lock()
	by, known := d.via[peer]
	d.mu.Unlock()
	var failed []error
	for i, dev := range d.devs {
		at, ok := find(theirs, d.names[i])
		if !ok || known && i != by {
			continue
		}
		link, err := dev.Connect(ctx, peer, at)
		if err == nil {
			d.mu.Lock()
			d.via[peer] = i
			d.mu.Unlock()
			return link, nil
		}
		failed = append(failed, fmt.Errorf("by %s: %w", d.names[i], err))
		if ctx.Err() != nil {
			break // the others have no time left
		}
	}
	if len(failed) == 0 {
		return nil, fmt.Errorf("%w: rank %d can be reached by %s, this rank uses %s", transport.ErrUnavailable, peer, namesOf(theirs), d.Name())
	}
	return nil, &connectError{failed}
}

func namesOf(entries []entry) string {
	var names []string
	for _, e := range entries {
		names = append(names, fmt.Sprintf("%q", e.name))
	}
	return strings.Join(names, ", ")
}

// connectError says all that was tried; for errors.Is it is what the last device has said, since that a first one does
// not reach another host is no news.
type connectError struct{ failed []error }

func (e *connectError) Error() string {
	var b strings.Builder
	for i, err := range e.failed {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(err.Error())
	}
	return b.String()
}

func (e *connectError) Unwrap() error { return e.failed[len(e.failed)-1] }

// Arm is transport.Device's: every device is armed, or none.
func (d *Device) Arm(level transport.Level, hold bool) bool {
	d.quiet = restAfter // the next Poll asks all: after a sleep, or because one has something and says no
	d.armed = true
	for i := range d.sources {
		s := &d.sources[i]
		if !s.dev.Arm(level, hold && s.two != nil) {
			d.Disarm()
			return false
		}
	}
	d.place.Arm(hold)
	return true
}

// Disarm is transport.Device's.
func (d *Device) Disarm() {
	if !d.armed {
		return
	}
	d.armed = false
	d.place.Disarm()
	for _, dev := range d.devs {
		dev.Disarm()
	}
}

// Park is transport.Device's.
func (d *Device) Park(hold bool) {
	d.life.RLock()
	defer d.life.RUnlock()
	if d.closed {
		return
	}
	d.place.Park(hold)
	for i := range d.sources {
		if s := &d.sources[i]; hold && s.two != nil {
			s.two.ClearHeld()
		} else {
			s.dev.Clear()
		}
	}
}

// Interrupt is transport.Device's.
func (d *Device) Interrupt() { d.place.Interrupt() }

// Introduce is transport.Introducer's.
func (d *Device) Introduce(card []byte) {
	for _, dev := range d.devs {
		if i, ok := dev.(transport.Introducer); ok {
			i.Introduce(card)
		}
	}
}

// Card is transport.Introducer's, from the first device that has one.
func (d *Device) Card(peer int) []byte {
	for _, dev := range d.devs {
		if i, ok := dev.(transport.Introducer); ok {
			if card := i.Card(peer); card != nil {
				return card
			}
		}
	}
	return nil
}

// Refused is transport.Guarded's: of all devices together.
func (d *Device) Refused() (n uint64) {
	for _, dev := range d.devs {
		if g, ok := dev.(transport.Guarded); ok {
			n += g.Refused()
		}
	}
	return n
}

// Close closes all devices, whatever the others say.
func (d *Device) Close() error {
	errs := []error{d.place.Close()} // which ends the Parks
	d.life.Lock()
	defer d.life.Unlock()
	d.closed = true
	for _, dev := range d.devs {
		errs = append(errs, dev.Close())
	}
	return errors.Join(errs...)
}

var (
	_ transport.Introducer = (*Device)(nil)
	_ transport.Guarded    = (*Device)(nil)
	_ transport.Several    = (*Device)(nil)
	_ transport.Memory     = (*memoryDevice)(nil)
)
