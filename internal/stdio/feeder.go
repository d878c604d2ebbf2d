package stdio

import (
	"bytes"
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
	to    []*os.File // complete before start; owned by its goroutines until stop
	input *spool
	wake  *os.File // closing its other end ends run
	other *os.File
	done  sync.WaitGroup
}

func newFeeder(from *os.File, to []*os.File) (*feeder, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	tty := term.IsTerminal(int(from.Fd()))
	return &feeder{from: from, tty: tty, to: to, input: newSpool(), wake: r, other: w}, nil
}

func (f *feeder) start() {
	for _, w := range f.to {
		t := f.input.newTaker()
		f.done.Go(func() {
			defer w.Close() // the rank sees the end of the input
			t.run(func(b []byte) error {
				_, err := w.Write(b)
				return err
			})
		})
	}
	f.done.Go(f.run)
}

// stop ends all of it and closes the pipes. It may be called without start.
func (f *feeder) stop() {
	f.other.Close()
	f.input.end()
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
	defer f.input.end()
	buf := make([]byte, 32<<10)
	for f.input.wanted() && f.waitInput() {
		n, err := f.from.Read(buf)
		if n > 0 {
			f.input.add(bytes.Clone(buf[:n]))
		} else if err != nil {
			return
		}
	}
}

// waitInput waits for input. It reports whether there is some: false after stop.
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

// inForeground reports whether this process is in the foreground of the terminal, which alone may read from it.
func inForeground(fd int) bool {
	pgrp, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}
