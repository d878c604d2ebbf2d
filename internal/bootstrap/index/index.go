package index

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/bootstrap/rank0"
)

// The variables of a pod. Kubernetes sets the first, the Job's manifest the others.
const (
	EnvIndex   = "JOB_COMPLETION_INDEX"
	EnvRank0   = "GORUN_RANK0"    // host:port of the pod with index 0
	EnvSize    = "GORUN_SIZE"     // ranks of the job
	EnvKeyFile = "GORUN_KEY_FILE" // holds 32 bytes in base64
)

// Offered reports whether this process is a pod of a Job whose manifest says where index 0 is.
func Offered(env func(string) string) (ok bool, since string) {
	for _, name := range []string{EnvIndex, EnvRank0} {
		if env(name) == "" {
			return false, name + " is not set"
		}
	}
	return true, EnvIndex + " and " + EnvRank0 + " are set"
}

// Options of Join.
type Options struct {
	Env         func(name string) string
	PeerTimeout time.Duration
	Warn        func(msg string, args ...any)
}

// Join meets the other pods. A pod that comes up late, or whose name is not known yet, is waited for until ctx ends.
func Join(ctx context.Context, o Options) (*rank0.Member, error) {
	j, host, port, err := read(o)
	if err != nil {
		return nil, err
	}
	if j.Rank == 0 {
		ln, err := net.Listen("tcp", ":"+port)
		if err != nil {
			return nil, err
		}
		return rank0.Lead(ctx, ln, j)
	}
	var last error
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		m, err := rank0.Follow(ctx, net.JoinHostPort(host, port), j)
		if err == nil || auth.Why(err) != 0 && !errors.Is(err, auth.ErrTurnedAway) {
			return m, err
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("rank %d does not reach rank 0 (%w): %w", j.Rank, last, context.Cause(ctx))
		}
	}
}

// read reads the variables and the key.
func read(o Options) (j rank0.Job, host, port string, err error) {
	size, err := number(o.Env, EnvSize, 1, 1<<20)
	if err != nil {
		return j, "", "", err
	}
	rank, err := number(o.Env, EnvIndex, 0, size-1)
	if err != nil {
		return j, "", "", err
	}
	addr := o.Env(EnvRank0)
	if host, port, err = net.SplitHostPort(addr); err != nil || host == "" || port == "" {
		return j, "", "", fmt.Errorf("%s=%.80q is no host:port", EnvRank0, addr)
	}
	key, err := readKey(o.Env(EnvKeyFile))
	if err != nil {
		return j, "", "", err
	}
	return rank0.Job{Rank: rank, Size: size, Name: "index." + addr, Launcher: "kubernetes", Key: key,
		PeerTimeout: o.PeerTimeout, Warn: o.Warn}, host, port, nil
}

func readKey(file string) ([]byte, error) {
	if file == "" {
		return nil, fmt.Errorf("%s is not set: it names the file with the key of the job, of a Secret", EnvKeyFile)
	}
	key, err := auth.ReadKey(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EnvKeyFile, err)
	}
	return key, nil
}

// number reads a variable that must hold a decimal number from lo to hi.
func number(env func(string) string, name string, lo, hi int) (int, error) {
	n, err := strconv.Atoi(env(name))
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%s=%.40q is no number from %d to %d", name, env(name), lo, hi)
	}
	return n, nil
}
