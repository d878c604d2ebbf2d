package auth

import (
	"fmt"
	"net/netip"
	"time"
)

// notice is the handshakes that have failed for one reason and have not been logged yet.
type notice struct {
	count  int
	err    error // of the last one
	from   netip.Addr
	others bool // from more than one address
}

// noticePause is how long what fails after a line in the log is collected for the next one.
const noticePause = time.Second

// note counts a failed handshake and has it logged.
func (a *Acceptor) note(err error, from netip.Addr) {
	why := Why(err)
	if why == Gone {
		return
	}
	a.failed[why].Add(1)
	a.mu.Lock()
	n := &a.notices[why]
	*n = notice{n.count + 1, err, from, n.others || n.count > 0 && n.from != from}
	a.mu.Unlock()
	a.wakeLogger()
}

// noteStuck has it logged that no connection can be accepted.
func (a *Acceptor) noteStuck(err error) {
	a.mu.Lock()
	a.stuck = err
	a.mu.Unlock()
	a.wakeLogger()
}

func (a *Acceptor) wakeLogger() {
	select {
	case a.noted <- struct{}{}:
	default:
	}
}

// logNotices logs one line for each reason, and after a pause what has come together in it, until Close.
func (a *Acceptor) logNotices() {
	for {
		select {
		case <-a.noted:
			a.logNow()
		case <-a.quit:
			return
		}
		select {
		case <-time.After(noticePause):
		case <-a.quit:
			return
		}
	}
}

func (a *Acceptor) logNow() {
	a.mu.Lock()
	all, stuck := a.notices, a.stuck
	a.notices, a.stuck = [reasons]notice{}, nil
	a.mu.Unlock()
	if stuck != nil {
		a.opt.Log(fmt.Sprintf("%s: cannot accept connections, trying again: %v", a.opt.Name, stuck))
	}
	for why := range all {
		if all[why].count > 0 {
			a.opt.Log(a.opt.Name + ": " + all[why].text(Reason(why)))
		}
	}
}

func (n *notice) text(why Reason) string {
	text := "1 connection"
	if n.count > 1 {
		text = fmt.Sprintf("%d connections", n.count)
	}
	if why.refused() {
		text += " refused"
	}
	text += " from " + origin(n.from)
	if n.others {
		text += " and others"
	}
	if why.refused() {
		return text + ": " + words[why]
	}
	return text + " failed: " + n.err.Error()
}

// origin is where a connection came from, for people.
func origin(a netip.Addr) string {
	if !a.IsValid() {
		return "this host"
	}
	return a.String()
}
