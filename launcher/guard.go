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

// guard is a second process that outlives a gorun killed by SIGKILL. The parent-death signal ends the ranks
// then; what the ranks have started themselves (the program behind a wrapper script) gets no such signal and would
// run on, and the go command leaves its temporary folder. The guard is told of groups and folders through a pipe;
// when the pipe ends it kills and removes them. A proper end looks different: it is killed first.
type guard struct {
	pipe *os.File
	pid  int
}

// pipeHolds is how many groups can be written into a pipe of 4 KiB, the smallest there is, before anybody reads it.
const pipeHolds = 4096 / len("group 2147483647\n")

// startGuard runs argv, which must call Guard. What groups there are already is in the pipe before the guard lives: a
// gorun that is killed between the two would otherwise leave one that knows of nothing.
func startGuard(argv []string, groups ...int) (*guard, error) {
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	defer syscall.Close(r)
	g := &guard{pipe: os.NewFile(uintptr(w), "guard")}
	first := min(len(groups), pipeHolds)
	g.tell(groups[:first])
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		g.pipe.Close()
		return nil, err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{
		Dir: "/",
		Env: []string{"GOMAXPROCS=1"},
		// Not our streams: who reads our output waits for its last holder.
		Files: []uintptr{uintptr(r), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // no signal of the terminal, no signal to our group
	}
	if g.pid, _, err = syscall.StartProcess(argv[0], argv, attr); err != nil {
		g.pipe.Close()
		return nil, err
	}
	g.tell(groups[first:])
	return g, nil
}

func (g *guard) tell(groups []int) {
	for _, pgid := range groups {
		g.group(pgid)
	}
}

func (g *guard) group(pgid int)    { fmt.Fprintln(g.pipe, guardGroup, pgid) }
func (g *guard) folder(dir string) { fmt.Fprintln(g.pipe, guardFolder, dir) }

const (
	guardGroup  = "group"
	guardFolder = "folder"
	tempPrefix  = "gorun-" // of the folders that a guard removes
)

// stop ends the guard before the pipe, so that it kills nobody.
func (g *guard) stop() {
	syscall.Kill(g.pid, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(g.pid, nil, 0, nil); err != syscall.EINTR {
			break
		}
	}
	g.pipe.Close()
}

// Guard is the guard's life: it reads what there is to end, one thing a line, and ends it when the input does.
func Guard(in io.Reader) {
	var groups []int
	var folders []string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		what, arg, _ := strings.Cut(lines.Text(), " ")
		switch n, err := strconv.Atoi(arg); {
		case what == guardGroup && err == nil && n > 1:
			groups = append(groups, n)
		case what == guardFolder && strings.HasPrefix(filepath.Base(arg), tempPrefix):
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
