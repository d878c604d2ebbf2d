package faulty

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/gorun-mpi/mpi/transport"
)

// ErrInjected is the error of reads that fail because the plan says so.
var ErrInjected = errors.New("faulty: injected failure")

// Device misbehaves. The caller's lock guards all of it but parkDice, as it does in any Device.
type Device struct {
	transport.Device
	seed int64
	plan Plan

	polls      uint64
	stallUntil uint64
	queues     []*queue // one for each peer that has sent, in order of appearance
	gets       []lateGet
	got        []transport.Packet // completions of reads, which keep no order with packets
	held       int                // packets in queues, reads in gets and completions in got
	lent       [][]byte           // payloads of the previous Poll
	pkts       []transport.Packet // what the wrapped device fills
	cuts       map[int]*cut       // of the plan, by peer; the map does not change
	down       map[int32]bool     // peers of which Down has been given

	pollDice, armDice *rand.Rand
	parkMu            sync.Mutex // two Parks may be under way
	parkDice          *rand.Rand
}

// queue is what one peer has sent and the engine has not been given. Its order never changes.
type queue struct {
	peer  int32
	items []item
	until uint64 // nothing is given before this poll
}

type item struct {
	transport.Packet      // Payload is our copy
	thrown           bool // whether the dice for a delay have been thrown
}

type cut struct {
	left   int
	broken bool
}

// maxHeld: with this much held back the wrapped device is not polled, so that its own bounds are felt.
const maxHeld = 256

// Wrap returns d misbehaving by p. The result is a transport.Memory if d is, its links are Getters and know Presence
// if d's do. Whole or partial hardware matching is not passed through.
func Wrap(d transport.Device, seed int64, p Plan) transport.Device {
	f := &Device{Device: d, seed: seed, plan: p, pkts: make([]transport.Packet, 32), cuts: map[int]*cut{}, down: map[int32]bool{}}
	f.pollDice, f.armDice, f.parkDice = f.dice(1), f.dice(2), f.dice(3)
	for _, c := range p.Cuts {
		f.cuts[c.Peer] = &cut{left: c.After}
	}
	if m, ok := d.(transport.Memory); ok {
		return &struct {
			*Device
			transport.Memory
		}{f, m}
	}
	return f
}

func (d *Device) dice(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(uint64(d.seed), stream)) }

func hit(dice *rand.Rand, chance float64) bool { return chance > 0 && dice.Float64() < chance }

// Connect wraps the link; it keeps the abilities that it has.
func (d *Device) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	inner, err := d.Device.Connect(ctx, peer, address)
	if err != nil {
		return nil, err
	}
	l := &link{Link: inner, d: d, peer: peer, dice: d.dice(16 + uint64(peer))}
	g, isGetter := inner.(transport.Getter)
	p, isPresence := inner.(transport.Presence)
	switch {
	case isGetter && isPresence:
		return &struct {
			getter
			presence
		}{getter{l, g}, presence{l, p}}, nil
	case isGetter:
		return &getter{l, g}, nil
	case isPresence:
		return &struct {
			*link
			presence
		}{l, presence{l, p}}, nil
	}
	return l, nil
}

// Poll takes everything from the wrapped device and gives some of it.
func (d *Device) Poll(pkts []transport.Packet) int {
	d.polls++
	for i, b := range d.lent { // the engine has had its time: whoever still looks reads this
		for j := range b {
			b[j] = 0xdb
		}
		d.lent[i] = nil
	}
	d.lent = d.lent[:0]
	d.take()
	n := 0
	if d.held > 0 && d.polls >= d.stallUntil {
		n = d.give(pkts)
	}
	if d.held > 0 {
		// The wake-up for what is held back has been spent. Nobody may sleep before it is polled.
		d.Device.Interrupt()
	}
	return n
}

// take moves packets from the wrapped device into the queues.
func (d *Device) take() {
	for d.held < maxHeld {
		n := d.Device.Poll(d.pkts)
		for _, p := range d.pkts[:n] {
			p.Payload = append([]byte(nil), p.Payload...)
			d.hold(p)
		}
		if n < len(d.pkts) {
			return
		}
	}
}

func (d *Device) hold(p transport.Packet) {
	if p.Event == transport.Got {
		d.got = append(d.got, p)
		d.held++
		return
	}
	c := d.cuts[int(p.Peer)]
	if c != nil && c.broken {
		return // our Down has been queued: nothing comes after it
	}
	d.append(p)
	switch {
	case p.Event == transport.Arrived:
		d.count(int(p.Peer))
	case c != nil:
		c.broken = true // by the peer itself: there is one Down only
	}
}

func (d *Device) append(p transport.Packet) {
	q := d.queueOf(p.Peer)
	q.items = append(q.items, item{Packet: p})
	d.held++
}

func (d *Device) queueOf(peer int32) *queue {
	for _, q := range d.queues {
		if q.peer == peer {
			return q
		}
	}
	q := &queue{peer: peer}
	d.queues = append(d.queues, q)
	return q
}

// count breaks the connection with peer if its time has come.
func (d *Device) count(peer int) {
	c := d.cuts[peer]
	if c == nil || c.broken {
		return
	}
	if c.left--; c.left <= 0 {
		c.broken = true
		d.append(transport.Packet{Event: transport.Down, Peer: int32(peer),
			Err: fmt.Errorf("faulty: connection cut by plan: %w", transport.ErrPeerGone)})
		d.Device.Interrupt()
	}
}

// give hands out packets, each from a peer drawn by lot.
func (d *Device) give(pkts []transport.Packet) int {
	if hit(d.pollDice, d.plan.Stall) {
		d.stallUntil = d.polls + 1 + uint64(d.pollDice.IntN(d.plan.StallFor+1))
		return 0
	}
	if len(pkts) > 0 && hit(d.pollDice, d.plan.Short) {
		pkts = pkts[:d.pollDice.IntN(len(pkts))]
	}
	d.finishGets()
	n := 0
	for ; n < len(pkts) && len(d.got) > 0; n++ {
		pkts[n] = d.got[0]
		d.got = d.got[1:]
		d.held--
	}
	ready := append([]*queue(nil), d.queues...)
	for n < len(pkts) && len(ready) > 0 {
		i := d.pollDice.IntN(len(ready))
		if p, ok := d.pop(ready[i]); ok {
			pkts[n] = p
			n++
		} else {
			ready = append(ready[:i], ready[i+1:]...)
		}
	}
	return n
}

// pop takes the oldest packet of q if it is not held back.
func (d *Device) pop(q *queue) (transport.Packet, bool) {
	if len(q.items) == 0 || d.polls < q.until {
		return transport.Packet{}, false
	}
	it := &q.items[0]
	if !it.thrown && hit(d.pollDice, d.plan.Delay) {
		it.thrown = true
		q.until = d.polls + 1 + uint64(d.pollDice.IntN(d.plan.DelayFor+1))
		return transport.Packet{}, false
	}
	p := it.Packet
	q.items = q.items[1:]
	d.held--
	d.lent = append(d.lent, p.Payload)
	if p.Event == transport.Down {
		d.down[p.Peer] = true
	}
	return p, true
}

// Arm refuses while anything is held back: it can be polled, if not at once.
func (d *Device) Arm(level transport.Level, hold bool) bool {
	if d.held > 0 || hit(d.armDice, d.plan.EarlyArm) {
		d.Device.Disarm()
		return false
	}
	return d.Device.Arm(level, hold)
}

// Park may not sleep at all.
func (d *Device) Park(hold bool) {
	d.parkMu.Lock()
	early := hit(d.parkDice, d.plan.EarlyPark)
	d.parkMu.Unlock()
	if !early {
		d.Device.Park(hold)
	}
}

// Close forgets what is held back.
func (d *Device) Close() error {
	d.queues, d.gets, d.got, d.held, d.lent = nil, nil, nil, 0, nil
	return d.Device.Close()
}
