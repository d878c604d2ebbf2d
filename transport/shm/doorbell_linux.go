package shm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// doorbells are pipes, one for a goroutine and one for a thread of an inbox's owner, so that one arrival wakes one
// sleeper. A rank rings under the engine's lock, so no doorbell may block. Whether a write blocks belongs to the open
// file: so each process opens it anew, which can be done with a pipe, and no other process can change that.
type doorbells struct{ goroutineFD, threadFD int }

// noDoorbells are closed.
var noDoorbells = doorbells{-1, -1}

func (b *doorbells) each(f func(fd *int)) { f(&b.goroutineFD); f(&b.threadFD) }

func (b *doorbells) close() {
	b.each(func(fd *int) {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	})
}

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

func newDoorbell() (heard, rung int, err error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return -1, -1, fmt.Errorf("shm: pipe: %w", err)
	}
	return pipe[0], pipe[1], nil
}

// reopen opens doorbells, which this process has, as files of its own.
func (b doorbells) reopen() (own doorbells, err error) {
	own = noDoorbells
	if own.goroutineFD, err = reopen(b.goroutineFD); err == nil {
		own.threadFD, err = reopen(b.threadFD)
	}
	if err != nil {
		own.close()
	}
	return own, err
}

// reopen opens a doorbell that this process has, its own or a peer's, as a file of its own.
func reopen(fd int) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, fmt.Errorf("shm: a doorbell: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return -1, fmt.Errorf("shm: a doorbell that is no pipe (mode %#o)", st.Mode)
	}
	return openPipe("self", fd)
}

func openPipe(process string, fd int) (int, error) {
	own, err := unix.Open(pathOf(process, fd), unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, fmt.Errorf("shm: a doorbell: %w", err)
	}
	return own, nil
}

// peerInbox is what this process has of the inbox of another rank.
type peerInbox struct {
	doorbells // files of this process
	mem       []byte
	box       *inbox
}

// noInbox is closed.
var noInbox = peerInbox{doorbells: noDoorbells}

func (in *peerInbox) close() {
	in.doorbells.close()
	unix.Munmap(in.mem)
}

// inboxFDs is how many descriptors an inbox is handed over as: its memory, and two doorbells.
const inboxFDs = 3

// handed are those of this rank.
func (o *ownInbox) handed() []int { return []int{o.fd, o.offered.goroutineFD, o.offered.threadFD} }

// sharedInbox is one that was handed over. The link to its owner and the ring from it have it in common.
type sharedInbox struct {
	peerInbox
	peer  int
	users int // guarded by Device.mu
}

// takeInbox returns peer's inbox, which may be known already, until releaseInbox. It owns fds.
func (d *Device) takeInbox(peer int, fds []int) (*sharedInbox, error) {
	defer closeFDs(fds)
	in := &sharedInbox{peer: peer}
	var err error
	if in.doorbells, err = (doorbells{fds[1], fds[2]}).reopen(); err != nil {
		return nil, err
	}
	if in.mem, err = mapPeer(fds[0], inboxSize, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		in.doorbells.close()
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

// releaseInbox takes one user of the inbox away. in may be nil.
func (d *Device) releaseInbox(in *sharedInbox) {
	if in == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if in.users--; in.users == 0 {
		delete(d.inboxes, in.peer)
		in.close()
	}
}
