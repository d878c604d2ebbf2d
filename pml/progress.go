package pml

// progress polls once, handles what came, and goes on with what is under way. It returns how much it did. The caller
// holds the lock; afterwards the device may not be armed as it was (see exitCall).
func (e *Engine) progress() int {
	if e.closed != nil {
		return 0 // the device may be gone
	}
	n := e.dev.Poll(e.pkts[:])
	if n != 0 {
		e.wait.arrived()
	}
	for i := range n {
		e.links.event(&e.pkts[i])
	}
	if e.load.pending != 0 {
		n += e.path.work()
	}
	return n
}
