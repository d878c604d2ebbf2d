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

static CUresult get(int *out, uint64_t addr, uint64_t n, int type, uint64_t flags)
{
	struct range *m = range_holding(addr, n);
	struct store *s;
	struct stat st;
	struct ctx *c;
	CUresult r = current(&c);

	if (r)
		return r;
	if (!lib.knobs.dmabuf)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!out || !n || addr % PAGE || n % PAGE || type != RANGE_DMA_BUF_FD || !m ||
	    (m->kind != ALLOCATED && m->kind != VMM) || m->imported)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags)
		return flags == 1 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	s = m->store;
	if (lib.knobs.ordering == 0 && !store_shadow(s))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (fstat(s->shadow ? s->shadow_fd : s->fd, &st))
		return CUDA_ERROR_OPERATING_SYSTEM;
	*out = describe(s->shadow ? s->shadow_fd : s->fd, st.st_ino, m->offset + (addr - m->start), n);
	if (*out < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	count(C_dmabufs, 1);
	return CUDA_SUCCESS;
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
