//go:build linux

package memfile

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	repeatedLeast  = 2 << 20
	repeatedPieces = 1 << 12 // a process may have 65,530 mappings
)

// Repeat returns n bytes of addresses, n > 0, at which one piece of memory appears again and again: the piece has 2
// MiB, or n / 4096 if that is more. A write there overwrites what is elsewhere. The mapping is not of the Go heap, and
// stays until the process ends.
func Repeat(n int) ([]byte, error) {
	piece := repeatedLeast
	for n > piece*repeatedPieces {
		piece *= 2
	}
	size := (n + piece - 1) / piece * piece
	fail := func(what string, err error) ([]byte, error) {
		return nil, fmt.Errorf("mapping %d bytes in pieces of %d: %s: %w", size, piece, what, err)
	}
	fd, err := unix.MemfdCreate("gorun-repeated", unix.MFD_CLOEXEC)
	if err != nil {
		return fail("memfd_create", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(piece)); err != nil {
		return fail("ftruncate", err)
	}
	// First all addresses, in whose place the pieces are put.
	const hold = unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_NORESERVE
	area, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_NONE, hold)
	if err != nil {
		return fail("mmap", err)
	}
	for at := 0; at < size; at += piece {
		if _, err := unix.MmapPtr(fd, 0, unsafe.Add(area, at), uintptr(piece), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
			unix.MunmapPtr(area, uintptr(size))
			return fail("mmap", err)
		}
	}
	return unsafe.Slice((*byte)(area), n), nil
}
