package pmi

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// A rank that dials PMI_PORT and its launcher prove to each other that they know the job's key (GORUN_KEY) before
// either says a word of PMI-1 (internal/auth). The rank claims to be PMI_ID. The launcher's answer is sealed:
//
//	0 │ size of the job, u32, little-endian │ the job's secret
//	1 │ why this rank is refused
//
// The key never travels. PMI-1 follows in clear.
const (
	protocol = "gorun pmi 1"
	keySize  = 32

	// pendingMin connections may be open that have proved nothing, plus two per rank.
	pendingMin = 256
	// authLimit is from accept to the end of the rank's proof.
	authLimit = 10 * time.Second
)

var errKey = fmt.Errorf("%s is no key: it must be %d bytes in base64url, "+
	"as the launcher made it (its value is not shown)", EnvKey, keySize)

// parseKey reads GORUN_KEY; "" is no key.
func parseKey(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	key, err := b64.DecodeString(text)
	if err != nil || len(key) != keySize {
		return nil, errKey
	}
	return key, nil
}

// patienceDialling is how long a launcher that closes the connection at once is dialled again: its port may be flooded.
// Another key looks the same. Tests have less.
var patienceDialling = 5 * time.Second

// authenticate proves that this is rank c.rank, and learns the size of the job and its secret. It owns c.conn.
func (c *Client) authenticate(ctx context.Context, key []byte, job string) error {
	h := auth.Handshaker{Protocol: protocol, Job: job, Rank: c.rank,
		Secret: func() ([]byte, error) { return key, nil }}
	s, err := h.Dial(ctx, c.conn, auth.Launcher)
	if err == nil {
		err = s.Confirm(nil)
	}
	if err == nil {
		err = c.admitted(s.Payload)
	}
	if err == nil {
		c.conn, err = s.Finish()
	}
	if auth.Why(err) != 0 {
		return fmt.Errorf("the launcher %w (%s and %s must be as it has set them)", err, EnvKey, EnvJob)
	}
	return err
}

// admitted reads the launcher's answer.
func (c *Client) admitted(answer []byte) error {
	switch {
	case len(answer) > 5 && answer[0] == 0:
		c.size, c.secret = int(binary.LittleEndian.Uint32(answer[1:])), answer[5:]
	case len(answer) > 1 && answer[0] == 1:
		return fmt.Errorf("the launcher refused rank %d: %.200q", c.rank, answer[1:])
	}
	if c.rank >= c.size || c.secret == nil {
		return fmt.Errorf("the launcher's answer to rank %d makes no sense (%d bytes)", c.rank, len(answer))
	}
	return nil
}

// Listen serves the ranks that dial ln, which it owns, until Close. A connection that does not prove that it knows
// Options.Key learns nothing.
func (s *Server) Listen(ln net.Listener) {
	h := &auth.Handshaker{Protocol: protocol, Job: s.opts.Name, Rank: auth.Launcher, Size: s.size, Limit: s.authLimit,
		Secret: func() ([]byte, error) { return s.opts.Key, nil }}
	a := auth.Serve(ln, auth.Options{Name: "wire-up", Pending: pendingMin + 2*s.size, Serve: s.serveDialled,
		Log: s.opts.Log,
		Accept: func(conn net.Conn) (*auth.Session, error) {
			watchPeer(conn, s.opts.PeerTimeout)
			return h.Accept(conn)
		}})
	s.mu.Lock()
	s.acceptors = append(s.acceptors, a)
	s.mu.Unlock()
}

// Refused is how many connections have proved nothing.
func (s *Server) Refused() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.acceptors {
		n += a.Refused()
	}
	return n
}

// serveDialled serves a rank that has proved itself.
func (s *Server) serveDialled(a *auth.Session) {
	defer a.Close()
	c := &serverConn{s: s, conn: a.Conn}
	if err := s.enter(c, a.Peer); err != nil {
		a.Answer(append([]byte{1}, err.Error()...))
		return
	}
	answer := binary.LittleEndian.AppendUint32([]byte{0}, uint32(s.size))
	if a.Answer(append(answer, s.secret...)) == nil {
		a.Finish()
	}
	s.attend(c) // a connection that is broken already ends when it is read
}
