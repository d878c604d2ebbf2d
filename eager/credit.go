package eager

import "math/bits"

// Every receiver grants each of its senders a number of bytes. A message that
// has arrived and is not matched takes Cost of them; when it is matched, or if
// it was matched on arrival, they are owed back, and are given back in
// batches. So what lies unmatched from one sender never exceeds its grant.

// Envelope is what a queued message costs beside its payload: the record that
// holds it.
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
		return Envelope + 1<<minClass
	}
	return Envelope + 1<<bits.Len(uint(payload-1))
}

// CreditSender is the sender's end.
type CreditSender struct {
	grant  int64
	credit int64 // 0 <= credit <= grant
}

// Open begins with all of the grant.
func (c *CreditSender) Open(grant int64) { c.grant, c.credit = grant, grant }

// TakePayload takes the cost of an eager message, or says no: then the message goes by rendezvous, of which the
// receiver keeps the envelope only. A quarter of the grant is for envelopes.
func (c *CreditSender) TakePayload(n int) bool {
	left := c.credit - Cost(n)
	if left < c.grant>>2 {
		return false
	}
	c.credit = left
	return true
}

// TakeEnvelope takes the cost of a message without payload, or says no: then it stays with the sender.
func (c *CreditSender) TakeEnvelope() bool {
	if c.credit < Envelope {
		return false
	}
	c.credit -= Envelope
	return true
}

// Messages is how many may be under way at once.
func (c *CreditSender) Messages() int { return int(c.grant / Envelope) }

// Return puts back what a message that was not sent after all had taken, or what the receiver gives back. It reports
// false if that is more than was ever granted: the peer is not to be trusted.
func (c *CreditSender) Return(n int64) bool {
	if n < 0 || n > c.grant-c.credit {
		return false
	}
	c.credit += n
	return true
}

// CreditReceiver is the receiver's end.
type CreditReceiver struct {
	owed int64 // consumed and not yet given back; 0 <= owed
	held int64 // queued unmatched. held + owed <= grant if the peer keeps to the rules
	half int64
	max  int64
}

// Open begins with all of the grant at the sender's.
func (c *CreditReceiver) Open(grant int64) { *c = CreditReceiver{half: grant >> 1, max: grant} }

// Messages is how many the sender may have under way at once.
func (c *CreditReceiver) Messages() int { return int(c.max / Envelope) }

// Charge notes a queued message; false: the sender has overdrawn, which a correct peer never does.
func (c *CreditReceiver) Charge(cost int64) bool {
	c.held += cost
	return c.held+c.owed <= c.max
}

// Refund: a message that was charged is matched.
func (c *CreditReceiver) Refund(cost int64) { c.held -= cost }

// Consume notes credit of a matched message, and returns what should be given back now: nothing until half of the grant
// is owed.
func (c *CreditReceiver) Consume(cost int64) int64 {
	c.owed += cost
	if c.owed < c.half {
		return 0
	}
	n := c.owed
	c.owed = 0
	return n
}
