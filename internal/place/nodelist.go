package place

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The limits of a text.
const (
	MaxHosts = 1 << 16
	MaxRanks = 1 << 20
	maxName  = 253 // bytes, as DNS has it
)

// TextError is what is wrong with a text about hosts, and where.
type TextError struct {
	Source  string // a file, a flag or a variable
	Line    int    // from 1; 0: the source has no lines
	Column  int    // from 1, in bytes
	Problem string // and what to write instead
}

func (e *TextError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s, column %d: %s", e.Source, e.Column, e.Problem)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Source, e.Line, e.Column, e.Problem)
}

// Nodelist expands a list of names such as n[01-16,20],login, as Slurm does: numbers keep the zeros of the first one
// of a range, several brackets in one name are all combinations of them, and names that come twice stay twice. In
// addition to Slurm a name may go on after a bracket (n[1-3].cluster), and an address of IPv6 may stand in one.
func Nodelist(source, text string) ([]string, error) {
	r := &reader{source: source, text: text}
	var all []string
	for r.skip(", \t\n") {
		names, err := r.names()
		if err == nil {
			err = r.ends(", \t\n")
		}
		if err != nil {
			return nil, err
		}
		if len(all)+len(names) > MaxHosts {
			return nil, r.wrong(r.at, "more than %d hosts", MaxHosts)
		}
		all = append(all, names...)
	}
	return all, nil
}

// reader reads one line about hosts.
type reader struct {
	source string
	line   int // 0: the source has no lines
	text   string
	at     int // the next byte
}

func (r *reader) wrong(at int, format string, args ...any) error {
	return &TextError{Source: r.source, Line: r.line, Column: at + 1, Problem: fmt.Sprintf(format, args...)}
}

// skip passes over bytes of the set. It reports whether anything is left.
func (r *reader) skip(set string) bool {
	for r.nextIn(set) {
		r.at++
	}
	return r.at < len(r.text)
}

// nextIn reports whether the next byte is of the set.
func (r *reader) nextIn(set string) bool {
	return r.at < len(r.text) && strings.IndexByte(set, r.text[r.at]) >= 0
}

// ends checks that what was read is followed by a byte of the set, or by nothing.
func (r *reader) ends(set string) error {
	if r.at == len(r.text) || r.nextIn(set) {
		return nil
	}
	switch c := r.text[r.at]; c {
	case ']':
		return r.wrong(r.at, "a ] without a [ before it: write n[1-3]")
	case '@':
		return r.wrong(r.at, "@ cannot be here: a user's name stands before a host's, as in me@n1")
	case ':':
		return r.wrong(r.at, "no : can be here: write an address of IPv6 as [::1]")
	default:
		return r.wrong(r.at, "%q cannot be part of a host's name: names have letters, digits, and . - _ inside", c)
	}
}

// pattern is a name with brackets, of each of which one number is taken.
type pattern []part

type part struct {
	text   string
	ranges []numbers // of a bracket; nil: this part is the text
}

// numbers are first to last, of at least so many digits.
type numbers struct {
	first, last uint64
	digits      int
}

// names reads one word and returns the names that it stands for, at least one.
func (r *reader) names() ([]string, error) {
	begin := r.at
	if name, ok, err := r.address(); ok {
		return []string{name}, err
	}
	word := r.text[begin:]
	if end := strings.IndexAny(word, ", \t\n"); end >= 0 {
		word = word[:end]
	}
	if a, err := netip.ParseAddr(word); err == nil && a.Is6() {
		return nil, r.wrong(begin, "write an address of IPv6 in brackets: [%s]", word)
	}
	var p pattern
	for r.at < len(r.text) {
		if r.nextIn("[") {
			ranges, err := r.bracket()
			if err != nil {
				return nil, err
			}
			p = append(p, part{ranges: ranges})
			continue
		}
		text := r.take(nameByte)
		if text == "" {
			break
		}
		if len(p) == 0 && strings.IndexByte("-._", text[0]) >= 0 {
			return nil, r.wrong(begin, "a host's name begins with a letter or a digit, not with %q", text[0])
		}
		p = append(p, part{text: text})
	}
	switch n, longest := p.size(); {
	case len(p) == 0:
		if err := r.ends(""); err != nil {
			return nil, err
		}
		return nil, r.wrong(begin, "a host is missing here: write a name")
	case n > MaxHosts:
		return nil, r.wrong(begin, "more than %d hosts", MaxHosts)
	case longest > maxName:
		return nil, r.wrong(begin, "a host's name has at most %d bytes", maxName)
	}
	return p.expand(), nil
}

// address reads [fd00::1]. It is none if it has no colon.
func (r *reader) address() (name string, ok bool, err error) {
	if !r.nextIn("[") {
		return "", false, nil
	}
	inside, _, closed := strings.Cut(r.text[r.at+1:], "]")
	if !closed || !strings.Contains(inside, ":") {
		return "", false, nil
	}
	a, err := netip.ParseAddr(inside)
	if err != nil || a.Zone() != "" {
		return "", true, r.wrong(r.at, "[%s] is no address of IPv6 such as [fd00::1]", inside)
	}
	r.at += len(inside) + 2
	return inside, true, nil
}

func nameByte(c byte) bool {
	return digit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '.' || c == '_'
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// take reads the bytes that fit.
func (r *reader) take(fits func(byte) bool) string {
	begin := r.at
	for r.at < len(r.text) && fits(r.text[r.at]) {
		r.at++
	}
	return r.text[begin:r.at]
}

// bracket reads [01-16,20].
func (r *reader) bracket() (all []numbers, err error) {
	open := r.at
	for {
		r.at++ // the bracket, or a comma
		n, err := r.numbers()
		if err != nil {
			return nil, err
		}
		switch all = append(all, n); {
		case r.at == len(r.text):
			return nil, r.wrong(open, "this [ is not closed: write n[1-3]")
		case r.nextIn("]"):
			r.at++
			return all, nil
		case !r.nextIn(","):
			return nil, r.wrong(r.at, "%q cannot be in a bracket: write numbers and ranges, n[1-3,7]", r.text[r.at])
		}
	}
}

func (r *reader) numbers() (n numbers, err error) {
	begin := r.at
	if n.first, n.digits, err = r.number(); err != nil {
		return n, err
	}
	if n.last = n.first; r.nextIn("-") {
		r.at++
		if n.last, _, err = r.number(); err != nil {
			return n, err
		}
	}
	switch {
	case n.last < n.first:
		return n, r.wrong(begin, "the range %s runs backwards: write the smaller number first", r.text[begin:r.at])
	case n.last-n.first >= MaxHosts:
		return n, r.wrong(begin, "the range %s has more than %d hosts", r.text[begin:r.at], MaxHosts)
	}
	return n, nil
}

func (r *reader) number() (value uint64, digits int, err error) {
	begin := r.at
	text := r.take(digit)
	switch value, err = strconv.ParseUint(text, 10, 64); {
	case text == "" && r.nextIn("["):
		return 0, 0, r.wrong(begin, "brackets do not nest: write n[1-2,4-5], or n[1-2][4-5] for all combinations")
	case text == "":
		return 0, 0, r.wrong(begin, "a number is missing here: write n[1-3,7]")
	case err != nil || len(text) > maxName:
		return 0, 0, r.wrong(begin, "the number %.20s is too large", text)
	}
	return value, len(text), nil
}

// size is how many names a pattern has, not counted beyond MaxHosts, and the length of the longest.
func (p pattern) size() (n, longest int) {
	n = 1
	for _, part := range p {
		if part.ranges == nil {
			longest += len(part.text)
			continue
		}
		sum, digits := 0, 0
		for _, r := range part.ranges {
			sum = min(sum+int(r.last-r.first)+1, MaxHosts+1)
			digits = max(digits, r.digits, len(strconv.FormatUint(r.last, 10)))
		}
		n, longest = min(n*sum, MaxHosts+1), longest+digits
	}
	return n, longest
}

// expand returns all names. The last bracket counts fastest.
func (p pattern) expand() []string {
	names := []string{""}
	for _, part := range p {
		if part.ranges == nil {
			for i := range names {
				names[i] += part.text
			}
			continue
		}
		var longer []string
		for _, name := range names {
			for _, r := range part.ranges {
				for k := range r.last - r.first + 1 {
					longer = append(longer, fmt.Sprintf("%s%0*d", name, r.digits, r.first+k))
				}
			}
		}
		names = longer
	}
	return names
}
