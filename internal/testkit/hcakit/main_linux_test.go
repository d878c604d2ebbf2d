package hcakit_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// forbid makes this test binary forbid process_vm_readv and then become the program that its arguments name.
const forbid = "GORUN_TEST_SOFTHCA_FORBID"

func TestMain(m *testing.M) {
	if os.Getenv(forbid) != "" {
		fmt.Fprintln(os.Stderr, becomeForbidden())
		os.Exit(1)
	}
	os.Exit(hcakit.Main(m))
}

func becomeForbidden() error {
	if err := proc.ForbidReadv(); err != nil {
		return err
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}
