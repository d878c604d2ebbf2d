package softhca_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/testkit/softhca"
)

// forbid makes this test binary forbid process_vm_readv and then become the program that its arguments name.
const forbid = "GORUN_TEST_SOFTHCA_FORBID"

func TestMain(m *testing.M) {
	if os.Getenv(forbid) != "" {
		fmt.Fprintln(os.Stderr, becomeForbidden())
		os.Exit(1)
	}
	os.Exit(softhca.Main(m))
}

func becomeForbidden() error {
	if err := proc.ForbidReadv(); err != nil {
		return err
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}
