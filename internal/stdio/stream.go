package stdio

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	chunk = 32 << 10
	// maxLine is where a line without end is cut.
	maxLine = 256 << 10
	// partialAfter is how long the beginning of a line waits for its end; a prompt must be seen.
	partialAfter = 100 * time.Millisecond
)

// quiet is how long a stream that should be at its end may be silent before it is given up: a process that is not ours
// to kill still holds the other end. Tests set it.
var quiet = 250 * time.Millisecond

// chunks are the buffers that output is read into. A stream has one only while it reads: there are two for each rank.
var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// stream carries the output of one rank from its pipe to an Outlet. Its fields belong to pump.
type stream struct {
	from *os.File
	to   *Outlet
	done chan struct{} // closed when all of it is in the outlet
	tag  string        // before each line; "": none
	time bool          // the time is before each line, and before the tag

	line   []byte    // the beginning of a line whose end has not come
	since  time.Time // when it began, if there is one
	update bool      // it follows a carriage return: a progress bar, which may have no end for long
	cut    bool      // tagged, and written in part with a newline that is ours: its own, if it comes next, is left out
	out    []byte    // tagged lines, reused

	ending *atomic.Bool // the processes are gone: silence means the end
	dedup  dedupStream  // on its way to the outlet; tags come after it
}

// pump runs until the stream ends.
func (s *stream) pump() {
	defer close(s.done)
	defer s.from.Close()
	for {
		s.from.SetReadDeadline(s.patience())
		if s.ending.Load() { // end may have set its deadline just before ours
			s.from.SetReadDeadline(s.patience())
		}
		err := s.read()
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			err := s.readNow() // the machine, and not the stream, may have been silent
			switch ending := s.ending.Load(); {
			case !ending && (err == nil || err == syscall.EAGAIN):
				s.overdue()
			case err != nil:
				s.finish()
				return
			}
		default:
			s.finish()
			return
		}
	}
}

// read takes what there is, and waits for it. At the end of the stream it returns io.EOF.
func (s *stream) read() error {
	conn, err := s.from.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		failed = s.readFrom(int(fd))
		return failed != syscall.EAGAIN
	})
	return cmp.Or(err, failed) // err is the deadline
}

// readNow is read, whatever the deadline, but returns syscall.EAGAIN instead of waiting.
func (s *stream) readNow() error {
	conn, err := s.from.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = s.readFrom(int(fd)) })
	return cmp.Or(err, failed)
}

// readFrom takes what there is.
func (s *stream) readFrom(fd int) (err error) {
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	n := 0
	for err = syscall.EINTR; err == syscall.EINTR; {
		n, err = syscall.Read(fd, buf[:])
	}
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	s.take(buf[:n])
	return nil
}

// patience returns until when the next read may wait.
func (s *stream) patience() time.Time {
	if s.ending.Load() {
		return time.Now().Add(quiet)
	}
	due := s.dedup.due()
	if s.impatient() {
		if line := s.since.Add(partialAfter); due.IsZero() || line.Before(due) {
			due = line
		}
	}
	return due
}

// overdue writes what has waited for long enough.
func (s *stream) overdue() {
	now := time.Now()
	if s.impatient() && !now.Before(s.since.Add(partialAfter)) {
		s.flushLine()
	}
	if due := s.dedup.due(); !due.IsZero() && !now.Before(due) {
		s.write(s.dedup.release())
	}
}

// end makes pump stop at the latest when the stream has been silent for a while. Called by others after ending was set.
func (s *stream) end() { s.from.SetReadDeadline(time.Now().Add(quiet)) }

// impatient reports whether the line in hand is shown before its end has come. With tags that is only so for a progress
// bar: a prompt waits, because what another rank writes in between could not be told apart.
func (s *stream) impatient() bool {
	return len(s.line) > 0 && (!s.tagged() || s.update || s.line[len(s.line)-1] == '\r')
}

func (s *stream) take(b []byte) {
	if s.cut && b[0] == '\n' {
		b = b[1:]
	}
	s.cut = false
	if len(s.line) == 0 {
		s.since = time.Now()
	}
	s.line = append(s.line, b...)
	if end := s.ready(); end > 0 {
		s.emit(s.line[:end])
		s.update, s.since = s.line[end-1] == '\r', time.Now()
		s.line = append(s.line[:0], s.line[end:]...)
	}
	if len(s.line) > maxLine || s.impatient() && time.Since(s.since) >= partialAfter {
		s.flushLine()
	}
}

// ready returns the length of the whole lines in hand.
func (s *stream) ready() int {
	end := bytes.LastIndexByte(s.line, '\n') + 1
	if !s.tagged() || len(s.line) == 0 {
		return end
	}
	return max(end, bytes.LastIndexByte(s.line[:len(s.line)-1], '\r')+1) // the last byte may be the first of \r\n
}

// emit writes whole lines (or, without tags, a part of one). What a carriage return ends is a line of its own where
// lines are tagged, since other ranks write to the same one.
func (s *stream) emit(b []byte) { s.write(s.dedup.sift(b)) }

func (s *stream) write(b []byte) {
	if len(b) == 0 {
		return
	}
	if !s.tagged() {
		s.to.Put(b)
		return
	}
	tag := s.tag
	if s.time {
		tag = time.Now().Format(timeFormat) + " " + tag
	}
	s.out = s.out[:0]
	for l := range bytes.Lines(b) {
		for {
			before, after, found := bytes.Cut(l, []byte("\r"))
			if !found || string(after) == "\n" {
				break
			}
			if l = after; len(before) > 0 {
				s.out = append(append(append(s.out, tag...), before...), '\n')
			}
		}
		if len(l) > 0 {
			s.out = append(append(s.out, tag...), l...)
		}
	}
	s.to.Put(s.out)
}

// flushLine writes an unfinished line. With tags it becomes a whole one, to which no other rank's output is joined.
func (s *stream) flushLine() {
	if len(s.line) == 0 {
		return
	}
	if s.tagged() {
		s.line, s.cut = append(s.line, '\n'), true
	}
	s.emit(s.line)
	s.line = s.line[:0]
}

// finish is the end of the stream.
func (s *stream) finish() {
	s.flushLine()
	s.write(s.dedup.finish())
}

// tagged reports whether text is put before each line.
func (s *stream) tagged() bool { return s.tag != "" || s.time }

// timeFormat is that of --timestamp: hosts may be in several time zones.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// tagOf returns the text before each line of a rank with --tag-output; in colour the number's colour is the rank's.
func tagOf(from Source, colour bool) string {
	tag := strconv.Itoa(from.Rank)
	if from.Spawn != 0 {
		tag += " of spawn " + strconv.Itoa(from.Spawn)
	}
	if !colour {
		return "[" + tag + "] "
	}
	colours := [...]int{36, 33, 32, 35, 34, 31}
	return fmt.Sprintf("\x1b[%dm[%s]\x1b[0m ", colours[from.Rank%len(colours)], tag)
}
