package procs

import (
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/reach"
)

// Local starts processes on this host.
//
// All of them are started by one goroutine that is locked to one thread until Close, because the parent-death signal
// of Linux fires when the creating *thread* ends, and because a child inherits its affinity from that thread.
//
// A process that has ended stays unreaped (a zombie) until Close: as long as it exists neither its pid nor
// its process group's number can be given to another process, which a signal would then hit.
//
// No thread waits for a process: Go's runtime ends a program with 10,000 threads. Deaths are heard of in their order by
// deathWatch, or else by asking for each rank after a SIGCHLD.
type Local struct {
	host  string
	alone bool   // any child process is ours, but for others
	late  bool   // it is of a spawned job
	first *Local // of a spawned job: the Local of the first job; nil: this process has no such Local
	exits chan Exit
	work  chan func()  // for the starter thread
	clean *cleanerTask // nil: none

	living    sync.WaitGroup // ranks that have not ended
	deaths    *deathWatch    // nil: none
	unwatched chan int       // pids of ranks that deaths does not watch; with room for all
	quit      chan struct{}  // ends the goroutines in tasks
	tasks     sync.WaitGroup

	nextScan time.Time  // when reapOrphans looks at all processes; watchChildren's
	births   sync.Mutex // held while a process starts: its pid is not known yet, and it is no orphan

	mu        sync.Mutex
	pids      map[int]int  // guarded by mu; rank -> pid, which is the process group too; until reaped
	ranks     map[int]int  // guarded by mu; the inverse of pids
	others    map[int]bool // guarded by mu; children from before the job, and those that startOther has started
	helper    int          // guarded by mu; the pid of the cleaner
	mark      string       // guarded by mu; what is in the environment of every process of the job
	otherMark string       // guarded by mu; if set, what others have started has this in its environment
	closed    bool         // guarded by mu
}

// NewLocal returns the one Local of a job on this host. alone: this process has no children but the job's, and those
// that it has now. argv is a command that calls Clean; nil for none.
func NewLocal(size int, alone bool, argv []string) *Local {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	l := &Local{
		host: host, alone: alone, exits: make(chan Exit, size), work: make(chan func()),
		unwatched: make(chan int, size), deaths: newDeathWatch(size), quit: make(chan struct{}),
		pids: make(map[int]int, size), ranks: make(map[int]int, size), others: map[int]bool{},
	}
	if argv != nil {
		l.clean = newCleanerTask(size, func(mark string, groups ...int) (*cleaner, error) {
			return l.startCleaner(argv, mark, groups...)
		})
	}
	ready := make(chan struct{})
	go l.starter(ready)
	<-ready
	if l.deaths != nil {
		l.tasks.Go(l.watchDeaths)
	}
	l.tasks.Go(l.watchChildren)
	return l
}

// NewSpawned returns the Local of one more job of this process: first, of the first job, reaps and kills no process of
// it. The spawned job ends first. first is nil where agents have started the other ranks.
func NewSpawned(first *Local, size int, argv []string) *Local {
	l := NewLocal(size, false, argv)
	if l.late = true; first != nil {
		l.host, l.first = first.host, first
	}
	return l
}

// ServeAgent makes it the backend of an agent, which may start other agents. It is called before the first Start.
func (l *Local) ServeAgent(host string) {
	l.host = host
	if l.clean != nil {
		l.clean.delay = 0
	}
	l.mu.Lock()
	if len(l.others) == 0 { // what those have left behind would have no mark
		l.otherMark = edgeMark
	}
	l.mu.Unlock()
	reach.StartBy(edgeMark, l.startOther)
}

// edgeMark is in the environment of what startOther starts for an agent.
const (
	EnvEdge  = "GORUN_EDGE"
	edgeMark = EnvEdge + "=1"
)

// starter is the thread that is the parent of all ranks. It is never unlocked: it ends with its goroutine, after
// Close has reaped all of its children.
func (l *Local) starter(ready chan<- struct{}) {
	runtime.LockOSThread()
	if l.alone {
		becomeSubreaper()
		for _, c := range children() {
			l.others[c.pid] = true
		}
	}
	close(ready)
	for f := range l.work {
		f()
	}
}

// Host returns the name of this host, as the user should read it.
func (l *Local) Host(int) string { return l.host }

// Exits delivers one Exit for each rank that was started.
func (l *Local) Exits() <-chan Exit { return l.exits }

// Start starts one rank. It is called from one goroutine.
func (l *Local) Start(s *Spec) (pid int, err error) {
	mark := markOf(s.Env)
	if l.clean != nil {
		l.clean.prepare(mark)
	}
	l.births.Lock()
	defer l.births.Unlock()
	err = l.bear(func() (int, error) {
		done := make(chan struct{})
		l.work <- func() {
			defer close(done)
			pid, err = startProcess(s)
		}
		<-done
		return pid, err
	})
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		syscall.Kill(-pid, syscall.SIGKILL)
		if l.first != nil {
			l.first.forget(map[int]int{pid: s.Rank})
		}
		return 0, os.ErrProcessDone
	}
	l.pids[s.Rank], l.ranks[pid] = pid, s.Rank
	l.mark = mark
	l.living.Add(1)
	if l.deaths == nil || !l.deaths.add(pid) {
		l.unwatched <- pid
	}
	if l.clean != nil {
		l.clean.add(pid)
	}
	return pid, nil
}

// bear calls start, which starts a child of this process that is no orphan. births is held.
func (l *Local) bear(start func() (pid int, err error)) error {
	if l.first != nil {
		return l.first.startOther(start)
	}
	_, err := start()
	return err
}

// markOf is what tells the processes of a job from all others: the name of the job, which each inherits in its
// environment.
func markOf(env []string) string {
	for _, kv := range slices.Backward(env) {
		if strings.HasPrefix(kv, pmi.EnvJob+"=") {
			return kv
		}
	}
	return ""
}

// watchDeaths reports ranks that have ended.
func (l *Local) watchDeaths() {
	for pid := range l.deaths.all {
		if !l.report(pid) {
			l.unwatched <- pid
		}
	}
}

// watchChildren looks after a SIGCHLD for ranks that nothing else watches, and for orphans that have ended.
func (l *Local) watchChildren() {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	var pids []int
	for {
		select {
		case <-l.quit:
			return
		case pid := <-l.unwatched:
			if !l.report(pid) {
				pids = append(pids, pid)
			}
			continue
		case <-died:
		case <-again.C:
		}
		begin := time.Now()
		pids = slices.DeleteFunc(pids, l.report)
		if l.alone {
			if wait := l.reapOrphans(); wait > 0 {
				again.Reset(wait)
			}
		}
		// With thousands of ranks a look takes milliseconds, and each has a SIGCHLD of its own at the end.
		select {
		case <-time.After(min(4*time.Since(begin), 50*time.Millisecond)):
		case <-l.quit:
			return
		}
	}
}

// report delivers the end of a rank, and reports whether the rank has ended.
func (l *Local) report(pid int) bool {
	e, ended := peek(pid)
	if !ended {
		return false
	}
	l.mu.Lock()
	e.Rank, e.Pid, e.Host = l.ranks[pid], pid, l.host
	l.mu.Unlock()
	l.exits <- e // has room for all
	l.living.Done()
	return true
}

// isOurs reports whether a child is a rank, the cleaner, or one that others have started: it is no orphan.
func (l *Local) isOurs(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, rank := l.ranks[pid]
	return rank || l.others[pid] || l.helper == pid
}

// Signal sends a signal to the process group of a rank.
func (l *Local) Signal(rank int, sig syscall.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pid, ok := l.pids[rank]; ok {
		syscall.Kill(-pid, sig)
	}
}

// startOther calls start, which starts a child that is no rank and not ours to reap.
func (l *Local) startOther(start func() (pid int, err error)) error {
	l.births.Lock()
	defer l.births.Unlock()
	pid, err := start()
	if err == nil {
		l.mu.Lock()
		l.others[pid] = true
		l.mu.Unlock()
	}
	return err
}

// forget takes processes that have been reaped off the others: their numbers may be given to orphans of ours.
func (l *Local) forget(pids map[int]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pid := range pids {
		delete(l.others, pid)
	}
}

func (l *Local) startCleaner(argv []string, mark string, groups ...int) (*cleaner, error) {
	l.births.Lock()
	defer l.births.Unlock()
	var c *cleaner
	err := l.bear(func() (pid int, err error) {
		if c, err = startCleaner(argv, mark, groups...); err == nil {
			pid = c.pid
		}
		return pid, err
	})
	if err == nil {
		l.mu.Lock()
		l.helper = c.pid
		l.mu.Unlock()
	}
	return c, err
}

// Close kills the ranks that still run, reaps all of them, and ends the cleaner. Nothing of the job runs afterwards.
func (l *Local) Close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	for _, pid := range l.pids {
		syscall.Kill(-pid, syscall.SIGKILL)
	}
	l.mu.Unlock()
	l.living.Wait()
	if l.clean != nil {
		l.clean.stop() // before the groups' numbers are given up, which it would kill if we were killed
	}
	close(l.quit)
	if l.deaths != nil {
		l.deaths.close()
	}
	l.tasks.Wait()
	l.mu.Lock()
	for _, pid := range l.pids {
		reap(pid)
	}
	if l.first != nil {
		l.first.forget(l.ranks)
		l.first.forget(map[int]int{l.helper: 0})
	}
	clear(l.pids)
	clear(l.ranks)
	mark, otherMark, others := l.mark, l.otherMark, maps.Clone(l.others)
	l.mu.Unlock()
	switch {
	case l.alone:
		killOrphans(others, mark, otherMark)
	case l.late && mark != "":
		killMarked(mark)
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
	if s.Lazy {
		defer slackenThread()()
	}
	attr := &syscall.ProcAttr{
		Dir:   s.Dir,
		Env:   s.Env,
		Files: []uintptr{s.Stdin.Fd(), s.Stdout.Fd(), s.Stderr.Fd()},
		Sys:   rankAttr(),
	}
	for fd := 3; fd < ControlFD(); fd++ { // inherited
		attr.Files = append(attr.Files, uintptr(fd))
	}
	attr.Files = append(attr.Files, s.Control.Fd())
	pid, _, err := syscall.StartProcess(s.Path, s.Argv, attr)
	return pid, err
}
