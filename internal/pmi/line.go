package pmi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// maxWrite bounds what we write, LF included: MPICH and Slurm read a line into 1024 bytes.
	maxWrite = 1023
	// maxRead bounds what we accept, LF included. Other launchers and their ranks stay under 1024; gorun sends its ranks
	// the addresses of some 100 others in one line.
	maxRead = 16384
)

var (
	errLineTooLong = fmt.Errorf("a line is longer than %d bytes", maxRead)
	errGarbage     = errors.New("not a PMI-1 line")
)

// field is one key=value of a line. The value is kept as it came: backslash escapes are not
// undone, so that a value that is only stored and handed out again survives unchanged.
type field struct{ key, value string }

// line is one parsed command or reply.
type line struct {
	cmd    string // never empty
	multi  bool   // mcmd=: further lines follow up to "endcmd"
	fields []field
}

// parseLine takes one line without its LF.
func parseLine(b []byte) (line, error) {
	var l line
	for i := 0; i < len(b); {
		if b[i] == ' ' {
			i++
			continue
		}
		end := tokenEnd(b, i)
		key, value, ok := strings.Cut(string(b[i:end]), "=")
		if !ok || key == "" || !printable(key) || !printable(value) {
			return line{}, fmt.Errorf("%w: %.24q", errGarbage, b)
		}
		if key == "cmd" || key == "mcmd" {
			if l.cmd != "" || value == "" {
				return line{}, fmt.Errorf("%w: %.24q", errGarbage, b)
			}
			l.cmd, l.multi = value, key == "mcmd"
		} else {
			l.fields = append(l.fields, field{key, value})
		}
		i = end
	}
	if l.cmd == "" {
		return line{}, fmt.Errorf("%w: no cmd in %.24q", errGarbage, b)
	}
	return l, nil
}

// parseAbort takes an abort apart that is no proper line: its message may stand there in plain text, or be cut off. No
// mistake in it makes it ineffective.
func parseAbort(b []byte) (line, bool) {
	rest, ok := bytes.CutPrefix(b, []byte("cmd=abort"))
	if !ok || len(rest) > 0 && rest[0] != ' ' {
		return line{}, false
	}
	l := line{cmd: "abort"}
	words, text, found := strings.Cut(string(rest), " message=")
	for _, w := range strings.Fields(words) {
		if name, value, ok := strings.Cut(w, "="); ok && name == "exitcode" {
			l.fields = append(l.fields, field{name, value})
		}
	}
	if found {
		l.fields = append(l.fields, field{"message", strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, text)})
	}
	return l, true
}

// tokenEnd returns where the token that starts at i ends: at a space that no backslash escapes.
func tokenEnd(b []byte, i int) int {
	for ; i < len(b) && b[i] != ' '; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return min(i, len(b))
}

// printable reports whether s has no control characters: no launcher sends them, and a terminal may one day see them.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// get returns the first value of key, as it came.
func (l line) get(key string) (string, bool) {
	for _, f := range l.fields {
		if f.key == key {
			return f.value, true
		}
	}
	return "", false
}

// number returns the decimal value of key.
func (l line) number(key string) (int, error) {
	v, ok := l.get(key)
	if !ok {
		return 0, fmt.Errorf("no %s in the reply %q", key, l.cmd)
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, fmt.Errorf("%s=%.40q in the reply %q is not a number", key, v, l.cmd)
	}
	return n, nil
}

// rc returns the reply's return code; a missing one is 0 (hydra leaves it out).
func (l line) rc() int {
	v, ok := l.get("rc")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return -1
	}
	return n
}

// String is the line as it goes on the wire, without the LF.
func (l line) String() string {
	var b strings.Builder
	if l.multi {
		b.WriteByte('m')
	}
	b.WriteString("cmd=")
	b.WriteString(l.cmd)
	for _, f := range l.fields {
		b.WriteByte(' ')
		b.WriteString(f.key)
		b.WriteByte('=')
		b.WriteString(f.value)
	}
	return b.String()
}

// encode returns the line with its LF, ready for one write.
func (l line) encode() ([]byte, error) {
	b := l.bytes()
	if len(b) > maxWrite {
		return nil, fmt.Errorf("the PMI command %s has %d bytes, the protocol allows %d", l.cmd, len(b), maxWrite)
	}
	return b, nil
}

// bytes is the line with its LF. It may be too long for others than this package.
func (l line) bytes() []byte { return append([]byte(l.String()), '\n') }

// newLine makes a line from key, value, key, value...
func newLine(cmd string, kv ...string) line {
	l := line{cmd: cmd}
	for i := 0; i+1 < len(kv); i += 2 {
		l.fields = append(l.fields, field{kv[i], kv[i+1]})
	}
	return l
}

// unescape takes away the backslashes before blanks and backslashes, as MPICH's pmi_wire.c writes them.
func unescape(s string) string {
	if !strings.Contains(s, "\\") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}

// lineReader cuts a stream into lines of at most maxRead bytes.
type lineReader struct {
	r          io.Reader
	buf        [maxRead]byte
	start, end int // buf[start:end] has been read and not yet handed out
}

// next returns one line without its LF; with errLineTooLong what has come of it. The slice is valid until the next
// call.
func (lr *lineReader) next() ([]byte, error) {
	scanned := 0
	for {
		pending := lr.buf[lr.start:lr.end]
		if i := bytes.IndexByte(pending[scanned:], '\n'); i >= 0 {
			lr.start += scanned + i + 1
			return pending[:scanned+i], nil
		}
		scanned = len(pending)
		if scanned == maxRead {
			return pending, errLineTooLong
		}
		if lr.start > 0 {
			copy(lr.buf[:], pending)
			lr.start, lr.end = 0, scanned
		}
		n, err := lr.r.Read(lr.buf[lr.end:])
		lr.end += n
		if n == 0 && err != nil {
			if err == io.EOF && scanned > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}
