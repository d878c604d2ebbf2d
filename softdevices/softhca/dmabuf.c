/*
 * Memory of another device, by a descriptor. Of the software GPU (softcuda): a file as long as the memory, whose name
 * says which process has the memory under which descriptor, and where it begins there. Of the kernel: a dma-buf that
 * can be mapped.
 */
#include "queues.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file that has the memory, and where the memory begins in it; -1: errno. */
static int open_memory(int fd, uint64_t *begin)
{
	unsigned long long ino, offset;
	char path[60], name[200];
	struct stat st;
	int pid, there, got;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, name, sizeof(name) - 1);
	if (n < 0)
		return errno = EBADF, -1;
	name[n] = 0;
	*begin = 0;
	if (!strncmp(name, "/dmabuf:", 8))
		return fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (sscanf(name, "/memfd:dmabuf:softcuda:%d:%d:%llu:%llu", &pid, &there, &ino, &offset) != 4)
		return errno = EINVAL, -1;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, there);
	got = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (got >= 0 && (fstat(got, &st) || st.st_ino != ino)) {
		close(got);
		got = -1;
	}
	if (got < 0)
		return errno = EINVAL, -1; /* the memory was freed, and its number may be another file's */
	*begin = offset;
	return got;
}

/*
 * Maps length bytes at offset of what fd names. The mapping begins with the page that offset is in. 0, or the error
 * that the kernel has for it.
 */
int dmabuf_map(int fd, uint64_t offset, size_t length, void **mapping, size_t *mapped)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), into = offset % page, begin;
	struct stat st;
	int memory, err = 0;

	if (fd < 0 || fstat(fd, &st))
		return EBADF;
	memory = open_memory(fd, &begin);
	if (memory < 0)
		return errno;
	/* The size of a dma-buf of the kernel is told by lseek alone. */
	if (!st.st_size)
		st.st_size = lseek(fd, 0, SEEK_END);
	if (!length || st.st_size < 0 || offset > (uint64_t)st.st_size || length > (uint64_t)st.st_size - offset) {
		close(memory);
		return EINVAL;
	}
	*mapped = length + into;
	*mapping = mmap(NULL, *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, memory, (off_t)(begin + offset - into));
	if (*mapping == MAP_FAILED)
		err = errno == ENODEV || errno == EACCES ? EOPNOTSUPP : errno;
	close(memory);
	return err;
}

/*
 * What nvidia_peermem does: a descriptor for the whole pages of length bytes at addr, which are of the software GPU
 * whose library this process has loaded from that path; -1: they are not.
 */
int peer_pages(const char *library, uint64_t addr, size_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = addr & ~(page - 1);
	void *gpu = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
	int (*get_pages)(uint64_t, uint64_t);
	int fd = -1;

	if (!gpu)
		return -1;
	*(void **)&get_pages = dlsym(gpu, "softcuda_get_pages");
	if (get_pages)
		fd = get_pages(from, (addr + length + page - 1 - from) & ~(page - 1));
	dlclose(gpu);
	return fd;
}
