package reach

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// hello is the line with which an agent begins. What a login shell prints before is passed over.
const hello = "gorun-agent 1"

// Hello is what an agent says first.
func Hello(w io.Writer) error {
	_, err := io.WriteString(w, "\n"+hello+"\n")
	return err
}

const (
	maxNoise = 64 << 10 // before hello
	maxWords = 4 << 10  // of the standard error that are kept
)

// Reach is a way to have an agent on a host.
type Reach interface {
	// Open starts an agent. It returns when that has said hello.
	Open(ctx context.Context, host string) (*Edge, error)
}

// Error is why there is no agent.
type Error struct {
	Err error
	// Final: to try again is in vain. Unnamed: the name of the host is not known, so that it is in vain unless hosts
	// are still coming up.
	Final, Unnamed bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Edge is the stream to an agent. Its end in either direction ends the agent, and with it the ranks.
type Edge struct {
	cmd   *exec.Cmd
	in    *os.File
	out   *os.File
	lines *bufio.Reader // of out
	words tail
	ended chan struct{}
	once  sync.Once
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

// spawn starts a process whose standard input and output are the edge. bound: it is killed when this process ends.
func spawn(argv []string, bound bool) (*Edge, error) {
	e := &Edge{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	in, out, err := e.pipes()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	defer out.Close()
	e.cmd.Stdin, e.cmd.Stdout, e.cmd.Stderr = in, out, &e.words
	e.cmd.SysProcAttr = ownGroup(bound) // Ctrl-C is for gorun
	e.cmd.WaitDelay = time.Second
	e.lines = bufio.NewReader(e.out)
	started := make(chan error)
	parents() <- func() { started <- e.cmd.Start() }
	if err := <-started; err != nil {
		e.in.Close()
		e.out.Close()
		return nil, &Error{Err: err, Final: true}
	}
	go func() {
		e.cmd.Wait()
		close(e.ended)
	}()
	return e, nil
}

func (e *Edge) pipes() (in, out *os.File, err error) {
	if in, e.in, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	if e.out, out, err = os.Pipe(); err != nil {
		in.Close()
		e.in.Close()
		return nil, nil, err
	}
	return in, out, nil
}

// Read returns what the agent says, and the end of the stream.
func (e *Edge) Read(b []byte) (int, error) { return e.lines.Read(b) }

// Write says something to the agent.
func (e *Edge) Write(b []byte) (int, error) { return e.in.Write(b) }

// Close ends the stream. The process has a moment to end by itself.
func (e *Edge) Close() {
	e.once.Do(func() {
		e.in.Close()
		select {
		case <-e.ended:
		case <-time.After(time.Second):
			e.kill()
			<-e.ended
		}
		e.out.Close()
	})
}

// kill ends the process, and what it has started: a remote shell may be a script.
func (e *Edge) kill() {
	select {
	case <-e.ended: // its number may be another's by now
	default:
		syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// Why says how the process has ended and what it said last, if it ends soon.
func (e *Edge) Why() string {
	select {
	case <-e.ended:
	case <-time.After(200 * time.Millisecond):
		return e.words.String()
	}
	why := e.cmd.ProcessState.String()
	if words := e.words.String(); words != "" {
		why += ": " + words
	}
	return why
}

// reply reads up to the next line for us.
func (e *Edge) reply() (string, error) {
	for noise := 0; noise < maxNoise; {
		l, err := e.lines.ReadSlice('\n')
		noise += len(l)
		if text := strings.TrimSpace(string(l)); strings.HasPrefix(text, "gorun-") {
			return text, nil
		}
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
	t.text = append(t.text, b...)
	if over := len(t.text) - maxWords; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(b), nil
}

// String is one line, without control characters.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for l := range bytes.Lines(t.text) {
		clean := strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return -1
			}
			return r
		}, strings.ToValidUTF8(string(l), "?"))
		if clean = strings.TrimSpace(clean); clean != "" {
			lines = append(lines, clean)
		}
	}
	return strings.Join(lines, "; ")
}

// until calls f, and ends the edge when ctx ends before f does.
func (e *Edge) until(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, func() {
		e.kill()
		e.out.SetReadDeadline(time.Now())
		e.in.SetWriteDeadline(time.Now())
	})
	err := f()
	if stop() {
		return err
	}
	return fmt.Errorf("it did not answer in time%s", colon(e.words.String()))
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
	e, err := spawn([]string{x.Self.Path, Word, x.Self.Build}, false) // it sees the end of the stream
	if err != nil {
		return nil, err
	}
	err = e.until(ctx, func() error {
		_, err := e.reply()
		return err
	})
	if err != nil {
		e.Close()
		return nil, &Error{Err: fmt.Errorf("the agent does not start: %s", e.Why()), Final: true}
	}
	return e, nil
}
