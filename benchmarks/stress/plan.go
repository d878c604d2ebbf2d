package main

import "math/rand/v2"

// lane is a communicator whose receives are all of one kind.
type lane int

const (
	exact     lane = iota // source and tag
	anySource             // the tag
	anyTag                // the source
	anyBoth               // nothing
	probed                // matched probe of anything, then a receive of just that length
	lanes
)

func (l lane) String() string {
	return [...]string{"exact", "AnySource", "AnyTag", "AnySource and AnyTag", "Mprobe"}[l]
}

// mode is how a message is sent.
type mode int

const (
	send mode = iota
	isend
	ssend
	issend
	bsend
	rsend // only where the receive is posted already
	modes
)

func (m mode) String() string {
	return [...]string{"Send", "Isend", "Ssend", "Issend", "Bsend", "Rsend"}[m]
}

// message is one of a round. Its contents follow from round and number.
type message struct {
	number      int
	source, to  int
	tag, length int
	lane        lane
	mode        mode
}

// plan is a round: every rank draws the same.
type plan struct {
	round    int
	early    bool // all receives are posted before the first send
	messages []message
}

const tags = 3 // few, so that messages with one key follow each other

// newPlan draws a round. The lane probed is not posted early: a probe finds what has been sent.
func newPlan(r *rand.Rand, round, ranks, count, maxLength int) plan {
	p := plan{round: round, early: r.IntN(2) == 0}
	for i := range count {
		m := message{
			number: i, source: r.IntN(ranks), to: r.IntN(ranks), tag: r.IntN(tags),
			length: drawLength(r, maxLength), lane: lane(r.IntN(int(lanes))), mode: mode(r.IntN(int(modes))),
		}
		if m.mode == rsend && !(p.early && m.lane != probed) {
			m.mode = send
		}
		p.messages = append(p.messages, m)
	}
	return p
}

// drawLength prefers the sizes where protocols change over: most messages are small, a few are of any size.
func drawLength(r *rand.Rand, maxLength int) int {
	n := 0
	switch r.IntN(20) {
	case 0:
	case 1:
		n = r.IntN(maxLength + 1)
	case 2, 3, 4:
		n = 1<<r.IntN(18) + r.IntN(3) - 1 // around powers of two up to 128 KiB
	default:
		n = r.IntN(2000)
	}
	return min(n, maxLength)
}

// from returns the messages that one rank sends on one lane, in order.
func (p plan) from(rank int, l lane) []message {
	return p.pick(func(m message) bool { return m.source == rank && m.lane == l })
}

// into returns the messages that one rank receives on one lane, in the order of the plan.
func (p plan) into(rank int, l lane) []message {
	return p.pick(func(m message) bool { return m.to == rank && m.lane == l })
}

func (p plan) pick(fits func(message) bool) []message {
	var some []message
	for _, m := range p.messages {
		if fits(m) {
			some = append(some, m)
		}
	}
	return some
}
