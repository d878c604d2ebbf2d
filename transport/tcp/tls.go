package tcp

import "net"

// switchConn is what a tls.Conn sits on: the connection itself, until adopt. Then the owner of the tls.Conn sees to it
// that nothing is read or written through the connection any more; deadlines have no meaning then.
type switchConn struct {
	net.Conn
	in, out func([]byte) (int, error) // nil before adopt
}

// errWouldBlock is what a read says that finds nothing. It is temporary in the sense of net.Error, so the tls.Conn
// keeps the part of a record that it has, and goes on with it at the next read.
var errWouldBlock net.Error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing there yet" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// adopt replaces the connection. read returns 0 and no error, or errWouldBlock, if nothing is there, and io.EOF at the
// end; write takes everything. Nothing may be under way; afterwards reads and writes are the caller's to order. The
// tls.Conn may already hold bytes that it read behind the handshake, so it must be read once without waiting.
func (s *switchConn) adopt(read, write func([]byte) (int, error)) { s.in, s.out = read, write }

func (s *switchConn) Read(b []byte) (int, error) {
	if s.in == nil {
		return s.Conn.Read(b)
	}
	n, err := s.in(b)
	if n == 0 && err == nil && len(b) > 0 {
		err = errWouldBlock
	}
	return n, err
}

func (s *switchConn) Write(b []byte) (int, error) {
	if s.out == nil {
		return s.Conn.Write(b)
	}
	return s.out(b)
}

// takeCipher reads what the tls.Conn is to decrypt.
func (c *conn) takeCipher(b []byte) (int, error) {
	n, err := c.fromSocket(b)
	if err == errAgain {
		err = errWouldBlock
	}
	return n, err
}

// giveCipher takes what it has encrypted: a frame, or while it is read an alert or the answer to a new key. Of a long
// payload each record goes to the kernel while it is in the cache, and the other end can begin; a copy behind the
// others would be one more.
func (c *conn) giveCipher(b []byte) (int, error) {
	all := len(b)
	if c.reading {
		c.s.d.outMu.Lock()
		defer c.s.d.outMu.Unlock()
		if c.out = append(c.out, b...); !c.blocked {
			n, _ := send(c.fd, c.out[c.sent:]) // what has no room goes with what comes next
			if c.sent += n; c.sent == len(c.out) {
				c.emptied(c.s.d)
			}
		}
		return all, nil
	}
	if c.long && !c.blocked && c.sent == len(c.out) {
		n, _ := sendMore(c.fd, b) // an error comes again with the rest
		b = b[n:]
	}
	c.out = append(c.out, b...)
	return all, nil
}
