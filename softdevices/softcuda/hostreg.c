/* Host memory of the program that becomes pinned: which memory the driver takes. */
#include "calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* Whether the filesystem of a device number keeps its files in memory: the kernel's own, of memfd, or a tmpfs. */
static bool in_memory(unsigned major_, unsigned minor_)
{
	char line[1000], kind[64];
	unsigned a, b;
	bool found = false;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	if (!major_ && minor_ == 1)
		return fclose(f), true; /* shm_mnt */
	while (f && !found && fgets(line, sizeof(line), f)) {
		char *dash = strstr(line, " - ");

		if (dash && sscanf(line, "%*d %*d %u:%u", &a, &b) == 2 && a == major_ && b == minor_ &&
		    sscanf(dash, " - %63s", kind) == 1)
			found = !strcmp(kind, "tmpfs") || !strcmp(kind, "hugetlbfs") || !strcmp(kind, "devtmpfs");
	}
	if (f)
		fclose(f);
	return found;
}

/* Whether all n bytes are mapped in a way that the driver takes. */
static bool may_pin(uint64_t addr, uint64_t n, bool read_only)
{
	uint64_t at = addr & ~(uint64_t)(PAGE - 1), last = addr + n, from, to;
	unsigned major_, minor_;
	unsigned long inode;
	char line[1000], perms[8];
	FILE *f = fopen("/proc/self/maps", "re");

	while (f && at < last && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*x %x:%x %lu", &from, &to, perms, &major_, &minor_,
			   &inode) != 6 || to <= at)
			continue;
		if (from > at || perms[0] != 'r' || (perms[1] != 'w' && !read_only))
			break;
		if (perms[3] == 's' && inode && !in_memory(major_, minor_))
			break;
		at = to;
	}
	if (f)
		fclose(f);
	return at >= last;
}

static CUresult host_register(uint64_t addr, uint64_t n, unsigned flags)
{
	uint64_t first = addr & ~(uint64_t)(PAGE - 1), end_ = round_up(addr + n, PAGE);
	bool read_only = flags & HOSTREGISTER_READ_ONLY;
	struct range *m;
	struct ctx *c;
	CUresult r = current(&c);

	if (r)
		return r;
	if (!addr || !n || addr + n < addr || flags & ~15u)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & HOSTREGISTER_IOMEMORY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (range_overlaps(first, end_ - first)) {
		m = range_at(first);
		if (!m)
			m = range_next(first);
		return is_device(m) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	}
	if (!may_pin(addr, n, read_only))
		return CUDA_ERROR_INVALID_VALUE;
	madvise((void *)(uintptr_t)first, end_ - first, read_only ? 22 : 23); /* MADV_POPULATE_READ, _WRITE */
	if (!(m = range_new(HOST_REGISTERED, addr, n, c, c->device)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	count(C_host_registrations, 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
	BEGIN(cuMemHostRegister);
	return end(host_register((uintptr_t)p, n, flags));
}

/* Needs no context. */
EXPORT CUresult cuMemHostUnregister(void *p)
{
	struct range *m;

	BEGIN(cuMemHostUnregister);
	m = range_at((uintptr_t)p);
	if (!m || m->kind != HOST_REGISTERED)
		return end(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	if (m->start != (uintptr_t)p)
		return end(CUDA_ERROR_INVALID_VALUE);
	release(m);
	return end(CUDA_SUCCESS);
}
