//go:build !linux

package launcher

import "syscall"

// Outside Linux a process cannot be bound, and a rank learns of gorun's death only by the end of the control socket.
const canBind = false

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func becomeSubreaper() {}

func bindThread([]int) (restore func(), err error) { return func() {}, nil }

// waitExit has no way to leave the child unreaped here.
func waitExit(pid int) Exit {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return Exit{Err: err}
		}
		break
	}
	if status.Signaled() {
		return Exit{Signal: status.Signal(), Core: status.CoreDump()}
	}
	return Exit{Code: status.ExitStatus()}
}

func reap(int) {}

func killOrphans() {}
