package pmi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// The test binary is also the program that the real launcher starts.
func TestMain(m *testing.M) {
	proc.RunRole(map[string]func() error{"rank": beRank, "forget": forget})
	os.Exit(m.Run())
}

func beRank() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Join(ctx)
	if err != nil {
		return err
	}
	if c == nil {
		return fmt.Errorf("a world of one")
	}
	value := func(r int) []byte { return bytes.Repeat([]byte{byte(r), 0, '\n', 0xff}, 1000) }
	if err := c.Put(ctx, fmt.Sprintf("addr-%d", c.Rank()), value(c.Rank())); err != nil {
		return err
	}
	if err := c.Fence(ctx); err != nil {
		return err
	}
	for r := range c.Size() {
		got, err := c.Get(ctx, fmt.Sprintf("addr-%d", r))
		if err != nil || !bytes.Equal(got, value(r)) {
			return fmt.Errorf("rank %d got %d bytes of rank %d: %w", c.Rank(), len(got), r, err)
		}
	}
	if err := c.Fence(ctx); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d under %s\n", c.Rank(), c.Size(), c.launcher)
	return c.Finalize(ctx)
}

// mpiexec.hydra is a server that we did not write.
func TestUnderHydra(t *testing.T) {
	hydra := proc.RequireProgram(t, "mpiexec.hydra", "mpich")
	for _, mode := range [][]string{nil, {"-pmi-port"}} {
		t.Run(strings.Join(mode, ""), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			args := append(mode, "-n", "3", os.Args[0])
			cmd := exec.CommandContext(ctx, hydra, args...)
			cmd.Env = append(os.Environ(), proc.RoleVar+"=rank", EnvJob+"=gorun_of_somebody_else")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
			for r := range 3 {
				if want := fmt.Sprintf("rank %d of 3 under hydra\n", r); !bytes.Contains(out, []byte(want)) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}
