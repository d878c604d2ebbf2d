package eager

import (
	"math"
	"math/bits"
)

// Every receiver grants each of its senders a number of bytes. A message that
// has arrived and is not matched takes Cost of them; when it is matched, or if
// it was matched on arrival, they are owed back, and are given back in
// batches. So what lies unmatched from one sender never exceeds its grant.
//
// A sender that has messages and no credit for an envelope asks, once until it
// gets some. It is then in want until the receiver gives it credit: what is
// owed, or, if nothing is owed and the receiver waits, more than the first grant.
// This is for envelopes only. More for payloads is granted where a blocking send
// of a short message has no credit and its receiver waits (Grow).

// Envelope is what a queued message costs besides its payload: the record that
// holds it. A payload of at most 64 bytes has its place in the record.
const Envelope = 320

// MinGrant lets a sender have a few envelopes however little memory there is.
const MinGrant = 16 * Envelope

// Grant is each sender's share of a receiver's limit. A rank is one of its own senders.
func Grant(limit int64, ranks int) int64 {
	return max(limit/int64(max(ranks, 1)), MinGrant)
}

// Cost of a message whose payload travels with it: its envelope and the buffer that Pool would give it.
func Cost(payload int) int64 {
	if payload <= 1<<minClass {
		return Envelope
	}
	return Envelope + 1<<bits.Len(uint(payload-1))
}

// CreditSender is the sender's end.
type CreditSender struct {
	credit    int64  // 0 <= credit <= grant
	envelopes int64  // what payloads leave: a quarter of the first grant, and all that was granted for envelopes later
	grant     int64  // all that was granted
	got       uint64 // all that the receiver has ever given, but for the first grant
	asked     bool   // since then
}

// Open begins with all of the grant.
func (c *CreditSender) Open(grant int64) {
	*c = CreditSender{grant: grant, credit: grant, envelopes: grant >> 2}
}

// TakePayload takes the cost of an eager message. It reports whether there was credit: without credit the message goes
// by rendezvous, and the receiver keeps only its envelope.
func (c *CreditSender) TakePayload(n int) bool {
	left := c.credit - Cost(n)
	if left < c.envelopes {
		return false
	}
	c.credit = left
	return true
}

// TakeEnvelope takes the cost of a message without payload. It reports whether there was credit: without credit the
// message stays with the sender.
func (c *CreditSender) TakeEnvelope() bool {
	if c.credit < Envelope {
		return false
	}
	c.credit -= Envelope
	return true
}

// Messages is how many may be under way at once.
func (c *CreditSender) Messages() int { return int(c.grant / Envelope) }

// Refund puts back what a message that was not sent after all had taken.
func (c *CreditSender) Refund(cost int64) { c.credit += cost }

// Return adds what the receiver gives: back, and more than before, for envelopes and for all messages. It reports
// whether the first was taken before and the others can be: if not, the peer is not to be trusted.
func (c *CreditSender) Return(back, envelopes, more int64) bool {
	if back < 0 || back > c.grant-c.credit || envelopes < 0 || envelopes > math.MaxInt64-c.grant ||
		more < 0 || more > math.MaxInt64-c.grant-envelopes {
		return false
	}
	c.credit += back + envelopes + more
	c.grant += envelopes + more
	c.envelopes += envelopes
	c.got += uint64(back + envelopes + more)
	c.asked = false
	return true
}

// Ask is called when there is no credit for a message: it reports whether the receiver must be told, with how much it
// has given until now.
func (c *CreditSender) Ask() (got uint64, notify bool) {
	notify = !c.asked
	c.asked = true
	return c.got, notify
}

// CreditReceiver is the receiver's end.
type CreditReceiver struct {
	owed  int64  // consumed and not yet given back; 0 <= owed < due
	held  int64  // queued unmatched. held + owed <= max if the peer keeps to the rules
	due   int64  // what must be owed before it is given back: half, or 1 if the sender must not wait for more
	half  int64  // of the first grant
	max   int64  // all that was granted
	given uint64 // all that was ever given, but for the first grant
	want  bool   // the sender has messages and no credit, and none is under way to it
	seen  uint64 // given and owed, at the last call of Stuck
}

// Open begins with all of the grant at the sender's.
func (c *CreditReceiver) Open(grant int64) {
	*c = CreditReceiver{half: grant >> 1, due: grant >> 1, max: grant}
}

// Messages is how many the sender may have under way at once.
func (c *CreditReceiver) Messages() int { return int(c.max / Envelope) }

// Charge notes a queued message. It reports whether the sender had credit for it: a correct peer never overdraws.
func (c *CreditReceiver) Charge(cost int64) bool {
	c.held += cost
	return c.held+c.owed <= c.max
}

// Refund is called when a message that was charged is matched.
func (c *CreditReceiver) Refund(cost int64) { c.held -= cost }

// Consume notes credit of a matched message, and reports whether what is owed must be given back now (Back): not until
// that is half of the first grant.
func (c *CreditReceiver) Consume(cost int64) (due bool) {
	c.owed += cost
	return c.owed >= c.due
}

// Back is what is owed, which is to be given back now.
func (c *CreditReceiver) Back() int64 {
	n := c.owed
	c.owed = 0
	c.give(n)
	return n
}

func (c *CreditReceiver) give(n int64) {
	if n != 0 {
		c.given += uint64(n)
		c.due, c.want = c.half, false
	}
}

// Asked notes that the sender has run out of credit after it had got that much. It reports whether the sender waits
// from now on: it does not if more is under way to it.
func (c *CreditReceiver) Asked(got uint64) bool {
	c.want = got == c.given
	return c.want
}

// Stuck reports whether none of the sender's messages has been matched since the last call, and nothing was given.
func (c *CreditReceiver) Stuck() bool {
	was := c.seen
	c.seen = c.given + uint64(c.owed)
	return was == c.seen
}

// Wants reports whether the sender waits for credit.
func (c *CreditReceiver) Wants() bool { return c.want }

// Serve is called for a sender that waits for credit where the receiver waits. It returns what must be given now: what
// is owed or, if nothing is, more than was granted, as much as lies in the way, for envelopes. Both are 0 if all that it
// has sent is matched and on the way to be consumed.
func (c *CreditReceiver) Serve() (back, envelopes int64) {
	switch {
	case c.owed > 0:
		return c.Back(), 0
	case c.held > 0:
		return 0, c.Grow(c.held)
	}
	c.due = 1
	return 0, 0
}

// Grow grants so much more, or as much as lies in the way, and returns how much that is.
func (c *CreditReceiver) Grow(least int64) int64 {
	more := min(max(c.held, least), math.MaxInt64-c.max)
	c.max += more
	c.give(more)
	return more
}
