package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lowestFD keeps the executable's descriptor clear of the few that a rank gets at its start.
const lowestFD = 100

// target makes a memory file for the executable. The go command cannot rename onto it and therefore
// copies into it; it fails visibly if that should ever change, and so does sealed.
func (p *Program) target() (string, error) {
	name := strings.TrimSuffix(filepath.Base(p.Package), ".go")
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
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

// sealed checks that the build has arrived and can be executed.
func (p *Program) sealed() error {
	if p.file == nil {
		return nil
	}
	st, err := p.file.Stat()
	if err != nil {
		return err
	}
	if st.Size() == 0 {
		return fmt.Errorf("building %s: go build wrote nothing: is it package main?", p.Name)
	}
	return p.file.Chmod(0o700)
}

func buildProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT} }
