package procs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/pmi"
)

// cleaner is a second process that outlives a gorun that is killed by SIGKILL. The parent-death signal ends the ranks
// then. What the ranks have started themselves (the program behind a wrapper script, a daemon) gets no such signal and
// would run on, and the go command leaves its temporary folder. The cleaner learns of process groups and folders, and
// of the job's mark in the environment of its processes, through a pipe; when the pipe ends it kills and removes them.
// At a proper end it is killed first.
type cleaner struct {
	pipe *os.File // non-blocking
	pid  int
}

// pipeHolds is how many groups can be written into a pipe of 4 KiB, the smallest there is, before the cleaner reads it.
const pipeHolds = (4096 - 256) / len("group 2147483647\n")

// startCleaner runs argv, which must call Clean. The mark (no longer than 200 bytes) and the groups (at most pipeHolds)
// are in the pipe before the cleaner starts, so that it knows them even if gorun is killed right after the start.
func startCleaner(argv []string, mark string, groups ...int) (*cleaner, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c := &cleaner{pipe: w}
	if mark != "" {
		c.mark(mark)
	}
	for _, pgid := range groups {
		c.group(pgid)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		c.pipe.Close()
		return nil, err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{
		Dir: "/",
		Env: []string{"GOMAXPROCS=1"},
		// Not our streams: a reader of our output waits until its last holder has closed it.
		Files: []uintptr{r.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // no signal of the terminal, no signal to our group
	}
	if c.pid, _, err = syscall.StartProcess(argv[0], argv, attr); err != nil {
		c.pipe.Close()
		return nil, err
	}
	return c, nil
}

func (c *cleaner) mark(env string)   { fmt.Fprintln(c.pipe, markWord, env) }
func (c *cleaner) group(pgid int)    { fmt.Fprintln(c.pipe, groupWord, pgid) }
func (c *cleaner) folder(dir string) { fmt.Fprintln(c.pipe, folderWord, dir) }

const (
	groupWord  = "group"
	folderWord = "folder"
	markWord   = "mark"
	TempPrefix = "gorun-" // of the folders that a cleaner may remove, and of the file of package program
)

// stop ends the cleaner before it can see the end of the pipe, so that it kills nothing.
func (c *cleaner) stop() {
	syscall.Kill(c.pid, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(c.pid, nil, 0, nil); err != syscall.EINTR {
			break
		}
	}
	c.pipe.Close()
}

// cleanerDelay is when the cleaner of a gorun that starts ranks itself starts: not while the ranks start, whose
// processors it would take, and not at all for a job that is over by then. A gorun that is killed sooner takes its
// ranks along, but not what they have started. An agent has its cleaner before its first rank: what is left on a host
// is not seen from the user's, and the way there has taken a hundred times longer.
const cleanerDelay = 25 * time.Millisecond

// cleanerTask starts the cleaner of a job and tells it of process groups. It is a goroutine of its own: the cleaner may
// be stopped, or have no processor for long.
type cleanerTask struct {
	start  func(mark string, groups ...int) (*cleaner, error)
	delay  time.Duration
	once   sync.Once     // of the start of run, or of stop without one
	stands chan struct{} // closed when the cleaner has been started
	groups chan int
	quit   chan struct{}
	done   chan struct{}
}

func newCleanerTask(ranks int, start func(mark string, groups ...int) (*cleaner, error)) *cleanerTask {
	return &cleanerTask{start: start, delay: cleanerDelay, stands: make(chan struct{}),
		groups: make(chan int, ranks), quit: make(chan struct{}), done: make(chan struct{})}
}

// prepare is called before a rank is started. Without a delay it returns when the cleaner knows the mark, or there will
// be none.
func (t *cleanerTask) prepare(mark string) {
	t.once.Do(func() {
		go t.run(mark)
		if t.delay > 0 {
			return
		}
		select {
		case <-t.stands:
		case <-t.done:
		}
	})
}

// add makes the cleaner know a process group. It never waits: there is room for all.
func (t *cleanerTask) add(group int) { t.groups <- group }

// stop ends the cleaner.
func (t *cleanerTask) stop() {
	close(t.quit)
	t.once.Do(func() { close(t.done) }) // no rank was started
	<-t.done
}

func (t *cleanerTask) run(mark string) {
	defer close(t.done)
	select {
	case <-time.After(t.delay):
	case <-t.quit:
		return
	}
	var groups []int
	for len(t.groups) > 0 && len(groups) < pipeHolds {
		groups = append(groups, <-t.groups)
	}
	c, err := t.start(mark, groups...)
	if err != nil {
		return // without a cleaner the job runs all the same
	}
	defer c.stop()
	close(t.stands)
	told := make(chan struct{})
	defer close(told)
	go func() {
		select {
		case <-t.quit:
			c.pipe.SetWriteDeadline(time.Now())
		case <-told:
		}
	}()
	for {
		select {
		case g := <-t.groups:
			c.group(g)
		case <-t.quit:
			return
		}
	}
}

// Clean is the life of the cleaner: it reads the names of process groups and folders, and the job's mark, one a line,
// until in ends, and then kills and removes them.
func Clean(in io.Reader) {
	var mark string
	var groups []int
	var folders []string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		what, arg, _ := strings.Cut(lines.Text(), " ")
		switch n, err := strconv.Atoi(arg); {
		case what == groupWord && err == nil && n > 1:
			groups = append(groups, n)
		case what == folderWord && strings.HasPrefix(filepath.Base(arg), TempPrefix):
			folders = append(folders, arg)
		case what == markWord && strings.HasPrefix(arg, pmi.EnvJob+"=gorun_"):
			mark = arg
		}
	}
	for _, n := range groups {
		syscall.Kill(-n, syscall.SIGKILL)
	}
	if mark != "" {
		killMarked(mark)
	}
	for _, dir := range folders {
		RemoveFolder(dir)
	}
}

// RemoveFolder removes a folder in which processes that have just been killed may still finish a write.
func RemoveFolder(dir string) {
	for range 100 {
		if os.RemoveAll(dir) == nil {
			if _, err := os.Lstat(dir); os.IsNotExist(err) {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}
