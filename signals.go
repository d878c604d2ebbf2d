package mpi

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/standstill"
	"github.com/gorun-mpi/mpi/internal/waits"
)

// lookEvery is the time between two looks at a process that a signal is to end.
const lookEvery = 100 * time.Millisecond

// sameSignal is how soon after a signal another one is taken for the same: timeout(1) sends its signal to the process,
// and then to the group of the process. Tests change it.
var sameSignal = 100 * time.Millisecond

// signalContext returns a context that ends on the signals that end a program, and a function that gives the signals
// back. A launcher ends a rank that goes on in spite of a signal. Without a launcher endAlone does.
func signalContext(m *join.Member, names standstill.Names) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	if !m.Alone() {
		return ctx, stop
	}
	signals, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, endSignals()...)
	giveBack := func() {
		signal.Stop(signals)
		stop()
	}
	account := func(level waits.Level) waits.Account {
		return standstill.Account([]standstill.World{{Engine: m.Engine, Names: names}}, m.Rank, level, "")
	}
	go endAlone(signals, over, giveBack, account)
	return ctx, func() {
		close(over)
		giveBack()
	}
}

// endSignals are SIGINT and SIGTERM, except for a SIGINT that was ignored at the start, as for a background job of a
// script: to ask for it would undo that.
func endSignals() []os.Signal {
	signals := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(os.Interrupt) {
		signals = append(signals, os.Interrupt)
	}
	return signals
}

// endAlone ends this process, which has no launcher, if its body goes on after a signal. A body that computes may save
// its work first, for as long as that takes: giveBack lets another signal have its default action. A body that waits in
// a call which no other goroutine can end would wait for ever: the signal that has come has its default action.
func endAlone(signals <-chan os.Signal, over <-chan struct{}, giveBack func(),
	account func(waits.Level) waits.Account,
) {
	var s os.Signal
	select {
	case <-over:
		return
	case s = <-signals:
	}
	defer time.AfterFunc(sameSignal, giveBack).Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for before := (waits.Account{}); ; {
		select {
		case <-over:
			return
		case <-look.C:
		}
		a := account(waits.Glance)
		if a.Stands { // else the stacks of all goroutines, for which they stop, would say nothing new
			a = account(waits.Full)
		}
		if a.Stands && before.Stands && a.Moved == before.Moved {
			fmt.Fprintf(os.Stderr, "mpi: %v: the program ends; it waits for what no goroutine of it can do:\n  %s\n", s,
				strings.Join(waits.Table([]waits.Rank{{Account: a}}), "\n  "))
			process.profile.Load().stop()
			signal.Reset(s)
			sendSelf(s)
			select {} // until it ends
		}
		before = a
	}
}

// sendSelf sends this process a signal.
func sendSelf(s os.Signal) {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		self.Signal(s)
	}
}
