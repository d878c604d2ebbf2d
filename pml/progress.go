package pml

// progress polls once, handles what came, and goes on with what is under way. It returns how much it did. The caller
// holds the lock.
func (e *Engine) progress() int {
	if e.gone {
		return 0
	}
	n := e.dev.Poll(e.pkts[:])
	if e.direct {
		for i := range n {
			e.links.event(&e.pkts[i])
		}
	} else {
		n += e.path.events(e.pkts[:n])
	}
	if e.load.pending != 0 {
		n += e.path.work()
	}
	return n
}
