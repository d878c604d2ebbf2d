package pml

import "time"

// A watcher comes though nothing is under way: a link was full, or a peer asks for a message back (wire.Wake). What it
// has come for may lie behind messages that a caller is about to receive. It takes a few of them and comes back later.
// If it took all, a rank that is behind its senders would keep tens of thousands of messages that it has no receive
// for yet, and each costs it more than one that is still in the link.

const (
	// idleLooks is how many looks in a row find something before the watcher rests: the first may end the last
	// operation.
	idleLooks = 2
	idlePause = time.Millisecond
)

// leaves is called when the watcher has found something where nothing is under way, for the looks'th time. It reports
// whether the watcher is to sleep, and has it come back then.
func (e *Engine) leaves(looks int) bool {
	if looks < idleLooks {
		return false
	}
	if !e.wait.resting {
		e.wait.resting = true
		time.AfterFunc(idlePause, e.comeBack)
	}
	return true
}

// comeBack wakes the watcher that has left.
func (e *Engine) comeBack() {
	e.lock()
	e.wait.resting = false
	e.unlock()
	e.sleep.Interrupt()
}
