package proc

import "golang.org/x/sys/unix"

// TakeDescriptors leaves this process no more than left free descriptors, until giveBack is called: of 128, which it
// may have at most from now on.
func TakeDescriptors(left int) (giveBack func(), err error) {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 128, Max: 128}); err != nil {
		return nil, err
	}
	var taken []int
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err == unix.EMFILE {
			break
		}
		if err != nil {
			return nil, err
		}
		taken = append(taken, fd)
	}
	close := func(fds []int) {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	close(taken[:left])
	return func() { close(taken[left:]) }, nil
}
