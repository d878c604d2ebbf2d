package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/docker/go-units"
	"github.com/gorun-mpi/mpi/collectives/simulate"
	"golang.org/x/term"
)

// Progress is shown on a terminal as a line that changes, as soon as it is worth it. Elsewhere it is a line now and
// then, once a sweep has taken some seconds.
const (
	progressOnTerminal = 300 * time.Millisecond
	progressElsewhere  = 10 * time.Second
)

// simulateProgress says how far a sweep is, or gorun tune.
type simulateProgress struct {
	to    io.Writer
	width func() int // of the terminal; nil: output goes to no terminal
	now   func() time.Time
	next  time.Time // when something is shown next
	shown bool      // the terminal has the line
}

func newSimulateProgress(stderr *os.File) *simulateProgress {
	p := &simulateProgress{to: stderr, now: time.Now}
	if fd := int(stderr.Fd()); os.Getenv("TERM") != "dumb" && term.IsTerminal(fd) {
		p.width = func() int {
			w, _, _ := term.GetSize(fd)
			return w
		}
	}
	p.next = p.now().Add(p.every())
	return p
}

func (p *simulateProgress) every() time.Duration {
	if p.width != nil {
		return progressOnTerminal
	}
	return progressElsewhere
}

// show is simulate.Sweep's Progress.
func (p *simulateProgress) show(s simulate.Progress) {
	if !p.due() {
		return
	}
	text := fmt.Sprintf("call %d of %d: %v, %d ranks, %d bytes", s.Row, s.Rows, s.Algorithm, s.Ranks, s.Bytes)
	if s.Sent > 0 {
		text += fmt.Sprintf(", %s messages of about %s", decimal(float64(s.Sent)),
			decimal(float64(s.Of)))
	}
	p.write("simulate", text)
}

// say shows how far a command is.
func (p *simulateProgress) say(command, text string) {
	if p.due() {
		p.write(command, text)
	}
}

// due reports whether it is time to show something.
func (p *simulateProgress) due() bool {
	now := p.now()
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(p.every())
	return true
}

func (p *simulateProgress) write(command, text string) {
	if p.width == nil {
		fmt.Fprintf(p.to, "gorun %s: %s\n", command, text)
		return
	}
	if w := max(p.width()-1, 20); len(text) > w {
		text = text[:w]
	}
	fmt.Fprintf(p.to, "\r%s\x1b[K", text)
	p.shown = true
}

// clear takes the line from the terminal.
func (p *simulateProgress) clear() {
	if p.shown {
		fmt.Fprint(p.to, "\r\x1b[K")
		p.shown = false
	}
}

// clearFirst writes rows to where the line was.
type clearFirst struct {
	progress *simulateProgress
	to       io.Writer
}

func (c clearFirst) Write(b []byte) (int, error) {
	c.progress.clear()
	return c.to.Write(b)
}

// decimal is a number such as 12.3M.
func decimal(n float64) string {
	return units.CustomSize("%.3g%s", n, 1000, []string{"", "k", "M", "G", "T"})
}
