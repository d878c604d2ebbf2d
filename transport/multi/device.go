package multi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/gorun-mpi/mpi/transport"
)

// Device is several devices as one. Its methods are guarded like the methods of any transport.Device.
type Device struct {
	devs  []transport.Device // in order of preference; they and their names do not change
	facts transport.Facts

	// These belong to the caller of Poll (the engine, under its lock).
	sources []source       // of devs
	order   []*source      // in which they are polled next
	idle    int            // polls since any of them returned something
	armed   bool           // since the last Disarm
	gone    map[int32]bool // peers whose Down has been returned

	unopened []Unopened // does not change

	mu     sync.Mutex
	chosen map[int]int // the device that has connected a peer. It stays the same, so that packets keep their order
}

// Unopened is a transport that the settings ask for and that does not work at this rank.
type Unopened struct {
	Name string
	Err  error // why
}

// New makes one device of several, in order of preference. No two may have the same name. They belong to the new
// device, unless there is an error. Its memory is the memory of the first of them that has any. A failing Connect names
// the unopened transports by which the peer could be reached.
func New(unopened []Unopened, devs ...transport.Device) (*Device, error) {
	d := &Device{gone: map[int32]bool{}, chosen: map[int]int{}, unopened: unopened}
	if err := d.addDevices(devs); err != nil {
		return nil, fmt.Errorf("%w: several transports as one: %w", transport.ErrUnavailable, err)
	}
	for i := range d.sources {
		d.order = append(d.order, &d.sources[i])
	}
	d.facts = transport.Facts{Memory: memoryOf(devs), Offload: offloadOf(devs), Via: d.viaOf, Refused: d.refused,
		Introducer: &transport.Introducer{Introduce: d.introduce, Card: d.cardOf}}
	for _, dev := range devs {
		if boards := dev.Facts().Boards; boards != nil && d.facts.Boards == nil {
			d.facts.Boards = boards // ranks that this device does not reach cannot join
		}
	}
	if short := devs[0].Facts().Short; short != nil {
		d.facts.Short = func() (transport.Short, []byte, transport.Found) { return d.short(short) }
	}
	if connect := devs[0].Facts().ConnectNow; connect != nil {
		d.facts.ConnectNow = func(peer int, address []byte) transport.Link { return d.connectNow(connect, peer, address) }
	}
	for _, dev := range devs {
		if own := dev.Facts().OwnRMA; own != nil && d.facts.OwnRMA == nil {
			d.facts.OwnRMA = own
		}
		d.facts.Wake = append(d.facts.Wake, dev.Facts().Wake...)
	}
	return d, nil
}

// offloadOf is the device that matches tags; nil: none does.
func offloadOf(devs []transport.Device) *transport.Offload {
	for _, dev := range devs {
		if o := dev.Facts().Offload; o != nil {
			return o
		}
	}
	return nil
}

// memoryOf is the memory of the first device that allocates any, and the others import it; nil: none allocates.
func memoryOf(devs []transport.Device) *transport.Memory {
	var allocator *transport.Memory
	for _, dev := range devs {
		if m := dev.Facts().Memory; m != nil {
			allocator = m
			break
		}
	}
	if allocator == nil {
		return nil
	}
	var importers []*transport.Memory
	for _, dev := range devs {
		if m := dev.Facts().Memory; m != nil && m != allocator && m.Import != nil {
			importers = append(importers, m)
		}
	}
	return &transport.Memory{
		Alloc: func(bytes int) ([]byte, error) {
			mem, err := allocator.Alloc(bytes)
			if err == nil {
				for _, m := range importers {
					m.Import(mem) // after an error the device treats it as ordinary memory
				}
			}
			return mem, err
		},
		Free: func(mem []byte) error {
			for _, m := range importers {
				m.Forget(mem)
			}
			return allocator.Free(mem)
		},
	}
}

func (d *Device) addDevices(devs []transport.Device) error {
	if len(devs) == 0 || len(devs) > maxDevices {
		return fmt.Errorf("%d of them, there must be 1 to %d", len(devs), maxDevices)
	}
	var list []namedAddress
	for _, dev := range devs {
		name := dev.Name()
		_, twice := find(list, name)
		switch {
		case twice || name == "" || len(name) > maxName:
			return fmt.Errorf("%q is listed twice, or no name of 1 to %d bytes", name, maxName)
		case len(dev.Address()) > maxAddress:
			return fmt.Errorf("the address of %s has %d bytes, the most is %d", name, len(dev.Address()), maxAddress)
		}
		d.devs = append(d.devs, dev)
		d.sources = append(d.sources, source{dev: dev, first: len(d.sources) == 0})
		list = append(list, namedAddress{name: name})
	}
	return nil
}

// Name joins the names of the devices: "shm+tcp".
func (d *Device) Name() string {
	var names []string
	for _, dev := range d.devs {
		names = append(names, dev.Name())
	}
	return strings.Join(names, "+")
}

// Facts is transport.Device's.
func (d *Device) Facts() *transport.Facts { return &d.facts }

func (d *Device) viaOf(peer int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if by, known := d.chosen[peer]; known {
		return d.devs[by].Name()
	}
	return ""
}

// Address joins the addresses of the devices, with their names.
func (d *Device) Address() []byte {
	list := make([]namedAddress, len(d.devs))
	for i, dev := range d.devs {
		list[i] = namedAddress{dev.Name(), dev.Address()}
	}
	return encode(list)
}

// Connect tries, in order, the devices for which the peer has published an address. The link is the device's own.
func (d *Device) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	offered, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: the address of rank %d: %w", transport.ErrUnavailable, peer, err)
	}
	d.mu.Lock()
	by, known := d.chosen[peer]
	d.mu.Unlock()
	failed := d.without(offered)
	for i, dev := range d.devs {
		at, ok := find(offered, dev.Name())
		if !ok || known && i != by {
			continue
		}
		link, err := dev.Connect(ctx, peer, at)
		if err == nil {
			d.mu.Lock()
			d.chosen[peer] = i
			d.mu.Unlock()
			return link, nil
		}
		failed = append(failed, fmt.Errorf("by %s: %w", dev.Name(), err))
		if ctx.Err() != nil {
			break // the others have no time left
		}
	}
	if len(failed) == 0 {
		return nil, fmt.Errorf("%w: rank %d can be reached by %s, this rank uses %s",
			transport.ErrUnavailable, peer, namesOf(offered), d.Name())
	}
	return nil, &connectError{failed}
}

// without says which of the peer's transports did not open at this rank, and why.
func (d *Device) without(offered []namedAddress) (failed []error) {
	for _, u := range d.unopened {
		if _, ok := find(offered, u.Name); ok {
			failed = append(failed, fmt.Errorf("%w: by %s, which did not open at this rank: %w", transport.ErrUnavailable,
				u.Name, u.Err))
		}
	}
	return failed
}

// connectNow is transport.Facts', by the first device: another one is not tried before that has failed.
func (d *Device) connectNow(first func(int, []byte) transport.Link, peer int, address []byte) transport.Link {
	offered, err := parse(address)
	if err != nil {
		return nil
	}
	at, ok := find(offered, d.devs[0].Name())
	d.mu.Lock()
	by := d.chosen[peer]
	d.mu.Unlock()
	if !ok || by != 0 {
		return nil
	}
	link := first(peer, at)
	if link != nil {
		d.mu.Lock()
		d.chosen[peer] = 0
		d.mu.Unlock()
	}
	return link
}

func namesOf(list []namedAddress) string {
	var names []string
	for _, e := range list {
		names = append(names, fmt.Sprintf("%q", e.name))
	}
	return strings.Join(names, ", ")
}

// connectError says all that was tried. For errors.Is it is the last device's error: that the first device does not
// reach another host is what one expects.
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

// Arm implements transport.Device: every device is armed, or none.
func (d *Device) Arm(level transport.Level) bool {
	d.idle = skipAfter // the next Poll polls all: after a sleep, or because one device has something
	d.armed = true
	for _, dev := range d.devs {
		if !dev.Arm(level) {
			d.Disarm()
			return false
		}
	}
	return true
}

// Disarm is transport.Device's.
func (d *Device) Disarm() {
	if !d.armed {
		return
	}
	d.armed = false
	for _, dev := range d.devs {
		dev.Disarm()
	}
}

func (d *Device) introduce(card []byte) {
	for _, dev := range d.devs {
		if in := dev.Facts().Introducer; in != nil {
			in.Introduce(card)
		}
	}
}

// cardOf is the card that the first device with a card of peer has.
func (d *Device) cardOf(peer int) []byte {
	for _, dev := range d.devs {
		if in := dev.Facts().Introducer; in != nil {
			if card := in.Card(peer); card != nil {
				return card
			}
		}
	}
	return nil
}

// refused is the sum over all devices.
func (d *Device) refused() (n uint64) {
	for _, dev := range d.devs {
		if refused := dev.Facts().Refused; refused != nil {
			n += refused()
		}
	}
	return n
}

// Close closes all devices, also after an error of one.
func (d *Device) Close() error {
	var errs []error
	for _, dev := range d.devs {
		errs = append(errs, dev.Close())
	}
	return errors.Join(errs...)
}
