package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lowestFD keeps the executable's descriptor clear of the few that a rank gets at its start.
const lowestFD = 100

// target makes a memory file for the executable. The go command cannot rename onto it and therefore
// copies into it; check fails visibly if that should ever change.
func (p *Program) target() (string, error) {
	name := strings.TrimSuffix(filepath.Base(p.Package), ".go")
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3, where all are executable
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil { // such as vm.memfd_noexec=2
		return p.tempTarget()
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, lowestFD)
	unix.Close(fd)
	if err != nil {
		return p.tempTarget()
	}
	p.file = os.NewFile(uintptr(high), name)
	// Ranks run it through the same descriptor, which is still open between fork and exec.
	p.Path = fmt.Sprintf("/proc/self/fd/%d", high)
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), high), nil
}
