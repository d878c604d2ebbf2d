package program

import (
	"errors"
	"fmt"
	"os"

	"github.com/gorun-mpi/mpi/internal/procs"
	"golang.org/x/sys/unix"
)

// lowestFD keeps the executable's descriptor clear of the few that a rank gets at its start.
const lowestFD = 100

// target makes a file without a name for the executable. The go command cannot rename onto it and therefore
// copies into it; check fails visibly if that should ever change.
func (p *Program) target() (string, error) {
	name := p.base()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3, where all are executable
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil { // such as vm.memfd_noexec=2
		if fd, err = unnamed(); err != nil {
			return "", err
		}
	}
	defer unix.Close(fd)
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, lowestFD)
	if err != nil {
		return "", fmt.Errorf("no descriptor from %d on for the program (ulimit -n must be more): %w", lowestFD, err)
	}
	p.file = os.NewFile(uintptr(high), name)
	// Ranks run it through the same descriptor, which is still open between fork and exec.
	p.Path = fmt.Sprintf("/proc/self/fd/%d", high)
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), high), nil
}

// unnamed opens a new file, in the folder for temporary files, and removes its name. The descriptor is for reading: a
// file that is open for writing cannot be run.
func unnamed() (fd int, err error) {
	f, err := os.CreateTemp("", procs.TempPrefix)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	fd, err = unix.Open(f.Name(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if gone := os.Remove(f.Name()); err == nil && gone != nil {
		unix.Close(fd)
		return 0, gone
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return fd, nil
}
