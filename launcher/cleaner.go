package launcher

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cleaner is a second process that outlives a gorun that is killed by SIGKILL. The parent-death signal ends the ranks
// then. What the ranks have started themselves (the program behind a wrapper script) gets no such signal and would run
// on, and the go command leaves its temporary folder. The cleaner learns of process groups and folders through a pipe;
// when the pipe ends it kills and removes them. At a proper end it is killed first.
type cleaner struct {
	pipe *os.File
	pid  int
}

// pipeHolds is how many groups can be written into a pipe of 4 KiB, the smallest there is, before the cleaner reads it.
const pipeHolds = 4096 / len("group 2147483647\n")

// startCleaner runs argv, which must call Clean. The groups that exist already are in the pipe before the cleaner
// starts, so that it knows them even if gorun is killed right after the start.
func startCleaner(argv []string, groups ...int) (*cleaner, error) {
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	defer syscall.Close(r)
	c := &cleaner{pipe: os.NewFile(uintptr(w), "cleaner")}
	first := min(len(groups), pipeHolds)
	c.add(groups[:first])
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
		Files: []uintptr{uintptr(r), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // no signal of the terminal, no signal to our group
	}
	if c.pid, _, err = syscall.StartProcess(argv[0], argv, attr); err != nil {
		c.pipe.Close()
		return nil, err
	}
	c.add(groups[first:])
	return c, nil
}

func (c *cleaner) add(groups []int) {
	for _, pgid := range groups {
		c.group(pgid)
	}
}

func (c *cleaner) group(pgid int)    { fmt.Fprintln(c.pipe, groupWord, pgid) }
func (c *cleaner) folder(dir string) { fmt.Fprintln(c.pipe, folderWord, dir) }

const (
	groupWord  = "group"
	folderWord = "folder"
	tempPrefix = "gorun-" // of the folders that a cleaner may remove
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

// Clean is the life of the cleaner: it reads the names of process groups and folders, one a line, until in ends, and
// then kills and removes them.
func Clean(in io.Reader) {
	var groups []int
	var folders []string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		what, arg, _ := strings.Cut(lines.Text(), " ")
		switch n, err := strconv.Atoi(arg); {
		case what == groupWord && err == nil && n > 1:
			groups = append(groups, n)
		case what == folderWord && strings.HasPrefix(filepath.Base(arg), tempPrefix):
			folders = append(folders, arg)
		}
	}
	for _, n := range groups {
		syscall.Kill(-n, syscall.SIGKILL)
	}
	for _, dir := range folders {
		removeFolder(dir)
	}
}

// removeFolder removes a folder in which processes that have just been killed may still finish a write.
func removeFolder(dir string) {
	for range 100 {
		if os.RemoveAll(dir) == nil {
			if _, err := os.Lstat(dir); os.IsNotExist(err) {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}
