package launcher

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/cpuset"
)

const (
	// echoWait is how long a rank's lines that another rank has just written are held back. If the job begins to fail
	// meanwhile and the rank writes nothing else before it ends, they are the error that all ranks report.
	echoWait = grace
	// echoSettle is how long they are held back at the end of the stream, while the rank has not ended.
	echoSettle = time.Second + echoWait
	// echoWindow is for how long lines are remembered, maxRemembered how many, and maxEcho how long they may be.
	echoWindow    = time.Second
	maxRemembered = 256
	maxEcho       = 4 << 10
)

// alike finds what the ranks of a failing job write alike to standard error, so that it is said once. A line that
// another rank has not just written passes at once.
type alike struct {
	failing chan struct{} // closed by fail
	once    sync.Once

	mu    sync.Mutex
	lines map[string]written // guarded by mu; of late
	same  []sameText         // guarded by mu; what was left out
}

// written is a line of a rank.
type written struct {
	rank int
	at   time.Time
}

// sameText was written by rank, and again by others before they ended.
type sameText struct {
	text   string
	rank   int
	others []int
}

func newAlike() *alike {
	return &alike{failing: make(chan struct{}), lines: map[string]written{}}
}

// fail says that a rank has failed, so that the others will, or have.
func (a *alike) fail() { a.once.Do(func() { close(a.failing) }) }

// writtenBy is the other rank that has just written the line. If there is none, the line is remembered as rank's.
func (a *alike) writtenBy(line []byte, rank int) (other int, is bool) {
	if len(line) > maxEcho || line[len(line)-1] != '\n' {
		return 0, false
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	w, known := a.lines[string(line)]
	if known && w.rank != rank && now.Sub(w.at) < echoWindow {
		return w.rank, true
	}
	if len(a.lines) >= maxRemembered {
		clear(a.lines)
	}
	a.lines[string(line)] = written{rank, now}
	return 0, false
}

// leaveOut notes that rank wrote text, as first had, and that it is not written again.
func (a *alike) leaveOut(text string, first, rank int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.same, func(s sameText) bool { return s.text == text && s.rank == first })
	if i < 0 {
		i, a.same = len(a.same), append(a.same, sameText{text: text, rank: first})
	}
	a.same[i].others = append(a.same[i].others, rank)
}

// summary says which ranks wrote what is not shown.
func (a *alike) summary() (lines []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.same {
		lines = append(lines, fmt.Sprintf("%s %s wrote the same to standard error as rank %d",
			plural(len(s.others), "rank"), cpuset.FormatList(s.others), s.rank))
	}
	return lines
}

// echo is what a stream holds back. It belongs to the stream's pump.
type echo struct {
	of    *alike // nil: nothing is held back
	rank  int
	ended <-chan struct{} // closed when the supervisor has judged the end of the rank

	text  []byte // lines that another rank has just written
	first int    // which wrote the first of them
	since time.Time
	now   []byte // what sift returns, reused
}

// sift returns what of b is to be written now. A line that no other rank has written releases what is held back.
func (e *echo) sift(b []byte) []byte {
	if e.of == nil {
		return b
	}
	now := e.now[:0]
	for l := range bytes.Lines(b) {
		if by, is := e.of.writtenBy(l, e.rank); is {
			if len(e.text) == 0 {
				e.first, e.since = by, time.Now()
			}
			e.text = append(e.text, l...)
			continue
		}
		now = append(append(now, e.text...), l...)
		e.text = e.text[:0]
	}
	e.now = now
	return now
}

// release returns what is held back.
func (e *echo) release() []byte {
	text := e.text
	e.text = nil
	return text
}

// due is when what is held back is to be released; zero: nothing is, or it is an error of a job that fails.
func (e *echo) due() time.Time {
	if len(e.text) == 0 || e.failing() {
		return time.Time{}
	}
	return e.since.Add(echoWait)
}

func (e *echo) failing() bool {
	select {
	case <-e.of.failing:
		return true
	default:
		return false
	}
}

// settle decides at the end of the stream, and returns what is to be written of what was held back.
func (e *echo) settle() []byte {
	if len(e.text) == 0 {
		return nil
	}
	t := time.NewTimer(echoSettle)
	defer t.Stop()
	select {
	case <-e.of.failing:
	case <-e.ended:
	case <-t.C: // another process has the rank's end of the stream closed, or the rank itself and goes on
	}
	if !e.failing() {
		return e.release()
	}
	e.of.leaveOut(string(e.text), e.first, e.rank)
	return nil
}
