//go:build verbs && linux && cgo

package verbs

import "sync/atomic"

// table is what Poll finds sessions by, without mu. Where a reader of a table may look, a writer changes nothing, but
// for an entry of byQPN, which goes from nil, or from a session whose queue pairs are destroyed, to a session: a
// session that is added lies in all behind the end of every table before. So to add one costs the same however many
// there are. Only when an array is full it is copied, into one twice as long.
type table struct {
	all   []*session                // by index
	byQPN []atomic.Pointer[session] // open addressing; the length is a power of two, twice the numbers in it at least
}

func (t *table) find(qpn uint32) *session {
	if len(t.byQPN) == 0 {
		return nil
	}
	mask := uint32(len(t.byQPN) - 1)
	for i := qpn * 0x9e3779b1 >> 7 & mask; ; i = (i + 1) & mask {
		s := t.byQPN[i].Load()
		if s == nil || s.has(qpn) {
			return s
		}
	}
}

// owner is the session that was made as number of-1 of all; nil: none was. Other than the number of a queue pair, that
// is never another session's.
func (t *table) owner(of uint32) *session {
	if of == 0 || int(of) > len(t.all) {
		return nil
	}
	return t.all[of-1]
}

// has reports whether a queue pair of the session has, or had, that number. Any goroutine may ask.
func (q *queuePairs) has(qpn uint32) bool {
	return q.qpn == qpn || q.serveQPN != 0 && q.serveQPN == qpn
}

// with returns a table that has s too. t is the newest table, and s has its numbers and is in no table.
func (t *table) with(s *session) *table {
	s.index = uint32(len(t.all))
	n := &table{all: append(t.all, s), byQPN: t.byQPN}
	if len(n.byQPN) >= 4*len(n.all) { // a session has up to two numbers
		n.enter(s)
		return n
	}
	n.byQPN = make([]atomic.Pointer[session], max(8, 2*len(t.byQPN)))
	for _, s := range n.all {
		n.enter(s)
	}
	return n
}

func (t *table) enter(s *session) {
	t.put(s, s.qpn)
	if s.serveQPN != 0 {
		t.put(s, s.serveQPN)
	}
}

// put takes the place of an older session with that number: the device gives the number of a destroyed queue pair anew.
func (t *table) put(s *session, qpn uint32) {
	mask := uint32(len(t.byQPN) - 1)
	i := qpn * 0x9e3779b1 >> 7 & mask
	for {
		if old := t.byQPN[i].Load(); old == nil || old != s && old.has(qpn) {
			break
		}
		i = (i + 1) & mask
	}
	t.byQPN[i].Store(s)
}
