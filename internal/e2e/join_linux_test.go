package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	roles["limited"] = limited
	roles["join"] = join
	role("no room later", noRoomLater)
}

// limited joins with a limit on resources. Arguments: fsize or as, and the limit in bytes (as: beyond what is used).
func limited() error {
	n, err := strconv.ParseUint(os.Args[2], 10, 64)
	if err != nil {
		return err
	}
	// What Go's runtime could want later, and ends the process if there is no room for it: memory for a profile, threads.
	runtime.MemProfileRate = 0
	proc.Threads(16)
	which := unix.RLIMIT_FSIZE
	if os.Args[1] == "as" {
		which = unix.RLIMIT_AS
		n += uint64(proc.Self().Memory("VmSize"))
	}
	if err := unix.Setrlimit(which, &unix.Rlimit{Cur: n, Max: n}); err != nil {
		return err
	}
	w, err := mpi.Init()
	fmt.Printf("no memory %v: %v\n", errors.Is(err, mpi.ErrNoMemory), err)
	if err != nil {
		os.Exit(3)
	}
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	return mpi.Finalize()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(98)
}

// Init names the memory that it needs if any limit is in the way, and no signal ends the rank.
func TestNoRoomAtInit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, kind, limit string }{
		{"not even the inbox", "fsize", "0"},
		{"no ring", "fsize", "8192"},
		{"address space for nothing", "as", "0"},
		{"address space for no ring", "as", "200000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.kind == "as" && proc.Race {
				t.Skip("the race detector itself needs address space")
			}
			j := startAgain(t, spec{n: 2, role: "limited", args: []string{c.kind, c.limit}}, 5, func(j *job) bool {
				return j.count(`^fatal error: |pthread_create failed`) == 0 // Go's runtime itself had no room
			})
			j.wait(3).says(`^no memory true: mpi: Init: .*shm: no room for [1-9]\d+ bytes of shared memory`)
		})
	}
	// The limits are not what made them fail.
	run(t, spec{n: 2, role: "limited", args: []string{"fsize", "100000000"}}, 0).says(`^no memory false: <nil>`)
	run(t, spec{n: 2, role: "limited", args: []string{"as", "1000000000"}}, 0).says(`^no memory false: <nil>`)
}

// noRoomLater: a ring is mapped at first use. If there is no room for one any more, calls to that peer are errors, and
// the others go on.
func noRoomLater(_ context.Context, w *mpi.Comm) error {
	if w.Rank() != 0 {
		if w.Rank() == 2 {
			if err := mpi.SendValue(w, 5, 0, 0); err != nil {
				return err
			}
			_, _, err := mpi.RecvValue[int](w, 0, 0)
			return err
		}
		return nil
	}
	if _, _, err := mpi.RecvValue[int](w, 2, 0); err != nil {
		return err
	}
	if err := mpi.Send(w, []int{}, 2, 1); err != nil {
		return err
	}
	// What Go's runtime could want: memory for a profile, threads, tables, which are not in what it has reserved for its
	// heap.
	runtime.MemProfileRate = 0
	proc.Threads(16)
	limit := uint64(proc.Self().Memory("VmSize")) + 1<<20
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	err := mpi.SendValue(w, 6, 1, 0)
	fmt.Printf("no memory %v: %v\n", errors.Is(err, mpi.ErrNoMemory), err)
	return mpi.SendValue(w, 5, 2, 0)
}

func TestNoRoomLater(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 3, role: "no room later"}, 0)
	j.says(`^no memory true: mpi: Send to rank 1 .*no room for [1-9]\d+ bytes of shared memory`)
}

// join prints whether Init succeeds, for a program that no launcher or a foreign one has started.
func join() error {
	w, err := mpi.Init()
	if err != nil {
		fmt.Printf("unavailable %v: %v\n", errors.Is(err, mpi.ErrUnavailable), err)
		os.Exit(3)
	}
	fmt.Printf("rank %d of %d\n", w.Rank(), w.Size())
	if err := mpi.Send(w, []byte{1}, 0, 0); err != nil {
		return err
	}
	if _, err := mpi.Recv(w, []byte{0}, 0, 0); err != nil {
		return err
	}
	return mpi.Finalize()
}

// An environment of a job of several ranks, without a way to join it, is an error that names the variable.
func TestNoBootstrap(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{
		{"PMI_SIZE=4"},
		{"PMI_SIZE=4", "PMI_RANK=2"},
		{"SLURM_NTASKS=4", "SLURM_PROCID=1"},
		{"SLURM_NPROCS=3"},
		{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0"},
		{"PMIX_RANK=1", "PMIX_NAMESPACE=x"},
		{"PMIX_NAMESPACE=x"},
		{"GORUN_LOCAL_SIZE=2"},
		{"GORUN_JOB=gorun_1"},
		{"PMI_SIZE=four"},
		{"PMI_FD=77", "PMI_SIZE=2", "PMI_RANK=0"},
		{"PMI_FD=1", "PMI_SIZE=2", "PMI_RANK=0"}, // a descriptor, but no socket
		{"PMI_PORT=127.0.0.1:1", "PMI_ID=0"},
	} {
		t.Run(env[0], func(t *testing.T) {
			name, value, _ := strings.Cut(env[0], "=")
			run(t, spec{bare: true, role: "join", env: env}, 3).says(`^unavailable true: mpi: Init: .*` + name + `="?` + value)
		})
	}
	for _, env := range [][]string{
		nil, {"PMI_SIZE=1", "PMI_RANK=0"}, {"SLURM_NTASKS=1"}, {"SLURM_NTASKS=1",
			"PMIX_RANK=0"}, {"OMPI_COMM_WORLD_SIZE=1"}, {"SLURM_JOB_ID=17"},
	} {
		t.Run(fmt.Sprint("one", env), func(t *testing.T) {
			run(t, spec{bare: true, role: "join", env: env}, 0).says(`^rank 0 of 1$`)
		})
	}
}

// Started by another implementation's launcher, by both of its ways to connect.
func TestUnderHydra(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"descriptor": nil, "port": {"-pmi-port"}} {
		t.Run(name, func(t *testing.T) {
			j := run(t, spec{n: 4, role: "exchange", hydra: true, flags: flags}, 0)
			if got := j.count(`^rank \d of 4 exchanged`); got != 4 {
				t.Errorf("%d of 4 ranks report\n%s", got, j.out.String())
			}
			run(t, spec{n: 1, role: "join", hydra: true, flags: flags}, 0).says(`^rank 0 of 1$`)
			run(t, spec{n: 3, role: "abort, others away", hydra: true, flags: flags}, 7)
		})
	}
}
