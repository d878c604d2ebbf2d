//go:build linux && cgo

package cuda

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/accel"
)

func thisProcess() (p process, err error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return p, fmt.Errorf("/proc/self/ns/pid: %w", err)
	}
	return process{os.Getpid(), st.Ino}, nil
}

// shared is what an allocation keeps while others may open it.
type shared struct {
	fd, label int
	secret    [labelSize]byte
}

// share makes the descriptors of memory that has a handle of the driver.
func share(driverHandle uint64) (*shared, error) {
	s := &shared{fd: -1, label: -1}
	var err error
	if s.label, err = unix.MemfdCreate("gorun-gpu-label", unix.MFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	_, err = rand.Read(s.secret[:])
	if err == nil {
		_, err = unix.Pwrite(s.label, s.secret[:], 0)
	}
	if err == nil {
		s.fd, err = closed(func() (int, error) { return exportFile(driverHandle) })
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *shared) close() {
	unix.Close(s.label)
	if s.fd >= 0 {
		unix.Close(s.fd)
	}
}

// Export implements accel.Driver. Memory that a user's program has made by cuMemCreate is not shared: the driver does
// not say where in its handle a mapping begins.
func (d *driver) Export(m accel.Memory) ([]byte, int64, error) {
	if err := d.start(); err != nil {
		return nil, 0, err
	}
	if d.alone {
		return nil, 0, fmt.Errorf("%w: GORUN_CUDA_SHARE is 0", accel.ErrNotShared)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now, ipc, err := query(m.Base)
	switch {
	case err != nil:
		return nil, 0, err
	case now != m:
		return nil, 0, fmt.Errorf("memory at %#x is not, or is no longer, that of ID %d", m.Base, m.ID)
	}
	h := handle{owner: d.self}
	if a := d.own(m); a != nil && a.handle != 0 {
		if a.shared == nil {
			if a.shared, err = share(a.handle); err != nil {
				return nil, 0, err
			}
		}
		h.how, h.fd, h.label, h.secret = byFile, a.shared.fd, a.shared.label, a.shared.secret
		return h.encode(), 0, nil
	}
	if !ipc {
		return nil, 0, fmt.Errorf("%w: it was not made by cudaMalloc or cuMemAlloc", accel.ErrNotShared)
	}
	h.how = byIPC
	if h.ipc, err = ipcGet(m.Device, m.Base); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", accel.ErrNotShared, err)
	}
	return h.encode(), 0, nil
}

type openKey struct {
	device int
	handle string
}

// opened is memory of another process that is mapped here.
type opened struct {
	block
	how   byte
	count int
}

// Open implements accel.Driver.
func (d *driver) Open(device int, b []byte, size int64) (uint64, error) {
	if err := d.start(); err != nil {
		return 0, err
	}
	h, err := decode(b)
	switch {
	case err != nil:
		return 0, err
	case size <= 0:
		return 0, fmt.Errorf("memory of %d bytes", size)
	case h.owner.namespace != d.self.namespace:
		return 0, errors.New("the memory's owner is in another PID namespace, such as another container's")
	case h.owner.pid == d.self.pid:
		return 0, errors.New("the memory is of this process")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := openKey{device, string(b)}
	if o := d.opens[key]; o != nil {
		if int64(o.size) != size {
			return 0, fmt.Errorf("the memory has %d bytes, not %d", o.size, size)
		}
		o.count++
		return o.addr, nil
	}
	o := &opened{how: h.how, count: 1}
	if h.how == byFile {
		o.block, err = openFile(device, &h, size)
	} else {
		o.block, err = openIPC(device, &h, size)
	}
	if err != nil {
		return 0, err
	}
	d.opens[key] = o
	return o.addr, nil
}

func openIPC(device int, h *handle, size int64) (block, error) {
	addr, err := ipcOpen(device, h.ipc)
	if err != nil {
		return block{}, err
	}
	m, _, err := query(addr)
	if err == nil && (m.Base != addr || m.Size != size) {
		err = fmt.Errorf("the memory has %d bytes, not %d", m.Size, size)
	}
	if err != nil {
		ipcClose(device, addr)
		return block{}, err
	}
	return block{addr: addr, size: uint64(size)}, nil
}

func openFile(device int, h *handle, size int64) (block, error) {
	pidfd, err := unix.PidfdOpen(h.owner.pid, 0)
	if err != nil {
		return block{}, fmt.Errorf("pidfd_open of process %d: %w", h.owner.pid, err)
	}
	defer unix.Close(pidfd)
	if err := checkLabel(pidfd, h); err != nil {
		return block{}, err
	}
	fd, err := unix.PidfdGetfd(pidfd, h.fd, 0)
	if err != nil {
		return block{}, fmt.Errorf("pidfd_getfd of process %d: %w", h.owner.pid, err)
	}
	defer unix.Close(fd)
	if err := checkLabel(pidfd, h); err != nil {
		return block{}, err
	}
	return importFile(device, fd, size)
}

// checkLabel compares the label that a process has now with that of a handle.
func checkLabel(pidfd int, h *handle) error {
	fd, err := unix.PidfdGetfd(pidfd, h.label, 0)
	if errors.Is(err, unix.EBADF) {
		return errFreed
	}
	if err != nil {
		return fmt.Errorf("pidfd_getfd of process %d: %w", h.owner.pid, err)
	}
	defer unix.Close(fd)
	// Only a file of memory has seals. Other files have these bytes by chance or by design, and some block their reader.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil {
		return errFreed
	}
	var label [labelSize]byte
	if n, err := unix.Pread(fd, label[:], 0); err != nil || n != len(label) || label != h.secret {
		return errFreed
	}
	return nil
}

var errFreed = errors.New("the memory has been freed by its owner")

// Close implements accel.Driver.
func (d *driver) Close(device int, addr uint64) error {
	if err := d.start(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, o := range d.opens {
		if key.device != device || o.addr != addr {
			continue
		}
		if o.count--; o.count > 0 {
			return nil
		}
		delete(d.opens, key)
		if o.how == byFile {
			return unmap(device, o.block)
		}
		return ipcClose(device, addr)
	}
	return fmt.Errorf("nothing is open at %#x for device %d", addr, device)
}
