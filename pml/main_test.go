package pml

import (
	"os"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// hangs is after how long a test is not slow but stuck.
const hangs = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(leak.VerifyMain(m.Run)) }

func watchdog(t testing.TB) { proc.PanicAfter(t, hangs) }

// inShort is how many turns a test takes: enough, or with -short only some.
func inShort[T ~int | ~uint64](enough, some T) T {
	if testing.Short() {
		return some
	}
	return enough
}
