//go:build cuda && linux && cgo

package cuda

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A handle's label is believed if it is a file of memory with the bytes of the handle. Of another file no byte is read,
// which may take for ever.
func TestLabels(t *testing.T) {
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if errors.Is(err, unix.ENOSYS) {
		t.Skip("Open needs pidfd_open, of Linux 5.3: ", err)
	}
	if err != nil {
		t.Fatal("pidfd_open: ", err)
	}
	defer unix.Close(pidfd)
	memory, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memory)
	if _, err := unix.Pwrite(memory, make([]byte, labelSize), 0); err != nil {
		t.Fatal(err)
	}
	if err := checkLabel(pidfd, &handle{label: memory}); err != nil {
		t.Error("a good label: ", err)
	}
	if checkLabel(pidfd, &handle{label: memory, secret: [labelSize]byte{1}}) == nil {
		t.Error("other bytes are believed")
	}
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zeros.Close()
	if checkLabel(pidfd, &handle{label: int(zeros.Fd())}) == nil {
		t.Error("a device with such bytes is believed")
	}
}
