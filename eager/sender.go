package eager

import "github.com/gorun-mpi/mpi/internal/wire"

// Link is what a Sender needs of the way to its peer: it takes a packet, or says no and has taken nothing.
type Link interface {
	TrySend(h *wire.Header, payload []byte) bool
}

// Sender sends one peer what may go without asking: messages that are short enough and for which there is credit.
type Sender struct {
	Max  int // the longest message that Send takes; -1: none
	Sure int // the longest that always goes by Send; at most Max. Longer ones up to Max are measured, or follow others
	CreditSender
	link Link
	hdr  wire.Header // of the packet that is sent now

	max, sure int  // Max and Sure while it is enabled
	more      bool // a message has been sent since one has come from there
	Tuner     Tuner
}

// Connect has messages of at most max bytes go over link, as far as the receiver's grant allows. Enable lets them pass.
func (s *Sender) Connect(link Link, grant int64, max, sure int) {
	s.link, s.max, s.sure = link, max, sure
	s.CreditSender.Open(grant)
}

// Enable lets messages pass.
func (s *Sender) Enable() { s.Max, s.Sure = s.max, s.sure }

// Disable stops them: there is no link, older messages are queued (they keep their order), or the peer is gone.
func (s *Sender) Disable() { s.Max, s.Sure = -1, -1 }

// Measured reports whether Tuner decides how a caller that waits sends n bytes.
func (s *Sender) Measured(n int) bool { return n > s.Sure && n <= s.Max }

// Limit is the longest message that is eager, enabled or not.
func (s *Sender) Limit() int { return s.max }

// Send sends a message of at most Max bytes: credit, header, one dynamic call. It reports whether the message is sent:
// it is not if there is no credit for it or the link is full.
func (s *Sender) Send(ctx uint32, tag int32, buf []byte) bool {
	if !s.TakePayload(len(buf)) {
		return false
	}
	h := &s.hdr
	h.Kind, h.Flags, h.Ctx, h.Tag = wire.Eager, 0, ctx, tag
	h.More, s.more = s.more, true
	if !s.link.TrySend(h, buf) {
		s.Refund(Cost(len(buf)))
		return false
	}
	return true
}

// Follows reports whether a message has been sent since one has come from there.
func (s *Sender) Follows() bool { return s.more }

// Came notes that a message has come from there. A rank that answers each message does not send several in a row.
func (s *Sender) Came() { s.more = false }

// SendPaid sends a packet for which cost has been taken. It reports whether the packet is sent: if the link is full, it
// is not, and the credit is back.
func (s *Sender) SendPaid(h wire.Header, payload []byte, cost int64) bool {
	s.hdr = h
	if !s.link.TrySend(&s.hdr, payload) {
		s.Refund(cost)
		return false
	}
	return true
}
