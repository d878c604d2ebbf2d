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
	if e.direct {
		for i := range n {
			e.links.event(&e.pkts[i])
		}
	} else {
		n += e.indirect(n)
	}
	if e.load.pending != 0 {
		n += e.path.work()
	}
	return n
}

// indirect hands n packets to a path that is not ours. It does not say when a message has come that a probe waits for, so
// each is looked for. It returns how many are found.
func (e *Engine) indirect(n int) int {
	for i := range n {
		e.path.event(&e.pkts[i])
	}
	waiting := len(e.probers)
	e.endProbers(func(r *Request) bool {
		_, found := e.path.probe(r.recv.Ctx, r.recv.Source, r.recv.Tag, false)
		return found
	}, nil)
	return waiting - len(e.probers)
}
