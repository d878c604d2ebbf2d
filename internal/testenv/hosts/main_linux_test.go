package hosts

import (
	"os"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testenv"
)

// The test binary is also the program that runs on the hosts.
func TestMain(m *testing.M) {
	testenv.Become(map[string]func() error{"ticker": ticker, "ring": ring})
	os.Exit(m.Run())
}
