package pml

// progress polls once, handles what came, and goes on with what is under way. It returns how much it did. The caller
// holds the lock.
func (e *Engine) progress() int {
	if e.gone {
		return 0
	}
	e.links.transfers.chooser.Looks++
	n, more := 0, true
	if e.links.shorts.next != nil {
		n, more = e.links.pollShorts()
	}
	if more {
		n += e.poll()
	}
	if e.load.pending != 0 {
		n += e.links.work() + e.schedules.advance() + e.windows.tell(e)
	}
	return n
}

func (e *Engine) poll() int {
	e.links.shorts.unpolled = 0
	pkts := e.pkts[:]
	if e.wait.untilDone {
		pkts = pkts[:min(len(pkts), max(1, e.load.outstanding))]
	}
	n := e.dev.Poll(pkts)
	if !e.direct {
		return n + e.path.events(e.pkts[:n])
	}
	for i := range n {
		e.links.event(&e.pkts[i])
	}
	return n
}
