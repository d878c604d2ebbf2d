/* What an adapter needs: a descriptor for a range of device memory, and the flush of what it has written. */
#include "calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * A file as long as the range, without content, as the CPU may not map it; its name says where a software adapter
 * finds the memory: README.md has the form.
 */
static int describe(int fd, uint64_t ino, uint64_t offset, uint64_t n)
{
	char name[120];
	int d;

	snprintf(name, sizeof(name), "dmabuf:softcuda:%d:%d:%llu:%llu", (int)getpid(), fd, (unsigned long long)ino,
		 (unsigned long long)offset);
	d = fd_high(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (d < 0)
		return -1;
	if (!ftruncate(d, (off_t)n) && !fcntl(d, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL))
		return d;
	close(d);
	return -1;
}

/* A descriptor for n bytes at addr of m. */
static CUresult describe_range(int *out, const struct range *m, uint64_t addr, uint64_t n)
{
	struct store *s = m->store;
	struct stat st;

	if (lib.knobs.ordering == 0 && !store_shadow(s))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (fstat(s->shadow ? s->shadow_fd : s->fd, &st))
		return CUDA_ERROR_OPERATING_SYSTEM;
	*out = describe(s->shadow ? s->shadow_fd : s->fd, st.st_ino, m->offset + (addr - m->start), n);
	return *out < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

static bool reachable(const struct range *m)
{
	return m && (m->kind == ALLOCATED || m->kind == VMM) && !m->imported;
}

static CUresult get(int *out, uint64_t addr, uint64_t n, int type, uint64_t flags)
{
	struct range *m = range_holding(addr, n);
	struct ctx *c;
	CUresult r = current(&c);

	if (r)
		return r;
	if (!lib.knobs.dmabuf)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!out || !n || addr % PAGE || n % PAGE || type != RANGE_DMA_BUF_FD ||
	    !reachable(m))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags)
		return flags == 1 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	r = describe_range(out, m, addr, n);
	if (!r)
		count(C_dmabufs, 1);
	return r;
}

/*
 * What the driver has for nvidia_peermem, which asks in the kernel: no context is needed, and a driver that has no
 * dma-buf answers too.
 */
EXPORT int softcuda_get_pages(uint64_t addr, uint64_t n)
{
	struct range *m;
	int fd = -1;

	if (begin("softcuda_get_pages"))
		return -1;
	m = range_holding(addr, n);
	if (!n || addr % PAGE || n % PAGE || !reachable(m) || describe_range(&fd, m, addr, n))
		fd = -1;
	end(CUDA_SUCCESS);
	return fd;
}

EXPORT CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr p, size_t n, int type, unsigned long long flags)
{
	BEGIN(cuMemGetHandleForAddressRange);
	return end(get(out, p, n, type, flags));
}

EXPORT CUresult cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	struct ctx *c;
	CUresult r;

	BEGIN(cuFlushGPUDirectRDMAWrites);
	if ((r = current(&c)))
		return end(r);
	if (target != FLUSH_CURRENT_CTX || (scope != FLUSH_TO_OWNER && scope != FLUSH_TO_ALL_DEVICES))
		return end(CUDA_ERROR_INVALID_VALUE);
	count(C_flushes, 1);
	store_flush(c->device);
	return end(CUDA_SUCCESS);
}
