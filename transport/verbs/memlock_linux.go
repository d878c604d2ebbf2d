package verbs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// raiseMemlock raises what this process may lock as far as the administrator lets it.
func raiseMemlock() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil && l.Cur < l.Max {
		l.Cur = l.Max
		unix.Setrlimit(unix.RLIMIT_MEMLOCK, &l)
	}
}

// explainMemlock says what to do about a registration that was refused for want of memory that may be locked.
func explainMemlock(err error) error {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) != nil {
		return err
	}
	return explainLimit(err, l.Cur)
}

func explainLimit(err error, limit uint64) error {
	if !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EPERM) || limit == unix.RLIM_INFINITY {
		return err
	}
	return fmt.Errorf("%w: this process may lock %d KiB (ulimit -l). Write the line \"* - memlock unlimited\""+
		" into /etc/security/limits.d/rdma.conf"+
		" and log in again; for ranks of a service, LimitMEMLOCK=infinity in its unit (for Slurm slurmd.service)",
		err, limit>>10)
}
