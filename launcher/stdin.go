package launcher

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// feeder relays the standard input to ranks through pipes. It is needed where a descriptor cannot be handed over:
// for all ranks at once, and for a terminal, from which a process in another process group must not read.
//
// The input is read only when there is some, and from a terminal only while we are in its foreground. The
// terminal's mode and flags are never touched.
type feeder struct {
	from  *os.File
	tty   bool
	to    []*os.File // owned by run until stop
	wake  *os.File   // closing its other end ends run
	other *os.File
	done  sync.WaitGroup
}

func newFeeder(from *os.File, to []*os.File) (*feeder, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &feeder{from: from, tty: term.IsTerminal(int(from.Fd())), to: to, wake: r, other: w}, nil
}

func (f *feeder) start() { f.done.Go(f.run) }

// stop ends run and closes the pipes. It may be called more than once, and without start.
func (f *feeder) stop() {
	f.other.Close()
	for _, w := range f.to {
		w.SetWriteDeadline(time.Now()) // a rank that does not read must not hold us
	}
	f.done.Wait()
	for _, w := range f.to {
		w.Close()
	}
	f.wake.Close()
}

func (f *feeder) run() {
	defer func() {
		for _, w := range f.to {
			w.Close() // the ranks see the end of the input
		}
	}()
	buf := make([]byte, 32<<10)
	open := append([]*os.File(nil), f.to...)
	for len(open) > 0 {
		if !f.waitInput() {
			return
		}
		n, err := f.from.Read(buf)
		open = deliver(open, buf[:n])
		if n == 0 && err != nil {
			return
		}
	}
}

// waitInput returns false when stop was called.
func (f *feeder) waitInput() bool {
	for {
		fds := []unix.PollFd{
			{Fd: int32(f.from.Fd()), Events: unix.POLLIN},
			{Fd: int32(f.wake.Fd()), Events: unix.POLLIN},
		}
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil || fds[1].Revents != 0 {
			return false
		}
		if !f.tty || inForeground(int(f.from.Fd())) {
			return true
		}
		// What was typed is for the foreground job. Poll would return at once again and again.
		fds = fds[1:]
		if n, _ := unix.Poll(fds, 200); n > 0 {
			return false
		}
	}
}

// inForeground says whether reading from the terminal is ours to do.
func inForeground(fd int) bool {
	pgrp, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}

// deliver writes to all and returns those that still take input.
func deliver(to []*os.File, b []byte) []*os.File {
	kept := to[:0]
	for _, w := range to {
		if _, err := w.Write(b); err == nil {
			kept = append(kept, w)
		} else {
			w.Close() // it reads no more
		}
	}
	return kept
}
