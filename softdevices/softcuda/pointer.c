/* What the driver says of an address. */
#include "calls.h"

#include <string.h>

static void put(void *to, const void *from, size_t n)
{
	memcpy(to, from, n);
}

static void put_bool(void *to, bool v)
{
	put(to, &v, sizeof(v)); /* one byte, as documented */
}

static void put_u64(void *to, uint64_t v)
{
	put(to, &v, sizeof(v));
}

static void put_u32(void *to, uint32_t v)
{
	put(to, &v, sizeof(v));
}

/* What the plural call says of an address that the driver does not know. */
static bool put_unknown(void *to, enum attribute a, uint64_t addr)
{
	switch (a) {
	case POINTER_MEMORY_TYPE:
	case POINTER_ACCESS_FLAGS:
		put_u32(to, 0);
		return true;
	case POINTER_DEVICE_ORDINAL:
		put_u32(to, (uint32_t)DEVICEPTR_NO_DEVICE);
		return true;
	case POINTER_HOST_POINTER:
		put_u64(to, addr);
		return true;
	case POINTER_CONTEXT:
	case POINTER_DEVICE_POINTER:
	case POINTER_BUFFER_ID:
	case POINTER_RANGE_START:
	case POINTER_RANGE_SIZE:
	case POINTER_ALLOWED_HANDLE_TYPES:
	case POINTER_MAPPING_SIZE:
	case POINTER_MAPPING_BASE:
		put_u64(to, 0);
		return true;
	case POINTER_SYNC_MEMOPS:
	case POINTER_IS_MANAGED:
	case POINTER_IS_LEGACY_IPC_CAPABLE:
	case POINTER_MAPPED:
	case POINTER_IS_GPU_DIRECT_RDMA_CAPABLE:
		put_bool(to, false);
		return true;
	}
	return false;
}

static bool put_known(void *to, enum attribute a, const struct range *m, uint64_t addr)
{
	bool device = is_device(m);

	switch (a) {
	case POINTER_CONTEXT:
		put_u64(to, m->kind == POOL || m->kind == VMM ? 0 : (uintptr_t)m->ctx);
		return true;
	case POINTER_MEMORY_TYPE:
		put_u32(to, device ? MEMORYTYPE_DEVICE : MEMORYTYPE_HOST);
		return true;
	case POINTER_DEVICE_POINTER:
		put_u64(to, addr);
		return true;
	case POINTER_HOST_POINTER:
		put_u64(to, !device || m->kind == MANAGED ? addr : 0);
		return true;
	case POINTER_SYNC_MEMOPS:
		put_bool(to, m->sync_memops);
		return true;
	case POINTER_BUFFER_ID:
		put_u64(to, m->id);
		return true;
	case POINTER_IS_MANAGED:
		put_bool(to, m->kind == MANAGED);
		return true;
	case POINTER_DEVICE_ORDINAL:
		put_u32(to, (uint32_t)m->device);
		return true;
	case POINTER_IS_LEGACY_IPC_CAPABLE:
		put_bool(to, m->kind == ALLOCATED);
		return true;
	case POINTER_RANGE_START:
	case POINTER_MAPPING_BASE:
		put_u64(to, m->start);
		return true;
	case POINTER_RANGE_SIZE:
	case POINTER_MAPPING_SIZE:
		put_u64(to, m->size);
		return true;
	case POINTER_MAPPED:
		put_bool(to, true);
		return true;
	case POINTER_ALLOWED_HANDLE_TYPES:
		put_u64(to, m->kind == VMM ? (uint64_t)m->handle_types : 0);
		return true;
	case POINTER_IS_GPU_DIRECT_RDMA_CAPABLE:
		put_bool(to, m->kind == ALLOCATED || m->rdma);
		return true;
	case POINTER_ACCESS_FLAGS:
		put_u32(to, ACCESS_READWRITE);
		return true;
	}
	return false;
}

EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr p)
{
	struct range *m;

	BEGIN(cuPointerGetAttribute);
	m = range_at(p);
	if (!data || !m || !put_known(data, (enum attribute)attribute, m, p))
		return end(CUDA_ERROR_INVALID_VALUE);
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuPointerGetAttributes(unsigned n, int *attributes, void **data, CUdeviceptr p)
{
	struct range *m;

	BEGIN(cuPointerGetAttributes);
	m = range_at(p);
	if (!n || !attributes || !data)
		return end(CUDA_ERROR_INVALID_VALUE);
	for (unsigned i = 0; i < n; i++) {
		enum attribute a = (enum attribute)attributes[i];

		if (!data[i] || !(m ? put_known(data[i], a, m, p) : put_unknown(data[i], a, p)))
			return end(CUDA_ERROR_INVALID_VALUE);
	}
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr p)
{
	struct range *m;
	struct ctx *c;
	CUresult r;

	BEGIN(cuPointerSetAttribute);
	if ((r = current(&c)))
		return end(r);
	m = range_at(p);
	if (!value || !m || attribute != POINTER_SYNC_MEMOPS)
		return end(CUDA_ERROR_INVALID_VALUE);
	if (m->kind == VMM)
		return end(CUDA_ERROR_NOT_SUPPORTED);
	m->sync_memops = *(const unsigned char *)value;
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
	struct range *m;
	struct ctx *c;
	CUresult r;

	BEGIN(cuMemGetAddressRange);
	if ((r = current(&c)))
		return end(r);
	if (!(m = range_at(p)))
		return end(CUDA_ERROR_NOT_FOUND);
	if (base)
		*base = m->start;
	if (size)
		*size = m->size;
	return end(CUDA_SUCCESS);
}
