package harness

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

const (
	progressAfter = 2 * time.Second // shorter runs need no progress line
	progressEvery = 500 * time.Millisecond
	// A rank's lines come to the terminal through its launcher, later than what the rank writes there itself. So the
	// progress line is shorter than any line of a table and leaves the cursor at its beginning: a line that comes
	// late covers it.
	progressWidth = 28
)

// progress is the line that a person at a terminal sees while sizes are measured. A nil one does nothing.
type progress struct {
	w     io.Writer
	stop  chan struct{}
	ended chan struct{}

	mu     sync.Mutex
	shown  bool // a line is on the terminal
	start  time.Time
	weight map[int64]float64 // of each key in the whole
	total  float64
	done   float64 // weight of the keys measured
	key    int64   // being measured
	began  time.Time
}

// terminal is where a person may be looking: standard error, or the launcher's, which started this rank and reads our
// standard error from a pipe. nil: neither is a terminal.
func terminal() *os.File {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return os.Stderr
	}
	launchers := fmt.Sprintf("/proc/%d/fd/2", os.Getppid())
	if info, err := os.Stat(launchers); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	// A rank is in the background of the terminal; it shall not be stopped for writing there.
	signal.Ignore(syscall.SIGTTOU)
	f, err := os.OpenFile(launchers, os.O_WRONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	if !term.IsTerminal(int(f.Fd())) {
		f.Close()
		return nil
	}
	return f
}

func (t *Table) newProgress(keys []int64) *progress {
	if t.out.W == nil {
		return nil
	}
	tty := terminal()
	if tty == nil {
		return nil
	}
	p := startProgress(tty, keys, t.out.Options)
	go p.tick()
	return p
}

func startProgress(w io.Writer, keys []int64, o Options) *progress {
	p := &progress{w: w, weight: map[int64]float64{}, start: time.Now(),
		stop: make(chan struct{}), ended: make(chan struct{})}
	for _, key := range keys {
		r := o.Rounds(key)
		// A round costs as much as 4 KiB of its messages, about; nothing but the time left depends on it.
		p.weight[key] = float64(r.Iterations+r.Warmup+1) * (4096 + float64(key))
		p.total += p.weight[key]
	}
	return p
}

func (p *progress) tick() {
	defer close(p.ended)
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-ticker.C:
			p.mu.Lock()
			p.show(now)
			p.mu.Unlock()
		}
	}
}

// begin says that a key is being measured from now on.
func (p *progress) begin(key int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.began = key, time.Now()
}

// erase says that the key is done, and takes the line away because another one will be printed.
func (p *progress) erase() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += p.weight[p.key]
	p.began = time.Time{}
	p.clear()
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// end takes the line away for good.
func (p *progress) end() {
	if p == nil {
		return
	}
	close(p.stop)
	<-p.ended
	p.clear()
	if f, ok := p.w.(*os.File); ok && f != os.Stderr {
		f.Close()
	}
}

// show prints where we are. Of the key under way as much is taken to be done as its time says, at the speed so far,
// but never all.
func (p *progress) show(now time.Time) {
	elapsed := now.Sub(p.start)
	if elapsed < progressAfter || p.began.IsZero() {
		return
	}
	done, left := p.done, ""
	if before := p.began.Sub(p.start); p.done > 0 && before > 0 {
		done += min(p.done*float64(now.Sub(p.began))/float64(before), 0.95*p.weight[p.key])
	}
	if done > 0 {
		rest := time.Duration(float64(elapsed) * (p.total - done) / done)
		left = ", " + short(rest) + " left"
	}
	text := fmt.Sprintf("%3.0f%% %d%s", 100*done/p.total, p.key, left)
	fmt.Fprintf(p.w, "\r\x1b[K%.*s\r", progressWidth, text)
	p.shown = true
}

func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", (d+time.Second-1)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", (d+time.Minute-1)/time.Minute)
	}
	return fmt.Sprintf("%d h", (d+time.Hour-1)/time.Hour)
}
