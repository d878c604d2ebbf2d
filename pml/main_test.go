package pml

import (
	"os"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testenv"
)

// hangs is after how long a test is not slow but stuck.
const hangs = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(testenv.LeavesNothing(m.Run)) }

func watchdog(t testing.TB) { testenv.Watchdog(t, hangs) }
