/* The bytes of device memory, and the shadow that adapters write into. */
#include "memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct store *shadowed;

/*
 * Guards the bytes of shadows, and which stores have one: an engine writes without lib.mu, also while a shadow is made
 * or flushed. It is taken within lib.mu. An engine writes into the memory before it takes it: so a shadow that is made
 * meanwhile gets those bytes from the memory or from store_wrote.
 */
static pthread_mutex_t shadows = PTHREAD_MUTEX_INITIALIZER;

/* A descriptor above those of stdin, stdout and stderr. */
int fd_high(int fd)
{
	int high;

	if (fd < 0 || fd > 2)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	close(fd);
	return high;
}

static char *map(int fd, uint64_t size)
{
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, size, MADV_DONTFORK);
	return p;
}

/* Takes fd, also if it fails. */
struct store *store_of_fd(int fd, uint64_t size)
{
	struct store *s = calloc(1, sizeof(*s));
	struct stat st;

	if (!s || fstat(fd, &st) || (uint64_t)st.st_size != size || !(s->alias = map(fd, size))) {
		free(s);
		close(fd);
		return NULL;
	}
	*s = (struct store){ .refs = 1, .fd = fd, .shadow_fd = -1, .device = -1, .alias = s->alias, .size = size,
			     .ino = st.st_ino };
	return s;
}

/* What a program finds in new memory is not zero. */
static void poison(struct store *s)
{
	uint64_t n = s->size < 65536 ? s->size : 65536;

	memset(s->alias, 0xdb, n);
	memset(s->alias + s->size - PAGE, 0xdb, PAGE);
}

struct store *store_new(int device, uint64_t size)
{
	char name[64];
	struct store *s;
	int fd;

	snprintf(name, sizeof(name), "softcuda:%d:%llu", lib.devices[device].physical, (unsigned long long)size);
	fd = fd_high(memfd_create(name, MFD_CLOEXEC));
	if (fd < 0)
		return NULL;
	if (ftruncate(fd, (off_t)size)) {
		close(fd);
		return NULL;
	}
	s = store_of_fd(fd, size);
	if (s) {
		s->device = device;
		poison(s);
	}
	return s;
}

struct store *store_ref(struct store *s)
{
	s->refs++;
	return s;
}

void store_unref(struct store *s)
{
	if (!s || --s->refs)
		return;
	if (s->shadow) {
		struct store **at = &shadowed;

		while (*at != s)
			at = &(*at)->next;
		*at = s->next;
		munmap(s->shadow, s->size);
		munmap(s->flushed, s->size);
		close(s->shadow_fd);
	}
	munmap(s->alias, s->size);
	close(s->fd);
	free(s);
}

/*
 * Adapters shall write into a shadow from now on. It begins with what the memory has; what an engine writes into the
 * memory goes there as well (store_wrote), so that an adapter reads it.
 */
bool store_shadow(struct store *s)
{
	char *shadow = NULL, *flushed;
	int fd;

	if (s->shadow)
		return true;
	fd = fd_high(memfd_create("softcuda:shadow", MFD_CLOEXEC));
	if (fd < 0 || ftruncate(fd, (off_t)s->size) || !(shadow = map(fd, s->size))) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	flushed = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (flushed == MAP_FAILED) {
		munmap(shadow, s->size);
		close(fd);
		return false;
	}
	pthread_mutex_lock(&shadows);
	memcpy(shadow, s->alias, s->size);
	memcpy(flushed, shadow, s->size); /* not the memory, which an engine may have changed */
	s->shadow_fd = fd;
	s->flushed = flushed;
	s->shadow = shadow;
	pthread_mutex_unlock(&shadows);
	s->next = shadowed;
	shadowed = s;
	return true;
}

void store_wrote(struct store *s, uint64_t offset, uint64_t n)
{
	pthread_mutex_lock(&shadows);
	if (s->shadow) {
		memcpy(s->shadow + offset, s->alias + offset, n);
		memcpy(s->flushed + offset, s->alias + offset, n);
	}
	pthread_mutex_unlock(&shadows);
}

/* What adapters have written since the last flush: where the shadow is not what it was then. */
static void flush(struct store *s)
{
	for (uint64_t at = 0; at < s->size; at += PAGE) {
		char *now = s->shadow + at, *before = s->flushed + at, *to = s->alias + at;

		if (!memcmp(now, before, PAGE))
			continue;
		for (int i = 0; i < PAGE; i++)
			if (now[i] != before[i])
				before[i] = to[i] = now[i];
	}
}

void store_flush(int device)
{
	pthread_mutex_lock(&shadows);
	for (struct store *s = shadowed; s; s = s->next)
		if (s->device == device)
			flush(s);
	pthread_mutex_unlock(&shadows);
}
