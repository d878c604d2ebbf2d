package auth

import (
	"fmt"
	"net/netip"
	"time"
)

// notice is the handshakes that have failed for one reason and have not been logged yet.
type notice struct {
	count  uint64
	err    error // of the last one
	from   netip.Addr
	others bool        // from more than one address
	timer  *time.Timer // not nil: a line has been logged within the last noticePause
}

const noticePause = time.Second

// note counts a failed handshake, and logs it now or together with those that come within the pause.
func (a *Acceptor) note(err error, from netip.Addr) {
	why := Why(err)
	if why == Gone {
		return
	}
	a.failed[why].Add(1)
	a.mu.Lock()
	n := &a.notices[why]
	n.others = n.others || n.count > 0 && n.from != from
	n.from, n.err = from, err
	n.count++
	line := ""
	if n.timer == nil && !a.closed {
		line = n.take(a.opt.Name, why)
		n.timer = time.AfterFunc(noticePause, func() { a.notify(why) })
	}
	a.mu.Unlock()
	a.log(line)
}

// notify logs what has come together in a pause.
func (a *Acceptor) notify(why Reason) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.wg.Add(1)
	defer a.wg.Done()
	n := &a.notices[why]
	line := n.take(a.opt.Name, why)
	if line == "" {
		n.timer = nil
	} else {
		n.timer.Reset(noticePause)
	}
	a.mu.Unlock()
	a.log(line)
}

// stopNotices ends the pauses. mu is held.
func (a *Acceptor) stopNotices() {
	for i := range a.notices {
		if t := a.notices[i].timer; t != nil {
			t.Stop()
		}
	}
}

// lastNotices logs what is left when no connection comes any more.
func (a *Acceptor) lastNotices() {
	for i := range a.notices {
		a.log(a.notices[i].take(a.opt.Name, Reason(i)))
	}
}

func (a *Acceptor) log(line string) {
	if line != "" {
		a.opt.Log(line)
	}
}

// take returns the line for the log, or nothing, and begins anew.
func (n *notice) take(name string, why Reason) string {
	if n.count == 0 {
		return ""
	}
	count, others := "1 connection", ""
	if n.count > 1 {
		count = fmt.Sprintf("%d connections", n.count)
	}
	if n.others {
		others = " and others"
	}
	line := fmt.Sprintf("%s: %s refused from %s%s: %s", name, count, origin(n.from), others, words[why])
	if !why.refused() {
		line = fmt.Sprintf("%s: %s from %s%s failed: %v", name, count, origin(n.from), others, n.err)
	}
	n.count, n.others = 0, false
	return line
}

// origin is where a connection came from, for people.
func origin(a netip.Addr) string {
	if !a.IsValid() {
		return "this host"
	}
	return a.String()
}
