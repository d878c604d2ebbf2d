package launcher

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/program"
)

// checkDebug reports what is wrong with --debug in a job of n ranks.
func (j *Job) checkDebug(n int) error {
	if rank, err := strconv.Atoi(j.Debug); j.Debug != "" && (err != nil || rank < 0 || rank >= n) {
		return fmt.Errorf("--debug %s: use a rank from 0 to %d", j.Debug, n-1)
	}
	return nil
}

// debugs reports whether a rank runs under dlv.
func (j *Job) debugs(rank int) bool {
	n, err := strconv.Atoi(j.Debug)
	return err == nil && n == rank
}

// underDebugger has dlv start the program of a rank and wait for a client on this host. dlv opens the program by its
// path, for which a descriptor of this process is not its own.
func underDebugger(s *procs.Spec) error {
	dlv, err := program.Debugger()
	if err != nil {
		return fmt.Errorf("--debug %d: %w", s.Rank, err)
	}
	path := cmp.Or(s.Path, s.Argv[0])
	if rest, own := strings.CutPrefix(path, "/proc/self/"); own {
		path = fmt.Sprintf("/proc/%d/%s", os.Getpid(), rest)
	}
	s.Path = dlv
	s.Argv = append([]string{"dlv", "exec", "--headless", "--listen=127.0.0.1:0", path, "--"}, s.Argv[1:]...)
	return nil
}
