package procs

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// forwarded are the signals that go on to the ranks and end nothing by themselves.
var forwarded = []syscall.Signal{
	syscall.SIGCONT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGWINCH,
}

// Ending are the signals that end a job, or a build.
var Ending = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// Signals returns the channel of the signals that this process receives. The first call catches them, and they stay
// caught: one Ctrl-C too many does not take a job's exit code away. No other code of a process that runs a job may
// catch or release these signals, since signal.Notify makes Go forget that a signal was ignored at the start. SIGCHLD
// has receivers of its own.
var Signals = sync.OnceValue(catchSignals)

// catchSignals leaves a signal alone that was ignored when the process started (nohup, a background job of a script).
//
// Go tells this of SIGHUP and SIGINT only: its runtime installs a handler over any other ignored signal before main,
// and nothing in the process can see what was there. A shell that ignores SIGINT for a background job ignores SIGQUIT
// too, so SIGINT answers for both. No usual parent ignores SIGTERM.
func catchSignals() <-chan os.Signal {
	c := make(chan os.Signal, 16)
	background := signal.Ignored(syscall.SIGINT)
	for _, list := range [][]syscall.Signal{Ending, forwarded, systemForwarded, {syscall.SIGTSTP}} {
		for _, s := range list {
			switch {
			case signal.Ignored(s):
			case s == syscall.SIGQUIT && background:
				signal.Ignore(s)
			default:
				signal.Notify(c, s)
			}
		}
	}
	pipe := make(chan os.Signal, 1) // or the runtime would end us; the write fails in any case, which is what we look at
	signal.Notify(pipe, syscall.SIGPIPE)
	return c
}

// Stopped is the cause of an end that a signal asked for.
type Stopped struct{ Signal syscall.Signal }

func (s *Stopped) Error() string { return "stopped by signal: " + s.Signal.String() }

// UntilSignal calls f with a context that ends when a signal asks for the end. It returns the error of f, or *Stopped
// after such a signal, also if f has succeeded meanwhile: no signal is lost between f and the next reader of Signals.
func UntilSignal(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case s := <-Signals():
				if s := s.(syscall.Signal); Ends(s) {
					cancel(&Stopped{s})
				}
			case <-done:
				return
			}
		}
	}()
	err := f(ctx)
	close(done)
	<-over
	var stopped *Stopped
	if errors.As(context.Cause(ctx), &stopped) {
		return stopped
	}
	cancel(nil)
	return err
}

// Ends reports whether a signal from Signals asks for the end, where there are no ranks yet to pass signals on to.
// SIGTSTP stops the process until another signal lets it go on.
func Ends(s syscall.Signal) bool {
	if s == syscall.SIGTSTP {
		StopSelf()
	}
	return slices.Contains(Ending, s)
}

// StopSelf stops this process as the terminal's SIGTSTP would without a handler.
func StopSelf() { syscall.Kill(os.Getpid(), syscall.SIGSTOP) }
