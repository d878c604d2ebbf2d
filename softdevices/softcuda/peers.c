/* Other processes: whether they live, and their descriptors. */
#include "calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* When a process was started, in the kernel's ticks; 0: there is none. */
uint64_t process_started(int pid)
{
	char path[40], text[1000], *p;
	unsigned long long started = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	if (!(p = strrchr(text, ')')))
		return 0;
	for (int field = 2; field < 22 && p; field++)
		p = strchr(p + 1, ' ');
	if (p)
		sscanf(p, " %llu", &started);
	return started;
}

static bool is_file(int fd, uint64_t ino)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_ino == ino;
}

/* A descriptor for the memfd that another process has under that number; -1: it is another file, or not to be had. */
int fd_of_process(int pid, int fd, uint64_t ino)
{
	char path[60];
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), got = -1;

	if (pidfd >= 0) {
		got = fd_high((int)syscall(SYS_pidfd_getfd, pidfd, fd, 0));
		close(pidfd);
	}
	if (got < 0) { /* which asks for less, where yama is strict */
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
		got = fd_high(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK));
	}
	if (is_file(got, ino))
		return got;
	if (got >= 0)
		close(got);
	return -1;
}

/* The number that this process has for a device; -1: it is not visible here. */
int device_of_physical(int physical)
{
	for (int d = 0; device_ok(d); d++)
		if (lib.devices[d].physical == physical)
			return d;
	return -1;
}
