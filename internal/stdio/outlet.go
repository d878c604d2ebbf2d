package stdio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

const (
	// maxQueue is how much may wait for a destination before the streams of the ranks wait too.
	maxQueue = 256 << 10
	// maxWords is how much may wait for it at all: gorun's words are few, unless a process provokes them without end.
	maxWords = 64 << 20
	// maxWrite is how much is written at once: the destination's progress is seen after each write.
	maxWrite = 64 << 10
)

// Outlet is a destination of output: standard output, standard error, or both of them where they are one file, so that
// no line is torn. One goroutine writes. A destination that takes nothing stops that goroutine and the streams of the
// ranks (Put), but no caller of Write, which is what the supervisor uses.
type Outlet struct {
	to       io.Writer
	broken   func(error)   // called once, with the first write that failed; EPIPE: the reader has gone
	done     chan struct{} // closed when all is written after end, or when the rest is dropped
	coloured bool          // tags may be in colour

	mu      sync.Mutex
	room    sync.Cond // of mu: the queue is shorter
	more    sync.Cond // of mu: the queue is longer, or ended
	queue   []byte    // guarded by mu; to be written
	writing int       // guarded by mu; bytes that the goroutine has taken from the queue and that are not written yet
	took    time.Time // guarded by mu; when the destination last took something, or had nothing to take
	ended   bool      // guarded by mu; nothing more comes
	dropped bool      // guarded by mu; what is not written is lost, and what comes as well
	lost    int       // guarded by mu; bytes that were dropped
	err     error     // guarded by mu; the first write that failed
	status  string    // guarded by mu; the last line of a terminal is to show it while nothing is written
	shown   string    // guarded by mu; it does
	midLine bool      // guarded by mu; what was written last is no whole line
}

// newOutlets makes the outlets of two files: one Outlet if both are the same file.
func newOutlets(stdout, stderr *os.File, broken func(error)) (out, err *Outlet) {
	out = NewOutlet(stdout, colours(stdout), broken)
	if sameFile(stdout, stderr) {
		return out, out
	}
	return out, NewOutlet(stderr, colours(stderr), broken)
}

// colours reports whether a file is a terminal that shows colours, and the user wants them.
func colours(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}

// NewOutlet makes an Outlet. coloured says whether tags may be in colour; broken is called once, with the first write
// that has failed.
func NewOutlet(to io.Writer, coloured bool, broken func(error)) *Outlet {
	o := &Outlet{to: to, coloured: coloured, broken: broken, done: make(chan struct{})}
	o.room.L, o.more.L = &o.mu, &o.mu
	go o.run()
	return o
}

// Coloured reports whether tags may be in colour.
func (o *Outlet) Coloured() bool { return o.coloured }

// Write queues words of gorun itself. It never waits.
func (o *Outlet) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) < maxWords {
		o.add(b)
	}
	return len(b), nil
}

// Put queues output of a rank. It waits while the queue is full.
func (o *Outlet) Put(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) >= maxQueue && !o.dropped {
		o.room.Wait()
	}
	if o.add(b); len(o.queue) < maxQueue {
		o.room.Signal() // the next one that waits
	}
}

// add is called with mu held.
func (o *Outlet) add(b []byte) {
	if o.dropped {
		o.lost += len(b)
		return
	}
	if len(o.queue) == 0 && o.writing == 0 {
		o.took = time.Now()
	}
	o.queue = append(o.queue, b...)
	o.more.Signal()
}

// SetStatus has the last line of a terminal show text, whenever there is nothing to be written; "": nothing.
func (o *Outlet) SetStatus(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status = text
	o.more.Signal()
}

// line returns the text that the last line of a terminal is to show now. It is called with mu held.
func (o *Outlet) line() string {
	if len(o.queue) > 0 || o.ended || o.midLine {
		return ""
	}
	return o.status
}

// showStatus shows the status, or removes it, and reports whether there was anything to do. It is called with mu held.
func (o *Outlet) showStatus() bool {
	words, want := "", o.line()
	if want == o.shown {
		return false
	}
	if o.shown != "" {
		words = "\r\x1b[K"
	}
	o.shown = want
	o.mu.Unlock()
	writeAll(o.to, []byte(words+want))
	o.mu.Lock()
	return true
}

// Flush ends the outlet, and waits until all is written or dropped.
func (o *Outlet) Flush() {
	o.mu.Lock()
	o.ended = true
	o.more.Signal()
	o.mu.Unlock()
	<-o.done
}

// Stalled returns for how long the destination has taken nothing although there is something for it.
func (o *Outlet) Stalled() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped || len(o.queue) == 0 && o.writing == 0 {
		return 0
	}
	return time.Since(o.took)
}

// Drop gives up what is not written yet, and what comes later.
func (o *Outlet) Drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropLocked()
}

func (o *Outlet) dropLocked() {
	if o.dropped {
		return
	}
	o.dropped, o.lost, o.queue = true, o.lost+len(o.queue)+o.writing, nil
	close(o.done)
	o.room.Broadcast()
	o.more.Signal()
}

// Result returns, after Flush: the first error, and how many bytes were dropped.
func (o *Outlet) Result() (lost int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost, o.err
}

// run writes, until end or drop.
func (o *Outlet) run() {
	var batch []byte
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for len(o.queue) == 0 && !o.ended && !o.dropped && o.line() == o.shown {
			o.more.Wait()
		}
		if o.dropped {
			return
		}
		if o.showStatus() {
			continue
		}
		if len(o.queue) == 0 {
			o.dropped = true // for a stream that has been given up and still writes
			close(o.done)
			return
		}
		batch, o.queue = o.queue, batch[:0]
		o.writing, o.midLine = len(batch), batch[len(batch)-1] != '\n'
		o.room.Signal()
		for rest := batch; len(rest) > 0 && !o.dropped; {
			p := oneWrite(rest)
			rest = rest[len(p):]
			o.mu.Unlock()
			err := writeAll(o.to, p)
			o.mu.Lock()
			o.took, o.writing = time.Now(), len(rest)
			o.failed(err)
		}
	}
}

// failed notes an error of a write. Called with mu held.
func (o *Outlet) failed(err error) {
	if err == nil || o.dropped {
		return
	}
	if errors.Is(err, syscall.EPIPE) {
		o.dropLocked()
	}
	if o.err == nil {
		o.err = err
		o.broken(err)
	}
}

// oneWrite is the beginning of b that is written at once: whole lines, if they are not too long.
func oneWrite(b []byte) []byte {
	if len(b) <= maxWrite {
		return b
	}
	if end := bytes.LastIndexByte(b[:maxWrite], '\n'); end >= 0 {
		return b[:end+1]
	}
	return b[:maxWrite]
}

// writeAll waits where the destination is non-blocking: another process that has the same terminal or pipe may make it
// so at any time.
func writeAll(to io.Writer, b []byte) error {
	for {
		n, err := to.Write(b)
		b = b[n:]
		file, ok := to.(*os.File)
		if !ok || !errors.Is(err, syscall.EAGAIN) {
			return err
		}
		conn, err := file.SyscallConn()
		if err != nil {
			return err
		}
		conn.Control(func(fd uintptr) { unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1) })
	}
}

// Unread reports whether a file is a pipe or a socket whose reader has gone.
func Unread(f *os.File) bool {
	if f == nil {
		return false
	}
	p := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
