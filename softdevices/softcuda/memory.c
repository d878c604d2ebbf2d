/* Allocations, as the driver's interface has them. */
#include "calls.h"

#include <stdlib.h>

static CUresult alloc(CUdeviceptr *out, enum kind kind, size_t size)
{
	struct range *m;
	struct ctx *c;
	CUresult r = current(&c);

	if (r)
		return r;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(r = allocate(c, kind, size, &m)))
		*out = m->start;
	return r;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
	BEGIN(cuMemAlloc);
	return end(alloc(out, ALLOCATED, size));
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags)
{
	BEGIN(cuMemAllocManaged);
	if (flags != 1 && flags != 2)
		return end(CUDA_ERROR_INVALID_VALUE);
	return end(alloc(out, MANAGED, size));
}

/*
 * What was handed out to other processes stays readable for those that open the old handle, as on the H100: the last
 * ones that were freed.
 */
static void bury(struct store *s)
{
	static struct store *graves[16];
	static unsigned next;

	store_unref(graves[next]);
	graves[next] = store_ref(s);
	next = (next + 1) % 16;
}

/* Needs no context, and does not wait for copies: one that runs on freed memory is found, and ends its context. */
EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
	struct range *m = NULL;

	BEGIN(cuMemFree);
	if (!p)
		return end(CUDA_SUCCESS);
	m = range_at(p);
	if (!m || m->start != p || (m->kind != ALLOCATED && m->kind != MANAGED && m->kind != POOL))
		return end(CUDA_ERROR_INVALID_VALUE);
	if (m->exported)
		bury(m->store);
	release(m);
	return end(CUDA_SUCCESS);
}

/* The address is good at once; the memory on the stream. */
static CUresult alloc_async(CUdeviceptr *out, size_t size, CUstream handle)
{
	struct stream *s;
	struct range *m;
	CUresult r = stream_find(handle, &s);

	if (r)
		return r;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(r = allocate(s->ctx, POOL, size, &m)))
		*out = m->start;
	return r;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream s)
{
	BEGIN(cuMemAllocAsync);
	return end(alloc_async(out, size, s));
}

static CUresult free_async(CUdeviceptr p, CUstream handle)
{
	struct range *m = range_at(p);
	struct stream *s;
	struct op *o;
	CUresult r = stream_find(handle, &s);

	if (r)
		return r;
	if (!m || m->start != p || m->kind != POOL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(o = calloc(1, sizeof(*o))))
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->kind = OP_FREE;
	o->dst = (struct side){ .address = p, .id = m->id };
	submit(s, o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
	BEGIN(cuMemFreeAsync);
	return end(free_async(p, s));
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct ctx *c;
	CUresult r;

	BEGIN(cuMemGetInfo);
	r = current(&c);
	if (!r && (!free_bytes || !total))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r)
		return end(r);
	*total = lib.knobs.memory;
	*free_bytes = lib.knobs.memory - lib.devices[c->device].used;
	return end(CUDA_SUCCESS);
}

/* Flags: 1 PORTABLE, 2 DEVICEMAP, 4 WRITECOMBINED */
static CUresult host_alloc(void **out, size_t size, unsigned flags)
{
	CUdeviceptr p;
	CUresult r;

	if (!out || flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(r = alloc(&p, HOST_ALLOCATED, size)))
		*out = (void *)(uintptr_t)p;
	return r;
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags)
{
	BEGIN(cuMemHostAlloc);
	return end(host_alloc(out, size, flags));
}

EXPORT CUresult cuMemAllocHost_v2(void **out, size_t size)
{
	BEGIN(cuMemAllocHost);
	return end(host_alloc(out, size, 0));
}

EXPORT CUresult cuMemFreeHost(void *p)
{
	struct range *m;

	BEGIN(cuMemFreeHost);
	m = range_at((uintptr_t)p);
	if (!m || m->start != (uintptr_t)p || m->kind != HOST_ALLOCATED)
		return end(CUDA_ERROR_INVALID_VALUE);
	release(m);
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags)
{
	struct range *m;
	struct ctx *c;
	CUresult r;

	BEGIN(cuMemHostGetDevicePointer);
	if ((r = current(&c)))
		return end(r);
	m = range_at((uintptr_t)p);
	if (!out || flags || !m || is_device(m))
		return end(CUDA_ERROR_INVALID_VALUE);
	*out = (uintptr_t)p;
	return end(CUDA_SUCCESS);
}
