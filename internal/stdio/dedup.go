package stdio

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/cpuset"
)

const (
	// DedupWait is how long a rank's lines that another rank has just written are held back. If the job begins to fail
	// meanwhile and the rank writes nothing else before it ends, they are the error that all ranks report.
	DedupWait = 250 * time.Millisecond
	// dedupSettle is how long they are held back at the end of the stream, while the rank has not ended.
	dedupSettle = time.Second + DedupWait
	// dedupWindow is for how long lines are remembered, maxRemembered how many, and maxDedupLine how long they may be.
	dedupWindow   = time.Second
	maxRemembered = 256
	maxDedupLine  = 4 << 10
)

// dedup finds lines that several ranks of a failing job write to standard error, so that they are shown once. A line
// that no other rank has just written passes at once.
type dedup struct {
	failing chan struct{} // closed by fail
	once    sync.Once

	mu    sync.Mutex
	lines map[string]line // guarded by mu; of late
	same  []sameText      // guarded by mu; what was left out
}

// line is when a rank has written a line.
type line struct {
	rank int
	at   time.Time
}

// sameText was written by rank, and again by others before they ended.
type sameText struct {
	text   string
	rank   int
	others []int
}

func newDedup() *dedup {
	return &dedup{failing: make(chan struct{}), lines: map[string]line{}}
}

// fail says that a rank has failed, so that the others will, or have.
func (d *dedup) fail() { d.once.Do(func() { close(d.failing) }) }

// writtenBy returns the other rank that has just written a line. If there is none, dedup remembers the line as rank's.
func (d *dedup) writtenBy(text []byte, rank int) (other int, ok bool) {
	if len(text) > maxDedupLine || text[len(text)-1] != '\n' {
		return 0, false
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	w, known := d.lines[string(text)]
	if known && w.rank != rank && now.Sub(w.at) < dedupWindow {
		return w.rank, true
	}
	if len(d.lines) >= maxRemembered {
		clear(d.lines)
	}
	d.lines[string(text)] = line{rank, now}
	return 0, false
}

// leaveOut notes that rank wrote text, as first had, and that it is not written again.
func (d *dedup) leaveOut(text string, first, rank int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.same, func(s sameText) bool { return s.text == text && s.rank == first })
	if i < 0 {
		i, d.same = len(d.same), append(d.same, sameText{text: text, rank: first})
	}
	d.same[i].others = append(d.same[i].others, rank)
}

// summary returns lines that name the ranks whose text is not shown.
func (d *dedup) summary() (lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.same {
		ranks := "rank"
		if len(s.others) > 1 {
			ranks = "ranks"
		}
		lines = append(lines, fmt.Sprintf("%s %s wrote the same to standard error as rank %d",
			ranks, cpuset.FormatList(s.others), s.rank))
	}
	return lines
}

// dedupStream is the dedup of one stream: the lines that the stream holds back. It belongs to the stream's pump.
type dedupStream struct {
	of    *dedup // nil: nothing is held back
	rank  int
	ended <-chan struct{} // closed when the supervisor has judged the end of the rank

	text  []byte // lines that another rank has just written
	first int    // which wrote the first of them
	since time.Time
	now   []byte // what sift returns, reused
}

// sift returns what of b is to be written now. A line that no other rank has written releases what is held back.
func (s *dedupStream) sift(b []byte) []byte {
	if s.of == nil {
		return b
	}
	now := s.now[:0]
	for l := range bytes.Lines(b) {
		if by, ok := s.of.writtenBy(l, s.rank); ok {
			if len(s.text) == 0 {
				s.first, s.since = by, time.Now()
			}
			s.text = append(s.text, l...)
			continue
		}
		now = append(append(now, s.text...), l...)
		s.text = s.text[:0]
	}
	s.now = now
	return now
}

// release returns what is held back.
func (s *dedupStream) release() []byte {
	text := s.text
	s.text = nil
	return text
}

// due returns when the lines held back are to be released; zero: there is none, or they are the error of a job that
// fails.
func (s *dedupStream) due() time.Time {
	if len(s.text) == 0 || s.failing() {
		return time.Time{}
	}
	return s.since.Add(DedupWait)
}

func (s *dedupStream) failing() bool {
	select {
	case <-s.of.failing:
		return true
	default:
		return false
	}
}

// finish decides at the end of the stream, and returns the lines to be written of those held back.
func (s *dedupStream) finish() []byte {
	if len(s.text) == 0 {
		return nil
	}
	t := time.NewTimer(dedupSettle)
	defer t.Stop()
	select {
	case <-s.of.failing:
	case <-s.ended:
	case <-t.C: // another process has the rank's end of the stream closed, or the rank itself and goes on
	}
	if !s.failing() {
		return s.release()
	}
	s.of.leaveOut(string(s.text), s.first, s.rank)
	return nil
}
