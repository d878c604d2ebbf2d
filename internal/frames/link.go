package frames

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Window is how many bytes of output, or of input, may be on their way.
const Window = 512 << 10

// maxUrgent is how many bytes of other frames may wait for a stream that takes nothing.
const maxUrgent = 64 << 20

// ErrEnded is why a link has ended whose stream has.
var ErrEnded = errors.New("the stream has ended")

// Silence is why a link has ended whose other end was not heard for so long.
type Silence time.Duration

func (s Silence) Error() string { return "it has not been heard for " + time.Duration(s).String() }

// Options of a link.
type Options struct {
	Down    bool          // what is received goes down
	Silence time.Duration // after which the other end is lost; SetSilence changes it
	// Receive is called with each frame but pings and room, by one goroutine. An error ends the link.
	Receive func(Frame) error
	// Lost is called once, when the link ends and Close was not called before, by a goroutine that may hold locks of
	// the link's.
	Lost func(error)
}

// Link is one end of a stream.
type Link struct {
	r    io.Reader
	w    io.Writer
	opts Options

	mu     sync.Mutex
	more   sync.Cond // of mu: there is something to send, or the link has ended
	room   sync.Cond // of mu: the window is open, what was sent is on its way, or the link has ended
	urgent []byte    // guarded by mu
	bulk   []byte    // guarded by mu
	window int       // guarded by mu; bytes of output that may be sent
	busy   bool      // guarded by mu; in a write
	ended  error     // guarded by mu
	broken error     // guarded by mu; why nothing can be written any more; the last words of the other end may be read
	quiet  bool      // guarded by mu; Close was called
	heard  bool      // guarded by mu; something has come since watch looked
	silent int       // guarded by mu; how often watch has looked since, and nothing had come
	paused bool      // guarded by mu; the other end is stopped, and silent
	taking bool      // guarded by mu; in a call of Receive: what comes meanwhile is not read
	quit   chan struct{}

	silence chan time.Duration // for watch; has room for one
}

// New begins to send, to receive and to ping.
func New(r io.Reader, w io.Writer, o Options) *Link {
	l := &Link{r: r, w: w, opts: o, window: Window, quit: make(chan struct{}), silence: make(chan time.Duration, 1)}
	l.more.L, l.room.L = &l.mu, &l.mu
	go l.write()
	go l.read()
	go l.watch()
	return l
}

// Send queues a frame before all output. It never waits.
func (l *Link) Send(k Kind, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil || l.broken != nil {
		return
	}
	if len(l.urgent) > maxUrgent {
		l.end(fmt.Errorf("it takes nothing: %d bytes wait for it", len(l.urgent)))
		return
	}
	l.urgent = Append(l.urgent, Frame{k, body})
	l.more.Signal()
}

// SendBulk sends a piece of a program, or output or input within the window, in frames of kind part and the last of
// kind last. It waits for room.
func (l *Link) SendBulk(part, last Kind, b []byte) error {
	for len(b) > 0 {
		l.mu.Lock()
		for l.useless() == nil && (len(l.bulk) > 0 || part != File && l.window == 0) {
			l.room.Wait()
		}
		if err := l.useless(); err != nil {
			l.mu.Unlock()
			return err
		}
		n := min(len(b), Piece)
		if part != File {
			n = min(n, l.window)
			l.window -= n
		}
		k := part
		if n == len(b) {
			k = last
		}
		l.bulk = Append(l.bulk, Frame{k, b[:n]})
		l.more.Signal()
		l.mu.Unlock()
		b = b[n:]
	}
	return nil
}

// SendAfter sends a frame after all that was given to SendBulk before.
func (l *Link) SendAfter(k Kind, body []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.useless() == nil && len(l.bulk) > 0 {
		l.room.Wait()
	}
	if err := l.useless(); err != nil {
		return err
	}
	l.bulk = Append(l.bulk, Frame{k, body})
	l.more.Signal()
	return nil
}

// useless is why nothing can be sent. mu is held.
func (l *Link) useless() error {
	if l.ended != nil {
		return l.ended
	}
	return l.broken
}

// Drain waits until all that was sent has been written, the link has ended, or the time is over.
func (l *Link) Drain(limit time.Duration) {
	over := false
	t := time.AfterFunc(limit, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		over = true
		l.room.Broadcast()
	})
	defer t.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.ended == nil && !over && (l.busy || len(l.urgent) > 0 || len(l.bulk) > 0) {
		l.room.Wait()
	}
}

// Pause says that the other end is stopped, or goes on again. The silence of one that is stopped means nothing.
func (l *Link) Pause(stopped bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused, l.heard = stopped, true
}

// Silent reports whether the other end has not been heard for half of the time after which it is lost.
func (l *Link) Silent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent >= looks/2
}

// SetSilence changes after which silence the other end is lost. It is called once.
func (l *Link) SetSilence(d time.Duration) { l.silence <- d }

// Close ends the link without a word. It does not close the stream.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quiet = true
	l.end(ErrEnded)
}

// end is called with mu held.
func (l *Link) end(why error) {
	if l.ended != nil {
		return
	}
	l.ended = why
	close(l.quit)
	l.more.Broadcast()
	l.room.Broadcast()
	if !l.quiet {
		go l.opts.Lost(why)
	}
}

func (l *Link) fail(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(why)
}

func (l *Link) write() {
	var out []byte
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for l.ended == nil && len(l.urgent) == 0 && len(l.bulk) == 0 {
			l.busy = false
			l.room.Broadcast()
			l.more.Wait()
		}
		if l.ended != nil {
			return
		}
		// One piece of output at a time: what becomes urgent waits for no more than that.
		out = append(append(out[:0], l.urgent...), l.bulk...)
		l.urgent, l.bulk, l.busy = l.urgent[:0], l.bulk[:0], true
		l.room.Broadcast()
		l.mu.Unlock()
		_, err := l.w.Write(out)
		l.mu.Lock()
		if err != nil {
			l.stopWriting(fmt.Errorf("%w: %w", ErrEnded, err))
			return
		}
	}
}

// lastWords is how long the other end may be read that takes nothing any more.
const lastWords = time.Second

// stopWriting is called with mu held. An end that has said its last word and is gone takes nothing, and the word is
// still to be read.
func (l *Link) stopWriting(why error) {
	l.broken, l.urgent, l.bulk, l.busy = why, nil, nil, false
	l.room.Broadcast()
	time.AfterFunc(lastWords, func() { l.fail(why) })
}

func (l *Link) read() {
	buf, start := make([]byte, 0, 2*Piece), 0 // buf[start:] has come and is not dealt with
	for {
		f, n, need, err := Next(buf[start:])
		if n > 0 {
			err = l.receive(f)
			start += n
		}
		if err != nil {
			l.fail(err)
			return
		}
		if n > 0 {
			continue
		}
		buf, start = buf[:copy(buf, buf[start:])], 0
		if cap(buf) < need { // it grows with what comes, and not with what is announced
			buf = append(make([]byte, 0, min(need, 2*cap(buf))), buf...)
		}
		n, err = l.r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n == 0 && err != nil {
			if err != io.EOF {
				l.fail(fmt.Errorf("%w: %w", ErrEnded, err))
				return
			}
			l.fail(ErrEnded)
			return
		}
		l.mu.Lock()
		l.heard = true
		ended := l.ended
		l.mu.Unlock()
		if ended != nil {
			return
		}
	}
}

func (l *Link) receive(f Frame) error {
	if l.opts.Down && !f.Kind.Down() || !l.opts.Down && !f.Kind.Up() {
		return fmt.Errorf("a %v frame, which goes the other way", f.Kind)
	}
	switch f.Kind {
	case Ping:
		l.Send(Pong, nil)
		return nil
	case Pong:
		return nil
	case OutputRoom, StdinRoom:
		n, err := RoomOf(f.Body)
		if err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if n > Window-l.window {
			return fmt.Errorf("%d bytes of room, %d were on their way", n, Window-l.window)
		}
		l.window += n
		l.room.Broadcast()
		return nil
	}
	f.Body = append([]byte(nil), f.Body...)
	l.setTaking(true)
	defer l.setTaking(false)
	return l.opts.Receive(f)
}

func (l *Link) setTaking(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taking = yes
}

// looks is how often watch looks within the time of silence. Every second time it pings.
const looks = 8

// watch pings the other end, and ends the link when it has been silent for too long. A time in which this process did
// not run, or did not read, is not counted as silence.
func (l *Link) watch() {
	limit := l.opts.Silence
	t := time.NewTicker(limit / looks)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-l.quit:
			return
		case limit = <-l.silence:
			t.Reset(limit / looks)
			l.mu.Lock()
			l.silent = 0
			l.mu.Unlock()
		case <-t.C:
		}
		l.mu.Lock()
		if l.silent++; l.paused || l.taking || l.heard {
			l.silent = 0
		}
		l.heard = false
		lost := l.silent >= looks
		l.mu.Unlock()
		if lost {
			l.fail(Silence(limit))
			return
		}
		if n%2 == 0 {
			l.Send(Ping, nil)
		}
	}
}
