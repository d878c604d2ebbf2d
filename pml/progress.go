package pml

import "github.com/gorun-mpi/mpi/transport"

// progress polls once, handles what came, and goes on with what is under way. It returns how much it did. The caller
// holds the lock.
func (e *Engine) progress() int {
	if e.gone {
		return 0
	}
	n, more := 0, true
	if e.short != nil {
		n, more = e.shorts()
	}
	if more {
		n += e.poll()
	}
	if e.load.pending != 0 {
		n += e.links.work()
	}
	return n
}

func (e *Engine) poll() int {
	e.unpolled = 0
	n := e.dev.Poll(e.pkts[:])
	if !e.direct {
		return n + e.path.events(e.pkts[:n])
	}
	for i := range n {
		e.links.event(&e.pkts[i])
	}
	return n
}

// maxUnpolled calls of short happen between two Polls at most.
const maxUnpolled = 256

// shorts takes short messages that need no packet, as many as a Poll would. It returns how many, and whether Poll is
// next.
func (e *Engine) shorts() (n int, more bool) {
	for ; n < len(e.pkts); n++ {
		if e.unpolled++; e.unpolled > maxUnpolled {
			return n, true
		}
		m, found := e.short()
		if found != transport.FoundShort {
			return n, found == transport.FoundOther
		}
		if p := e.links.known(m.Source); p != nil && p.err == nil {
			e.links.onEager(p, m.Ctx, m.Tag, m.Payload)
		} else {
			e.links.onShort(m)
		}
		if e.wait.calling && e.load.outstanding == 0 {
			return n + 1, false // the caller has what it waits for, and nothing else is posted
		}
	}
	return n, false
}
