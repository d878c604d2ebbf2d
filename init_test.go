package mpi

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// The caller's logger gets what its own level lets through, whatever GORUN_LOG says.
func TestLogger(t *testing.T) {
	for level, want := range map[hclog.Level]bool{hclog.Debug: true, hclog.Info: false} {
		var out bytes.Buffer
		l := hclog.New(&hclog.LoggerOptions{Level: level, Output: &out})
		must(local(t, 1, func(w *Comm) {
			ok(Sendrecv(w, []byte{1}, 0, 0, make([]byte, 1), 0, 0))
		}, loopBeneath, WithLogger(l), WithEnviron([]string{"GORUN_LOG=trace"})))
		if strings.Contains(out.String(), "peer connected") != want {
			t.Errorf("a logger of level %v: %q", level, &out)
		}
	}
}

// The connections end because of the Abort, perhaps before the process does: its code stays the exit code.
func TestLauncherGoneAfterAbort(t *testing.T) {
	process.aborting.Store(true)
	defer process.aborting.Store(false)
	lost := make(chan struct{})
	close(lost)
	watchLauncher(lost, 0) // without the Abort this process would exit here
}

func init() {
	roles["background"] = func() error {
		signal.Ignore(os.Interrupt) // as a shell does for a command that a script starts with &
		var err error
		Main(func(context.Context, *Comm) error {
			if !signal.Ignored(os.Interrupt) {
				err = errors.New("Main catches a signal that was ignored at the start")
			}
			return nil
		})
		return err
	}
}

// Ctrl-C on a script ends no program that the script has left in the background.
func TestMainKeepsIgnoredInterrupt(t *testing.T) { reexec(t, "background") }
