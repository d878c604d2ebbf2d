package shm

import (
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// packetConn makes a stream of the messages of a seqpacket socket, as package auth reads it, and holds the descriptors
// that travel with them. One goroutine uses it until the handshake is over.
type packetConn struct {
	*net.UnixConn
	out    []int  // descriptors that go with the next Write; the caller's
	in     []int  // descriptors that have come, at most inMax; the packetConn's until they are taken
	unread []byte // of the last message, in buf
	buf    [auth.MaxPayload + 64]byte
}

// inMax is how many descriptors a handshake brings at most.
const inMax = inboxFDs + 1

func (p *packetConn) Write(b []byte) (int, error) {
	var rights []byte
	if len(p.out) > 0 {
		rights = unix.UnixRights(p.out...)
	}
	n, _, err := p.WriteMsgUnix(b, rights, nil)
	return n, err
}

func (p *packetConn) Read(b []byte) (int, error) {
	if len(p.unread) == 0 {
		n, fds, err := receiveFDs(p.UnixConn, p.buf[:], inMax)
		if err != nil {
			return 0, err
		}
		p.in, p.unread = append(p.in, fds...), p.buf[:n]
		if len(p.in) > inMax {
			return 0, errPacket
		}
	}
	n := copy(b, p.unread)
	p.unread = p.unread[n:]
	return n, nil
}

// awaitReady reads the byte with which a dialler says that its link is in use. One that is stopped for longer than the
// limit dials again.
func (p *packetConn) awaitReady(limit time.Duration) error {
	p.SetReadDeadline(time.Now().Add(limit))
	defer p.SetReadDeadline(time.Time{})
	var b [2]byte
	n, fds, err := receiveFDs(p.UnixConn, b[:], 1)
	if closeFDs(fds); err != nil {
		return err
	}
	if n != 1 || len(fds) != 0 || len(p.unread) != 0 || b[0] != ready {
		return errPacket
	}
	return nil
}

// take returns the descriptors, which are then the caller's, if there are count of them and no byte is left over.
func (p *packetConn) take(count int) ([]int, error) {
	if len(p.in) != count || len(p.unread) > 0 {
		return nil, errPacket
	}
	fds := p.in
	p.in = nil
	return fds, nil
}

// Close also closes what has not been taken.
func (p *packetConn) Close() error {
	p.closeFDs()
	return p.UnixConn.Close()
}

// closeFDs closes what has not been taken.
func (p *packetConn) closeFDs() {
	closeFDs(p.in)
	p.in = nil
}

// errPacket means that what has come is no message of a handshake.
var errPacket error = &auth.Error{Why: auth.NotGorun}

// errNoDescriptors means that this process has no number free for a descriptor that has come, which is lost with its
// message.
var errNoDescriptors = errors.New("shm: no file descriptor is free (ulimit -n)")

// receiveFDs reads one message with at most max descriptors, which are the caller's to close.
func receiveFDs(c *net.UnixConn, b []byte, max int) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*max))
	n, oobn, flags, err := receive(c, b, oob)
	if err != nil {
		return 0, nil, err
	}
	if n == 0 && oobn == 0 {
		return 0, nil, io.EOF
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, nil, err
	}
	for _, m := range msgs {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == 0 {
		return n, fds, nil
	}
	closeFDs(fds)
	if flags&unix.MSG_TRUNC == 0 && len(fds) < max { // there was room for more in the buffer
		return 0, nil, errNoDescriptors
	}
	return 0, nil, errPacket
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// spinFor is how long receive waits for a message without giving up this goroutine's processor. On a rank that computes
// on its only processor, getting it back takes a time slice (10 ms), and a peer waits.
const spinFor = 500 * time.Microsecond

// receive reads a message. Other processes run meanwhile; other goroutines of this process only if it takes long.
func receive(c *net.UnixConn, b, oob []byte) (n, oobn, flags int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	start := time.Now()
	e := raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), b, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			switch {
			case err == unix.EINTR:
			case err != unix.EAGAIN:
				return true
			case time.Since(start) > spinFor:
				return false
			default:
				unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			}
		}
	})
	if e != nil {
		err = e
	}
	return n, oobn, flags, err
}

// credentials are those of the process at the other end, when it connected or listened.
func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		return nil, e
	}
	return cred, err
}
