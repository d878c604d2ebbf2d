package eager

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestCost(t *testing.T) {
	for n, want := range map[int]int64{0: 0, 1: 0, 64: 0, 65: 128, 128: 128, 129: 256, 1024: 1024, 8191: 8192, 8192: 8192,
		8193: 16384} {
		if got := Cost(n); got != Envelope+want {
			t.Errorf("a payload of %d bytes costs %d, want %d", n, got, Envelope+want)
		}
		var p Pool
		if got := int64(cap(p.Get(n))); n > 64 && got != want {
			t.Errorf("the buffer of a payload of %d bytes has %d bytes, its cost covers %d", n, got, want)
		}
	}
}

// What all senders together may leave with a receiver is its limit; a rank may send to itself as well.
func TestGrantsStayUnderTheLimit(t *testing.T) {
	for ranks := 1; ranks < 1000; ranks++ {
		const limit = 64 << 20
		if sum := Grant(limit, ranks) * int64(ranks); sum > limit {
			t.Fatalf("%d ranks are granted %d bytes together, the limit is %d", ranks, sum, limit)
		}
	}
	if g := Grant(0, 10); g != MinGrant {
		t.Errorf("of nothing each gets %d, want %d", g, MinGrant)
	}
}

func TestCreditSenderRefuses(t *testing.T) {
	var a CreditSender
	a.Open(10_000)
	for _, n := range []int64{1, -1, math.MaxInt64, math.MinInt64} {
		if a.Return(n, 0, 0) {
			t.Errorf("%d bytes of credit are taken back that were never given", n)
		}
	}
	if a.Return(0, -1, 0) || a.Return(0, math.MaxInt64, 0) || a.Return(0, 0, -1) || a.Return(0, 0, math.MaxInt64) ||
		a.Return(0, math.MaxInt64/2, math.MaxInt64/2+1) {
		t.Error("more is granted than there can be")
	}
	for a.TakePayload(0) {
	}
	if a.credit < 2500 || a.credit > 2500+Cost(0) {
		t.Errorf("payloads leave %d of 10000 bytes, a quarter is for envelopes", a.credit)
	}
	if a.TakePayload(1 << 20) {
		t.Error("a payload is sent that costs more than there is")
	}
	for a.TakeEnvelope() {
	}
	if a.credit < 0 || a.credit >= Envelope {
		t.Errorf("envelopes leave %d bytes", a.credit)
	}
	if a.Return(10_001-a.credit, 0, 0) {
		t.Error("more than the grant is accepted")
	}
	if !a.Return(10_000-a.credit, 0, 0) || a.credit != 10_000 {
		t.Error("the whole grant cannot be given back")
	}
}

// What is granted later is for envelopes: the payloads that lie unmatched stay within the first grant.
func TestMoreIsForEnvelopes(t *testing.T) {
	var a CreditSender
	a.Open(MinGrant)
	for a.TakeEnvelope() {
	}
	if !a.Return(0, 10*MinGrant, 0) || a.TakePayload(1) {
		t.Fatalf("a payload is sent before any message is matched: %+v", a)
	}
	for a.TakeEnvelope() {
	}
	if !a.Return(11*MinGrant, 0, 0) || a.credit != 11*MinGrant {
		t.Fatalf("%+v", a)
	}
	payloads := int64(0)
	for a.TakePayload(1000) {
		payloads += Cost(1000)
	}
	if payloads == 0 || payloads > MinGrant {
		t.Errorf("payloads may take %d bytes of the %d that were granted first", payloads, int64(MinGrant))
	}
}

// More for all messages may be taken by payloads. As much is granted as lies in the way, or as the next message needs.
func TestMoreIsForPayloads(t *testing.T) {
	var a CreditSender
	var d CreditReceiver
	a.Open(MinGrant)
	d.Open(MinGrant)
	if a.TakePayload(MinGrant) || a.TakePayload(8000) {
		t.Fatalf("a payload is sent that costs more than the grant: %+v", a)
	}
	if !a.Return(0, 0, d.Grow(Cost(8000))) || !a.TakePayload(8000) || !d.Charge(Cost(8000)) {
		t.Fatalf("more was granted for one payload: %+v %+v", a, d)
	}
	if more := d.Grow(Cost(1)); more != Cost(8000) || !a.Return(0, 0, more) {
		t.Errorf("%d bytes lie in the way, %d more are granted", Cost(8000), more)
	}
	n := int64(0)
	for a.TakePayload(1) {
		n += Cost(1)
	}
	if n < Cost(8000) || a.credit < a.envelopes {
		t.Errorf("of %d bytes granted payloads take %d: %+v", Cost(8000), n, a)
	}
}

// consume is Consume, and what is given back for it.
func (c *CreditReceiver) consume(cost int64) int64 {
	if c.Consume(cost) {
		return c.Back()
	}
	return 0
}

// A sender asks once until it gets credit, and a question that has crossed credit is none.
func TestAsking(t *testing.T) {
	var a CreditSender
	var d CreditReceiver
	a.Open(MinGrant)
	d.Open(MinGrant)
	for a.TakeEnvelope() {
		d.Charge(Envelope)
	}
	got, notify := a.Ask()
	if _, again := a.Ask(); !notify || again || got != 0 {
		t.Fatalf("it asks %v with %d bytes got, and then again %v", notify, got, again)
	}
	d.Refund(Envelope)
	d.Consume(Envelope)
	n := d.Back() // on its way when the question comes
	if n != Envelope || d.Asked(got) || d.Wants() {
		t.Fatalf("%d bytes are under way, and the sender waits: %+v", n, d)
	}
	a.Return(n, 0, 0)
	a.TakeEnvelope()
	d.Charge(Envelope)
	if got, notify = a.Ask(); !notify || !d.Asked(got) || !d.Wants() {
		t.Fatalf("it has got %d bytes and used them, and asks %v: %+v", got, notify, d)
	}
	if back, more := d.Serve(); back != 0 || more != MinGrant || d.Wants() {
		t.Errorf("given %d and %d more, of what lies in the way: %+v", back, more, d)
	}
	// All is matched and on the way to be consumed: what is consumed first is given back.
	d = CreditReceiver{}
	d.Open(MinGrant)
	d.Asked(0)
	if back, more := d.Serve(); back != 0 || more != 0 || !d.Wants() {
		t.Errorf("nothing is owed, nothing lies in the way, and given are %d and %d more", back, more)
	}
	if n := d.consume(Envelope); n != Envelope || d.Wants() {
		t.Errorf("%d bytes are given back: %+v", n, d)
	}
	if n := d.consume(Envelope); n != 0 {
		t.Errorf("%d bytes are given back to a sender that does not wait: %+v", n, d)
	}
}

// A sender and a receiver that keep to the rules, with messages and credits under way for as long as chance likes: no
// byte of the grant is lost or made, the receiver never holds more than the grant and never cries wolf, and a sender
// that is out of credit gets some as soon as nothing of its is held.
func TestCreditIsConserved(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		grant := int64(MinGrant) + r.Int64N(100_000)*int64(seed%2)
		var a CreditSender
		var d CreditReceiver
		a.Open(grant)
		d.Open(grant)
		var messages, credits, held []int64 // on the way there, on the way back, unmatched
		var questions []uint64              // on the way there
		total := grant
		sum := func(of []int64) (n int64) {
			for _, v := range of {
				n += v
			}
			return n
		}
		owe := func(cost int64) {
			if n := d.consume(cost); n != 0 {
				credits = append(credits, n)
			}
		}
		for step := range 3000 {
			switch r.IntN(8) {
			case 0, 1:
				n := r.IntN(3000)
				if a.TakePayload(n) {
					messages = append(messages, Cost(n))
				} else if a.TakeEnvelope() {
					messages = append(messages, Envelope)
				} else if len(messages)+len(credits)+len(held) == 0 {
					t.Fatalf("seed %d, step %d: no credit for an envelope, and none will come: %+v %+v", seed, step, a, d)
				} else if got, notify := a.Ask(); notify {
					questions = append(questions, got)
				} else if len(questions)+len(credits) == 0 && !d.Wants() {
					t.Fatalf("seed %d, step %d: it will not ask, and the receiver does not know: %+v %+v", seed, step, a, d)
				}
			case 2:
				if len(messages) > 0 { // matched on arrival
					owe(messages[0])
					messages = messages[1:]
				}
			case 3:
				if len(messages) > 0 {
					if !d.Charge(messages[0]) {
						t.Fatalf("seed %d, step %d: a sender that kept to the rules is accused: %+v", seed, step, d)
					}
					held = append(held, messages[0])
					messages = messages[1:]
				}
			case 4:
				if len(held) > 0 {
					i := r.IntN(len(held))
					d.Refund(held[i])
					owe(held[i])
					held = append(held[:i], held[i+1:]...)
				}
			case 5:
				if len(credits) > 0 {
					more := max(0, -credits[0]) // as which it is written
					envelopes := more * int64(step%2)
					if !a.Return(max(0, credits[0]), envelopes, more-envelopes) {
						t.Fatalf("seed %d, step %d: a receiver that kept to the rules is accused: %+v", seed, step, a)
					}
					credits = credits[1:]
				}
			case 6:
				if len(questions) > 0 {
					if d.Asked(questions[0]) && (len(credits) > 0 || a.credit >= Envelope) {
						t.Fatalf("seed %d, step %d: the sender does not wait, or credit is under way: %+v %+v", seed, step, a, d)
					}
					questions = questions[1:]
				}
			case 7:
				if n := r.IntN(100); n == 0 && total < 1<<30 {
					more := d.Grow(Cost(r.IntN(3000)))
					total += more
					credits = append(credits, -more)
				} else if d.Wants() && n < 10 {
					back, more := d.Serve()
					if total += more; back > 0 {
						credits = append(credits, back)
					} else if more > 0 {
						credits = append(credits, -more)
					}
				}
			}
			under := int64(0)
			for _, n := range credits {
				under += max(n, -n)
			}
			if all := a.credit + sum(messages) + under + d.held + d.owed; all != total || d.held != sum(held) {
				t.Fatalf("seed %d, step %d: %d bytes of %d are accounted for: %+v %+v", seed, step, all, total, a, d)
			}
			if a.credit < 0 || d.held < 0 || d.owed < 0 || d.owed >= max(d.due, 1) || d.held > total || d.max != total {
				t.Fatalf("seed %d, step %d: %+v %+v", seed, step, a, d)
			}
		}
	}
}

// Overdraft is noticed with the first message that is too much.
func TestOverdraft(t *testing.T) {
	var d CreditReceiver
	d.Open(MinGrant)
	for i := range 16 {
		if !d.Charge(Envelope) {
			t.Fatalf("envelope %d of 16 is refused", i)
		}
	}
	if d.Charge(1) {
		t.Error("a byte more than the grant is held")
	}
}
