package launcher

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// local starts processes on this host.
//
// All of them are started by one goroutine that is locked to one thread until Close, because the parent-death signal
// of Linux fires when the creating *thread* ends, and because a child inherits its affinity from that thread.
//
// A process that has ended stays unreaped (a zombie) until Close: as long as it exists neither its pid nor
// its process group's number can be given to another process, which a signal would then hit.
type local struct {
	host  string
	alone bool     // any child process left at the end is ours
	argv  []string // of the cleaner; nil: none
	exits chan Exit
	work  chan func() // for the starter thread

	mu      sync.Mutex
	pids    map[int]int // guarded by mu; rank -> pid, which is the process group too; until reaped
	cleaner *cleaner    // guarded by mu; nil until cleanerDelay after the start of the first rank
	groups  []int       // guarded by mu; what a cleaner must know
	watch   sync.WaitGroup
	closed  bool
}

// Local returns the backend for this host. alone: this process has no children but the job's. cleaner is a
// command that calls Clean; nil for none.
func Local(size int, alone bool, cleaner []string) Backend {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	l := &local{
		host: host, alone: alone, argv: cleaner, exits: make(chan Exit, size), work: make(chan func()),
		pids: make(map[int]int, size),
	}
	ready := make(chan struct{})
	go l.starter(ready)
	<-ready
	return l
}

// starter is the thread that is the parent of all ranks. It is never unlocked: it ends with its goroutine, after
// Close has reaped all of its children.
func (l *local) starter(ready chan<- struct{}) {
	runtime.LockOSThread()
	if l.alone {
		becomeSubreaper()
	}
	close(ready)
	for f := range l.work {
		f()
	}
}

func (l *local) Host(int) string { return l.host }

func (l *local) Exits() <-chan Exit { return l.exits }

func (l *local) Start(s *Spec) (pid int, err error) {
	done := make(chan struct{})
	l.work <- func() {
		defer close(done)
		pid, err = startProcess(s)
	}
	<-done
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	l.pids[s.Rank] = pid
	l.remember(pid)
	l.mu.Unlock()
	l.watch.Go(func() {
		e := waitExit(pid)
		e.Rank, e.Pid, e.Host = s.Rank, pid, l.host
		l.exits <- e // has room for all
	})
	return pid, nil
}

// cleanerDelay is when the cleaner starts: not while the ranks start, whose processors it would take, and not at all
// for a job that is over by then. A gorun that is killed sooner takes its ranks along, but not what they have started.
const cleanerDelay = 25 * time.Millisecond

// remember makes the cleaner know a process group. Called with mu held. Without a cleaner the job runs all the same.
func (l *local) remember(group int) {
	if l.argv == nil {
		return
	}
	if l.groups = append(l.groups, group); l.cleaner != nil {
		l.cleaner.group(group)
	} else if len(l.groups) == 1 {
		time.AfterFunc(cleanerDelay, l.beginCleaner)
	}
}

func (l *local) beginCleaner() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.cleaner, _ = startCleaner(l.argv, l.groups...)
}

func (l *local) Signal(rank int, sig syscall.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pid, ok := l.pids[rank]; ok {
		syscall.Kill(-pid, sig)
	}
}

func (l *local) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	for _, pid := range l.pids {
		syscall.Kill(-pid, syscall.SIGKILL)
	}
	l.watch.Wait() // every leader is dead now
	for rank, pid := range l.pids {
		reap(pid)
		delete(l.pids, rank)
	}
	if l.cleaner != nil {
		l.cleaner.stop()
	}
	if l.alone {
		killOrphans()
	}
	close(l.work)
}

// startProcess runs on the starter thread.
func startProcess(s *Spec) (int, error) {
	restore, err := bindThread(s.CPUs)
	if err != nil {
		return 0, err
	}
	defer restore()
	attr := &syscall.ProcAttr{
		Dir:   s.Dir,
		Env:   s.Env,
		Files: []uintptr{s.Stdin.Fd(), s.Stdout.Fd(), s.Stderr.Fd(), s.Control.Fd()},
		Sys:   sysProcAttr(),
	}
	pid, _, err := syscall.StartProcess(s.Path, s.Argv, attr)
	return pid, err
}
