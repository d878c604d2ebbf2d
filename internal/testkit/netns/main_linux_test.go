package netns

import (
	"os"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// The test binary is also the program that runs on the hosts.
func TestMain(m *testing.M) {
	proc.RunRole(map[string]func() error{"ticker": ticker, "ring": ring})
	os.Exit(m.Run())
}
