package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	role("child", func(_ context.Context, w *mpi.Comm) error {
		fmt.Printf("joined as rank %d of %d\n", w.Rank(), w.Size())
		return nil
	})
	role("parent", parent)
}

// parent starts a child process that calls Init, takes the remedy from the error of that, and tries it.
func parent(context.Context, *mpi.Comm) error {
	os.Setenv(proc.RoleVar, "child")
	said, err := exec.Command(os.Args[0]).CombinedOutput()
	fmt.Printf("%s", said)
	if err == nil {
		return fmt.Errorf("a child process has joined: %s", said)
	}
	remedy := regexp.MustCompile(`(env (?:-u \w+ )+)PROGRAM`).FindAllSubmatch(said, -1)
	if len(remedy) != 1 {
		return fmt.Errorf("%d remedies in: %s", len(remedy), said)
	}
	words := append(strings.Fields(string(remedy[0][1])), os.Args[0])
	said, err = exec.Command(words[0], words[1:]...).CombinedOutput()
	fmt.Printf("%s", said)
	if err != nil {
		return fmt.Errorf("%q: %w: %s", words, err, said)
	}
	return nil
}

// A child process of a rank that calls Init gets one error, whose remedy works.
func TestChildOfARank(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} {
		j := run(t, spec{n: n, role: "parent"}, 0)
		if got := j.count(`^mpi: Init: PMI_FD=\d+: .* a rank started this process`); got != n {
			t.Errorf("%d errors of %d children", got, n)
		}
		if got := j.count(`^joined as rank 0 of 1$`); got != n {
			t.Errorf("%d of %d children have made a world of one", got, n)
		}
	}
}

// The second process that joins as one rank, after the first one, is told so.
func TestRankJoinsTwice(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 2, role: "child", prog: "/bin/sh", args: []string{"-c", `"$0"; "$0"`, os.Args[0]}}, 1)
	if got := j.count(`^joined as rank \d of 2$`); got != 2 {
		t.Errorf("%d ranks have joined", got)
	}
	j.says(`^mpi: Init: .* a process of this rank has joined before, and only one can join`)
}
