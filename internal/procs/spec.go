package procs

import (
	"fmt"
	"os"
	"syscall"
)

// Spec is one process to be started.
type Spec struct {
	Rank int
	App  int      // which context of an MPMD job
	Path string   // the executable
	Argv []string // with the name the user typed at [0]
	Env  []string // complete
	Dir  string   // "": the launcher's
	CPUs []int    // to be bound to; nil: all that the launcher may use
	Lazy bool     // its sleeps may be lazySlack longer than it wants; it and all that it starts

	// Descriptors 0 to 3 of the process. The caller owns them and closes them after Start.
	Stdin, Stdout, Stderr, Control *os.File
}

// Exit says how a process ended.
type Exit struct {
	Rank   int
	Spawn  int // the number of the spawned job whose rank it is; 0: the first job
	Again  int // how often the rank has been started again; 0: this is its first process
	Place  int // what the user calls the rank, if Again is not 0: the number of the rank whose place it has
	Pid    int
	Host   string
	Code   int            // if Signal is 0
	Signal syscall.Signal // that killed it, or 0
	Core   bool           // and left a core dump
	Err    error          // its end could not be observed
}

// Number is the rank's number for the user.
func (e Exit) Number() int {
	if e.Again != 0 {
		return e.Place
	}
	return e.Rank
}

// Name is what the user reads of the rank.
func (e Exit) Name() string {
	if e.Spawn != 0 {
		return fmt.Sprintf("rank %d of spawn %d", e.Number(), e.Spawn)
	}
	return fmt.Sprintf("rank %d", e.Number())
}

func (e Exit) String() string {
	again := ""
	if e.Again != 0 {
		again = "started again, "
	}
	rank := fmt.Sprintf("%s (%spid %d on host %s)", e.Name(), again, e.Pid, e.Host)
	switch {
	case e.Err != nil:
		return fmt.Sprintf("%s was lost: %v", rank, e.Err)
	case e.Signal != 0 && e.Core:
		return fmt.Sprintf("%s was killed by signal %d (%s, core dumped)", rank, int(e.Signal), e.Signal)
	case e.Signal != 0:
		return fmt.Sprintf("%s was killed by signal %d (%s)", rank, int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("%s exited with code %d", rank, e.Code)
}

// Status is the exit code that a shell would show.
func (e Exit) Status() int {
	switch {
	case e.Err != nil:
		return 1
	case e.Signal != 0:
		return 128 + int(e.Signal)
	}
	return e.Code
}
