/*
 * LIDs. A slot is a file N.lock in the directory of the fabric, locked by the process that owns the slot, and a socket
 * N.sock; it has LIDS_PER_SLOT LIDs. A process that dies loses the lock: the next process that scans the directory
 * takes the slot or removes it. A directory with nothing in it is removed.
 */
#include "wire.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char dir_path[300];

/* The slots of this process. */
static struct slot_hold {
	int lock_fd, listen_fd; /* lock_fd 0: not ours */
} held[SLOTS];

/* The directory, ours and closed to others. -1 with errno. */
int dir_open(const char *dir)
{
	struct stat st;
	int fd;

	snprintf(dir_path, sizeof(dir_path), "%s/softhca-%u", dir, (unsigned)geteuid());
	if (mkdir(dir_path, 0700) && errno != EEXIST)
		return -1;
	fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) || st.st_uid != geteuid() || st.st_mode & 077) {
		close(fd);
		errno = EPERM;
		return -1;
	}
	return fd;
}

static void name_of(char *name, size_t size, int slot, const char *what)
{
	snprintf(name, size, "%d.%s", slot, what);
}

/* By way of /proc, as the path of a socket may only have 107 bytes. */
static socklen_t address(struct sockaddr_un *a, int slot)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/%d.sock", engine.dirfd, slot);
	return sizeof(*a);
}

/* Takes the lock of a slot if it is free. The descriptor, or -1: another process has it; -2: errno. */
static int lock_slot(int slot, int flags)
{
	struct stat a, b;
	char name[32];

	name_of(name, sizeof(name), slot, "lock");
	for (;;) {
		int fd = openat(engine.dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);

		if (fd < 3 && fd >= 0) { /* 0 says that there is none; and no library shall take it for stdout */
			int low = fd;

			fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
			close(low);
		}
		if (fd < 0)
			return -2;
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			close(fd);
			return -1;
		}
		/* Its owner may have removed it between our open and our lock. */
		if (!fstat(fd, &a) && !fstatat(engine.dirfd, name, &b, AT_SYMLINK_NOFOLLOW) && a.st_ino == b.st_ino)
			return fd;
		close(fd);
		if (!(flags & O_CREAT))
			return -1;
	}
}

/* Removes what the lock's owner has; the lock last, as it says that the rest is ours. */
static void remove_slot(int slot, int lock_fd)
{
	char name[32];

	name_of(name, sizeof(name), slot, "sock");
	unlinkat(engine.dirfd, name, 0);
	name_of(name, sizeof(name), slot, "lock");
	unlinkat(engine.dirfd, name, 0);
	close(lock_fd);
}

static int listen_at(int slot)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct sockaddr_un a;
	char name[32];
	int fd;

	name_of(name, sizeof(name), slot, "sock");
	unlinkat(engine.dirfd, name, 0);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	ev.data.u64 = (uint64_t)fd << 1 | 1;
	if (bind(fd, (struct sockaddr *)&a, address(&a, slot)) || listen(fd, 4096) ||
	    epoll_ctl(engine.epfd, EPOLL_CTL_ADD, fd, &ev)) {
		int err = errno;

		close(fd);
		errno = err;
		return -1;
	}
	return fd;
}

/* Removes the files of killed processes. */
static void sweep(void)
{
	int fd = dup(engine.dirfd), slot, lock;
	struct dirent *e;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	char dot;

	if (!d)
		return;
	rewinddir(d);
	while ((e = readdir(d)))
		if (sscanf(e->d_name, "%d.loc%c", &slot, &dot) == 2 && slot >= 0 && slot < SLOTS &&
		    !held[slot].lock_fd && (lock = lock_slot(slot, 0)) >= 0)
			remove_slot(slot, lock);
	closedir(d);
}

static int take_slot(int *out)
{
	for (int slot = 0; slot < SLOTS; slot++) {
		int fd;

		if (held[slot].lock_fd)
			continue;
		fd = lock_slot(slot, O_CREAT);
		if (fd == -1)
			continue;
		if (fd < 0)
			return errno;
		held[slot].listen_fd = listen_at(slot);
		if (held[slot].listen_fd < 0) {
			int err = errno;

			remove_slot(slot, fd);
			return err;
		}
		held[slot].lock_fd = fd;
		*out = slot;
		return 0;
	}
	return ENOSPC;
}

static int free_lid(int slot)
{
	for (int i = 0; i < LIDS_PER_SLOT; i++)
		if (!engine.by_lid[1 + slot * LIDS_PER_SLOT + i])
			return 1 + slot * LIDS_PER_SLOT + i;
	return 0;
}

/* A LID for a port; from a slot that we have, or a new one. errno or 0. */
int slots_take_lid(uint16_t *lid)
{
	int slot, err = 0;

	for (slot = 0; slot < SLOTS; slot++)
		if (held[slot].lock_fd && free_lid(slot))
			break;
	if (slot == SLOTS) {
		/* Another process may have removed the empty directory just now. */
		for (int tries = 0; tries < 10; tries++) {
			err = take_slot(&slot);
			if (err != ENOENT)
				break;
			close(engine.dirfd);
			engine.dirfd = dir_open(engine.dir);
			if (engine.dirfd < 0)
				return errno;
		}
		if (err)
			return err;
		sweep();
	}
	*lid = (uint16_t)free_lid(slot);
	return 0;
}

void slots_drop_lid(uint16_t lid)
{
	(void)lid; /* slots are kept until the engine ends: a LID that comes back soon would be taken for its forerunner */
}

void slots_close(void)
{
	for (int slot = 0; slot < SLOTS; slot++) {
		struct slot_hold *h = &held[slot];

		if (!h->lock_fd)
			continue;
		close(h->listen_fd);
		if (engine.pid > 0)
			remove_slot(slot, h->lock_fd);
		else
			close(h->lock_fd);
		*h = (struct slot_hold){ 0, 0 };
	}
	close(engine.dirfd);
	if (engine.pid > 0)
		rmdir(dir_path); /* fails while others are there */
}

/* A socket to the process that has a slot. -1: there is none. */
int slots_connect(int slot)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;

	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&a, address(&a, slot))) {
		close(fd);
		return -1;
	}
	return fd;
}
