package pml

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// Credit (package eager) bounds what lies unmatched at a receiver, and never keeps a message back whose receive is
// posted; MPI 4.1 §3.5. A sender that has none left for an envelope asks for more (CreditReq). Its receiver gives it
// what it owes, and beyond that more than was granted, as soon as a receive or a probe waits that any of the messages
// kept back could match: which of them it is, only the sender knows. A receiver that waits for anything else does so
// when it has waited for a while (letSendersGoOn).
//
// Rejected: envelopes without credit. A sender of many short messages would fill a receiver that takes them as they
// come, but not as fast.

// askForCredit tells p that messages wait for it. It reports whether the link has taken that: a full link has not.
func (p *peer) askForCredit() bool {
	if got, notify := p.out.Ask(); notify {
		p.sendControl(wire.Header{Kind: wire.CreditReq, Flags: wire.Urgent, Len: got})
	}
	return p.control.len() == 0
}

// onCredit is called when p gives credit.
func (l *linkPath) onCredit(p *peer, h *wire.Header) {
	if max(h.Len, h.Addr, h.Key) > math.MaxInt64 || !p.out.Return(int64(h.Len), int64(h.Addr), int64(h.Key)) {
		p.breaks(fmt.Sprintf("it gave back %d bytes of credit that were not taken", h.Len))
		return
	}
	if p.queue.len() > 0 {
		p.flush()
	}
}

// onCreditReq is called when p has messages, and no credit for their envelopes.
func (l *linkPath) onCreditReq(p *peer, h *wire.Header) {
	credit := func(h controlPacket) bool { return h.Kind == wire.Credit }
	if p.in.Wants() || slices.ContainsFunc(p.control.items(), credit) || !p.in.Asked(h.Len) {
		return // it has asked already; or some is on its way, and if that is not enough it will ask again
	}
	l.wants(p)
	if l.awaits(p) {
		p.serve()
	}
}

// awaits reports whether a receive or a probe waits that a message of p could match.
func (l *linkPath) awaits(p *peer) bool {
	return l.table.Awaits(p.rank) || slices.ContainsFunc(l.e.probers, probesOf(p.rank))
}

// wants reports whether p waits for credit, or a caller of it is blocked.
func (p *peer) wants() bool { return p.in.Wants() || p.blocked > 0 }

// wants notes that p wants credit, perhaps since now.
func (l *linkPath) wants(p *peer) {
	if !slices.Contains(l.wanting, p) {
		l.wanting = append(l.wanting, p)
		l.needsCheck++
	}
	l.unheard = true
	l.lookAgain()
}

// served notes that p may not want anything any more.
func (l *linkPath) served(p *peer) {
	if p.wants() && p.err == nil {
		return
	}
	if i := slices.Index(l.wanting, p); i >= 0 {
		l.wanting = slices.Delete(l.wanting, i, i+1)
		l.needsCheck--
	}
}

// serve is called when a receive or a probe has found no message of source, or of any.
func (l *linkPath) serve(source int32) {
	for i := len(l.wanting) - 1; i >= 0; i-- {
		if p := l.wanting[i]; p.in.Wants() && (source == AnySource || source == p.rank) {
			p.serve()
		}
	}
}

// serve gives credit to p, for one of whose messages a receive or a probe waits.
func (p *peer) serve() {
	back, more := p.in.Serve()
	p.giveCredit(back, more, 0)
	p.sayMore(more)
}

// grow grants p more for messages of any kind, least bytes or more: a caller of it is blocked, and this rank waits.
func (p *peer) grow(least int64) {
	more := p.in.Grow(least)
	p.giveCredit(0, 0, more)
	p.sayMore(more)
}

// sayMore notes that p has been granted more than at first.
func (p *peer) sayMore(bytes int64) {
	if cfg := &p.l.e.cfg; bytes != 0 && cfg.Debug != nil && !p.l.saidMore {
		p.l.saidMore = true
		cfg.Debug("more unmatched messages than GORUN_UNEXPECTED_MAX has room for are let in, since a call waits "+
			"for one that may be behind them; said once", "peer", p.rank, "bytes-more", bytes)
	}
}

// returnToWanting gives back what is owed to peers that wait for credit: this rank is about to sleep.
func (l *linkPath) returnToWanting() {
	for i := len(l.wanting) - 1; i >= 0; i-- {
		if p := l.wanting[i]; p.in.Wants() {
			p.giveBack()
		}
	}
}

// returnCredit gives credit back for a message that is matched, if enough is owed.
func (p *peer) returnCredit(cost int64) {
	if p.in.Consume(cost) {
		p.giveBack()
	}
}

// giveBack gives back what is owed.
func (p *peer) giveBack() { p.giveCredit(p.in.Back(), 0, 0) }

// giveCredit tells p what it has got: of what it has taken, and more, for envelopes and for all messages.
func (p *peer) giveCredit(back, envelopes, more int64) {
	if back|envelopes|more == 0 {
		return
	}
	p.l.served(p)
	p.sendControl(wire.Header{Kind: wire.Credit, Flags: wire.Urgent, Len: uint64(back), Addr: uint64(envelopes),
		Key: uint64(more)})
}
