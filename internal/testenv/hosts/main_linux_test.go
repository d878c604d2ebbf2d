package hosts

import (
	"fmt"
	"os"
	"testing"
)

// The test binary is also the program that runs on the hosts.
func TestMain(m *testing.M) {
	roles := map[string]func() error{"ticker": ticker, "ring": ring}
	role := os.Getenv("GORUN_TEST_ROLE")
	if role == "" {
		os.Exit(m.Run())
	}
	if err := roles[role](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
