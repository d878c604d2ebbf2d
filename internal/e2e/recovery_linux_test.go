package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("recovery", recovery)
	role("left", left)
}

// left is a rank that waits for one that has ended, or was never there.
func left(_ context.Context, w *mpi.Comm) error {
	other, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	if _, err := mpi.Recv(w, []byte{0}, other, tagData); !errors.Is(err, mpi.ErrPeerFailed) {
		return fmt.Errorf("the receive from the rank that is not there: %w", err)
	}
	fmt.Println("goes on")
	return nil
}

// With --enable-recovery a rank hears of one that has ended before its own host has come, and of those of a host that
// was lost before it has started them.
func TestRecoveryOfTheStart(t *testing.T) {
	t.Parallel()
	shell := filepath.Join(t.TempDir(), "shell")
	script := `#!/bin/sh
case $1 in
late) sleep 1;;
lost) echo gorun-agent 1; sleep 0.3; exit 1;;
esac
shift
exec "$@"
`
	if err := os.WriteFile(shell, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		hosts string
		flags string // more of them
		n     int    // ranks that wait, and those of the same program that are not there
		other string
		goOn  int
	}{
		"late":            {"a,late", "-n 1 /bin/false :", 1, "0", 1},
		"late, in a tree": {"a,late", "--tree-width 1 -n 1 /bin/false :", 1, "0", 1},
		"lost":            {"a,lost", "", 2, "1", 1},
		"lost, in a tree": {"a,b,lost", "--tree-width 1", 3, "2", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := append([]string{"--enable-recovery", "--launcher", "exec", "--launch-agent", shell, "-H", c.hosts},
				strings.Fields(c.flags)...)
			j := run(t, spec{n: c.n, role: "left", args: []string{c.other}, flags: flags}, 1)
			if n := j.count(`^goes on$`); n != c.goOn {
				t.Errorf("%d ranks go on:\n%s\n%s", n, j.out.String(), j.err.String())
			}
		})
	}
}

// recovery is a job whose rank 1 dies. The others see it as failed, speak with each other, and finalize.
func recovery(_ context.Context, w *mpi.Comm) error {
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	if w.Rank() == 1 { // it dies when all are through: a rank that is still in the barrier may need it
		for _, other := range []int{0, 2, 3} {
			if _, err := mpi.Recv(w, []byte{0}, other, tagGo); err != nil {
				return err
			}
		}
		if os.Args[1] == "exit" {
			os.Exit(4)
		}
		die()
	}
	if err := mpi.Send(w, []byte{1}, 1, tagGo); err != nil {
		return err
	}
	_, err := mpi.Recv(w, []byte{0}, 1, tagData)
	if failed := errors.Is(err, mpi.ErrPeerFailed); !failed {
		return fmt.Errorf("the receive from the rank that died: %w", err)
	}
	// 0 → 2 → 3 → 0
	next := map[int]int{0: 2, 2: 3, 3: 0}[w.Rank()]
	last := map[int]int{2: 0, 3: 2, 0: 3}[w.Rank()]
	r, err := mpi.Irecv(w, []byte{0}, last, tagGo)
	if err != nil {
		return err
	}
	if err := mpi.Send(w, []byte{1}, next, tagGo); err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	fmt.Printf("rank %d goes on\n", w.Rank())
	return nil
}

// With --enable-recovery the ranks go on that are left, on one host and on several, and end well.
func TestRecovery(t *testing.T) {
	t.Parallel()
	for how, code := range map[string]int{"exit": 4, "die": 137} {
		for _, flags := range [][]string{nil, {"--launcher", "exec", "-H", "a:2,b:2"}} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				flags := append([]string{"--enable-recovery"}, flags...)
				j := run(t, spec{n: 4, role: "recovery", args: []string{how}, flags: flags}, code)
				if n := j.count(`^rank [023] goes on$`); n != 3 {
					t.Errorf("%d ranks go on:\n%s\n%s", n, j.out.String(), j.err.String())
				}
				j.says(`rank 1 .*; the job goes on without it`)
				if n := j.count(`; the job goes on without it`); n != 1 {
					t.Errorf("%d ranks have failed:\n%s", n, j.err.String())
				}
			})
		}
	}
}
