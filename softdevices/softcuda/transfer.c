/* Copies and fills: where their ends are, and for what the caller waits. */
#include "calls.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Pageable memory of up to so many bytes is copied at the call, and the rest of the copy runs beside the caller. */
enum { STAGED = 1 << 20 };

static int scratch = -1;

/* One end of a copy of n bytes for a context. *r is NULL for host memory that the driver does not know. */
static CUresult find_end(struct ctx *c, uint64_t addr, uint64_t n, bool writes, struct side *s, struct range **r)
{
	*r = range_at(addr);
	if (!*r) {
		*s = (struct side){ .offset = addr, .address = addr };
		return !addr || range_overlaps(addr, n) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	}
	if (n > (*r)->size - (addr - (*r)->start))
		return CUDA_ERROR_INVALID_VALUE;
	if ((*r)->kind == VMM && !((writes ? (*r)->writable : (*r)->readable) >> c->device & 1))
		return CUDA_ERROR_INVALID_VALUE;
	*s = (struct side){ .offset = addr, .address = addr, .id = (*r)->id };
	if ((*r)->store) {
		s->store = (*r)->store;
		s->offset = (*r)->offset + (addr - (*r)->start);
	}
	return CUDA_SUCCESS;
}

/* Copies the source now. */
static CUresult stage(struct op *o)
{
	if (scratch < 0)
		scratch = fd_high(memfd_create("softcuda:scratch", MFD_CLOEXEC));
	o->staged = scratch < 0 ? NULL : malloc(o->n);
	if (!o->staged)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return host_read(scratch, o->staged, o->src.offset, o->n) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct op *op_of(enum op_kind kind, struct side dst, struct side src, uint64_t n)
{
	struct op *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	*o = (struct op){ .kind = kind, .dst = dst, .src = src, .n = n };
	if (dst.store)
		store_ref(dst.store);
	if (src.store)
		store_ref(src.store);
	return o;
}

static void op_cancel(struct op *o)
{
	store_unref(o->dst.store);
	store_unref(o->src.store);
	free(o->staged);
	free(o);
}

/* sync: by a call without Async in its name. */
static CUresult copy(struct stream *s, uint64_t dst, uint64_t src, uint64_t n, bool sync)
{
	struct side to, from;
	struct range *d, *f;
	bool wait;
	struct op *o;
	CUresult r;

	if (!n)
		return CUDA_SUCCESS;
	if ((r = find_end(s->ctx, dst, n, true, &to, &d)) || (r = find_end(s->ctx, src, n, false, &from, &f)))
		return r;
	if (!(o = op_of(OP_COPY, to, from, n)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (is_device(d) && is_device(f))
		wait = sync && (d->sync_memops || f->sync_memops); /* a copy within devices does not wait */
	else if (!f && is_device(d) && n <= STAGED)
		wait = sync && d->sync_memops;
	else
		wait = sync || !d || !f || (!is_device(d) && !is_device(f));
	if (!f && is_device(d) && n <= STAGED && (r = stage(o))) {
		op_cancel(o);
		return r;
	}
	if (wait)
		return submit_wait(s, o);
	submit(s, o);
	return CUDA_SUCCESS;
}

enum end { ANY, DEVICE, HOST };

static bool fits(uint64_t addr, enum end want)
{
	struct range *r = range_at(addr);

	return want == ANY || (want == DEVICE ? r != NULL : !is_device(r) || r->kind == MANAGED);
}

static CUresult copy_sync(uint64_t dst, enum end to, uint64_t src, enum end from, uint64_t n)
{
	struct ctx *c;
	CUresult r = current(&c);

	if (r)
		return r;
	if (n && (!fits(dst, to) || !fits(src, from)))
		return CUDA_ERROR_INVALID_VALUE;
	return copy(c->streams, dst, src, n, true);
}

static CUresult copy_async(uint64_t dst, enum end to, uint64_t src, enum end from, uint64_t n, CUstream handle)
{
	struct stream *s;
	CUresult r = stream_find(handle, &s);

	if (r)
		return r;
	if (n && (!fits(dst, to) || !fits(src, from)))
		return CUDA_ERROR_INVALID_VALUE;
	return copy(s, dst, src, n, false);
}

EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	BEGIN(cuMemcpy);
	return end(copy_sync(dst, ANY, src, ANY, n));
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n)
{
	BEGIN(cuMemcpyHtoD);
	return end(copy_sync(dst, DEVICE, (uintptr_t)src, HOST, n));
}

EXPORT CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n)
{
	BEGIN(cuMemcpyDtoH);
	return end(copy_sync((uintptr_t)dst, HOST, src, DEVICE, n));
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	BEGIN(cuMemcpyDtoD);
	return end(copy_sync(dst, DEVICE, src, DEVICE, n));
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	BEGIN(cuMemcpyAsync);
	return end(copy_async(dst, ANY, src, ANY, n, s));
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	BEGIN(cuMemcpyHtoDAsync);
	return end(copy_async(dst, DEVICE, (uintptr_t)src, HOST, n, s));
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	BEGIN(cuMemcpyDtoHAsync);
	return end(copy_async((uintptr_t)dst, HOST, src, DEVICE, n, s));
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	BEGIN(cuMemcpyDtoDAsync);
	return end(copy_async(dst, DEVICE, src, DEVICE, n, s));
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n)
{
	BEGIN(cuMemcpyPeer);
	if (!ctx_find(to) || !ctx_find(from))
		return end(CUDA_ERROR_INVALID_CONTEXT);
	return end(copy_sync(dst, DEVICE, src, DEVICE, n));
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream s)
{
	BEGIN(cuMemcpyPeerAsync);
	if (!ctx_find(to) || !ctx_find(from))
		return end(CUDA_ERROR_INVALID_CONTEXT);
	return end(copy_async(dst, DEVICE, src, DEVICE, n, s));
}

/* Of the device a fill runs beside the caller; pinned memory is filled at the return. */
static CUresult fill(struct stream *s, uint64_t dst, uint32_t pattern, unsigned width, uint64_t n, bool sync)
{
	struct side to;
	struct range *d;
	struct op *o;
	CUresult r;

	if (!n)
		return CUDA_SUCCESS;
	if (n > UINT64_MAX / width || dst % width)
		return CUDA_ERROR_INVALID_VALUE;
	if ((r = find_end(s->ctx, dst, n * width, true, &to, &d)))
		return r;
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(o = op_of(OP_SET, to, (struct side){ 0 }, n * width)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->pattern = pattern;
	o->width = width;
	if (sync && (d->sync_memops || !is_device(d)))
		return submit_wait(s, o);
	submit(s, o);
	return CUDA_SUCCESS;
}

static CUresult fill_sync(uint64_t dst, uint32_t pattern, unsigned width, uint64_t n)
{
	struct ctx *c;
	CUresult r = current(&c);

	return r ? r : fill(c->streams, dst, pattern, width, n, true);
}

static CUresult fill_async(uint64_t dst, uint32_t pattern, unsigned width, uint64_t n, CUstream handle)
{
	struct stream *s;
	CUresult r = stream_find(handle, &s);

	return r ? r : fill(s, dst, pattern, width, n, false);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n)
{
	BEGIN(cuMemsetD8);
	return end(fill_sync(dst, value, 1, n));
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned value, size_t n)
{
	BEGIN(cuMemsetD32);
	return end(fill_sync(dst, value, 4, n));
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream s)
{
	BEGIN(cuMemsetD8Async);
	return end(fill_async(dst, value, 1, n, s));
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t n, CUstream s)
{
	BEGIN(cuMemsetD32Async);
	return end(fill_async(dst, value, 4, n, s));
}
