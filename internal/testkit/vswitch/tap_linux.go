package vswitch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenTAP makes a TAP device in the network that the calling thread is in. The device is gone when the port is closed.
func OpenTAP(name string) (Port, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("a TAP device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
