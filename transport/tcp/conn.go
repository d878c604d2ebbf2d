package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// conn is one TCP connection, used in both directions. It belongs to the caller of the device's methods, which holds
// the engine's lock, but for outgoing and what the watch has.
type conn struct {
	s     *session
	fd    int
	slot  uint32 // in connections.inUse and in the set
	tls   *tls.Conn
	where string // "10.77.0.1:4711 ↔ 10.77.0.2:40122", for people

	incoming
	over error // why nothing more comes in

	outgoing
	dirty   bool // in sending.dirty: out waits for a moment for more
	blocked bool // the socket is full; the set tells when it is not. Invariant: unsent() > 0

	// The watch's, under connections.mu.
	silence Silence               // of the peer
	dead    atomic.Pointer[error] // set by the watch before it shuts the socket down
}

// incoming is what has come in and has not been handed out: buf[r:w]. What Poll has returned lies before r and stays
// until the next read, which is in another Poll.
type incoming struct {
	buf     []byte
	r, w    int
	early   bool        // the tls.Conn has read more than its handshake
	more    bool        // the tls.Conn may hold more, which makes no socket readable
	need    int         // bytes of the frame that is at r, if they are not all there
	readIn  uint64      // the Poll that has read it last: not twice in one
	reading bool        // the tls.Conn is being read, by which it may write
	listed  bool        // in receiving.ready
	into    []byte      // where the rest of the fragment that is coming in goes; nil: none is
	skip    int         // bytes of a fragment that is not wanted any more
	coming  wire.Header // of that fragment; Addr is where into begins
	streams bool        // the next frame is probably a fragment: its header is read alone, and the rest not copied
}

// outgoing is what is to be sent, in this order. sending.outMu guards it, since the flush timer sends too. The peer
// gets frames whole: what has been begun stays here until it is sent.
type outgoing struct {
	out    []byte // out[sent:] is to be sent
	sent   int
	lent   []byte // of the caller of lend
	alone  bool   // a frame is offered, and nothing was unsent before it
	cut    bool   // one found the connection cut off and was refused; so are those after it
	long   bool   // TLS: what is being encrypted is long
	closed bool   // the descriptor is
}

// errClosed means that the other end has closed, and not said goodbye.
var errClosed = errors.New("connection closed by the other end")

// received is how many bytes wait in the buffer.
func (c *incoming) received() int { return c.w - c.r }

// unsent is how many bytes have been taken and are not with the kernel.
func (c *outgoing) unsent() int { return len(c.out) - c.sent + len(c.lent) }

// broken is the error that says why c ended, with the name of the link.
func (c *conn) broken(err error) error {
	if dead := c.dead.Load(); dead != nil {
		err = *dead
	}
	if err == io.EOF {
		err = errClosed
	}
	if err == syscall.ETIMEDOUT { // the kernel's own words do not say what to do
		err = fmt.Errorf("no answer to keep-alive (GORUN_PEER_TIMEOUT is %v): the link is down, or the other host is",
			c.s.d.opt.PeerTimeout)
	}
	return transport.Gone("tcp: link to rank %d (%s): %w", c.s.peer, c.where, err)
}

// gaveUp reports whether the kernel or the watch has waited long enough for an answer; there is no point in dialling
// again.
func (c *conn) gaveUp(err error) bool {
	return c.dead.Load() != nil || errors.Is(err, syscall.ETIMEDOUT)
}
