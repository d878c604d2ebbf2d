package launcher

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// progressEvery is when the start of a job on several hosts is shown first, and how often then.
const progressEvery = 300 * time.Millisecond

// showProgress keeps a line on a terminal that says how far the start is, while that takes long. It has a goroutine of
// its own.
func (r *run) showProgress() {
	fd := int(r.job.Stderr.Fd())
	if os.Getenv("TERM") == "dumb" || !term.IsTerminal(fd) {
		return
	}
	t := time.NewTicker(progressEvery)
	defer t.Stop()
	for shown := make(chan bool, 1); ; {
		select {
		case <-t.C:
		case <-r.over:
			return
		}
		r.post(func() {
			text := ""
			if r.starting > 0 && !r.stop.Load() {
				width, _, _ := term.GetSize(fd)
				text = r.progress(width - 1)
			}
			r.streams.Stderr.SetStatus(text)
			shown <- text != ""
		})
		select {
		case more := <-shown:
			if !more {
				return
			}
		case <-r.over:
			return
		}
	}
}

// progress names the hosts that are waited for, in at most width characters.
func (r *run) progress(width int) string {
	l := r.plan.Layout
	waited := make([]bool, len(l.Hosts))
	for rank, host := range l.Order.Ranks(l.Ranks) {
		waited[host] = waited[host] || !r.ranks[rank].started
	}
	var waits []string
	for i, h := range l.Hosts {
		if waited[i] {
			waits = append(waits, h.Name)
		}
	}
	text := fmt.Sprintf("gorun: %d of %d hosts have started their ranks; waiting for %s", len(l.Hosts)-len(waits),
		len(l.Hosts), strings.Join(waits, ", "))
	if width > 3 && len(text) > width {
		text = text[:width-3] + "..."
	}
	return text
}
