package deaths

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// watchVar is in the environment of the processes of a job that is watched: where they find the watcher.
const watchVar = "GORUN_TEST_WATCHER"

// Watcher is a test that watches the processes of a job.
type Watcher struct {
	path   string
	answer func(p *Process, words []string) string

	mu      sync.Mutex
	changed *sync.Cond // a process has come, asked or ended, or time has passed
	living  map[*Process]bool
}

// Process is a process of the job, from when it has joined the watcher until it has ended. The watcher's lock guards
// what is not exported.
type Process struct {
	PID    int
	w      *Watcher
	counts bool
	steps  int
	left   int // until die; 0: it does not come
	die    func()
	killed bool
}

// Watch waits for the processes of a job, whose environment has what Env returns. answer is called with what a process
// asks, for one process at a time. Only answer, die of Arm, and a function that Do calls may call the other methods of
// the watcher and the methods of a process.
func Watch(t testing.TB, answer func(p *Process, words []string) string) *Watcher {
	t.Helper()
	dir, err := os.MkdirTemp("", "watch") // t.TempDir is too long for the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	w := &Watcher{path: filepath.Join(dir, "s"), answer: answer, living: map[*Process]bool{}}
	w.changed = sync.NewCond(&w.mu)
	ln, err := net.Listen("unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				if err := w.serve(c.(*net.UnixConn)); err != nil {
					t.Errorf("the watcher of a process: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() { // the job has ended
		ln.Close()
		open.Wait()
		os.RemoveAll(dir)
	})
	return w
}

// Env is for the environment of the job.
func (w *Watcher) Env() string { return watchVar + "=" + w.path }

// Living are the processes that have joined and have not ended. It is a copy.
func (w *Watcher) Living() (all []*Process) {
	for p := range w.living {
		all = append(all, p)
	}
	return all
}

// Await waits, while other processes may ask, until ok or so long. It reports whether ok is true then.
func (w *Watcher) Await(limit time.Duration, ok func() bool) bool {
	over := false
	defer time.AfterFunc(limit, func() {
		w.mu.Lock()
		over = true
		w.mu.Unlock()
		w.changed.Broadcast()
	}).Stop()
	for !ok() && !over {
		w.changed.Wait()
	}
	return ok()
}

// Do calls f while no process is answered.
func (w *Watcher) Do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// serve answers a process until that has ended.
func (w *Watcher) serve(c *net.UnixConn) error {
	defer c.Close()
	p := &Process{w: w}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		return err
	}
	p.PID = int(cred.Pid)
	w.mu.Lock()
	w.living[p] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.living, p)
		w.mu.Unlock()
		w.changed.Broadcast()
	}()
	shows, err := receiveDescriptor(c)
	if err != nil {
		return nil // it has been killed before
	}
	var counting sync.WaitGroup
	defer counting.Wait()
	if shows != nil {
		counting.Go(func() { p.count(shows) })
	}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		w.mu.Lock()
		reply := w.answer(p, strings.Fields(lines.Text()))
		w.mu.Unlock()
		w.changed.Broadcast()
		if _, err := fmt.Fprintln(c, reply); err != nil {
			break
		}
	}
	return nil
}

// receiveDescriptor receives the first byte of a process, with a descriptor if it shows its steps.
func receiveDescriptor(c *net.UnixConn) (*os.File, error) {
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil || n == 0 || oobn == 0 {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "calls"), nil
}

// count counts the steps of a process that shows its calls.
func (p *Process) count(shows *os.File) {
	defer shows.Close()
	for {
		call, ok := proc.NextCall(shows)
		if !ok || p.step(call) {
			return
		}
		call.GoOn(shows)
	}
}

// step counts a call if it is a step, and reports whether the process has been killed.
func (p *Process) step(call proc.Call) (killed bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.counts && (call.Number == unix.SYS_GETPGID || p.isSocket(call.Descriptor)) {
		p.steps++
		if p.left--; p.left == 0 {
			p.die()
		}
	}
	return p.killed
}

func (p *Process) isSocket(fd int) bool {
	to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.PID, fd))
	return strings.HasPrefix(to, "socket:")
}

// Arm counts the steps of a process from here on. die is called before the nth; with 0 it is not. What a process asks
// is no step.
func (p *Process) Arm(n int, die func()) { p.counts, p.steps, p.left, p.die = true, 0, n, die }

// Spare ends that. It returns how many steps were made.
func (p *Process) Spare() int {
	p.counts = false
	return p.steps
}

// Kill kills the process.
func (p *Process) Kill() {
	p.killed = true
	unix.Kill(p.PID, unix.SIGKILL)
}

// Member is a process that is watched.
type Member struct {
	fd int
	mu sync.Mutex
}

// steps are the calls that send, receive or connect; and one that the library does not make, for packets in shared
// memory.
var steps = []uint32{unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_RECVFROM, unix.SYS_SENDTO,
	unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_CONNECT, unix.SYS_ACCEPT4, unix.SYS_SHUTDOWN, unix.SYS_CLOSE,
	unix.SYS_GETPGID}

// Join has this process be watched; it is the first call of a role. With showing the watcher sees its steps.
func Join(showing bool) (*Member, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: os.Getenv(watchVar)})
	}
	if err != nil {
		return nil, fmt.Errorf("to the watcher: %w", err)
	}
	var rights []byte
	if showing {
		shown, err := proc.ShowCalls(steps, fd)
		if err != nil {
			return nil, err
		}
		defer unix.Close(shown) // the watcher lets that call go on, as any
		rights = unix.UnixRights(shown)
	}
	return &Member{fd: fd}, unix.Sendmsg(fd, []byte{0}, rights, nil, 0)
}

// Ask asks the watcher.
func (m *Member) Ask(words ...any) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := fmt.Appendln(nil, words...)
	for len(b) > 0 {
		n, err := unix.Write(m.fd, b)
		if err != nil && err != unix.EINTR {
			return "", fmt.Errorf("to the watcher: %w", err)
		}
		b = b[max(n, 0):]
	}
	var line []byte
	for one := make([]byte, 1); ; {
		switch n, err := unix.Read(m.fd, one); {
		case err == unix.EINTR:
		case err != nil || n == 0:
			return "", errors.Join(errors.New("the watcher has ended"), err)
		case one[0] == '\n':
			return string(line), nil
		default:
			line = append(line, one[0])
		}
	}
}

// ShowPackets makes steps of the packets that go through shared memory, which are no calls.
func ShowPackets() mpi.Option {
	return func(o *join.Options) {
		o.Wrap = func(_ int, d transport.Device) transport.Device {
			if !strings.Contains(d.Name(), "shm") {
				return d
			}
			s := &shown{Device: d, facts: *d.Facts()}
			s.facts.Short = nil // all goes through Poll
			if now := s.facts.ConnectNow; now != nil {
				s.facts.ConnectNow = func(peer int, address []byte) transport.Link {
					if l := now(peer, address); l != nil {
						return shownLink{l}
					}
					return nil
				}
			}
			return s
		}
	}
}

// shown is a device whose packets are steps.
type shown struct {
	transport.Device
	facts transport.Facts
}

func (s *shown) Facts() *transport.Facts { return &s.facts }

func (s *shown) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := s.Device.Connect(ctx, peer, address)
	if err != nil {
		return nil, err
	}
	return shownLink{l}, nil
}

func (s *shown) Poll(pkts []transport.Packet) int {
	n := s.Device.Poll(pkts)
	for range n {
		unix.Getpgid(0)
	}
	return n
}

type shownLink struct{ transport.Link }

func (l shownLink) TrySend(h *wire.Header, payload []byte) bool {
	unix.Getpgid(0)
	return l.Link.TrySend(h, payload)
}
