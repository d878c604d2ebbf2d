package guard

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// roles are what a re-executed test binary can be.
var roles = map[string]func() error{}

func TestMain(m *testing.M) {
	proc.RunRole(roles)
	os.Exit(leak.VerifyMain(func() int { return hcakit.Main(m) }))
}

// overDevices has ranks of RunLocal reach each other by devices of their own, in place of loop's.
func overDevices(open func(rank int) (transport.Device, error)) mpi.Option {
	return func(o *join.Options) {
		o.Wrap = func(rank int, d transport.Device) transport.Device {
			d.Close()
			return ok(open(rank))
		}
	}
}

// runRanks is RunLocal that fails the test if a rank panics, for which must and check are there, and if it hangs.
func runRanks(t *testing.T, n int, body func(w *mpi.Comm), opts ...mpi.Option) {
	t.Helper()
	proc.PanicAfter(t, 2*time.Minute)
	if err := mpi.RunLocal(n, func(w *mpi.Comm) error { body(w); return nil }, opts...); err != nil {
		t.Fatal(err)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// ok drops the result of a call that must succeed.
func ok[T any](v T, err error) T {
	must(err)
	return v
}

func check(cond bool, format string, args ...any) {
	if !cond {
		panic(fmt.Errorf(format, args...))
	}
}

// sendSignal and awaitSignal order what two ranks do, by a message without payload.
func sendSignal(w *mpi.Comm, rank int)  { must(mpi.Send[byte](w, nil, rank, mpi.MaxTag)) }
func awaitSignal(w *mpi.Comm, rank int) { ok(mpi.Recv[byte](w, nil, rank, mpi.MaxTag)) }
