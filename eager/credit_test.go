package eager

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestCost(t *testing.T) {
	for n, want := range map[int]int64{0: 64, 1: 64, 64: 64, 65: 128, 128: 128, 129: 256, 1024: 1024, 8191: 8192, 8192: 8192, 8193: 16384} {
		if got := Cost(n); got != Envelope+want {
			t.Errorf("a payload of %d bytes costs %d, want %d", n, got, Envelope+want)
		}
		var p Pool
		if got := int64(cap(p.Get(n))); got != want {
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
	if a.Return(1) || a.Return(-1) || a.Return(math.MaxInt64) || a.Return(math.MinInt64) {
		t.Error("credit is taken back that was never given")
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
	if a.Return(10_001 - a.credit) {
		t.Error("more than the grant is accepted")
	}
	if !a.Return(10_000-a.credit) || a.credit != 10_000 {
		t.Error("the whole grant cannot be given back")
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
		sum := func(of []int64) (n int64) {
			for _, v := range of {
				n += v
			}
			return n
		}
		owe := func(cost int64) {
			if n := d.Consume(cost); n != 0 {
				credits = append(credits, n)
			}
		}
		for step := range 3000 {
			switch r.IntN(6) {
			case 0, 1:
				n := r.IntN(3000)
				if a.TakePayload(n) {
					messages = append(messages, Cost(n))
				} else if a.TakeEnvelope() {
					messages = append(messages, Envelope)
				} else if len(messages)+len(credits)+len(held) == 0 {
					t.Fatalf("seed %d, step %d: no credit for an envelope, and none will come: %+v %+v", seed, step, a, d)
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
					if !a.Return(credits[0]) {
						t.Fatalf("seed %d, step %d: a receiver that kept to the rules is accused: %+v", seed, step, a)
					}
					credits = credits[1:]
				}
			}
			if all := a.credit + sum(messages) + sum(credits) + d.held + d.owed; all != grant || d.held != sum(held) {
				t.Fatalf("seed %d, step %d: %d bytes of %d are accounted for: %+v %+v", seed, step, all, grant, a, d)
			}
			if a.credit < 0 || d.held < 0 || d.owed < 0 || d.owed >= max(d.half, 1) || d.held > grant {
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
