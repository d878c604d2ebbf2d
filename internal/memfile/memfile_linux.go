package memfile

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Create makes n bytes of memory, of which others can map the first shared.
func Create(n, shared int) (*Memory, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// vm.memfd_noexec=2 refuses a file that is not sealed against execution, and an old kernel does not know that flag.
	fd, err := unix.MemfdCreate("gorun-pinned", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("gorun-pinned", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	h := handle{pid: os.Getpid(), fd: fd, size: int64(page + shared)}
	m := &Memory{fd: fd}
	if h.namespace, err = namespace(); err == nil {
		err = unix.Fallocate(fd, 0, 0, int64(page+n)) // not Ftruncate: a full host is an error, and not a SIGBUS
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		m.mapping, err = unix.Mmap(fd, 0, page+n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("making %d bytes that others can map: %w", n, err)
	}
	rand.Read(h.secret[:])
	copy(m.mapping, h.secret[:])
	m.handle = h.encode()
	return m, nil
}

// namespace is the PID namespace in which this process has its number.
func namespace() (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat("/proc/self/ns/pid", &st)
	return st.Ino, err
}

// Open maps the memory of a handle, which may say anything.
func Open(b []byte) (*Memory, error) {
	h, err := decode(b)
	if err != nil {
		return nil, err
	}
	switch own, err := namespace(); {
	case err != nil:
		return nil, err
	case own != h.namespace:
		return nil, errors.New("the memory's owner is in another PID namespace, such as another container's")
	}
	process, err := unix.PidfdOpen(h.pid, 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open of process %d: %w", h.pid, err)
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, h.fd, 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd_getfd of process %d: %w", h.pid, err)
	}
	defer unix.Close(fd)
	// Only a file in memory has seals. Another one might block its reader.
	if has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || has&seals != seals {
		return nil, errFreed
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size < h.size {
		return nil, errFreed
	}
	var secret [secretSize]byte
	if n, err := unix.Pread(fd, secret[:], 0); err != nil || n != secretSize ||
		subtle.ConstantTimeCompare(secret[:], h.secret[:]) != 1 {
		return nil, errFreed
	}
	mapping, err := unix.Mmap(fd, 0, int(h.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of process %d: %w", h.size, h.pid, err)
	}
	return &Memory{mapping: mapping, fd: -1}, nil
}

var errFreed = errors.New("the memory has been freed by its owner")

// Hide keeps this process's mapping, and no more others can open the memory.
func (m *Memory) Hide() {
	if m.fd >= 0 {
		unix.Close(m.fd)
		m.fd = -1
	}
}

// Close ends this process's mapping. Others keep theirs, and no more can open it.
func (m *Memory) Close() {
	unix.Munmap(m.mapping)
	m.mapping = nil
	m.Hide()
}
