package procs

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// RunGroup runs a command in a process group of its own, and ends all of the group when ctx ends. If gorun is killed, a
// cleaner kills the group and removes folder; else the caller removes it. cleanerArgv is a command that calls Clean;
// nil for none.
func RunGroup(ctx context.Context, cmd *exec.Cmd, folder string, cleanerArgv []string) error {
	var c *cleaner
	if cleanerArgv != nil {
		if c, _ = startCleaner(cleanerArgv, ""); c != nil {
			defer c.stop()
			c.folder(folder)
		}
	}
	runtime.LockOSThread() // the parent-death signal belongs to a thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = rankAttr()
	if err := cmd.Start(); err != nil {
		return err
	}
	if c != nil {
		c.group(cmd.Process.Pid)
	}
	stop := context.AfterFunc(ctx, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	stop()
	if ctx.Err() != nil {
		// The compilers are children of the go command, which no process here can wait for: they are killed with it,
		// and end a moment later.
		for n := 0; n < 100 && syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) == nil; n++ {
			time.Sleep(10 * time.Millisecond)
		}
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	return nil
}
