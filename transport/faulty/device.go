package faulty

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/transport"
)

// ErrInjected is the error of operations that fail because the plan says so.
var ErrInjected = errors.New("faulty: injected failure")

var (
	errCut  = fmt.Errorf("faulty: connection cut by plan: %w", transport.ErrPeerGone)
	errDead = fmt.Errorf("faulty: this rank is dead by plan: %w", transport.ErrPeerGone)
)

// Device misbehaves. The caller's lock guards all of it, as it does in any Device.
type Device struct {
	transport.Device
	facts transport.Facts // those of the wrapped device, with functions of ours
	seed  int64
	plan  Plan

	polls      uint64
	stallUntil uint64
	queues     []*queue           // one for each peer that has sent, in order of appearance
	later      []late             // what keeps no order with packets
	held       int                // packets in queues, and later
	lent       [][]byte           // payloads of the previous Poll
	pkts       []transport.Packet // what the wrapped device fills
	cuts       map[int]*cut       // of the plan, by peer; the map does not change
	down       map[int32]bool     // peers of which Down has been given
	met        map[int]bool       // peers that packets have gone to or come from; false: Down has come of it
	dead       bool
	wake       func(thread bool) // ends a sleep; nil: no rank sleeps here

	pollDice, armDice *rand.Rand
}

// queue is what one peer has sent and the engine has not been given. Its order never changes. A device that matches
// tags has one queue for all peers: the order in which it has seen messages tells which of them it has matched.
type queue struct {
	peer  int32
	items []item
	until uint64 // nothing is given before this poll
}

type item struct {
	transport.Packet      // Payload is our copy
	thrown           bool // whether the dice for a delay have been thrown
}

// late is an event that comes at a later poll. end makes it when it is due. Started: the wrapped device will report it;
// Full: not yet.
type late struct {
	due uint64
	end func() (transport.Packet, transport.State)
}

type cut struct {
	left   int
	broken bool
	inner  atomic.Pointer[transport.Link] // to the peer; nil: not made
}

// maxHeld is the number of packets held back at which the wrapped device is not polled, so that its own bounds are
// felt.
const maxHeld = 256

// Wrap returns d misbehaving by p.
func Wrap(d transport.Device, seed int64, p Plan) transport.Device {
	f := &Device{Device: d, facts: *d.Facts(), seed: seed, plan: p, pkts: make([]transport.Packet, 32),
		cuts: map[int]*cut{}, down: map[int32]bool{}, met: map[int]bool{}}
	f.pollDice, f.armDice = f.dice(1), f.dice(2)
	for _, c := range p.Cuts {
		f.cuts[c.Peer] = &cut{left: c.After}
	}
	f.facts.Short, f.facts.ConnectNow = nil, nil // all goes through Poll and Connect
	f.facts.Wake = slices.Clone(f.facts.Wake)
	inner := f.facts.Wake[0].Notify
	f.facts.Wake[0].Notify = func(wake func(thread bool)) {
		f.wake = wake
		if inner != nil {
			inner(wake)
		}
	}
	f.facts.Offload = f.offload(f.facts.Offload)
	if f.facts.Tagged != nil {
		f.facts.Tagged = &tagged{f.facts.Tagged, f, f.dice(3)}
	}
	return f
}

func (d *Device) dice(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(uint64(d.seed), stream)) }

func hit(dice *rand.Rand, chance float64) bool { return chance > 0 && dice.Float64() < chance }

// in is one of the next polls.
func (d *Device) in(dice *rand.Rand, polls int) uint64 {
	return d.polls + 1 + uint64(dice.IntN(polls+1))
}

// Facts is transport.Device's.
func (d *Device) Facts() *transport.Facts { return &d.facts }

// Connect wraps the link.
func (d *Device) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	inner, err := d.Device.Connect(ctx, peer, address)
	if err != nil {
		return nil, err
	}
	return d.wrapLink(inner, peer), nil
}

// Poll takes everything from the wrapped device and gives some of it.
func (d *Device) Poll(pkts []transport.Packet) int {
	d.polls++
	for i, b := range d.lent { // the engine has had its time: a reader that is late reads this
		poison(b)
		d.lent[i] = nil
	}
	d.lent = d.lent[:0]
	d.take()
	n := 0
	if d.held > 0 && d.polls >= d.stallUntil {
		n = d.give(pkts)
	}
	if d.held > 0 { // the wake-up for what is held back has been spent, and no rank may sleep before it is polled
		d.wakeAll()
	}
	return n
}

func poison(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}

func (d *Device) wakeAll() {
	if d.wake != nil {
		d.wake(true)
		d.wake(false)
	}
}

// take moves packets from the wrapped device into the queues.
func (d *Device) take() {
	for d.held < maxHeld {
		Spoil(d.pkts)
		n := d.Device.Poll(d.pkts)
		for i := range d.pkts[:n] {
			var p transport.Packet
			Take(&p, &d.pkts[i])
			p.Payload = bytes.Clone(p.Payload)
			d.hold(p)
		}
		if n < len(d.pkts) {
			return
		}
	}
}

func (d *Device) hold(p transport.Packet) {
	c := d.cuts[int(p.Peer)]
	switch p.Event {
	case transport.RMADone, transport.TaggedDone, transport.Reached:
		d.delay(p, d.plan.LateRMA)
		return
	case transport.OffloadBack:
		if hit(d.pollDice, d.plan.LateBack) {
			d.delay(p, 1)
			return
		}
	case transport.Unmatched:
		if d.facts.Offload == nil { // the engine does not know that the device can match
			p.Event = transport.Arrived
			d.Device.Facts().Offload.Seen()
		}
	}
	if d.dead || c != nil && c.broken {
		return // our Down has been queued: nothing comes after it
	}
	d.append(p)
	switch {
	case p.Event == transport.Down:
		if d.met[int(p.Peer)] = false; c != nil {
			c.broken = true // by the peer itself: there is one Down only
		}
	case p.Event == transport.Arrived:
		d.count(int(p.Peer))
	}
}

// delay lets an event that keeps no order come at once, or by chance later.
func (d *Device) delay(p transport.Packet, chance float64) {
	due := d.polls
	if hit(d.pollDice, chance) {
		due = d.in(d.pollDice, d.plan.LateFor)
	}
	d.comeLater(due, func() (transport.Packet, transport.State) { return p, transport.Done })
}

// comeLater has the rank poll for it. The rank may be armed.
func (d *Device) comeLater(due uint64, end func() (transport.Packet, transport.State)) {
	d.later = append(d.later, late{due, end})
	d.held++
	d.wakeAll()
}

// tellRoom reports room at the poll due, of a link that has refused because the plan says so.
func (d *Device) tellRoom(due uint64, peer int) {
	d.comeLater(due, func() (transport.Packet, transport.State) {
		return transport.Packet{Event: transport.Room, Peer: int32(peer)}, transport.Done
	})
}

func (d *Device) append(p transport.Packet) {
	peer := p.Peer
	if d.facts.Offload != nil || d.facts.Tagged != nil { // an operation has events of several peers
		peer = 0
	}
	i := slices.IndexFunc(d.queues, func(q *queue) bool { return q.peer == peer })
	if i < 0 {
		i = len(d.queues)
		d.queues = append(d.queues, &queue{peer: peer})
	}
	d.queues[i].items = append(d.queues[i].items, item{Packet: p})
	d.held++
}

// count breaks the connection with peer if its time has come, or ends the device.
func (d *Device) count(peer int) {
	if _, known := d.met[peer]; !known {
		d.met[peer] = true
	}
	if d.plan.Death.step() {
		d.die()
		return
	}
	c := d.cuts[peer]
	if c == nil || c.broken {
		return
	}
	if c.left--; c.left <= 0 {
		c.broken, d.met[peer] = true, false
		if l := c.inner.Load(); l != nil && (*l).Caps().Cut != nil {
			(*l).Caps().Cut() // its own Down is not passed on
		}
		d.append(transport.Packet{Event: transport.Down, Peer: int32(peer), Err: errCut})
		d.wakeAll()
	}
}

// die closes the wrapped device, whose peers see that. Nothing of it comes any more.
func (d *Device) die() {
	d.dead = true
	d.Device.Close()
	for peer, up := range d.met {
		if up {
			d.append(transport.Packet{Event: transport.Down, Peer: int32(peer), Err: errDead})
		}
	}
	d.wakeAll()
}

// give hands out what is due, and packets, each from a peer drawn by lot.
func (d *Device) give(pkts []transport.Packet) int {
	if hit(d.pollDice, d.plan.Stall) {
		d.stallUntil = d.in(d.pollDice, d.plan.StallFor)
		return 0
	}
	if len(pkts) > 0 && hit(d.pollDice, d.plan.Short) {
		pkts = pkts[:d.pollDice.IntN(len(pkts))]
	}
	Spoil(pkts)
	n := d.giveLate(pkts)
	ready := slices.Clone(d.queues)
	for n < len(pkts) && len(ready) > 0 {
		i := d.pollDice.IntN(len(ready))
		if d.pop(ready[i], &pkts[n]) {
			n++
		} else {
			ready = slices.Delete(ready, i, i+1)
		}
	}
	return n
}

// giveLate ends what is due.
func (d *Device) giveLate(pkts []transport.Packet) (n int) {
	d.later = slices.DeleteFunc(d.later, func(l late) bool {
		if d.polls < l.due || n == len(pkts) {
			return false
		}
		p, state := l.end()
		if state == transport.Full {
			return false
		}
		d.held--
		if state == transport.Done && !(p.Event == transport.Room && d.down[p.Peer] && d.facts.Tagged == nil) {
			Take(&pkts[n], &p)
			n++
		}
		return true
	})
	return n
}

// pop takes the oldest packet of q. It reports whether there was one that is not held back.
func (d *Device) pop(q *queue, to *transport.Packet) bool {
	if len(q.items) == 0 || d.polls < q.until {
		return false
	}
	it := &q.items[0]
	if !it.thrown && hit(d.pollDice, d.plan.Delay) {
		it.thrown = true
		q.until = d.in(d.pollDice, d.plan.DelayFor)
		return false
	}
	Take(to, &it.Packet)
	d.lent = append(d.lent, it.Payload)
	if it.Event == transport.Down {
		d.down[it.Peer] = true
	}
	q.items = q.items[1:]
	d.held--
	return true
}

// Arm reports whether the device is armed. It refuses while anything is held back: that can be polled, if not at once.
func (d *Device) Arm(level transport.Level) bool {
	if d.held > 0 || hit(d.armDice, d.plan.EarlyArm) {
		d.Device.Disarm()
		return false
	}
	if !d.Device.Arm(level) {
		return false
	}
	if d.wake != nil && hit(d.armDice, d.plan.EarlyWake) {
		d.wake(level == transport.Thread || level == transport.Futex)
	}
	return true
}

// Close forgets what is held back.
func (d *Device) Close() error {
	d.queues, d.later, d.held, d.lent = nil, nil, 0, nil
	return d.Device.Close()
}
