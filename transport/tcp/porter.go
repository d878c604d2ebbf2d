package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// porter takes connections from whoever comes and hands on those of the job. What a stranger costs is bounded: as many
// places as guestsMax, each for the length of a step, and a line in the log per second and reason.
type porter struct {
	ln      net.Listener
	g       *greeter
	deliver func(*greeted)
	log     func(msg string, args ...any)
	refused [reasons]atomic.Uint64
	quit    chan struct{} // closed by Close
	wg      sync.WaitGroup

	mu       sync.Mutex // guards what follows; not held while anything waits
	closed   bool
	guests   []*guest             // whose handshake is under way, in order of arrival
	unproved int                  // of them; ≤ guestsMax
	crowd    map[netip.Prefix]int // how many of the unproved come from where
	notices  [reasons]notice
}

// guest is a connection whose handshake is under way. All fields but the first are guarded by porter.mu.
type guest struct {
	conn   net.Conn
	from   netip.Prefix  // a host; with IPv6 its network, of whose addresses it has as many as it likes
	proved bool          // is not turned out any more
	out    bool          // has been turned out
	done   chan struct{} // closed when its goroutine is about to end
}

// guestsMax is how many unproved connections there are at most.
const guestsMax = 128

// notice is what has been refused for one reason and not been logged yet.
type notice struct {
	count  uint64
	from   netip.Addr
	others bool        // from more than one address
	timer  *time.Timer // not nil: a line has been logged within the last noticePause
}

const noticePause = time.Second

// newPorter starts to accept. deliver gets the accepted connections, in goroutines of the porter; Close waits for it.
// log gets whole sentences.
func newPorter(ln net.Listener, g *greeter, deliver func(*greeted), log func(msg string, args ...any)) *porter {
	p := &porter{ln: ln, g: g, deliver: deliver, log: log, quit: make(chan struct{}), crowd: map[netip.Prefix]int{}}
	p.wg.Add(1)
	go p.receive()
	return p
}

// Refused is how many connections were closed because the other end did not prove to belong to the job. Those that a
// dialler of the job drops because another of its connections was faster are not counted.
func (p *porter) Refused() (n uint64) {
	for why := isProper + 1; why < isGone; why++ {
		n += p.refused[why].Load()
	}
	return n
}

// Close ends all that is under way and waits for it.
func (p *porter) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.wg.Wait()
		return
	}
	p.closed = true
	for _, g := range p.guests {
		g.conn.Close()
	}
	for why := range p.notices {
		if t := p.notices[why].timer; t != nil {
			t.Stop()
		}
	}
	p.mu.Unlock()
	close(p.quit)
	p.ln.Close()
	p.wg.Wait()
	for why := range p.notices {
		if line := p.notices[why].take(reason(why)); line != "" {
			p.log(line)
		}
	}
}

func (p *porter) receive() {
	defer p.wg.Done()
	var pause time.Duration
	for {
		conn, err := p.ln.Accept()
		switch {
		case err == nil:
			pause = 0
			p.welcome(conn)
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, syscall.ECONNABORTED), errors.Is(err, syscall.EINTR):
		default:
			// Mostly there are no descriptors left. Strangers may have them.
			if pause == 0 {
				p.log(fmt.Sprintf("tcp: cannot accept connections, trying again: %v", err))
			}
			p.makeRoom()
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-p.quit:
				return
			}
		}
	}
}

// welcome begins the handshake on conn.
func (p *porter) welcome(conn net.Conn) {
	from := addrOf(conn.RemoteAddr())
	if d, ok := p.ln.(*door); ok && !d.admits(addrOf(conn.LocalAddr())) {
		abort(conn)
		p.refuse(isElsewhere, from)
		return
	}
	g := &guest{conn: conn, from: host(from), done: make(chan struct{})}
	for !p.seat(g) {
		p.makeRoom()
	}
}

// seat starts g's goroutine, unless there is no place; then it returns false.
func (p *porter) seat(g *guest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		g.conn.Close()
		return true
	}
	if p.unproved >= guestsMax {
		return false
	}
	p.guests = append(p.guests, g)
	p.unproved++
	p.crowd[g.from]++
	p.wg.Add(1)
	go p.attend(g)
	return true
}

// makeRoom turns out the oldest unproved guest from where most of them come, so that who is alone is not turned out for
// the sake of a crowd, and waits until it is gone, so that goroutines do not pile up.
func (p *porter) makeRoom() {
	p.mu.Lock()
	var oldest *guest
	for _, g := range p.guests {
		if !g.proved && (oldest == nil || p.crowd[g.from] > p.crowd[oldest.from]) {
			oldest = g
		}
	}
	if oldest == nil {
		p.mu.Unlock()
		return
	}
	oldest.out = true
	p.leaves(oldest)
	p.mu.Unlock()
	abort(oldest.conn)
	<-oldest.done
}

// leaves takes g off the list. mu is held.
func (p *porter) leaves(g *guest) {
	for i := range p.guests {
		if p.guests[i] == g {
			last := len(p.guests) - 1
			copy(p.guests[i:], p.guests[i+1:])
			p.guests[last] = nil
			p.guests = p.guests[:last]
			break
		}
	}
	if !g.proved {
		p.counts(g)
	}
}

// counts takes g off the number of the unproved. mu is held.
func (p *porter) counts(g *guest) {
	p.unproved--
	if p.crowd[g.from]--; p.crowd[g.from] == 0 {
		delete(p.crowd, g.from)
	}
}

// attend does g's handshake.
func (p *porter) attend(g *guest) {
	defer p.wg.Done()
	defer close(g.done)
	gr, err := p.g.acceptProving(g.conn, func() bool { return p.proves(g) })
	p.mu.Lock()
	if !g.out {
		p.leaves(g)
	}
	out, closed := g.out, p.closed
	p.mu.Unlock()
	switch {
	case out:
		p.refuse(isCrowding, addrOf(g.conn.RemoteAddr()))
	case err != nil && !closed:
		p.failed(err, addrOf(g.conn.RemoteAddr()))
	case err == nil && closed && gr.conn != nil:
		gr.conn.Close()
	case err == nil && gr.code == accepted:
		p.deliver(gr)
	}
}

// proves notes that g has proved itself; false: it was turned out before.
func (p *porter) proves(g *guest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.out || p.closed {
		return false
	}
	g.proved = true
	p.counts(g)
	return true
}

// failed counts a handshake that has not come to its end.
func (p *porter) failed(err error, from netip.Addr) {
	switch why := whyOf(err); {
	case why > isProper && why < isGone:
		p.refuse(why, from)
	case why != isGone:
		p.log(fmt.Sprintf("tcp: a connection from %v: %v", from, err))
	}
}

// refuse counts a stranger, and logs it now or together with those that come within the pause.
func (p *porter) refuse(why reason, from netip.Addr) {
	p.refused[why].Add(1)
	p.mu.Lock()
	n := &p.notices[why]
	n.others = n.others || n.count > 0 && n.from != from
	n.from = from
	n.count++
	line := ""
	if n.timer == nil && !p.closed {
		line = n.take(why)
		n.timer = time.AfterFunc(noticePause, func() { p.notify(why) })
	}
	p.mu.Unlock()
	if line != "" {
		p.log(line)
	}
}

// notify logs what has come together in a pause.
func (p *porter) notify(why reason) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.wg.Add(1)
	defer p.wg.Done()
	n := &p.notices[why]
	line := n.take(why)
	if line == "" {
		n.timer = nil
	} else {
		n.timer.Reset(noticePause)
	}
	p.mu.Unlock()
	if line != "" {
		p.log(line)
	}
}

// take returns the line for the log, or nothing, and begins anew.
func (n *notice) take(why reason) string {
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
	line := fmt.Sprintf("tcp: %s refused from %v%s: %s", count, n.from, others, words[why])
	n.count, n.others = 0, false
	return line
}

// abort closes without a farewell: a stranger's connection leaves nothing in the kernel.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// addrOf is the address without its port; the zero value if there is none.
func addrOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// host is what counts as one origin.
func host(a netip.Addr) netip.Prefix {
	if a.Is6() {
		p, _ := a.WithZone("").Prefix(64)
		return p
	}
	return netip.PrefixFrom(a, 32)
}
