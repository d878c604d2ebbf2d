package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// newSegment makes size bytes of anonymous shared memory and commits the first commit bytes of it: a full host or
// cgroup is an error here and never a SIGBUS later. The memory is sealed against shrinking, so that a peer that maps it
// gets no SIGBUS either.
func newSegment(what string, size, commit int) (fd int, mem []byte, err error) {
	if fd, err = newMemory(what, size, commit); err != nil {
		return -1, nil, err
	}
	mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return -1, nil, noRoom(what, size, err) // no address space: ulimit -v
	}
	return fd, mem, nil
}

// newMemory is newSegment without a mapping.
func newMemory(what string, size, commit int) (fd int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// vm.memfd_noexec=2 refuses a file that is not sealed against execution, in some kernels one that does not say so.
	fd, err = unix.MemfdCreate("gorun-"+what, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("gorun-"+what, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("shm: memfd_create for %s: %w", what, err)
	}
	if err := prepare(fd, what, size, commit); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func prepare(fd int, what string, size, commit int) error {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return noRoom(what, size, err)
	}
	if err := commitRange(fd, what, 0, commit); err != nil {
		return err
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("shm: sealing memory for %s: %w", what, err)
	}
	return nil
}

// commitRange makes the kernel allocate the memory now.
func commitRange(fd int, what string, at, n int) error {
	for {
		err := unix.Fallocate(fd, 0, int64(at), int64(n))
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return noRoom(what, n, err)
		}
	}
}

func noRoom(what string, n int, err error) error { return &NoRoomError{what, n, err} }

// sealedSize is that of a peer's memory, which the peer cannot shrink.
func sealedSize(fd int) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("shm: peer's descriptor: %w", err)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return 0, fmt.Errorf("shm: peer's memory is not sealed against shrinking (seals %#x, %v)", seals, err)
	}
	return st.Size, nil
}

// mapPeer maps memory that a peer sent.
func mapPeer(fd, size, prot int) ([]byte, error) {
	sealed, err := sealedSize(fd)
	if err != nil {
		return nil, err
	}
	if sealed < int64(size) {
		return nil, fmt.Errorf("shm: peer's memory has %d bytes, %d were announced", sealed, size)
	}
	mem, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shm: mapping the peer's %d bytes: %w", size, err)
	}
	return mem, nil
}
