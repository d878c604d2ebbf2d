package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	chunk = 32 << 10
	// maxLine is where a line without end is cut.
	maxLine = 256 << 10
	// partialAfter is how long the beginning of a line waits for its end; a prompt must be seen.
	partialAfter = 100 * time.Millisecond
	// quiet is how long a stream that should be at its end may be silent before it is given up: a process that is not
	// ours to kill still holds the other end.
	quiet = 250 * time.Millisecond
	// maxHeld bounds what one rank's dump may take in memory.
	maxHeld = 8 << 20
)

// sink is where the streams of all ranks come together: one write per run of whole lines, so that no line is torn.
type sink struct {
	mu  sync.Mutex // one for both: they may be the same terminal
	err error      // guarded by mu; the first write that failed
}

func (s *sink) write(to io.Writer, b []byte) {
	if len(b) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := to.Write(b); err != nil && s.err == nil {
		s.err = err
	}
}

// stream carries the output of one rank from its pipe to the sink. Its fields belong to pump.
type stream struct {
	from *os.File
	to   io.Writer
	sink *sink
	tag  string // before each line; "": none
	head string // before what was held back

	line []byte // the beginning of a line whose end has not come
	out  []byte // tagged lines, reused

	hold   *atomic.Bool // collect everything: what comes is a dump that should not be mixed with others'
	ending *atomic.Bool // the processes are gone: silence means the end
	held   []byte
	forced bool // the line in hand has been written in part already
}

// pump runs until the stream ends.
func (s *stream) pump() {
	defer s.from.Close()
	buf := make([]byte, chunk)
	for {
		s.from.SetReadDeadline(s.patience())
		if s.ending.Load() { // end may have set its deadline just before ours
			s.from.SetReadDeadline(s.patience())
		}
		n, err := s.from.Read(buf)
		if n > 0 {
			s.take(buf[:n])
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if s.ending.Load() {
				s.finish()
				return
			}
			s.flushPartial()
		default:
			s.finish()
			return
		}
	}
}

// patience says until when the next read may wait.
func (s *stream) patience() time.Time {
	switch {
	case s.ending.Load():
		return time.Now().Add(quiet)
	case len(s.line) > 0 && s.tag == "":
		return time.Now().Add(partialAfter)
	}
	return time.Time{}
}

// end makes pump stop at the latest when the stream has been silent for a while. Called by others after ending was set.
func (s *stream) end() { s.from.SetReadDeadline(time.Now().Add(quiet)) }

func (s *stream) take(b []byte) {
	if s.hold.Load() && len(s.held) < maxHeld {
		s.held = append(s.held, b...)
		return
	}
	last := bytes.LastIndexByte(b, '\n')
	if last < 0 {
		s.line = append(s.line, b...)
		if len(s.line) > maxLine {
			s.flushAll()
		}
		return
	}
	if len(s.line) > 0 {
		s.line = append(s.line, b[:last+1]...)
		s.emit(s.line)
		s.line = s.line[:0]
	} else {
		s.emit(b[:last+1])
	}
	s.line = append(s.line, b[last+1:]...)
}

// emit writes whole lines (or the end of one that was begun).
func (s *stream) emit(b []byte) {
	if s.tag == "" {
		s.sink.write(s.to, b)
		return
	}
	s.out = s.out[:0]
	for l := range bytes.Lines(b) {
		s.out = append(append(s.out, s.tag...), l...)
	}
	s.sink.write(s.to, s.out)
}

// flushPartial shows an unfinished line, such as a prompt. With tags the line waits for its end instead: what
// another rank writes in between could not be told apart.
func (s *stream) flushPartial() {
	if s.tag == "" {
		s.flushAll()
	}
}

func (s *stream) flushAll() {
	if len(s.line) > 0 && s.tag != "" {
		s.line = append(s.line, '\n')
	}
	s.emit(s.line)
	s.line = s.line[:0]
}

func (s *stream) finish() {
	s.flushAll()
	if len(s.held) == 0 {
		return
	}
	if s.held[len(s.held)-1] != '\n' {
		s.held = append(s.held, '\n')
	}
	if s.tag != "" {
		s.emit(s.held)
		return
	}
	s.sink.write(s.to, append([]byte(s.head), s.held...))
}

// tagOf is what stands before each line of a rank with --tag-output; in colour the number's colour is the rank's.
func tagOf(rank int, colour bool) string {
	tag := "[" + strconv.Itoa(rank) + "] "
	if !colour {
		return tag
	}
	colours := [...]int{36, 33, 32, 35, 34, 31}
	return fmt.Sprintf("\x1b[%dm[%d]\x1b[0m ", colours[rank%len(colours)], rank)
}
