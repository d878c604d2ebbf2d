package reach

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxNoise = 64 << 10 // before hello
	maxWords = 4 << 10  // of the standard error that are kept
	maxShown = 600      // bytes of the noise that an error has
)

// process is one of this host whose standard input and output are a stream.
type process struct {
	cmd   *exec.Cmd
	in    *os.File
	out   *os.File
	lines *bufio.Reader // of out
	words tail
	noise tail // lines of the output that are not for us
	ended chan struct{}
	// copied: it was sent this program.
	copied bool
}

// edge is the stream of the process.
func (p *process) edge() *Edge {
	return &Edge{Reader: p.lines, Writer: p.in, Copied: p.copied, end: p.close, why: p.why}
}

// parents starts processes that end with this one, however that ends: the kernel sends the signal for it when the
// thread ends that started them, so that it is one that never does.
var parents = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

var (
	startBy = func(start func() (pid int, err error)) error {
		_, err := start()
		return err
	}
	marked []string // what is added to the environment of the processes
)

// StartBy has f call what starts a process here, and mark be in its environment. It is for a process that looks after
// all of its children, and must know which of them, and of theirs, are of this package. It is called before the first
// Open.
func StartBy(mark string, f func(start func() (pid int, err error)) error) {
	startBy, marked = f, []string{mark}
}

// spawn starts a process whose standard input and output are the stream. death is the signal that it is sent when this
// process ends; 0: none.
func spawn(argv []string, death syscall.Signal) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.Stderr = &p.words
	return p, p.start(death)
}

// start starts the command. Its standard error is set.
func (p *process) start(death syscall.Signal) error {
	in, out, err := p.pipes()
	if err != nil {
		return err
	}
	defer in.Close()
	defer out.Close()
	p.cmd.Stdin, p.cmd.Stdout = in, out
	p.cmd.Env = append(p.cmd.Environ(), marked...)
	p.cmd.SysProcAttr = ownGroup(death) // Ctrl-C is for gorun
	p.cmd.WaitDelay = time.Second
	p.lines = bufio.NewReader(p.out)
	started := make(chan error)
	parents() <- func() {
		started <- startBy(func() (int, error) {
			if err := p.cmd.Start(); err != nil {
				return 0, err
			}
			return p.cmd.Process.Pid, nil
		})
	}
	if err := <-started; err != nil {
		p.in.Close()
		p.out.Close()
		return &Error{Err: err, Final: true}
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	return nil
}

func (p *process) pipes() (in, out *os.File, err error) {
	if in, p.in, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	if p.out, out, err = os.Pipe(); err != nil {
		in.Close()
		p.in.Close()
		return nil, nil, err
	}
	return in, out, nil
}

// close ends the stream. The process has a moment to end by itself.
func (p *process) close() {
	p.in.Close()
	select {
	case <-p.ended:
	case <-time.After(time.Second):
		p.kill()
		<-p.ended
	}
	p.out.Close()
}

// kill ends the process, and what it has started: a remote shell may be a script.
func (p *process) kill() {
	select {
	case <-p.ended: // its number may be another's by now
	default:
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// why says how the process has ended and what it said last, if it ends soon.
func (p *process) why() string {
	select {
	case <-p.ended:
	case <-time.After(200 * time.Millisecond):
		return p.words.String()
	}
	return p.cmd.ProcessState.String() + colon(p.words.String())
}

// heard is all that the process has printed, but for lines for us: errors first, and of the rest the end.
func (p *process) heard() string {
	words, noise := p.words.String(), p.noise.String()
	if over := len(noise) - maxShown; over > 0 {
		noise = "..." + strings.ToValidUTF8(noise[over:], "")
	}
	if words == "" || noise == "" {
		return words + noise
	}
	return words + "; " + noise
}

// reply reads up to the next line for us.
func (p *process) reply() (string, error) {
	for noise := 0; noise < maxNoise; {
		l, err := p.lines.ReadSlice('\n')
		noise += len(l)
		if text := strings.TrimSpace(string(l)); strings.HasPrefix(text, "gorun-") {
			return text, nil
		}
		p.noise.Write(l)
		if err != nil && err != bufio.ErrBufferFull {
			return "", err
		}
	}
	return "", &Error{Err: fmt.Errorf("it prints more than %d bytes, and starts no agent", maxNoise), Final: true}
}

// tail keeps the end of what is written.
type tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = lastOf(append(t.text, b...))
	return len(b), nil
}

func lastOf(b []byte) []byte {
	if over := len(b) - maxWords; over > 0 {
		b = append(b[:0], b[over:]...)
	}
	return b
}

// liner calls a function with each line that is written and not empty.
type liner struct {
	say  func(line string)
	line []byte // the last one, which has no end yet
}

func (w *liner) Write(b []byte) (int, error) {
	for l := range bytes.Lines(b) {
		if w.line = lastOf(append(w.line, l...)); l[len(l)-1] != '\n' {
			break // it was the last one
		}
		if text := clean(w.line); text != "" {
			w.say(text)
		}
		w.line = w.line[:0]
	}
	return len(b), nil
}

// Reset forgets what was written.
func (t *tail) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = nil
}

// String is one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for l := range bytes.Lines(t.text) {
		if text := clean(l); text != "" {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "; ")
}

// clean is a line without control characters.
func clean(line []byte) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(line), "?")))
}

// until calls f, and ends the process when ctx ends before f does.
func (p *process) until(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, func() {
		p.kill()
		p.out.SetReadDeadline(time.Now())
		p.in.SetWriteDeadline(time.Now())
	})
	err := f()
	if stop() {
		return err
	}
	return fmt.Errorf("it did not answer in time%s", colon(p.heard()))
}

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// Exec starts agents as processes of this host, whatever the host is called.
type Exec struct{ Self *Self }

// Open is Reach's.
func (x Exec) Open(ctx context.Context, _ string) (*Edge, error) {
	p, err := spawn(append([]string{x.Self.Path}, x.Self.words()...), 0) // it sees the end of the stream
	if err != nil {
		return nil, err
	}
	err = p.until(ctx, func() error {
		_, err := p.reply()
		return err
	})
	if err != nil {
		p.close()
		return nil, &Error{Err: fmt.Errorf("the agent does not start: %s", p.why()), Final: true}
	}
	return p.edge(), nil
}
