package shm

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"
)

// doorbells are sockets, one for a goroutine and one for a thread of an inbox's owner, so that one arrival wakes one
// sleeper. Not eventfds: a peer can make those block again after any check, since O_NONBLOCK belongs to the open file
// that all share, and a rank rings under the engine's lock. Whether a send blocks is said by each call.
type doorbells struct{ goroutineFD, threadFD int }

// clear is transport.Wake's.
func (b doorbells) clear(thread bool) {
	if thread {
		clearDoorbell(b.threadFD)
	} else {
		clearDoorbell(b.goroutineFD)
	}
}

// wake wakes the owner of box if it wants to be woken for this.
func (b doorbells) wake(box *inbox, urgent bool) {
	for {
		st := box.state.Load()
		if st == stIdle || st == stUrgent && !urgent {
			return
		}
		if box.state.CompareAndSwap(st, stIdle) {
			switch st {
			case stFutex:
				wakeSleepers(&box.state)
			case stThread:
				ringDoorbell(b.threadFD)
			default:
				ringDoorbell(b.goroutineFD)
			}
			return
		}
	}
}

// inboxFDs is how many descriptors an inbox is handed over as: its memory, and two doorbells.
const inboxFDs = 3

// handed are those of this rank.
func (o *ownInbox) handed() []int { return []int{o.fd, o.goroutineFD, o.threadFD} }

// peerInbox is that of another rank. The link to it and the ring from it have it in common.
type peerInbox struct {
	doorbells
	peer  int
	mem   []byte
	box   *inbox
	users int // guarded by Device.mu
}

// takeInbox returns peer's inbox, which may be known already, until releaseInbox. It owns fds.
func (d *Device) takeInbox(peer int, fds []int) (*peerInbox, error) {
	in := &peerInbox{doorbells: doorbells{fds[1], fds[2]}, peer: peer}
	err := cmp.Or(checkDoorbell(fds[1]), checkDoorbell(fds[2]))
	if err == nil {
		in.mem, err = mapPeer(fds[0], inboxSize, unix.PROT_READ|unix.PROT_WRITE)
	}
	unix.Close(fds[0])
	if err != nil {
		closeFDs(fds[1:])
		return nil, err
	}
	in.box = inboxOf(in.mem)
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.inboxes[peer]; known != nil {
		in.close()
		in = known
	}
	d.inboxes[peer] = in
	in.users++
	return in, nil
}

// releaseInbox: one user less.
func (d *Device) releaseInbox(in *peerInbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in.users--; in.users == 0 {
		delete(d.inboxes, in.peer)
		in.close()
	}
}

func (in *peerInbox) close() {
	closeFDs([]int{in.goroutineFD, in.threadFD})
	unix.Munmap(in.mem)
}

// checkDoorbell: a sender rings under the engine's lock, so a doorbell that can block would block this rank for ever. A
// send to a socket of this kind that says that it must not block never does.
func checkDoorbell(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err := cmp.Or(err, err2); err != nil || domain != unix.AF_UNIX || kind != unix.SOCK_STREAM {
		return fmt.Errorf("shm: a doorbell that is no socket of the right kind (domain %d, type %d, %v)", domain, kind, err)
	}
	return nil
}
