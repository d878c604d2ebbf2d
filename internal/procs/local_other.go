//go:build !linux

package procs

import (
	"syscall"
	"time"
)

// CanBind is false outside Linux. A rank learns of gorun's death only by the end of the control socket there.
const CanBind = false

// CanBeLazy is false outside Linux.
const CanBeLazy = false

func rankAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func bindThread([]int) (restore func(), err error) { return func() {}, nil }

func slackenThread() (restore func()) { return func() {} }

// peek reports whether a child has ended, and how. It cannot leave the child unreaped here.
func peek(pid int) (e Exit, ended bool) {
	var status syscall.WaitStatus
	for {
		got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return Exit{Err: err}, true
		case got == 0:
			return Exit{}, false
		case status.Signaled():
			return Exit{Signal: status.Signal(), Core: status.CoreDump()}, true
		}
		return Exit{Code: status.ExitStatus()}, true
	}
}

func reap(int) {}

// There are no subreapers here, and no list of processes that could be read: orphans are lost.

type child struct{ pid int }

func becomeSubreaper()                         {}
func children() []child                        { return nil }
func (*Local) reapOrphans() time.Duration      { return 0 }
func killOrphans(map[int]bool, string, string) {}
func killMarked(string)                        {}

// deathWatch is Linux's.
type deathWatch struct{}

func newDeathWatch(int) *deathWatch        { return nil }
func (*deathWatch) add(int) bool           { return false }
func (*deathWatch) all(func(pid int) bool) {}
func (*deathWatch) close()                 {}
